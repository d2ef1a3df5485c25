"""MindSpore's parallel context: what set_auto_parallel_context has set, and MindSpore's own communication."""
import mindspore as ms

from mindtorch.backend.mindspore.runtime import target


def gradients_mean():
    """Whether reduced gradients are to be divided by the number of processes."""
    return bool(ms.get_auto_parallel_context("gradients_mean"))


def parallel_mode():
    """'stand_alone', 'data_parallel', 'semi_auto_parallel', 'auto_parallel' or 'hybrid_parallel'."""
    return ms.get_auto_parallel_context("parallel_mode")


def refuse_automatic(what):
    """NotImplementedError if MindSpore is to split operators by itself on a device on which it cannot.

    MindSpore says nothing on CPU: the program would run as if it were alone, and every process for itself.
    """
    if parallel_mode() in ("auto_parallel", "semi_auto_parallel") and target() == "CPU":
        raise NotImplementedError(f"{what} under parallel_mode={parallel_mode()!r} is not supported on device CPU: MindSpore splits "
                                  "operators on Ascend only. Use parallel_mode=ms.ParallelMode.DATA_PARALLEL with "
                                  "DistributedGradReducer, or DistributedDataParallel")


def refuse_shard(what):
    """NotImplementedError for a strategy of splitting on a device on which MindSpore does not split."""
    if target() == "CPU":
        raise NotImplementedError(f"{what} with a strategy is not supported on device CPU: MindSpore splits operators on Ascend "
                                  "only")


def native_initialised():
    """Whether mindspore.communication.init has been called in this process."""
    from mindspore.communication import GlobalComm
    return bool(GlobalComm.INITED)


def native_place():
    """(rank, number of processes) in MindSpore's own communication."""
    from mindspore.communication import get_group_size, get_rank
    return get_rank(), get_group_size()


def native_all_reduce(t):
    """Sum of a MindSpore tensor over MindSpore's own communication."""
    return ms.ops.AllReduce("sum")(t)
