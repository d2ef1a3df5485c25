"""Access to FullyShardedDataParallel modules of a model for other packages, without importing the
class."""
import contextlib

#: Functions that map a model to the context in which its state_dict() holds DTensors, or to None if
#: the model has no FullyShardedDataParallel module. The class's file appends to the list.
sharded = []


@contextlib.contextmanager
def sharded_state(model):
    """Context manager: state_dict() and load_state_dict() of FullyShardedDataParallel modules use
    DTensors."""
    inside = next((c for c in [of(model) for of in sharded] if c is not None), None)
    with inside or contextlib.nullcontext():
        yield
