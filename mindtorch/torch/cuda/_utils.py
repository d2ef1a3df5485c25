"""torch.cuda._utils."""
from mindtorch.core.device import device as _device


def _get_device_index(device, optional=False, allow_cpu=False):
    """Returns the index of an accelerator given as int, str, torch.device or torch.cuda.device; -1
    for the CPU if allow_cpu."""
    from mindtorch.torch import cuda

    if isinstance(device, int):
        return device
    if isinstance(device, cuda.device):
        return device.idx
    given = _device.device(device) if isinstance(device, str) else device
    if isinstance(given, _device.device):
        accelerators = ("cuda", *_device.accelerator())
        if given.type not in accelerators and not (allow_cpu and given.type == "cpu"):
            raise ValueError(f"Expected a cuda {'or cpu ' if allow_cpu else ''}device, but got: {given}")
        if given.type == "cpu":
            return -1
        if given.index is not None:
            return given.index
    if optional:
        return cuda.current_device() if cuda.is_available() else None
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
