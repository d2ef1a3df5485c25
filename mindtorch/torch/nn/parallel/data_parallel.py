"""DataParallel: a process drives a single device, so the module runs unchanged."""
from itertools import chain

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.nn.modules.module import Module

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids):
    if device_ids is None:
        return list(range(torch.cuda.device_count()))
    return [d.index if isinstance(d, torch.device) else d for d in device_ids]


class DataParallel(Module):
    """Wraps a module as `module` and runs it on the single device."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module = module
        self.dim = dim
        if not torch.cuda.is_available():
            # As in PyTorch without accelerators, device_ids are ignored and the module runs where
            # it is.
            self.device_ids = []
            return
        self.device_ids = _devices(device_ids)
        if not self.device_ids:
            raise RuntimeError("no available devices were found")
        if len(self.device_ids) > 1:
            raise NotImplementedError(f"DataParallel over the devices {self.device_ids}: one process drives one "
                                      "device; use DistributedDataParallel with one process for each")
        self.output_device = self.device_ids[0] if output_device is None else output_device
        self.src_device_obj = torch.device("cuda", self.device_ids[0])
        self.module.to(self.src_device_obj)

    def forward(self, *inputs, **kwargs):
        if self.device_ids:
            for t in chain(self.module.parameters(), self.module.buffers()):
                if t.device.type == "cpu":
                    raise RuntimeError(f"module must have its parameters and buffers on device {self.src_device_obj} "
                                       f"(device_ids[0]) but found one of them on device: {t.device}")
            inputs = tuple(t.to(self.src_device_obj) if is_tensor(t) else t for t in inputs)
            kwargs = {k: t.to(self.src_device_obj) if is_tensor(t) else t for k, t in kwargs.items()}
        return self.module(*inputs, **kwargs)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Calls module(*inputs, **module_kwargs) through DataParallel."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
