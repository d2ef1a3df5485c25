"""Weight normalization as a hook
(https://pytorch.org/docs/stable/generated/torch.nn.utils.weight_norm.html)."""
import warnings

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter
from mindtorch.torch.nn.parameter import UninitializedParameter

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm"]


def norm_except(v, dim):
    """Returns the 2-norm over all dimensions except `dim` (keepdim); over all dimensions if `dim`
    is -1."""
    if dim == -1:
        return v.norm()
    dims = [d for d in range(v.dim()) if d != dim % v.dim()]
    return torch.linalg.vector_norm(v, 2, dims, keepdim=True) if dims else v.abs()


def normalised(v, g, dim):
    """Returns v rescaled such that each slice along `dim` has the norm given in g."""
    return v * (g / norm_except(v, dim))


class WeightNorm:
    """Forward pre-hook that computes `name` from name_g (norm) and name_v (direction)."""

    def __init__(self, name, dim):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module):
        """Returns the weight for the current parameters."""
        return normalised(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module, name, dim):
        """Registers the hook on `module`; raises RuntimeError if `name` already has one."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError("The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run "
                             "the dummy forward before applying weight normalization")
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except(weight, fn.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module):
        """Removes the reparametrization and registers the current weight as a parameter."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name="weight", dim=0):
    """Splits the parameter `name` into its norm over all dimensions except `dim` (name_g) and its
    direction (name_v)."""
    warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of "
                  "`torch.nn.utils.parametrizations.weight_norm`.",
                  FutureWarning, stacklevel=2)
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name="weight"):
    """Undoes `weight_norm`; raises ValueError if the module has no such hook."""
    for k, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[k]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
