"""torch.utils."""
from mindtorch.torch.utils import _pytree, checkpoint, data  # noqa: F401


def swap_tensors(t1, t2):
    """Swaps the contents of two tensors (values, class, gradient, history, hooks, attributes).

    Afterwards, references to either tensor see the other's contents.
    """
    from mindtorch.core.tensor.swap_tensors import swap
    swap(t1, t2)


def __getattr__(name):
    # PyTorch imports most of these eagerly; here they are imported on first access.
    if not name.startswith("__"):
        import importlib
        try:
            return importlib.import_module(f"mindtorch.torch.utils.{name}")
        except ModuleNotFoundError as err:
            if err.name != f"mindtorch.torch.utils.{name}":
                raise
    raise AttributeError(f"module 'torch.utils' has no attribute '{name}'")
