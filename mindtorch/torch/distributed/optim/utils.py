"""torch.distributed.optim.utils: optimizers whose step takes the gradients as arguments instead of
reading `.grad`."""
import inspect

import mindtorch.torch as torch
from mindtorch.torch import optim

__all__ = ["as_functional_optim", "functional_optim_map", "register_functional_optim"]


class _Functional:
    """An optimizer whose step takes the gradients. `param_group["params"]` holds its parameters,
    `state` their optimizer state.

    It has the options of the regular optimizer, which does the computation. The parameter list may
    be empty; parameters are then passed to `step_param` one at a time.
    """

    _optimizer = None
    _options: dict = {}  # defaults that differ from the regular optimizer's

    def __init__(self, params, *args, _allow_empty_param_list=False, **kwargs):
        params = list(params)
        if not params and not _allow_empty_param_list:
            raise ValueError("optimizer got an empty parameter list")
        given = inspect.signature(self._optimizer).bind(params or [torch.empty(0)], *args, **kwargs)
        for name, value in self._options.items():
            given.arguments.setdefault(name, value)
        self._inner = self._optimizer(*given.args, **given.kwargs)
        self.param_group = self._inner.param_groups[0]
        self.param_group["params"] = params
        self.state = self._inner.state
        self.defaults = {k: v for k, v in self._inner.defaults.items() if k != "params"}

    def _step(self, params, gradients):
        kept, held = self.param_group["params"], [p.grad for p in params]
        self.param_group["params"] = list(params)
        try:
            for p, g in zip(params, gradients):
                p.grad = g
            self._inner.step()
        finally:
            self.param_group["params"] = kept
            for p, g in zip(params, held):
                p.grad = g

    def step(self, gradients):
        """Updates all parameters with these gradients, one per parameter (None skips that
        parameter)."""
        params = self.param_group["params"]
        if len(params) != len(gradients):
            raise ValueError("the gradients passed in does not equal to the size of the parameters!"
                             f"Params length: {len(params)}. Gradients length: {len(gradients)}")
        self._step(params, gradients)


class _Single(_Functional):
    def step_param(self, param, grad):
        """Updates one parameter with this gradient."""
        self._step([param], [grad])


def _made(cls, base, **options):
    name = "_Functional" + cls.__name__
    return type(name, (base,), {"__module__": __name__, "__doc__": f"{cls.__name__} with gradients as arguments.", "_optimizer": cls,
                                "_options": options})


_FunctionalAdagrad, _FunctionalAdadelta = _made(optim.Adagrad, _Functional), _made(optim.Adadelta, _Functional)
_FunctionalAdamax, _FunctionalRMSprop = _made(optim.Adamax, _Functional, lr=1e-3), _made(optim.RMSprop, _Functional)
_FunctionalRprop, _FunctionalSGD = _made(optim.Rprop, _Functional), _made(optim.SGD, _Single)
_FunctionalAdam, _FunctionalAdamW = _made(optim.Adam, _Single), _made(optim.AdamW, _Single)

#: Maps an optimizer class to its functional counterpart, which takes gradients as arguments.
functional_optim_map = {c._optimizer: c for c in (_FunctionalAdagrad, _FunctionalAdam, _FunctionalAdamW, _FunctionalSGD, _FunctionalAdadelta,
                                                  _FunctionalRMSprop, _FunctionalRprop, _FunctionalAdamax)}


def register_functional_optim(key, optim):
    """Registers `optim` as the functional counterpart of `key`, unless `key` already has one."""
    functional_optim_map.setdefault(key, optim)


def as_functional_optim(optim_cls, *args, **kwargs):
    """Returns the functional counterpart of an optimizer class, with these options and without
    parameters."""
    counterpart = functional_optim_map.get(optim_cls)
    if counterpart is None:
        raise ValueError(f"Optimizer {optim_cls} does not have a functional counterpart!")
    return counterpart([], *args, **kwargs, _allow_empty_param_list=True)
