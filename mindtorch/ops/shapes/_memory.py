"""Views of a tensor's memory as such: as_strided, other dtypes, complex numbers as pairs."""
import numpy as np

from mindtorch.core import dtypes
from mindtorch.core.alias import Layout, scatter_region, title
from mindtorch.core.dtypes import as_np
from mindtorch.core.layout import noted
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, put_on, replace_memory, version, wrap
from mindtorch.ops.indexing._region import pick_alias
from mindtorch.ops.shapes._sizes import int_of, ints_of, offset_of, on_storage, root, torch_strides


def _as_strided(a, *, size, stride, at, home, layout):
    return noted(on_storage(a, size, stride, at))


def _as_strided_grad(c, g):
    return scatter_region(g, layout=c.layout, geo=(c.size, c.stride, c.at - c.home, c.layout.dtype))


as_strided_ = primitive("as_strided", _as_strided, _as_strided_grad, view=True)


def strided_region(x, size, stride, storage_offset, name="as_strided"):
    """Checked (size, strides and offset in bytes, offset of x itself) of an as_strided call."""
    a = x._a
    size, stride = ints_of(name, size, "size"), ints_of(name, stride, "stride")
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if stride and min(stride) < 0:
        raise RuntimeError(f"{name}: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if size and min(size) < 0:
        raise RuntimeError(f"{name}: negative size in {list(size)}")
    home = offset_of(a)
    k = a.itemsize
    at = home if storage_offset is None else int_of(name, storage_offset, "storage_offset") * k
    if at < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {storage_offset}")
    if 0 not in size:
        need = at + k + sum((n - 1) * s for n, s in zip(size, stride)) * k
        have = root(a).nbytes
        if need > have:
            raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {at // k}, "
                               f"and itemsize {k} "
                               f"requiring a storage size of {need} are out of bounds for storage of size {have}")
    return size, tuple([s * k for s in stride]), at, home


@op
def as_strided(input, size, stride, storage_offset=None):
    """View of the tensor's storage with any size, strides and offset (all in elements)."""
    size, st, at, home = strided_region(input, size, stride, storage_offset)
    return as_strided_(input, size=size, stride=st, at=at, home=home, layout=Layout(input._a))


def _as_strided_inplace(self, size, stride, storage_offset=None):
    """Changes the tensor itself to another size, strides and offset on the same storage."""
    size, st, at, _ = strided_region(self, size, stride, storage_offset, "as_strided_")
    replace_memory(self, on_storage(self._a, size, st, at))
    return self


Tensor.as_strided_ = _as_strided_inplace


def _complex_pairs(a):
    shape, n = (*a.shape, 2), a.itemsize // 2
    real = np.dtype(f"f{n}")
    if a.flags.c_contiguous:
        return a.reshape(-1).view(real).reshape(shape)
    return on_storage(a, shape, (*a.strides, n), offset_of(a), real)


def _pairs_complex(a):
    c = np.dtype(f"c{2 * a.itemsize}")
    if a.flags.c_contiguous:
        return a.reshape(-1).view(c).reshape(a.shape[:-1])
    return on_storage(a, a.shape[:-1], a.strides[:-1], offset_of(a), c)


_contiguous = primitive("clone", lambda a: np.ascontiguousarray(a).reshape(a.shape), lambda c, g: g, raw=True)


def _complex_of(g):
    """A gradient over pairs as a complex one; one of odd layout is copied first."""
    a = g._a
    ok = a.strides[-1] == a.itemsize and all(s % (2 * a.itemsize) == 0 for s in a.strides[:-1])
    return view_as_complex_(g if ok else _contiguous(g))


view_as_real_ = primitive("view_as_real", _complex_pairs, lambda c, g: _complex_of(g), view=True)
view_as_complex_ = primitive("view_as_complex", _pairs_complex, lambda c, g: view_as_real_(g), view=True)


@op(method=False)
def view_as_real(input):
    """A complex tensor as real pairs in a new last dimension of size 2."""
    if input._stype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return view_as_real_(input)


@op(method=False)
def view_as_complex(input):
    """Real pairs in the last dimension (of size 2) as complex numbers."""
    a = input._a
    if a.dtype.name not in ("float32", "float64"):
        if a.dtype.name == "float16":
            dtypes.as_np(dtypes.NAMES["complex32"])      # refuses: no kernels for half complex numbers
        raise RuntimeError("view_as_complex is only supported for half, float and double tensors, but got a tensor of "
                           "scalar type: "
                           f"{title(a.dtype)}")
    if not a.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if a.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    st = torch_strides(a)
    if st[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s in st[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if (offset_of(a) // a.itemsize) % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return view_as_complex_(input)


@op(method=False)
def alias(input):
    """Another tensor on the same memory, with gradient."""
    return pick_alias(input, key=...)


def view_dtype(x, d):
    """The bits of a tensor read as another type (Tensor.view(dtype)); the result has no gradient."""
    if not isinstance(d, dtypes.dtype):
        try:
            as_np(d)
        except TypeError:
            raise TypeError(f"view() received an invalid combination of arguments - got ({type(d).__name__}), but "
                            "expected one of: "
                            "(torch.dtype dtype), (tuple of ints size)") from None
    to, a = as_np(d), x._a
    old, new = a.itemsize, to.itemsize
    if to == a.dtype:
        return pick_alias(x, key=...)
    if old == new:
        r = a.view(to)
    else:
        what = f"to view {title(a.dtype)} as {title(to)} (different element sizes)"
        if not a.ndim:
            raise RuntimeError(f"self.dim() cannot be 0 {what}")
        st = torch_strides(a)
        if st[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {st[-1]}")
        if new > old:
            k = new // old
            if a.shape[-1] % k:
                raise RuntimeError(f"self.size(-1) must be divisible by {k} {what}, but got {a.shape[-1]}")
            for i, s in enumerate(st[:-1]):
                if s % k and a.shape[i] != 1:
                    raise RuntimeError(f"self.stride({i}) must be divisible by {k} {what}, but got {s}")
        n = a.shape[-1] * old // new
        shape = (*a.shape[:-1], n)
        if a.flags.c_contiguous:
            # NumPy's own view() of another size fails on empty arrays.
            r = a.reshape(-1).view(to).reshape(shape) if a.size else np.empty(shape, to)
        else:
            r = on_storage(a, shape, (*a.strides[:-1], new), offset_of(a), to)
    # Bits have no gradient; the memory and its write counter are shared.
    v = wrap(r)
    v._ver = version(x)
    if v._dev is not x._dev:
        put_on(v, x._dev)
    return v
