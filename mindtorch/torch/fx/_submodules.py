"""Modules of torch.fx that are imported when they are first asked for."""
import importlib


def on_demand(package):
    """A package's `__getattr__`, of its globals: its submodules by their names; AttributeError for others."""
    def __getattr__(name):
        if not name.startswith("__"):
            full = f"{package['__spec__'].name}.{name}"
            try:
                return importlib.import_module(full)
            except ModuleNotFoundError as err:
                if err.name != full:
                    raise
        raise AttributeError(f"module '{package['__name__']}' has no attribute '{name}'")
    return __getattr__
