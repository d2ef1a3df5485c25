"""Neural networks: modules, functions, parameters, initialization
(https://pytorch.org/docs/stable/nn.html)."""
from mindtorch.torch.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from mindtorch.torch.nn import functional, init  # noqa: F401
from mindtorch.torch.nn import modules  # noqa: F401
from mindtorch.torch.nn import attention, common_types, grad, parallel, utils  # noqa: F401
from mindtorch.torch.nn.parallel import DataParallel
from mindtorch.torch.nn.parallel.grad_reducer import DistributedGradReducer

for _name in modules.__all__:
    globals()[_name] = getattr(modules, _name)
del _name

__all__ = [*modules.__all__,  # noqa: PLE0604  a list of names
           "Buffer", "DataParallel", "DistributedGradReducer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


def factory_kwargs(kwargs):
    """Returns the device, dtype and memory_format in `kwargs`, including those under
    "factory_kwargs".

    TypeError for other keys.
    """
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    unknown = kwargs.keys() - simple - {"factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for key in simple & kwargs.keys():
        if key in made:
            raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
        made[key] = kwargs[key]
    return made
