"""Periodic averaging of the parameters over all ranks."""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.torch.distributed.algorithms.model_averaging.utils import average_parameters_or_parameter_groups

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager:
    """Base of the averagers. `average_parameters` is called once per step."""

    def __init__(self, process_group=None):
        self.process_group = dist.group.WORLD if process_group is None else process_group
        self.step = 0

    def average_parameters(self, params):
        raise NotImplementedError(f"{type(self).__name__}.average_parameters")


class PeriodicModelAverager(ModelAverager):
    """Averages the parameters every `period` steps after the first `warmup_steps`."""

    def __init__(self, period, warmup_steps=0, process_group=None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period <= 0:
            raise ValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    @torch.no_grad()
    def average_parameters(self, params):
        """Averages the parameters if they are due in this step, then increments the step count."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
