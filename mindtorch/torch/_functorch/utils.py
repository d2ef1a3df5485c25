"""torch._functorch.utils."""
import contextlib

__all__ = ["enable_single_level_autograd_function", "unwrap_dead_wrappers", "argnums_t", "exposed_in"]

argnums_t = int | tuple[int, ...]


@contextlib.contextmanager
def enable_single_level_autograd_function():
    """Nothing has to be allowed: a function's node serves all transforms around it."""
    yield


def unwrap_dead_wrappers(args):
    """The arguments as they are: tensors are not wrapped, so none outlives its transform."""
    return tuple(args)


def exposed_in(module):
    """Decorator: the function says that it is of another module."""
    def wrapper(fn):
        fn.__module__ = module
        return fn
    return wrapper
