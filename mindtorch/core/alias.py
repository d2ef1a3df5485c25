"""The alias layer: in-place writes, with and without grad, through views of views.

A view's `_a` is a strided NumPy view of its base's memory, so a write without grad is a plain memory write.  With grad
the write becomes a node: on a whole tensor the result's history replaces the tensor's own; on a view, the *base* gets a
CopySlices node (gradient of the base with the written region zeroed; gradient of the value from that region), and every
live view of the base gets a fresh history from it.
"""
import numpy as np

from mindtorch.core.grad_mode import mode
from mindtorch.core.tape import Node, _new_node, _Out, primitive
from mindtorch.core.tensor import Tensor, version, wrap

_copy = np.copyto


# ------------------------------------------------------------------ geometry
def geometry(view, base):
    """(shape, strides in bytes, offset in bytes, dtype) of `view` inside `base`'s memory."""
    v, b = view._a, base._a
    return v.shape, v.strides, v.__array_interface__["data"][0] - b.__array_interface__["data"][0], v.dtype


class _Layout:
    """Shape, strides and dtype of a base, kept by nodes instead of the base itself."""

    __slots__ = ("shape", "strides", "dtype")

    def __init__(self, a):
        self.shape, self.strides, self.dtype = a.shape, a.strides, a.dtype

    def like(self, fill=None):
        n = int(np.prod(self.shape, dtype=np.int64))
        span = self.dtype.itemsize + sum((n - 1) * s for n, s in zip(self.shape, self.strides)) if n else 0
        buf = np.zeros(span, np.uint8)
        r = np.ndarray(self.shape, self.dtype, buf, 0, self.strides)
        if fill is not None:
            r[...] = fill
        return r, buf


def _read(base, *, layout, geo):
    """The region `geo` of a tensor with `layout`'s shape, as a fresh array."""
    tmp, buf = layout.like(base)
    shape, strides, offset, dtype = geo
    if 0 in shape or not buf.size:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buf, offset, strides).copy()


def _scatter(value, *, layout, geo):
    """Zeros of `layout` with `value` added into the region (overlapping places add up)."""
    tmp, buf = layout.like()
    shape, strides, offset, dtype = geo
    if 0 not in shape and buf.size:
        r = np.ndarray(shape, dtype, buf, offset, strides)
        if _overlaps(shape, strides):
            # Walk the repeated places through flat indices; ufunc.at sums them.
            index = np.zeros(shape, np.int64)
            for ax, (n, s) in enumerate(zip(shape, strides)):
                view = [1] * len(shape)
                view[ax] = n
                index += (np.arange(n, dtype=np.int64) * (s // dtype.itemsize)).reshape(view)
            flat = np.ndarray(((buf.size - offset) // dtype.itemsize,), dtype, buf, offset)
            if dtype.kind == "V":
                acc = np.zeros(flat.shape, np.float32)
                np.add.at(acc, index.reshape(-1), value.astype(np.float32).reshape(-1))
                flat[...] = acc.astype(dtype)
            else:
                np.add.at(flat, index.reshape(-1), value.reshape(-1))
        else:
            r[...] = value
    return tmp


def _overlaps(shape, strides):
    dims = sorted((abs(s), n) for n, s in zip(shape, strides) if n > 1)
    reach = 0
    for s, n in dims:
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


def _punch(base, value, *, layout, geo):
    """Copy of `base` with the region replaced by `value`."""
    tmp, buf = layout.like(base)
    shape, strides, offset, dtype = geo
    if 0 not in shape and buf.size:
        np.ndarray(shape, dtype, buf, offset, strides)[...] = value
    return tmp


read_region = primitive("as_strided", _read, lambda c, g: scatter_region(g, layout=c.layout, geo=c.geo), raw=True)
scatter_region = primitive("as_strided_scatter", _scatter, lambda c, g: read_region(g, layout=c.layout, geo=c.geo), raw=True)
copy_slices = primitive(
    "copy_slices", _punch,
    lambda c, g: copy_slices(g, wrap(np.zeros(c.geo[0], c.geo[3])), layout=c.layout, geo=c.geo),
    lambda c, g: read_region(g, layout=c.layout, geo=c.geo), raw=True, node="CopySlices")
copy_slices.prim.node_class.__name__ = "CopySlices"


# ------------------------------------------------------------------ writing
def check_inplace(x, writing_grad):
    """Raises what torch raises before a write to `x`; `writing_grad`: the new value needs grad."""
    a = x._a
    if mode.on:
        if x._rg:
            if x._gnode is None:
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
            b = x._base
            if b is not None and b._rg and b._gnode is None:
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if x._noinplace is not None and (x._rg or writing_grad):
            if x._noinplace == "no_grad":
                raise RuntimeError("A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
                                   "Given that this use case is ambiguous and error-prone, it is forbidden.")
            raise RuntimeError(f"Output {x._oi} of {x._noinplace} is a view and is being modified inplace. This view is the "
                               "output of a function that returns multiple views. Such functions do not allow the output "
                               "views to be modified inplace. You should replace the inplace operation by an out-of-place one.")
    if 0 in a.strides and a.size > 1:
        for n, s in zip(a.shape, a.strides):
            if s == 0 and n > 1:
                raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                                   "memory location. Please clone() the tensor before performing the operation.")
    if not a.flags.writeable:
        raise RuntimeError("this tensor's memory is read-only (it was made from a read-only array); clone() it before writing")
    if x._inference and not mode.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to "
                           "get a normal tensor before doing inplace update.")


def check_overlap(x, others):
    """RuntimeError if an operand partly shares the written memory (as torch's elementwise loops check)."""
    a = x._a
    lo = a.__array_interface__["data"][0]
    for o in others:
        if o.__class__ is not Tensor and not isinstance(o, Tensor) or o is x or o._ver is not x._ver or o._ver is None:
            continue
        b = o._a
        if b.shape == a.shape and b.strides == a.strides and b.__array_interface__["data"][0] == lo:
            continue
        if _dense(a) and _dense(b):
            blo = b.__array_interface__["data"][0]
            if lo < blo + b.nbytes and blo < lo + a.nbytes:
                if lo == blo and a.nbytes == b.nbytes and a.strides == b.strides:
                    continue
                raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer "
                                   "to a single memory location. Please clone() the tensor before performing the operation.")


def _dense(a):
    if a.flags.c_contiguous:
        return True
    if a.size <= 1:
        return True
    return a.itemsize + sum((n - 1) * s for n, s in zip(a.shape, a.strides)) == a.nbytes and 0 not in a.strides


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


def check_cast(src, dst):
    """RuntimeError if a result of dtype `src` may not be stored in `dst` (torch's canCast)."""
    if src is not dst and _CATEGORY[src.kind] > _CATEGORY[dst.kind]:
        raise RuntimeError(f"result type {_title(src)} can't be cast to the desired output type {_title(dst)}")


def _title(d):
    return {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char",
            "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble", "float16": "Half",
            "bfloat16": "BFloat16"}.get(d.name, d.name)


def write(x, value):
    """Stores an array into `x`'s memory (casting) and counts the write."""
    a = x._a
    if value.dtype.kind == "V" and a.dtype.kind not in "V":
        value = value.astype(np.float32)
    elif a.dtype.kind == "V" and value.dtype.kind != "V":
        value = value.real.astype(np.float32).astype(a.dtype) if value.dtype.kind == "c" else \
            value.astype(np.float32).astype(a.dtype)
    elif value.dtype.kind == "c" and a.dtype.kind != "c":
        value = value.real
    _copy(a, value, casting="unsafe")
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def _new_nodes(root, since):
    """Nodes made after sequence number `since` that `root` depends on."""
    seen, stack, out = set(), [root], []
    while stack:
        n = stack.pop()
        if n in seen or n.seq < since:
            continue
        seen.add(n)
        out.append(n)
        for e in n.edges:
            if e.__class__ is tuple:
                stack.append(e[0])
    return out


def assign(x, r, since):
    """In-place update of `x` by the result tensor `r`, whose nodes were made after sequence number `since`."""
    if r._a.shape != x._a.shape:
        raise RuntimeError(f"output with shape {list(x._a.shape)} doesn't match the broadcast shape {list(r._a.shape)}")
    check_cast(r._a.dtype, x._a.dtype)
    if not (mode.on and (x._rg or r._rg)) or x._a.dtype.kind not in "fcV":
        write(x, r._a)
        return x
    check_inplace(x, r._rg)
    if r._a.dtype != x._a.dtype:
        from mindtorch.core.promote import _cast
        r = _cast(r, x._a.dtype)
    # What the new nodes saved of x's old value must survive the write.
    ver = version(x)
    if r._gnode is not None:
        for n in _new_nodes(r._gnode, since):
            if n.vals:
                for k, s in n.vals.items():
                    if s.__class__ is tuple and s[1] is ver:
                        n.vals[k] = _kept(s)
    if r is x or r._a is x._a:
        ver.v += 1
    else:
        write(x, r._a)
    rebase(x, r)
    return x


def _kept(s):
    old = s[0]
    c = wrap(old._a.copy())
    c._gnode, c._oi, c._rg = old._gnode, old._oi, old._rg
    v = version(c)
    return (c, v, v.v)


def rebase(x, r):
    """Gives `x`, whose memory has just been written, the history of `r` (a tensor equal to its new value)."""
    base = x._base
    if base is None:
        if r._gnode is not None:
            _rebind_saved_output(r, x)
            x._gnode, x._oi = r._gnode, r._oi
        elif r._rg:
            # The value is itself a leaf: x's history is the identity on it.
            t = _identity(r)
            x._gnode, x._oi = t._gnode, t._oi
        else:
            x._gnode, x._oi = _constant_node(x), 0
        x._rg = True
        base = x
    else:
        a = base._a
        layout, geo = _Layout(a), geometry(x, base)
        node = _new_node(copy_slices.prim.node_class)
        node.prim = copy_slices.prim
        node.edges = [None if not base._rg else (base if base._gnode is None else (base._gnode, base._oi)),
                      None if not r._rg else (r if r._gnode is None else (r._gnode, r._oi))]
        node.meta = ((a.shape, a.dtype),)
        node.kw = {"layout": layout, "geo": geo}
        base._gnode, base._oi, base._rg = node, 0, True
    if base._views:
        refresh_views(base)


def _rebind_saved_output(r, x):
    """exp_() and its like save their result, which now is x itself: later writes to x make it stale."""
    vals = r._gnode.vals
    if vals:
        for k, s in vals.items():
            if s.__class__ is _Out and s.a is r._a:
                vals[k] = o = _Out(x, s.idx)
                o.at = o.ver.v


class _Constant(Node):
    __slots__ = ()


_Constant.__name__ = "CopyBackwards"


def _constant_node(x):
    n = _new_node(_Constant)
    n.prim, n.edges, n.meta = _NOTHING, [], ((x._a.shape, x._a.dtype),)
    return n


class _Nothing:
    @staticmethod
    def backward(node, gs):
        return []


_NOTHING = _Nothing()
_identity = primitive("copies", lambda a: a.copy(), lambda c, g: g, raw=True, node="CopyBackwards")


def refresh_views(base):
    """Every live view of `base` takes its history from the base's present one."""
    live = []
    layout = _Layout(base._a)
    for ref in base._views:
        v = ref()
        if v is None:
            continue
        live.append(ref)
        if v._base is not base:
            continue
        node = _new_node(read_region.prim.node_class)
        node.prim = read_region.prim
        node.edges = [(base._gnode, base._oi)]
        node.meta = ((v._a.shape, v._a.dtype),)
        node.kw = {"layout": layout, "geo": geometry(v, base)}
        v._gnode, v._oi, v._rg = node, 0, True
    base._views[:] = live
