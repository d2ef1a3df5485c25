"""torch_npu.optim: optimizers that update all parameters at once, as those of torch.optim do here
too."""
from mindtorch.torch import optim as _optim

__all__ = ["NpuFusedAdadelta", "NpuFusedAdam", "NpuFusedAdamW", "NpuFusedSGD"]


class NpuFusedAdam(_optim.Adam):
    """torch.optim.Adam under torch_npu's name."""


class NpuFusedAdamW(_optim.AdamW):
    """torch.optim.AdamW under torch_npu's name."""


class NpuFusedSGD(_optim.SGD):
    """torch.optim.SGD under torch_npu's name; `lr` is required."""

    def __init__(self, params, lr, momentum=0, dampening=0, weight_decay=0, nesterov=False):
        super().__init__(params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)


class NpuFusedAdadelta(_optim.Adadelta):
    """torch.optim.Adadelta under torch_npu's name."""
