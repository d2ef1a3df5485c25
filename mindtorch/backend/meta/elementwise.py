"""The shape of an elementwise result: that of the operands broadcast; its dtype is the kernel's on one element of each."""
import numpy as np

from mindtorch.backend.meta.arrays import blank

_ONE = (1,)


def probe(a):
    """One element of an operand, with as many dimensions."""
    return None if a is None else np.ones(_ONE * a.ndim, a.dtype)


def elementwise(fwd, arrays, kw):
    """The rule of every elementwise primitive (that has none of its own)."""
    for v in kw.values():
        if isinstance(v, np.ndarray) and v.ndim:
            return None          # a mask or the like among the constants
    shape = np.broadcast_shapes(*[a.shape for a in arrays if a is not None])
    r = fwd(*[probe(a) for a in arrays], **kw)
    r = r if r.__class__ is np.ndarray else np.asarray(r)
    if r.size != 1:
        return None
    return blank(shape, r.dtype, next((a for a in arrays if a is not None and a.shape == shape), None))
