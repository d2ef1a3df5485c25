"""torch._functorch.utils."""
import contextlib

__all__ = ["enable_single_level_autograd_function", "unwrap_dead_wrappers", "argnums_t", "exposed_in"]

argnums_t = int | tuple[int, ...]


@contextlib.contextmanager
def enable_single_level_autograd_function():
    """Does nothing: the node of a custom function serves all surrounding transforms."""
    yield


def unwrap_dead_wrappers(args):
    """Returns the arguments unchanged: tensors are not wrapped, so no wrapper outlives its
    transform."""
    return tuple(args)


def exposed_in(module):
    """Decorator that sets the function's `__module__`."""
    def wrapper(fn):
        fn.__module__ = module
        return fn
    return wrapper
