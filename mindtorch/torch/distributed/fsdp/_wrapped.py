"""What others ask about models that may hold FullyShardedDataParallel modules."""
import contextlib


@contextlib.contextmanager
def sharded_state(model):
    """Inside, state_dict() and load_state_dict() of FullyShardedDataParallel modules speak of DTensors."""
    from mindtorch.torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel, StateDictType

    if any(isinstance(m, FullyShardedDataParallel) for m in model.modules()):
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            yield
    else:
        yield
