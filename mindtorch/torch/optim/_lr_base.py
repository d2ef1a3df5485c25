"""Base class of the learning rate schedulers."""
import types
import warnings
from functools import wraps
from weakref import ref

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.optim.optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available. Please open an issue if you are unable to "
    "replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose.")
_SEE = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


# ------------------------------------------------------------------ learning rate values
def _value(x):
    """Returns a copy of a tensor, since the owner may modify it; returns Python scalars unchanged.
    """
    return x.detach().clone() if is_tensor(x) else x


def _param_groups_val_list(optimizer, key):
    return [_value(group[key]) for group in optimizer.param_groups]


def _update_param_group_val(group, key, value):
    """Sets group[key] to `value`; a tensor is filled in place, so that it stays the same object."""
    if is_tensor(group[key]):
        group[key].fill_(value.item() if is_tensor(value) else value)
    else:
        group[key] = value


def _format_param(name, optimizer, param):
    """Expands a value or a list to one value per parameter group."""
    count = len(optimizer.param_groups)
    if not isinstance(param, (list, tuple)):
        return [param] * count
    if len(param) != count:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(param)} values, "
                         f"param_groups has {count}.")
    return list(param)


def _track_steps(optimizer):
    """Wraps `optimizer.step` to record that it was called, for the warning about a wrong call
    order."""
    method = optimizer.step
    if hasattr(method, "_wrapped_by_lr_sched"):
        return
    owner, func = ref(optimizer), getattr(method, "__func__", None)
    if func is None:  # `step` was already replaced by a plain function
        def call(_, *args, **kwargs):
            return method(*args, **kwargs)
    else:
        call = func

    @wraps(getattr(method, "__func__", method))
    def step(*args, **kwargs):
        opt = owner()
        opt._opt_called = True
        return call(opt, *args, **kwargs)

    step._wrapped_by_lr_sched = True
    optimizer.step = step


class _Flag:
    """Context manager that sets a flag of a scheduler for the duration of a block."""

    def __init__(self, scheduler, name):
        self.scheduler, self.name = scheduler, name

    def __enter__(self):
        setattr(self.scheduler, self.name, True)

    def __exit__(self, *exc):
        setattr(self.scheduler, self.name, False)


class LRScheduler:
    """Base class: each `step` sets the learning rate of every group of `optimizer` to the value
    from `get_lr`.

    Args:
        last_epoch: epoch to resume from; the groups must contain "initial_lr" then. -1 starts
            from the beginning.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _value(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
                    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for a "
                    "fresh training run (not recommended)")
        self.base_lrs = _param_groups_val_list(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _track_steps(optimizer)
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        with _Flag(self, "_is_initial"):
            self.step()

    def state_dict(self):
        """Returns all attributes except the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict):
        """Restores the attributes from a `state_dict` result."""
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        """Returns the most recently set learning rates."""
        return self._last_lr

    def get_lr(self):
        """Returns the learning rates of the groups at `last_epoch`; subclasses implement this."""
        raise NotImplementedError

    def step(self, epoch=None):
        """Advances to the next epoch, or (deprecated) to `epoch`; call it after optimizer.step().
        """
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warnings.warn("Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                              "initialization. Please, make sure to call `optimizer.step()` before "
                              "`lr_scheduler.step()`. " + _SEE, UserWarning, stacklevel=2)
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and "
                              "later, you should call them in the opposite order: `optimizer.step()` before "
                              "`lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping the first "
                              "value of the learning rate schedule. " + _SEE, UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        with _Flag(self, "_get_lr_called_within_step"):
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        self._set_lrs(values)

    def _set_lrs(self, values):
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            _update_param_group_val(group, "lr", lr)
        self._last_lr = _param_groups_val_list(self.optimizer, "lr")

    # ---- helpers for subclasses
    def _warn_outside_step(self):
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                          UserWarning, stacklevel=3)

    def _lrs(self):
        return _param_groups_val_list(self.optimizer, "lr")

    def _times(self, factor):
        """Returns the current learning rates multiplied by `factor`."""
        return [lr * factor for lr in self._lrs()]


def _callable_state(fn):
    """Returns the part of a function that a state dict stores: the attributes of a callable object,
    None for a plain function."""
    return None if fn is None or isinstance(fn, types.FunctionType) else fn.__dict__.copy()
