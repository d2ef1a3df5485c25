"""MindSpore's parallel context: the settings of set_auto_parallel_context, and MindSpore's own
communication."""
import mindspore as ms

from mindtorch.backend.mindspore.runtime import target


def gradients_mean():
    """True if reduced gradients have to be divided by the number of processes."""
    return bool(ms.get_auto_parallel_context("gradients_mean"))


def parallel_mode():
    """Returns 'stand_alone', 'data_parallel', 'semi_auto_parallel', 'auto_parallel' or
    'hybrid_parallel'."""
    return ms.get_auto_parallel_context("parallel_mode")


def refuse_automatic(what):
    """Raises NotImplementedError if MindSpore would have to split operators on a device where it
    cannot.

    On CPU MindSpore does not report this: every process would run the complete program
    independently.
    """
    if parallel_mode() in ("auto_parallel", "semi_auto_parallel") and target() == "CPU":
        raise NotImplementedError(f"{what} under parallel_mode={parallel_mode()!r} is not supported on device CPU: MindSpore splits "
                                  "operators on Ascend only. Use parallel_mode=ms.ParallelMode.DATA_PARALLEL with "
                                  "DistributedGradReducer, or DistributedDataParallel")


def refuse_shard(what):
    """Raises NotImplementedError for a sharding strategy on a device where MindSpore does not split
    operators."""
    if target() == "CPU":
        raise NotImplementedError(f"{what} with a strategy is not supported on device CPU: MindSpore splits operators on Ascend "
                                  "only")


def native_initialised():
    """True if mindspore.communication.init has been called in this process."""
    from mindspore.communication import GlobalComm
    return bool(GlobalComm.INITED)


def native_rank_and_size():
    """Returns (rank, number of processes) in MindSpore's own communication."""
    from mindspore.communication import get_group_size, get_rank
    return get_rank(), get_group_size()


def native_all_reduce(t):
    """Sums a MindSpore tensor over MindSpore's own communication."""
    return ms.ops.AllReduce("sum")(t)
