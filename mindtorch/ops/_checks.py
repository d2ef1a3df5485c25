"""Argument checks shared by many op families, with PyTorch's exception types and messages."""
from operator import index

from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.dispatch.error_messages import is_pytorch_tensor, type_name
from mindtorch.core.tensor.scalars import read
from mindtorch.core.tensor.tensor import ScalarOperand, Tensor, is_tensor


def not_implemented(name, *of, dtype=None):
    """Returns the NotImplementedError for the dtype of the first operand, or for `dtype` (a NumPy
    dtype).

    The device is that of the first tensor operand; a device can be passed directly, too.
    """
    device = next(getattr(x, "device", x) for x in of if x.__class__ is not ScalarOperand)
    return NotImplementedError(f"'{name}' is not implemented for dtype {of_np(of[0]._np_dtype if dtype is None else dtype)} on device {device}")


def tensor_type_error(name, arg, position, value):
    """Returns the TypeError for an argument that must be a tensor."""
    return TypeError(f"{name}(): argument '{arg}' (position {position}) must be Tensor, not {type_name(value)}")


def check_tensor(name, value, arg="input", position=1):
    """Raises TypeError unless `value` is a tensor."""
    if not (value.__class__ is Tensor or is_tensor(value)):
        raise tensor_type_error(name, arg, position, value)


def check_number(name, arg, value, kind="float"):
    """Returns the scalar passed for an argument. A tensor is converted as the op's record allows
    (`mindtorch/core/dispatch/op_schema.py`). Raises TypeError for None."""
    if value is None:
        raise TypeError(f"{name}(): argument '{arg}' must be {kind.replace('number', 'Number')}, not NoneType")
    return read(name, arg, kind, value)


def as_index(name, d):
    """Returns `dim` as an int; raises TypeError for anything else."""
    try:
        # Both have `__index__`, but torch.max(x, d) and x.topk(2, True) mean something else.
        if is_pytorch_tensor(d) or d.__class__ is bool:
            raise TypeError
        return index(d)
    except TypeError:
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type_name(d)}") from None


def wrap_dim(name, d, ndim):
    """Returns `d` as a non-negative dimension. A 0-dim tensor accepts 0 and -1. Raises IndexError
    if out of range."""
    if d.__class__ is not int:
        d = as_index(name, d)
    n = ndim or 1
    if d < 0:
        if d >= -n:
            return d + n
    elif d < n:
        return d
    raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")


def wrap_dims(name, dim, ndim):
    """Returns an ascending tuple of axes for NumPy, or None for all of them (`dim` is None or
    empty)."""
    if dim is None:
        return None
    if dim.__class__ is int:
        return (wrap_dim(name, dim, ndim),) if ndim else _check_scalar_dim(name, dim)
    if isinstance(dim, (tuple, list)):
        if not dim:
            return None
        axes = [wrap_dim(name, d, ndim) for d in dim]
        if len(set(axes)) != len(axes):
            twice = next(d for d in axes if axes.count(d) > 1)
            raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
        return tuple(sorted(axes)) if ndim else None
    return wrap_dims(name, as_index(name, dim), ndim)


def _check_scalar_dim(name, dim):
    wrap_dim(name, dim, 0)


def broadcast_pair(a, b):
    """Returns the shape that two shapes broadcast to; raises RuntimeError if they do not broadcast.
    """
    n, out = max(len(a), len(b)), []
    for i in range(1, n + 1):
        p, q = a[-i] if i <= len(a) else 1, b[-i] if i <= len(b) else 1
        if p != q and p != 1 and q != 1:
            raise RuntimeError(f"The size of tensor a ({p}) must match the size of tensor b ({q}) at non-singleton dimension {n - i}")
        out.append(q if p == 1 else p)
    return tuple(reversed(out))
