"""torch.amp.GradScaler: loss scaling for float16 gradients."""
import inspect
import warnings

import numpy as np

import mindtorch.torch as torch
from mindtorch.core.device import device as _device, fused_optim
from mindtorch.core.tensor.dtypes import LOW
from mindtorch.core.tensor.tensor import adopt, bump_version, wrap_array, is_tensor
from mindtorch.core.tensor.storage_impl import host_memory

__all__ = ["GradScaler", "OptState"]

_READY, _UNSCALED, _STEPPED = 0, 1, 2


def _grads_of(optimizer):
    return [p.grad for group in optimizer.param_groups for p in group["params"]]


class OptState:
    """State of an optimizer's gradients since the last update()."""

    READY, UNSCALED, STEPPED = _READY, _UNSCALED, _STEPPED


class GradScaler:
    """Loss scaler: scales the loss, unscales the gradients, skips steps with inf or nan, and adapts
    the scale factor.

    https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
    """

    def __init__(self, device="cuda", init_scale=2.0 ** 16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
                 enabled=True):
        self._device, self._enabled = str(device), bool(enabled)
        if enabled and self._device not in ("cpu",) and self._device not in _device.accelerator():
            warnings.warn(f"torch.{self._device}.amp.GradScaler is enabled, but {self._device.upper()} is not available.  "
                          "Disabling.", stacklevel=3)
            self._enabled = False
        if self._enabled:
            if not growth_factor > 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if not backoff_factor < 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale, self._scale = float(init_scale), None
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._per_optimizer = {}

    def _state(self, optimizer):
        return self._per_optimizer.setdefault(id(optimizer), {"stage": _READY, "found_inf": False, "sums": [], "checked": False})

    @staticmethod
    def _found(s):
        """True if an optimizer's gradients contain inf or nan.

        On a device all checks are read at once: one synchronization per step, like PyTorch for
        optimizers that are not fused, because the step counts are on the host.
        """
        sums = s["sums"]
        if sums:
            with torch.no_grad():
                first = sums[0]
                total = torch.stack([x.to(device=first.device, dtype=torch.float32) for x in sums]).sum() if len(sums) > 1 else first
                s["found_inf"] = s["found_inf"] or total.item() != 0
            s["sums"] = []
        return s["found_inf"]

    def _current(self):
        return self._init_scale if self._scale is None else self._scale

    def scale(self, outputs):
        """Multiplies the outputs (a tensor or nested lists of tensors) by the scale factor."""
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._scale = self._init_scale
        if is_tensor(outputs):
            return outputs * wrap_array(np.array(self._scale, np.float32))
        if isinstance(outputs, (list, tuple)):
            r = [self.scale(o) for o in outputs]
            if hasattr(outputs, "_fields"):
                return type(outputs)(*r)
            return type(outputs)(r)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer, grads=None):
        """Divides the optimizer's gradients by the scale factor in place and checks them for inf
        and nan.

        MindSpore style: `grads`, a sequence of gradients, is unscaled instead of the parameters'
        .grad, and returned.
        """
        if not self._enabled:
            return grads
        if self._scale is None:
            raise AssertionError("Attempted unscale_ but _scale is None.  This may indicate your script did not use "
                                 "scaler.scale(loss or outputs) earlier in the iteration.")
        s = self._state(optimizer)
        if s["stage"] == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if s["stage"] == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._unscale(_grads_of(optimizer) if grads is None else grads, s, allow_low=False)
        s["stage"] = _UNSCALED
        return grads

    def _unscale(self, grads, s, allow_low, only_check=False):
        """Divides the gradients by the scale (unless only_check) and records whether any is inf or
        nan."""
        inv = np.float32(1.0) if only_check else np.float32(1.0 / np.float64(self._scale))
        given = [adopt(g) for g in grads if g is not None]
        if not allow_low and any([g._np_dtype == LOW[0] for g in given]):
            raise ValueError("Attempting to unscale FP16 gradients.")
        done = set()
        for dev in {g._device for g in given if g._handle is not None}:
            there = [g for g in given if g._device == dev and g._numel]
            with torch.no_grad():
                found, inverse = torch.zeros(1, device=dev), torch.full((1,), float(inv), device=dev)
                if fused_optim.unscale(there, found, inverse):
                    s["sums"].append(found)
                    done.add(dev)
        for g in given:
            if g._device in done:
                continue
            if g._handle is not None:
                with torch.no_grad():
                    if inv != 1:
                        g.mul_(float(inv))
                    # NaN if any element is inf or nan, else 0; read once, by `step`
                    s["sums"].append((g * 0).sum())
                continue
            a = host_memory(g)
            f = a.astype(np.float32) if a.dtype in LOW else a
            if not np.isfinite(f).all():
                s["found_inf"] = True
            if inv != 1:
                a[...] = (f * inv).astype(a.dtype)
                bump_version(g)
        s["checked"] = bool(given)

    def step(self, optimizer, *args, **kwargs):
        """Calls unscale_ (if not called yet), then optimizer.step() unless a gradient is inf or
        nan. Returns the result of step.

        MindSpore style: step(optimizer, grads).
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if self._scale is None:
            raise AssertionError("Attempted step but _scale is None.  This may indicate your script did not use "
                                 "scaler.scale(loss or outputs) earlier in the iteration.")
        s = self._state(optimizer)
        if s["stage"] == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._leave_to(optimizer, s, args, kwargs)
        if s["stage"] == _READY:
            given = args and isinstance(args[0], (list, tuple))
            self._unscale(args[0] if given else _grads_of(optimizer), s, allow_low=given)
            s["stage"] = _UNSCALED
        if not s["checked"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        r = None if self._found(s) else optimizer.step(*args, **kwargs)
        s["stage"] = _STEPPED
        return r

    def _leave_to(self, optimizer, s, args, kwargs):
        """Runs the step of an optimizer that unscales and skips by itself.

        The scaler is passed to the step if it has a parameter `grad_scaler`. Otherwise the
        optimizer has the attributes `grad_scale` (None if already unscaled) and `found_inf` during
        the step.
        """
        given = "grad_scaler" in inspect.signature(optimizer.step).parameters
        if given:
            warnings.warn("GradScaler passes itself as `grad_scaler` to this optimizer's step, which PyTorch is going to remove. Let the step use the "
                          "optimizer's attributes `grad_scale` and `found_inf` instead.", FutureWarning, stacklevel=3)
            kwargs = {**kwargs, "grad_scaler": self}
        else:
            if s["stage"] == _READY:
                self._unscale(_grads_of(optimizer), s, allow_low=True, only_check=True)
            device = next((g.device for g in _grads_of(optimizer) if g is not None), self._device)
            optimizer.grad_scale = None if s["stage"] == _UNSCALED else torch.tensor(self._scale, device=device)
            optimizer.found_inf = torch.tensor(float(self._found(s)), device=device)
        try:
            r = optimizer.step(*args, **kwargs)
        finally:
            if not given:
                del optimizer.grad_scale, optimizer.found_inf
        s["stage"] = _STEPPED
        return r

    def update(self, new_scale=None):
        """Adapts the scale factor according to the inf checks of the last steps, or sets it to
        `new_scale`."""
        if not self._enabled:
            return
        if self._scale is None:
            raise AssertionError("Attempted update but _scale is None.  This may indicate your script did not use "
                                 "scaler.scale(loss or outputs) earlier in the iteration.")
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            if not any([s["checked"] for s in self._per_optimizer.values()]):
                raise AssertionError("No inf checks were recorded prior to update.")
            if any([self._found(s) for s in self._per_optimizer.values()]):
                self._scale *= self._backoff_factor
                self._growth_tracker = 0
            else:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    grown = float(np.float32(self._scale * self._growth_factor))
                    if np.isfinite(grown):
                        self._scale = grown
                    self._growth_tracker = 0
        self._per_optimizer = {}

    def get_scale(self):
        """Returns the scale factor as a float (1.0 if disabled)."""
        return float(self._current()) if self._enabled else 1.0

    def get_growth_factor(self):
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        self._growth_interval = new_interval

    def is_enabled(self):
        return self._enabled

    def state_dict(self):
        """Returns the scale, the factors and the number of steps since the last change of the
        scale."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict):
        """Restores the result of state_dict()."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of "
                               "GradScaler.")
        self._scale = self._init_scale = state_dict["scale"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval, self._growth_tracker = state_dict["growth_interval"], state_dict["_growth_tracker"]
