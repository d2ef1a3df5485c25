"""Lazy import of the submodules of torch.fx."""
import importlib


def on_demand(package):
    """Returns a `__getattr__` for a package, given its globals. It imports submodules by name and
    raises AttributeError for other names."""
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
