"""Views of a tensor's raw memory: as_strided, other dtypes, complex numbers as pairs."""
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.inplace import storage_extent, base_geometry, scatter_region, scalar_type_name
from mindtorch.core.tensor.conj_neg_bits import bits_of, is_conj
from mindtorch.core.tensor.dtypes import as_np
from mindtorch.core.tensor.stride_rules import contiguous, as_computed
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import set_device, version_counter
from mindtorch.ops.basic import clone
from mindtorch.ops.indexing._basic_index import pick_alias
from mindtorch.ops.shapes._sizes import int_of, ints_of


as_strided_ = primitive("as_strided", "a, *, size, stride, at, home, base", lambda ctx, grad: scatter_region(
    grad, base=ctx.base, region=(ctx.size, ctx.stride, ctx.at - ctx.home, ctx.base[2])), view=True)


def strided_region(x, size, stride, storage_offset, name="as_strided"):
    """Checks the arguments of an as_strided call. Returns (size, strides in bytes, offset in bytes,
    offset of x itself in bytes)."""
    size, stride = ints_of(name, size, "size"), ints_of(name, stride, "stride")
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if stride and min(stride) < 0:
        raise RuntimeError(f"{name}: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if size and min(size) < 0:
        raise RuntimeError(f"{name}: negative size in {list(size)}")
    home, have = storage_extent(x)
    k = x._np_dtype.itemsize
    at = home if storage_offset is None else int_of(name, storage_offset, "storage_offset") * k
    if at < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {storage_offset}")
    if 0 not in size:
        need = at + k + sum((n - 1) * s for n, s in zip(size, stride)) * k
        if need > have:
            raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {at // k}, "
                               f"and itemsize {k} "
                               f"requiring a storage size of {need} are out of bounds for storage of size {have}")
    return size, tuple([s * k for s in stride]), at, home


@register_op(tags="view")
def as_strided(input, size, stride, storage_offset: SymInt = None):
    """Returns a view of the tensor's storage with any size, strides and offset (all in elements).
    """
    size, st, at, home = strided_region(input, size, stride, storage_offset)
    return as_strided_(input, size=size, stride=st, at=at, home=home, base=base_geometry(input))


def _complex_of(g):
    """Views a gradient of real pairs as complex. A gradient whose strides do not allow it is copied
    first."""
    st = g.stride()
    ok = st[-1] == 1 and all([s % 2 == 0 for s in st[:-1]])
    return view_as_complex_(g if ok else _in_order(g))


view_as_real_ = primitive("real_pairs", "a", lambda ctx, grad: _complex_of(grad), view=True, node="ViewAsRealBackward0")
view_as_complex_ = primitive("complex_of_pairs", "a", lambda ctx, grad: view_as_real_(clone(grad) if is_conj(grad) else grad), view=True,
                             node="ViewAsComplexBackward0")
_in_order = primitive("pairs_in_order", "a", lambda ctx, grad: grad, raw=True, node="CloneBackward0", layout=contiguous)
#: Reinterprets the memory of a tensor as another dtype: same memory, no gradient.
_view_dtype = primitive("view_dtype", "a, *, dtype", raw=True, layout=as_computed)
_view_dtype.prim.shares = True


@register_op(method=False, tags="view")
def view_as_real(input):
    """Views a complex tensor as real pairs in a new last dim of size 2."""
    if input._np_dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if is_conj(input):
        raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use "
                           "self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original.")
    return view_as_real_(input)


@register_op(method=False, autocast="float32", tags="view")
def view_as_complex(input):
    """Views real pairs in the last dim (of size 2) as complex numbers."""
    d = input._np_dtype
    if d.name not in ("float32", "float64"):
        if d.name == "float16":
            # raises: there are no kernels for half-precision complex numbers
            dtypes.as_np(dtypes.NAMES["complex32"])
        raise RuntimeError("view_as_complex is only supported for half, float and double tensors, but got a tensor of "
                           "scalar type: "
                           f"{scalar_type_name(d)}")
    if not input.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input._sizes[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    st = input.stride()
    if st[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s in st[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if (storage_extent(input)[0] // d.itemsize) % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return view_as_complex_(input)


@register_op(method=False, tags="view")
def alias(input):
    """Returns another tensor on the same memory, with a gradient."""
    return pick_alias(input, key=...)


def view_dtype(x, d):
    """Reinterprets the memory of a tensor as another dtype (Tensor.view(dtype)). The result has no
    gradient."""
    if not isinstance(d, dtypes.dtype):
        try:
            as_np(d)
        except TypeError:
            raise TypeError(f"view() received an invalid combination of arguments - got ({type(d).__name__}), but "
                            "expected one of: "
                            "(torch.dtype dtype), (tuple of ints size)") from None
    conj, neg = bits_of(x)
    if conj or neg:
        which = "conjugate view tensors" if conj else "tensors with negative bit set"
        raise RuntimeError(f"torch.Tensor.view is not supported for {which} when converting to a different dtype.")
    to, have, sizes = as_np(d), x._np_dtype, x._sizes
    old, new = have.itemsize, to.itemsize
    if old != new:
        what = f"to view {scalar_type_name(have)} as {scalar_type_name(to)} (different element sizes)"
        if not sizes:
            raise RuntimeError(f"self.dim() cannot be 0 {what}")
        st = x.stride()
        if st[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {st[-1]}")
        if new > old:
            k = new // old
            if sizes[-1] % k:
                raise RuntimeError(f"self.size(-1) must be divisible by {k} {what}, but got {sizes[-1]}")
            if x.storage_offset() % k:
                raise RuntimeError(f"self.storage_offset() must be divisible by {k} {what}, but got {x.storage_offset()}")
            for i, s in enumerate(st[:-1]):
                if s % k and sizes[i] != 1:
                    raise RuntimeError(f"self.stride({i}) must be divisible by {k} {what}, but got {s}")
    # Reinterpreted memory has no gradient. The memory and its version counter are shared.
    v = _view_dtype(x, dtype=to)
    v._version_counter = version_counter(x)
    if v._device is not x._device:
        set_device(v, x._device)
    return v
