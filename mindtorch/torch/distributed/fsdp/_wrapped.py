"""What others ask about models that may hold FullyShardedDataParallel modules."""
import contextlib

#: gives the context in which a model's state_dict() speaks of DTensors, or None where it holds no such module; set by the class's file
sharded = []


@contextlib.contextmanager
def sharded_state(model):
    """Inside, state_dict() and load_state_dict() of FullyShardedDataParallel modules speak of DTensors."""
    inside = next((c for c in [of(model) for of in sharded] if c is not None), None)
    with inside or contextlib.nullcontext():
        yield
