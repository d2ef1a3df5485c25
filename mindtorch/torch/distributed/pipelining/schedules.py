"""torch.distributed.pipelining.schedules: the order in which a stage computes the microbatches."""
import mindtorch.torch as torch
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks, split_tensor

__all__ = ["PipelineScheduleSingle", "ScheduleGPipe", "Schedule1F1B", "get_schedule_class"]


class PipelineScheduleSingle:
    """A schedule with one stage per process. `step` computes a batch as `n_microbatches`
    microbatches.

    `loss_fn(result, target)` computes the loss of a microbatch; without it there is no backward
    pass. With `scale_grads`, gradients are divided by the number of microbatches, as for a mean
    loss.
    """

    def __init__(self, stage, n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None, scale_grads=True):
        self._stage, self._n_microbatches, self._loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec, self._output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self._num_stages, self._has_backward = stage.num_stages, loss_fn is not None

    def step(self, *args, target=None, losses=None, return_outputs=True, loss_kwargs=None, **kwargs):
        """Runs one batch. Pass the arguments to the first stage and the targets to the last; each
        stage uses the kwargs that it receives.

        The last stage returns the merged results and stores the losses of the microbatches in the
        list `losses`. The other stages return None. Gradients are accumulated in the parameters.
        """
        if self._has_backward and not torch.is_grad_enabled():
            raise RuntimeError("step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() context. "
                               "Please call eval() instead.")
        n = self._n_microbatches
        if args or kwargs:
            args_split, kwargs_split = split_args_kwargs_into_chunks(args, kwargs, n, self._args_chunk_spec, self._kwargs_chunk_spec)
        else:
            args_split, kwargs_split = [()] * n, [{}] * n
        targets = None if target is None else list(split_tensor(target, TensorChunkSpec(0), n))
        self._step_microbatches(args_split, kwargs_split, targets, losses, return_outputs, loss_kwargs)
        stage = self._stage
        return merge_chunks(stage.output_chunks, self._output_merge_spec) if stage.is_last and return_outputs else None

    def eval(self, *args, target=None, losses=None, **kwargs):
        """Like `step`, without the backward pass."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _order(self):
        """Returns the order as pairs (True for forward or False for backward, microbatch index)."""
        raise NotImplementedError

    def _step_microbatches(self, arg_mbs=None, kwarg_mbs=None, target_mbs=None, losses=None, return_outputs=True, loss_kwargs=None):
        stage, n = self._stage, self._n_microbatches
        for name, given in (("arg_mbs", arg_mbs), ("kwarg_mbs", kwarg_mbs), ("target_mbs", target_mbs)):
            if given is not None and not isinstance(given, list):
                raise TypeError(f"{name} must be a list but got a {type(given)}")
            if given is not None and len(given) != n:
                raise ValueError(f"Expecting {n} {name} but got {len(given)}")
        if losses is not None and not isinstance(losses, list):
            raise TypeError(f"losses must be a list but got a {type(losses)}")
        stage.clear_runtime_states()
        stage.has_backward = self._has_backward
        found = []
        for forward, i in self._order():
            if forward:
                out = stage.forward_one_chunk(i, arg_mbs[i] if arg_mbs else (), kwarg_mbs[i] if kwarg_mbs else {}, save_forward_output=return_outputs)
                if stage.is_last and self._loss_fn is not None:
                    found.append(self._loss_fn(out, target_mbs[i], **(loss_kwargs or {})))
            elif self._has_backward:
                stage.backward_one_chunk(i, found[i] if stage.is_last else None, last_backward=i == n - 1)
        stage.wait()
        if stage.is_last and losses is not None:
            losses[:] = found
        if self._has_backward and self.scale_grads:
            stage.scale_grads(n)


class ScheduleGPipe(PipelineScheduleSingle):
    """Runs the forward of all microbatches, then the backward of all."""

    def _order(self):
        parts = range(self._n_microbatches)
        return [*[(True, i) for i in parts], *[(False, i) for i in parts]]


class Schedule1F1B(PipelineScheduleSingle):
    """Runs as many forwards as there are stages from this one on, then alternates one backward and
    one forward. Fewer activations are stored than with GPipe."""

    def __init__(self, stage, n_microbatches, *args, **kwargs):
        super().__init__(stage, n_microbatches, *args, **kwargs)
        if n_microbatches < self._num_stages:
            raise ValueError(f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages ({self._num_stages}).")

    def _order(self):
        n = self._n_microbatches
        first = min(n, self._num_stages - self._stage.stage_index)
        order = [(True, i) for i in range(first)]
        for i in range(n):
            order.append((False, i))
            if first + i < n:
                order.append((True, first + i))
        return order


def get_schedule_class(schedule_name):
    """Returns a schedule class by its name without "Schedule", case-insensitively. ValueError for
    an unknown name."""
    known = {n.removeprefix("Schedule").lower(): cls for n, cls in globals().items() if n.startswith(("Schedule", "PipelineSchedule"))}
    found = known.get(schedule_name.lower())
    if found is None:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {sorted(known)}")
    return found


refuse(globals(), "only one stage per process is supported; use ScheduleGPipe or Schedule1F1B", "",
       "ScheduleInterleaved1F1B ScheduleLoopedBFS ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble ScheduleDualPipeV PipelineScheduleMulti")
