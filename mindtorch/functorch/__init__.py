"""functorch: the former name of torch.func (https://pytorch.org/docs/stable/func.migrating.html);
every call emits a FutureWarning."""
import functools
import warnings

from mindtorch.torch import func as _func
from mindtorch.torch.func import FunctionalModule, FunctionalModuleWithBuffers
from mindtorch.torch.fx.experimental.proxy_tensor import make_fx

_INSTEAD = {"vmap": "torch.vmap", "make_functional": "torch.func.functional_call", "make_functional_with_buffers": "torch.func.functional_call",
            "combine_state_for_ensemble": "torch.func.stack_module_state"}


def _deprecated(name):
    fn, instead = getattr(_func, name), _INSTEAD.get(name, "torch.func." + name)

    @functools.wraps(fn)
    def older(*args, **kwargs):
        warnings.warn(f"functorch is part of PyTorch: `functorch.{name}` is deprecated and may go away. Please use `{instead}` instead; see "
                      "https://pytorch.org/docs/main/func.migrating.html", FutureWarning, stacklevel=2)
        return fn(*args, **kwargs)
    older.__module__ = __name__
    return older


vmap = _deprecated("vmap")
grad = _deprecated("grad")
grad_and_value = _deprecated("grad_and_value")
vjp = _deprecated("vjp")
jvp = _deprecated("jvp")
jacrev = _deprecated("jacrev")
jacfwd = _deprecated("jacfwd")
hessian = _deprecated("hessian")
functionalize = _deprecated("functionalize")
make_functional = _deprecated("make_functional")
make_functional_with_buffers = _deprecated("make_functional_with_buffers")
combine_state_for_ensemble = _deprecated("combine_state_for_ensemble")

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functionalize", "grad", "grad_and_value", "hessian",
           "jacfwd", "jacrev", "jvp", "make_functional", "make_functional_with_buffers", "make_fx", "vjp", "vmap"]
