"""Weight averaging during training
(https://pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema)."""
import itertools
import math
import warnings
from copy import deepcopy

import mindtorch.torch as torch
from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.optim._lr_base import LRScheduler, _format_param

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn",
           "get_swa_avg_fn"]


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _lerps(t):
    return torch.is_floating_point(t) or torch.is_complex(t)


def get_ema_multi_avg_fn(decay=0.999):
    """Returns an exponential moving average for AveragedModel's multi_avg_fn.

    It is called as fn(averaged list, current list, count) and updates in place.
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list, current_param_list, _):
        for averaged, current in zip(ema_param_list, current_param_list, strict=True):
            if _lerps(averaged):
                averaged.lerp_(current, 1 - decay)
            else:
                averaged.copy_(averaged * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn():
    """Returns an equally weighted average for AveragedModel's multi_avg_fn.

    It is called as fn(averaged list, current list, count) and updates in place.
    """
    @no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged):
        for averaged, current in zip(averaged_param_list, current_param_list):
            if _lerps(averaged):
                averaged.lerp_(current, float(1 / (num_averaged + 1)))
            else:
                averaged.addcdiv_(current - averaged, torch.as_tensor(num_averaged + 1, device=averaged.device))

    return swa_update


def get_ema_avg_fn(decay=0.999):
    """Returns an exponential moving average for AveragedModel's avg_fn: fn(averaged, current,
    count) -> new average."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """Returns an equally weighted average for AveragedModel's avg_fn: fn(averaged, current, count)
    -> new average."""
    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """Copy of a model whose parameters are averages of the parameters passed to
    `update_parameters`.

    Args:
        avg_fn, multi_avg_fn: averaging function for one tensor, or for lists of tensors. At
            most one of them (default: equal weights).
        use_buffers: averages the buffers as well, instead of copying them.
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        """Calls the averaged model."""
        return self.module(*args, **kwargs)

    def _averaged(self, model):
        return itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()

    def update_parameters(self, model):
        """Adds the parameters of `model` to the average; the first call copies them."""
        averaged, current = [], []
        for mine, given in zip(self._averaged(self.module), self._averaged(model)):
            averaged.append(mine.detach())
            current.append(given.detach().to(mine.device))
        if self.n_averaged == 0:
            for a, c in zip(averaged, current):
                a.copy_(c)
        elif self.multi_avg_fn is not None:
            groups = {}
            for a, c in zip(averaged, current):
                pair = groups.setdefault((a.device, a.dtype), ([], []))
                pair[0].append(a)
                pair[1].append(c)
            for (device, _), (mine, given) in groups.items():
                self.multi_avg_fn(mine, given, self.n_averaged.to(device))
        else:
            average = self.avg_fn if self.avg_fn is not None else get_swa_avg_fn()
            for a, c in zip(averaged, current):
                a.copy_(average(a, c, self.n_averaged.to(a.device)))
        if not self.use_buffers:
            for mine, given in zip(self.module.buffers(), model.buffers()):
                mine.detach().copy_(given.detach().to(mine.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader, model, device=None):
    """Recomputes the running statistics of the model's batch norms in one pass over `loader`.

    Args:
        loader: yields batches, or lists or tuples whose first element is the batch.
    """
    from mindtorch.torch.nn.modules.batchnorm import _BatchNorm
    momenta = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # cumulative average over all batches
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        if device is not None:
            batch = batch.to(device)
        model(batch)
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Scheduler that anneals the learning rates to swa_lr in anneal_epochs epochs, then keeps them
    constant.

    Args:
        swa_lr: one value, or one per group.
        anneal_strategy: "cos" or "linear".
    """

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        for group, lr in zip(optimizer.param_groups, _format_param("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._set_anneal_func(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _set_anneal_func(self, anneal_strategy):
        self._anneal_strategy = anneal_strategy
        self.anneal_func = self._cosine_anneal if anneal_strategy == "cos" else self._linear_anneal

    @staticmethod
    def _linear_anneal(t):
        return t

    @staticmethod
    def _cosine_anneal(t):
        return (1 - math.cos(math.pi * t)) / 2

    @staticmethod
    def _get_initial_lr(lr, swa_lr, alpha):
        """Returns the learning rate at the start of annealing, from the learning rate at progress
        `alpha`."""
        return swa_lr if alpha == 1 else (lr - alpha * swa_lr) / (1 - alpha)

    def get_lr(self):
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                          UserWarning, stacklevel=2)
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        length = max(1, self.anneal_epochs)
        before = self.anneal_func(max(0, min(1, (step - 1) / length)))
        now = self.anneal_func(max(0, min(1, step / length)))
        lrs = []
        for group, lr in zip(self.optimizer.param_groups, self._lrs()):
            swa_lr = group["swa_lr"]
            lrs.append(swa_lr * now + self._get_initial_lr(lr, swa_lr, before) * (1 - now))
        return lrs

    def state_dict(self):
        """Returns all attributes except the optimizer and the annealing function, which the
        strategy determines."""
        return {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "anneal_func")}

    def load_state_dict(self, state_dict):
        """Restores the attributes from a `state_dict` result."""
        self.__dict__.update(state_dict)
        self._set_anneal_func(self._anneal_strategy)
