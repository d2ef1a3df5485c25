"""torch.distributed.pipelining.stage: one process's part of a model, and its messages to the
neighbouring stages."""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["PipelineStage", "build_stage"]

_HEADER = 128  # number of int64 values of the message that describes the tensors that follow
_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
           torch.complex128]


class PipelineStage:
    """Stage `stage_index` of `num_stages`. The stages are in the order of the ranks of `group`, one
    per process. `submodule` receives the results of the previous stage.

    Results are a tensor or a tuple of tensors. Each message carries the shapes, so example
    arguments are not needed. NotImplementedError for more stages than processes, and for a module
    wrapped with DistributedDataParallel or fully_shard.
    """

    def __init__(self, submodule, stage_index, num_stages, device, input_args=None, output_args=None, output_grads=None, input_grads=None, group=None, dw_builder=None,
                 get_mesh=None):
        if stage_index >= num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if dw_builder is not None or get_mesh is not None:
            raise NotImplementedError("PipelineStage: dw_builder and get_mesh are not supported")
        self.submod, self.stage_index, self.num_stages, self.device, self.group = submodule, stage_index, num_stages, device, group
        self.group_rank, self.group_size = dist.get_rank(group), dist.get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}")
        if self.group_size < num_stages:
            raise NotImplementedError(f"PipelineStage: several stages in one process are not supported ({num_stages} stages, {self.group_size} processes)")
        if self.group_rank != stage_index:
            raise NotImplementedError(f"PipelineStage: stage {stage_index} must run on rank {stage_index} of the group, but this is rank {self.group_rank}")
        if isinstance(submodule, torch.nn.parallel.DistributedDataParallel) or any(hasattr(p, "device_mesh") for p in submodule.parameters()):
            raise NotImplementedError("PipelineStage of a module in DistributedDataParallel or fully_shard is not supported")
        self.has_backward = False
        self.clear_runtime_states()

    @property
    def is_first(self):
        """True if the stage receives the arguments of `step`."""
        return self.stage_index == 0

    @property
    def is_last(self):
        """True if the stage returns the model's results."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self):
        """Discards the state of the last step."""
        self.output_chunks, self._held, self._works = [], {}, []

    # ---- messages
    def _send(self, tensors, to):
        numbers = [len(tensors)]
        for t in tensors:
            numbers += [-1] if t is None else [_DTYPES.index(t.dtype), int(t.requires_grad), t.dim(), *t.shape]
        if len(numbers) > _HEADER:
            raise NotImplementedError(f"a pipeline stage returned too many tensors or dimensions: their description needs {len(numbers)} values, at most {_HEADER} are supported")
        header = torch.tensor(numbers + [0] * (_HEADER - len(numbers)), device=self.device)
        for t in (header, *[t.detach().contiguous() for t in tensors if t is not None]):
            self._works.append((dist.isend(t, group=self.group, group_dst=to), t))

    def _receive(self, source):
        header = torch.zeros(_HEADER, dtype=torch.int64, device=self.device)
        dist.recv(header, group=self.group, group_src=source)
        numbers, found = iter(header.tolist()), []
        for _ in range(next(numbers)):
            code = next(numbers)
            if code < 0:
                found.append(None)
                continue
            wants, dims = bool(next(numbers)), next(numbers)
            t = torch.empty([next(numbers) for _ in range(dims)], dtype=_DTYPES[code], device=self.device)
            dist.recv(t, group=self.group, group_src=source)
            found.append(t.requires_grad_() if wants and self.has_backward else t)
        return found

    def wait(self):
        """Blocks until all messages have been sent."""
        for work, _ in self._works:
            work.wait()
        self._works.clear()

    # ---- computation
    def forward_one_chunk(self, fwd_chunk_id, args, kwargs=None, save_forward_output=True):
        """Computes the stage's result for a microbatch and sends it to the next stage."""
        if not self.is_first:
            args = tuple(self._receive(self.stage_index - 1))
        try:
            out = self.submod(*args, **(kwargs or {}))
        except Exception as e:
            raise RuntimeError(f"[Stage {self.stage_index}] failed to run forward of part {fwd_chunk_id}: {e}") from e
        results = [out] if is_tensor(out) else list(out) if isinstance(out, (tuple, list)) else None
        if not self.is_last:
            if results is None or not all(is_tensor(t) for t in results):
                raise NotImplementedError(f"every pipeline stage except the last must return a tensor or a tuple of tensors, not {type(out).__name__}")
            self._send(results, self.stage_index + 1)
        elif save_forward_output:
            self.output_chunks.append(out)
        if self.has_backward:
            self._held[fwd_chunk_id] = results, args
        return out

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        """Computes the gradients of a microbatch from its loss, or from the gradients received from
        the next stage. Sends the gradients of the arguments to the previous stage."""
        if not full_backward:
            raise NotImplementedError("PipelineStage: full_backward=False (separate gradients of inputs and weights) is not supported")
        results, args = self._held.pop(bwd_chunk_id)
        if self.is_last:
            loss.backward()
        else:
            pairs = [(t, g) for t, g in zip(results, self._receive(self.stage_index + 1), strict=True) if t.requires_grad and g is not None]
            if pairs:
                torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            self._send([t.grad if t.requires_grad else None for t in args], self.stage_index - 1)

    def scale_grads(self, grad_scale_factor):
        """Divides the parameters' gradients by `grad_scale_factor`."""
        if grad_scale_factor != 1:
            for p in self.submod.parameters():
                if p.grad is not None:
                    p.grad.div_(grad_scale_factor)


def build_stage(stage_module, stage_index, pipe_info, device, group=None):
    """Returns the PipelineStage of a module made by `pipeline`."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


