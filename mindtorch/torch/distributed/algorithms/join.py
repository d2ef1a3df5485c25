"""Uneven inputs: a process that has run out keeps up with the collectives of those that have not."""
import warnings
from abc import ABC, abstractmethod
from typing import NamedTuple

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist

__all__ = ["JoinHook", "Joinable", "Join"]

#: id of a parameter -> the last average of gradients that a process without inputs has taken part in; its own `.grad` stays as it is
AVERAGES = {}


class JoinHook:
    """What a process that has run out does for a Joinable."""

    def main_hook(self):
        """Once for every iteration that others still make: the same collectives as theirs."""

    def post_hook(self, is_last_joiner):
        """Once all have run out; is_last_joiner tells whether this process is among the last."""


class Joinable(ABC):
    """Something whose iterations have collectives (DistributedDataParallel, ZeroRedundancyOptimizer).

    It calls Join.notify_join_context(self) once in every iteration, before its other collectives.
    """

    @abstractmethod
    def __init__(self):
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs):
        """A JoinHook; `kwargs` are those of the Join."""

    @property
    @abstractmethod
    def join_device(self):
        """Device of the tensors that Join sends."""

    @property
    @abstractmethod
    def join_process_group(self):
        """Group in which Join talks."""


class _JoinConfig(NamedTuple):
    """What the Join around a Joinable has set."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config():
        """Outside of a Join."""
        return _JoinConfig(enable=False, throw_on_early_termination=False, is_first_joinable=False)


class Join:
    """Context manager around a training loop whose processes have unequal numbers of inputs.

    With throw_on_early_termination a RuntimeError on all ranks once the first has run out.  `kwargs` go to the hooks.
    """

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._join_hooks = [j.join_hook(**kwargs) for j in joinables]
        self._enable, self._throw_on_early_termination = enable, throw_on_early_termination
        for i, j in enumerate(joinables):
            j._join_config = _JoinConfig(enable, throw_on_early_termination, i == 0)
        groups, devices = [j.join_process_group for j in joinables], [j.join_device for j in joinables]
        if any(g != groups[0] for g in groups):
            raise ValueError("Using join context manager with multiple process groups")
        self._process_group, self._device = groups[0], devices[0]
        self._rank = dist.get_rank(self._process_group)

    def __enter__(self):
        return None

    def __exit__(self, type, value, traceback):
        if not self._enable or type:
            return
        last, iterations = True, 0
        while True:
            if iterations > 1000 and iterations % 1000 == 1:
                warnings.warn(f"Detected uneven input skew of greater than 1000. This means that rank {self._rank} has at least "
                              f"{iterations} fewer inputs than other currently-active ranks. This level of skew could lead to "
                              "performance degradation during training.", stacklevel=2)
            if self._still_active() == 0:
                break
            if self._throw_on_early_termination:
                self._notify_procs_to_terminate()
            last = False
            for hook in self._join_hooks:
                hook.main_hook()
            iterations += 1
        for hook in self._join_hooks:
            hook.post_hook(last)

    def _still_active(self):
        """How many processes are in an iteration."""
        count = torch.zeros(1, device=self._device)
        dist.all_reduce(count, group=self._process_group)
        return count.item()

    def _notify_procs_to_terminate(self):
        dist.all_reduce(torch.ones(1, device=self._device), group=self._process_group)
        raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable):
        """Tells the processes that have run out that this one goes on; the Work of the number of such, or None.

        The Work's tensor is Work.result()[0].
        """
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = dist.all_reduce(torch.ones(1, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            gone = torch.zeros(1, device=device)
            dist.all_reduce(gone, group=group)
            if gone.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
