"""Uneven inputs: a process without further inputs matches the collectives of the processes that
still have some."""
import warnings
from abc import ABC, abstractmethod
from typing import NamedTuple

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist

__all__ = ["JoinHook", "Joinable", "Join"]

#: id of a parameter -> the last gradient average in which a process without inputs took part; its
#: own `.grad` is unchanged
AVERAGES = {}


class JoinHook:
    """Actions of a process without further inputs for one Joinable."""

    def main_hook(self):
        """Issues the same collectives as the other processes; called once per iteration that they
        still run."""

    def post_hook(self, is_last_joiner):
        """Called when all processes have run out of inputs. is_last_joiner is True if this process
        is among the last."""


class Joinable(ABC):
    """Base of classes whose iterations issue collectives (DistributedDataParallel,
    ZeroRedundancyOptimizer).

    They call Join.notify_join_context(self) once per iteration, before their other collectives.
    """

    @abstractmethod
    def __init__(self):
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs):
        """Returns a JoinHook. `kwargs` are those of the Join."""

    @property
    @abstractmethod
    def join_device(self):
        """Device of the tensors that Join sends."""

    @property
    @abstractmethod
    def join_process_group(self):
        """Process group that Join uses."""


class _JoinConfig(NamedTuple):
    """Settings of the Join around a Joinable."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config():
        """Returns the settings outside a Join."""
        return _JoinConfig(enable=False, throw_on_early_termination=False, is_first_joinable=False)


class Join:
    """Context manager around a training loop whose processes have different numbers of inputs.

    With throw_on_early_termination, all ranks raise RuntimeError once the first has run out.
    `kwargs` are passed to the hooks.
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
        """Returns the number of processes that run an iteration."""
        count = torch.zeros(1, device=self._device)
        dist.all_reduce(count, group=self._process_group)
        return count.item()

    def _notify_procs_to_terminate(self):
        dist.all_reduce(torch.ones(1, device=self._device), group=self._process_group)
        raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable):
        """Notifies the processes without inputs that this one continues. Returns the Work that
        counts such processes, or None.

        The count is Work.result()[0].
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
