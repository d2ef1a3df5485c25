"""Cutting regions out of tensors and joining tensors: the primitives that views, indexing and concatenation share."""
import numpy as np
from mindtorch.core.foreign import type_name

from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.core import layout
from mindtorch.core.grad_mode import mode
from mindtorch.core.promote import result_dtype
from mindtorch.core.tape import Primitive, primitive, record
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops._checks import wrap_dim
from mindtorch.ops.basic import cast


# ------------------------------------------------------------------ basic indexing
def _pick(a, *, key):
    return a[key]


def _place(g, *, shape, key):
    r = np.zeros(shape, g.dtype)
    r[key] = g
    return r


#: place(g, shape=, key=): zeros of that shape with g in the region a basic index names.
place = primitive("slice_backward", _place, lambda c, g: pick(g, key=c.key), raw=True)


def _picker(name):
    return primitive(name, _pick, lambda c, g: place(g, shape=c.shapes[0], key=c.key), view=True)


#: View of the region that a NumPy basic index names; one for each of torch's names of such a view.
pick = _picker("slice")
pick_select, pick_unsqueeze, pick_alias = _picker("select"), _picker("unsqueeze"), _picker("alias")

_ALL = slice(None)


def along(dim, item):
    """NumPy index that applies `item` to dimension `dim` (the ellipsis keeps a 0-dim result an array)."""
    return (_ALL,) * dim + (item, ...)


def narrow(x, dim, start, length):
    """View of `length` places from `start` on, both known to be right."""
    return pick(x, key=along(dim, slice(start, start + length)))


# ------------------------------------------------------------------ joining
class _Cat(Primitive):
    def needed(self, mask):
        return (), (), True, False, False

    def backward(self, node, gs):
        g, dim, start, out = gs[0], node.dim, 0, []
        for e, s in zip(node.edges, node.shapes):
            if len(s) != g.ndim:
                out.append(None if e is None else wrap(np.zeros(s, g._stype)))      # an ignored empty tensor
                continue
            out.append(None if e is None else narrow(g, dim, start, s[dim]))
            start += s[dim]
        return out


class _Stack(Primitive):
    def needed(self, mask):
        return (), (), False, False, False

    def backward(self, node, gs):
        g, dim = gs[0], node.dim
        return [None if e is None else pick_select(g, key=along(dim, i)) for i, e in enumerate(node.edges)]


_CAT = _Cat("cat", None, (None,), ["tensors"], ["dim"], None, False, True, (), ())
_STACK = _Stack("stack", None, (None,), ["tensors"], ["dim"], None, False, True, (), ())


def tensor_list(name, tensors, arg="tensors"):
    """The tensors of a list argument; TypeError for anything else."""
    if tensors.__class__ is not list and tensors.__class__ is not tuple:
        if isinstance(tensors, Tensor) or not hasattr(tensors, "__iter__") or isinstance(tensors, (str, dict)):
            raise TypeError(f"{name}(): argument '{arg}' (position 1) must be tuple of Tensors, not "
                            f"{type_name(tensors)}")
        tensors = list(tensors)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type_name(t)}")
    return tensors


def common_dtype(tensors):
    """The tensors in one dtype."""
    d = tensors[0]._stype
    for t in tensors:
        if t._stype is not d:
            d = result_dtype(*tensors)
            return [cast(t, d) for t in tensors]
    return tensors


def _finish(prim, r, tensors, dim):
    t = wrap(r)
    if mode.on:
        for x in tensors:
            if x._rg:
                record(prim, t, tensors, {"dim": dim})
                break
    return t


def join(tensors, dim=0):
    """torch.cat of a list of tensors."""
    tensors = tensor_list("cat", tensors)
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    tensors = common_dtype(tensors)
    arrays = [t._a for t in tensors]
    ndim = max([a.ndim for a in arrays])
    for i, a in enumerate(arrays):
        if a.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    dim = wrap_dim("cat", dim, ndim)
    if ndim > 1:
        # By old custom empty one-dimensional tensors fit everywhere.
        arrays = [a for a in arrays if a.shape != (0,)]
    kind = arrays[0].dtype
    if kind.kind == "V":
        # NumPy crashes on copying an empty piece of a bfloat16 array: move the bits.
        arrays = [a.view(np.int16) for a in arrays]
    try:
        r = arrays[0].copy() if len(arrays) == 1 else np.concatenate(arrays, dim)
    except ValueError:
        raise _misfit(arrays, dim) from None
    if kind.kind == "V":
        r = r.view(kind)
    if STRIDED.on and (STRIDED.odd or not all([x.flags.c_contiguous for x in arrays])):
        # The channels are last where all pieces suggest that.
        formats = {layout.suggested(a) for a in arrays}
        r = layout.in_format(r, formats.pop() if len(formats) == 1 else "contiguous")
    return _finish(_CAT, r, tensors, dim)


def _misfit(arrays, dim):
    first = arrays[0]
    for i, a in enumerate(arrays):
        if a.ndim != first.ndim:
            return RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {a.ndim}")
        for j, (m, n) in enumerate(zip(first.shape, a.shape)):
            if m != n and j != dim:
                return RuntimeError(f"Sizes of tensors must match except in dimension {dim}. Expected size {m} but "
                                    f"got size {n} "
                                    f"for tensor number {i} in the list.")
    return RuntimeError(f"cat(): cannot join tensors of shapes {[list(a.shape) for a in arrays]} along dimension {dim}")


def pile(tensors, dim=0):
    """torch.stack of a list of tensors."""
    tensors = tensor_list("stack", tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    shape = tensors[0]._sizes
    for i, t in enumerate(tensors):
        if t._sizes != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and "
                               f"{list(t._sizes)} at entry {i}")
    tensors = common_dtype(tensors)
    dim = wrap_dim("stack", dim, len(shape) + 1)
    if STRIDED.on and dim < len(shape) and len(shape) in (4, 5):
        # As torch: joined along `dim`, where the channels may be last, and viewed with one dimension more.
        formats = {layout.suggested(t._a) for t in tensors}
        if len(formats) == 1 and formats != {"contiguous"}:
            return _stack_last(tensors, dim, formats.pop())
    key = along(dim, None)
    if dim == 0:
        r = np.concatenate([t._a[None] for t in tensors])
    else:
        r = np.concatenate([t._a[key] for t in tensors], dim)
    return _finish(_STACK, r if r.flags.c_contiguous else np.ascontiguousarray(r), tensors, dim)


def _stack_last(tensors, dim, fmt):
    shape, n = tensors[0]._sizes, len(tensors)
    st = layout.format_strides(shape[:dim] + (n * shape[dim],) + shape[dim + 1:], fmt)
    r = layout.empty(shape[:dim] + (n,) + shape[dim:], tensors[0]._stype, st[:dim] + (st[dim] * shape[dim],) + st[dim:])
    for i, t in enumerate(tensors):
        r[along(dim, i)] = t._a
    return _finish(_STACK, r, tensors, dim)
