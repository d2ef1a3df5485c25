"""Basic indexing: the primitives that views, indexing and concatenation share."""
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor


# ------------------------------------------------------------------ basic indexing
#: place(g, shape=, key=): zeros of that shape with g in the region a basic index names.
slice_backward = primitive("slice_backward", "g, *, shape, key", lambda ctx, grad: pick(grad, key=ctx.key), raw=True)


def _picker(name, node):
    return primitive(name, "a, *, key", lambda ctx, grad: slice_backward(grad, shape=ctx.shapes[0], key=ctx.key), view=True, node=node)


#: View of the region that a NumPy basic index selects; one primitive for each of PyTorch's names
#: for such a view.
pick, pick_select = _picker("slice", "SliceBackward0"), _picker("select", "SelectBackward0")
pick_unsqueeze, pick_alias = _picker("subscript_unsqueeze", "UnsqueezeBackward0"), _picker("subscript_alias", "AliasBackward0")

_ALL = slice(None)


def along(dim, item):
    """Returns a NumPy index that applies `item` to dimension `dim`. The ellipsis keeps a 0-dim
    result an array."""
    return (_ALL,) * dim + (item, ...)


def narrow(x, dim, start, length):
    """Returns a view of `length` elements of a dimension from `start` on; the arguments are not
    checked."""
    return pick(x, key=along(dim, slice(start, start + length)))


# ------------------------------------------------------------------ lists
def tensor_list(name, tensors, arg="tensors"):
    """Returns the tensors of a list argument; raises TypeError for anything else."""
    if tensors.__class__ is not list and tensors.__class__ is not tuple:
        if (tensors.__class__ is Tensor or is_tensor(tensors)) or not hasattr(tensors, "__iter__") or isinstance(tensors, (str, dict)):
            raise TypeError(f"{name}(): argument '{arg}' (position 1) must be tuple of Tensors, not "
                            f"{type_name(tensors)}")
        tensors = list(tensors)
    for i, t in enumerate(tensors):
        if not (t.__class__ is Tensor or is_tensor(t)):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type_name(t)}")
    return tensors
