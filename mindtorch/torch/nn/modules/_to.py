"""The arguments of Module.to() and of PackedSequence.to()."""
import mindtorch.torch as torch
from mindtorch.core.tensor.dtypes import dtype as dtype_class
from mindtorch.core.tensor.tensor import Tensor, is_tensor

_FORMS = """
 * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = False, *, \
torch.memory_format memory_format = None)
 * (torch.dtype dtype, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)
 * (Tensor tensor, bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)
"""


def _bad(args, kwargs):
    def name(v):
        for kind, text in ((Tensor, "Tensor"), (dtype_class, "torch.dtype"), (torch.device, "torch.device")):
            if isinstance(v, kind):
                return text
        return type(v).__name__

    given = ", ".join([name(a) for a in args] + [f"{k}={name(v)}" for k, v in kwargs.items()])
    return TypeError(f"to() received an invalid combination of arguments - got ({given}{', ' if kwargs else ''}), but "
                     f"expected one of:{_FORMS}")


def parse_to(args, kwargs):
    """Parses the three forms of to() and returns (device, dtype, non_blocking, memory_format)."""
    found = dict(kwargs)
    memory_format = found.pop("memory_format", None)
    if memory_format is not None and not isinstance(memory_format, torch.memory_format):
        raise _bad(args, kwargs)
    rest = list(args)
    first = rest[0] if rest else None
    if isinstance(first, dtype_class):
        names = ("dtype", "non_blocking", "copy")
    elif is_tensor(first) or "tensor" in found:
        names = ("tensor", "non_blocking", "copy")
    else:
        names = ("device", "dtype", "non_blocking", "copy")
    if len(rest) > len(names):
        raise _bad(args, kwargs)
    for n, v in zip(names, rest):
        if n in found:
            raise _bad(args, kwargs)
        found[n] = v
    if not set(found) <= set(names) | ({"dtype", "device"} if names[0] != "tensor" else set()):
        raise _bad(args, kwargs)
    tensor, device, dtype = found.get("tensor"), found.get("device"), found.get("dtype")
    if tensor is not None:
        if not is_tensor(tensor):
            raise _bad(args, kwargs)
        device, dtype = tensor.device, tensor.dtype
    if dtype is not None and not isinstance(dtype, dtype_class):
        raise _bad(args, kwargs)
    for flag in ("non_blocking", "copy"):
        if not isinstance(found.get(flag, False), bool):
            raise _bad(args, kwargs)
    if "copy" in found:
        raise RuntimeError(".to() does not accept copy argument")
    if device is not None:
        if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
            raise _bad(args, kwargs)
        device = torch.device(device)
    return device, dtype, bool(found.get("non_blocking", False)), memory_format
