"""Kernels of the simulator, one module per family. Importing the package registers them in the
table."""
import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    if not _found.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_found.name}")
