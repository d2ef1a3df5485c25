"""Schedulers that cycle the momentum with the learning rate: CyclicLR and OneCycleLR."""
import math
from functools import partial

from mindtorch.torch.optim._lr_base import LRScheduler, _callable_state, _format_param, _update_param_group_val
from mindtorch.torch.optim.optimizer import Optimizer


def _cycles_beta1(optimizer):
    """True if the momentum of `optimizer` is betas[0], False if it is "momentum"; raises ValueError
    if it has neither."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group, value, use_beta1):
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """Scheduler that cycles the learning rate between base_lr and max_lr; momentum (or beta1) moves
    in the opposite direction.

    Args:
        mode: "triangular", "triangular2" (amplitude halves each cycle) or "exp_range"
            (amplitude scales with gamma ** iteration).
        scale_fn: custom amplitude as a function of the cycle or of the iteration (see
            scale_mode).
    """

    def __init__(self, optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0,
                 scale_fn=None, scale_mode="cycle", cycle_momentum=True, base_momentum=0.8, max_momentum=0.9,
                 last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        base_lrs = _format_param("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, base_lrs, strict=True):
                _update_param_group_val(group, "lr", lr)
        self.max_lrs = _format_param("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom, self.scale_mode = scale_fn, scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _cycles_beta1(optimizer)
            self.base_momentums = _format_param("base_momentum", optimizer, base_momentum)
            self.max_momentums = _format_param("max_momentum", optimizer, max_momentum)
            for high, low, group in zip(self.max_momentums, self.base_momentums, optimizer.param_groups, strict=True):
                if last_epoch == -1:
                    _set_momentum(group, high, self.use_beta1)
                group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self):
        if self._scale_fn_custom is not None:
            return
        if self.mode == "exp_range":
            self._scale_fn_ref, self.scale_mode = partial(CyclicLR._exp_range_scale_fn, self.gamma), "iterations"
        else:
            self.scale_mode = "cycle"
            self._scale_fn_ref = (CyclicLR._triangular_scale_fn if self.mode == "triangular"
                                  else CyclicLR._triangular2_scale_fn)

    def scale_fn(self, x):
        """Returns the amplitude of cycle (or iteration) number `x`."""
        return (self._scale_fn_ref if self._scale_fn_custom is None else self._scale_fn_custom)(x)

    @staticmethod
    def _triangular_scale_fn(x):
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x):
        return 1 / 2.0 ** (x - 1)

    @staticmethod
    def _exp_range_scale_fn(gamma, x):
        return gamma ** x

    def get_lr(self):
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        lrs = [base + (top - base) * height for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]
        if self.cycle_momentum:
            momenta = [high - (high - low) * height for low, high in zip(self.base_momentums, self.max_momentums, strict=True)]
            for group, momentum in zip(self.optimizer.param_groups, momenta, strict=True):
                _set_momentum(group, momentum, self.use_beta1)
        return lrs

    def state_dict(self):
        """Returns all attributes except the optimizer.

        A custom scale function is stored by its attributes if it is a callable object, otherwise
        not at all.
        """
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        state["_scale_fn_custom"] = _callable_state(state.pop("_scale_fn_custom"))
        return state

    def load_state_dict(self, state_dict):
        """Restores the attributes from a `state_dict` result."""
        fn_state = state_dict.get("_scale_fn_custom")
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if fn_state is not None:
            self._scale_fn_custom.__dict__.update(fn_state)
        self._init_scale_fn()


class OneCycleLR(LRScheduler):
    """Scheduler that raises the learning rate from max_lr / div_factor to max_lr, then lowers it to
    the start divided by final_div_factor.

    Call `step` after every batch.

    Args:
        total_steps: steps of the whole run; alternatively pass epochs and steps_per_epoch.
        pct_start: fraction of the steps in which the learning rate rises.
        anneal_strategy: "cos" or "linear".
        three_phase: first goes back down to the start, then to the final value.
    """

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        if total_steps is not None:
            given = {"total_steps": total_steps}
        elif epochs is not None and steps_per_epoch is not None:
            given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        self.total_steps = 1
        for name, n in given.items():
            if not isinstance(n, int) or n <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {n}")
            self.total_steps *= n
        if not isinstance(pct_start, float) or pct_start < 0 or pct_start > 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        ups = float(pct_start * self.total_steps) - 1
        start, top, end, high, low = "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"
        phases = [(ups, start, top, high, low)]
        if three_phase:
            phases += [(float(2 * pct_start * self.total_steps) - 2, top, start, low, high),
                       (self.total_steps - 1, start, end, high, high)]
        else:
            phases += [(self.total_steps - 1, top, end, low, high)]
        keys = "end_step", "start_lr", "end_lr", "start_momentum", "end_momentum"
        self._schedule_phases = [dict(zip(keys, phase)) for phase in phases]
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        max_lrs = _format_param("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for top_lr, group in zip(max_lrs, optimizer.param_groups, strict=True):
                group["initial_lr"] = top_lr / div_factor
                group["max_lr"] = top_lr
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _cycles_beta1(optimizer)
            highs = _format_param("max_momentum", optimizer, max_momentum)
            lows = _format_param("base_momentum", optimizer, base_momentum)
            if last_epoch == -1:
                for m, b, group in zip(highs, lows, optimizer.param_groups, strict=True):
                    _set_momentum(group, m, self.use_beta1)
                    group["max_momentum"], group["base_momentum"] = m, b
        super().__init__(optimizer, last_epoch)

    def _anneal_func(self, *args):
        return (self._annealing_cos if self._anneal_func_type == "cos" else self._annealing_linear)(*args)

    @staticmethod
    def _annealing_cos(start, end, pct):
        return end + (start - end) / 2.0 * (math.cos(math.pi * pct) + 1)

    @staticmethod
    def _annealing_linear(start, end, pct):
        return (end - start) * pct + start

    def get_lr(self):
        self._warn_outside_step()
        if self.last_epoch > self.total_steps:
            raise ValueError(f"Tried to step {self.last_epoch} times. The specified number of total steps is "
                             f"{self.total_steps}")
        begin = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if self.last_epoch <= end or phase is self._schedule_phases[-1]:
                break
            begin = end
        pct = (self.last_epoch - begin) / (end - begin)
        lrs = []
        for group in self.optimizer.param_groups:
            lrs.append(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], pct))
            if self.cycle_momentum:
                value = self._anneal_func(group[phase["start_momentum"]], group[phase["end_momentum"]], pct)
                _set_momentum(group, value, self.use_beta1)
        return lrs
