"""Shapes of reductions, of their gradients expanded back to the input's shape, and of cumulative
sums."""
import numpy as np

from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array
from mindtorch.backend.meta.elementwise import probe

_I64 = np.dtype(np.int64)


@kernel("sum_all sum_dims mean_all mean_dims mean_upcast amax amin all any")
def _reduced(fwd, arrays, kw):
    a = arrays[0]
    axes, keep = kw.get("axes"), kw.get("keepdim", False)
    if 0 in a.shape:
        return None
    r = fwd(probe(a), **kw)
    r = r if r.__class__ is np.ndarray else np.asarray(r)
    axes = tuple(range(a.ndim)) if axes is None else axes
    shape = [1 if d in axes else n for d, n in enumerate(a.shape) if keep or d not in axes]
    return meta_array(shape, r.dtype) if len(shape) == r.ndim else None


@kernel("expand_reduced")
def _spread(fwd, arrays, kw):
    return meta_array(kw["shape"], arrays[0].dtype)


@kernel("cumprod cumsum cumsum_backward")
def _running(fwd, arrays, kw):
    a = arrays[0]
    return meta_array(a.shape, _I64 if a.dtype.kind in "biu" else a.dtype, a)
