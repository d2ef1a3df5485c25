"""MindSpore-style data parallelism: explicit reduction of the gradients of value_and_grad."""
import numpy as np

import mindtorch.torch as torch
from mindtorch.backend.mindspore import parallel_context
from mindtorch.core.tensor.tensor import wrap_array, is_tensor
from mindtorch.core.tensor.storage_impl import host_memory

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

__all__ = ["DistributedGradReducer"]

_BUCKET = 25 << 20  # bytes per message


class DistributedGradReducer:
    """reducer(grads) -> gradients summed or averaged over all processes.

        ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
        reducer = nn.DistributedGradReducer(optimizer.parameters)
        loss, grads = grad_fn(data, label)
        optimizer(reducer(grads))

    Args:
        mean: average instead of sum. None uses gradients_mean of the parallel context.
        degree: divisor of the mean. None uses the number of processes.
    """

    def __init__(self, parameters, mean=None, degree=None, fusion_type=1, group=None):
        parallel_context.refuse_automatic("DistributedGradReducer")
        if degree is not None and (not isinstance(degree, int) or isinstance(degree, bool) or degree <= 0):
            raise ValueError(f"For 'DistributedGradReducer', 'degree' must be a positive int, but got {degree}.")
        from mindtorch.torch import distributed as dist

        if group is not None and not isinstance(group, dist.ProcessGroup):
            raise NotImplementedError(f"DistributedGradReducer does not support MindSpore's group {group!r}: pass a group from "
                                      "torch.distributed.new_group, or None")
        self.parameters = list(parameters)
        self.mean = parallel_context.gradients_mean() if mean is None else bool(mean)
        self.group = group
        self._native = not dist.is_initialized()
        if self._native and not parallel_context.native_initialised():
            raise RuntimeError("DistributedGradReducer needs communication: call torch.distributed.init_process_group or "
                               "mindspore.communication.init first")
        self.degree = degree or (parallel_context.native_rank_and_size()[1] if self._native else dist.get_world_size(group))

    def __call__(self, grads):
        """Returns the reduced gradients as new tensors: a tuple, or a tensor for a single tensor.
        """
        single = is_tensor(grads)
        grads = (grads,) if single else tuple(grads)
        for g in grads:
            if g is not None and not is_tensor(g):
                raise TypeError(f"DistributedGradReducer takes tensors, not {type(g).__name__}")
        out = [None] * len(grads)
        works = []
        for lot in self._lots(grads):
            flat = _in_a_row([grads[i].detach() for i in lot])
            works.append((lot, *self._send(flat)))
        for lot, flat, work in works:
            if work is not None:
                work.wait()
            if self.mean:
                flat = flat / self.degree
            at = 0
            for i in lot:
                n = grads[i].numel()
                out[i] = flat[at:at + n].view(grads[i].shape)
                at += n
        return out[0] if single else tuple(out)

    construct = __call__

    @staticmethod
    def _lots(grads):
        """Yields lists of indices of gradients to send together (same dtype and device), in the
        same order on all ranks."""
        open_ = {}
        for i, g in enumerate(grads):
            if g is None:
                continue
            key = g.dtype, g.device
            lot, size = open_.get(key, ([], 0))
            lot.append(i)
            size += g.numel() * g.element_size()
            if size >= _BUCKET:
                yield lot
                lot, size = [], 0
            open_[key] = (lot, size)
        for lot, _ in open_.values():
            if lot:
                yield lot

    def _send(self, flat):
        if self._native:
            return torch.as_tensor(parallel_context.native_all_reduce(flat)), None
        from mindtorch.torch import distributed as dist

        return flat, dist.all_reduce(flat, group=self.group, async_op=True)


def _in_a_row(grads):
    """Concatenates all elements into a new tensor on the gradients' device."""
    if grads[0]._handle is not None:
        return torch.cat([g.reshape(-1) for g in grads])
    return wrap_array(np.concatenate([host_memory(g).reshape(-1) for g in grads]))
