"""Kernels of the stand-in: a module for each family. Importing the package enters them in the table."""
import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    if not _found.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_found.name}")
