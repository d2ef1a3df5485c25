"""torch.distributed.pipelining.schedules: in what order a stage computes the parts of a batch."""
import mindtorch.torch as torch
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks, split_tensor

__all__ = ["PipelineScheduleSingle", "ScheduleGPipe", "Schedule1F1B", "get_schedule_class"]


class PipelineScheduleSingle:
    """A schedule of one stage for each process; `step` computes a batch in n_microbatches parts.

    loss_fn(result, target) of a part; without it there is no backward.  scale_grads: gradients are divided by the number of parts, as for a loss that is a mean.
    """

    def __init__(self, stage, n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None, scale_grads=True):
        self._stage, self._n_microbatches, self._loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec, self._output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self._num_stages, self._has_backward = stage.num_stages, loss_fn is not None

    def step(self, *args, target=None, losses=None, return_outputs=True, loss_kwargs=None, **kwargs):
        """One batch: the first stage is given the arguments, the last the targets; kwargs go to every stage that is given them.

        The last stage returns the results, joined, and puts the parts' losses into the list `losses`; the others return None.  Gradients are left in the parameters.
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
        """The same without backward."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _order(self):
        """(True for forward or False for backward, part) in order."""
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
    """All parts forward, then all backward."""

    def _order(self):
        parts = range(self._n_microbatches)
        return [*[(True, i) for i in parts], *[(False, i) for i in parts]]


class Schedule1F1B(PipelineScheduleSingle):
    """As many parts forward as there are stages from here on, then one backward and one forward in turn: fewer results are kept."""

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
    """The class of a schedule, by its name without "Schedule", in any case; ValueError for an unknown one."""
    known = {n.removeprefix("Schedule").lower(): cls for n, cls in globals().items() if n.startswith(("Schedule", "PipelineSchedule"))}
    found = known.get(schedule_name.lower())
    if found is None:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {sorted(known)}")
    return found


refuse(globals(), "schedules are for one stage in each process: ScheduleGPipe and Schedule1F1B", "",
       "ScheduleInterleaved1F1B ScheduleLoopedBFS ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble ScheduleDualPipeV PipelineScheduleMulti")
