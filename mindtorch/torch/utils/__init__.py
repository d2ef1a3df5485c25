"""torch.utils."""
from mindtorch.torch.utils import _pytree, checkpoint, data  # noqa: F401


def swap_tensors(t1, t2):
    """Two tensors exchange all they are (values, class, gradient, history, hooks, attributes), so that references to one give the other."""
    from mindtorch.core.swapping import swap
    swap(t1, t2)


def __getattr__(name):
    # torch imports most of these on its own; here they are imported when first touched.
    if not name.startswith("__"):
        import importlib
        try:
            return importlib.import_module(f"mindtorch.torch.utils.{name}")
        except ModuleNotFoundError as err:
            if err.name != f"mindtorch.torch.utils.{name}":
                raise
    raise AttributeError(f"module 'torch.utils' has no attribute '{name}'")
