"""masked_fill, masked_select, masked_scatter."""
import numpy as np

from mindtorch.backend.cpu.pointwise import fill_where, masked
from mindtorch.core.alias import title
from mindtorch.core.table import op
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, wrap
from mindtorch.ops._checks import need_tensor
from mindtorch.ops.indexing._gather import Places
from mindtorch.ops._numbers import NUMBER, number_as
from mindtorch.ops.basic import cast, sum_to
from mindtorch.ops.shapes.shape import constant_pad
from mindtorch.ops.shapes.views import broadcast_shape, reshape_


def zero_dim(name, value, d):
    """A number or 0-dim tensor as a 0-dim tensor of NumPy dtype `d`."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"{name} only supports a 0-dimensional value tensor, but got tensor with "
                               f"{value.ndim} dimension(s).")
        if value._stype == d:
            return value
        if value._stype.kind == "c" and d.kind != "c" and value._a.imag:
            raise RuntimeError(f"value cannot be converted to type {title(d).lower()} without overflow")
        return cast(value, d)
    if isinstance(value, (complex, np.complexfloating)) and d.kind != "c" and name == "index_fill_":
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    return wrap(number_as(value, d))


def _masked_fill(a, value, *, mask):
    shape = mask.get().shape
    if a.shape == shape:
        r = a.copy()
    else:
        shape = np.broadcast_shapes(a.shape, shape)
        r = np.broadcast_to(a, shape).copy()
    fill_where(r, value, mask.get())
    return r


masked_fill_ = primitive("masked_fill", _masked_fill, lambda c, g: masked_zero(g, mask=c.mask), lambda c, g: _masked_sum(g, c.mask), raw=True)
_pick_mask = primitive("masked_pick", lambda a, *, mask: masked(a, mask.get()),
                       lambda c, g: _pick_mask(g, mask=c.mask), raw=True)
masked_zero = primitive("masked_zero", lambda a, *, mask: masked(a, ~mask.get()),
                        lambda c, g: masked_zero(g, mask=c.mask), raw=True)


def _masked_sum(g, mask):
    return sum_to(_pick_mask(g, mask=mask), size=())


def _shapes_fit(x, mask):
    broadcast_shape([mask._sizes, x._sizes])


@op(inplace=True)
def masked_fill(input, mask, value):
    """input with `value` (a number or 0-dim tensor) where the bool tensor mask is True; the two are broadcast."""
    need_tensor("masked_fill", input)
    need_tensor("masked_fill", mask, "mask", 2)
    if not isinstance(value, (Tensor, *NUMBER)):
        raise TypeError("masked_fill(): argument 'value' (position 3) must be Tensor or Number, not "
                        f"{type(value).__name__}")
    value = zero_dim("masked_fill_", value, input._stype)
    m = mask._a
    if m.dtype.kind != "b":
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {m.dtype.name}")
    if m.shape != input._sizes:
        _shapes_fit(input, mask)
    return masked_fill_(input, value, mask=Places(m, (mask,)))


def _selected(a, *, mask):
    m = mask.get()
    if a.shape != m.shape:
        a, m = np.broadcast_arrays(a, m)
    return a[m]


def _select_back(g, *, shape, mask):
    r = np.zeros(np.broadcast_shapes(shape, mask.get().shape), g.dtype)
    r[np.broadcast_to(mask.get(), r.shape)] = g
    return r


masked_select_ = primitive("masked_select", _selected, lambda c, g: _masked_back(g, shape=c.shapes[0], mask=c.mask), raw=True)
_masked_back = primitive("masked_select_backward", _select_back, lambda c, g: masked_select_(g, mask=c.mask), raw=True)


@op(out=True)
def masked_select(input, mask):
    """The elements where the bool tensor mask is True, in one dimension; the two are broadcast."""
    need_tensor("masked_select", mask, "mask", 2)
    if mask._stype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if mask._sizes != input._sizes:
        _shapes_fit(input, mask)
    return masked_select_(input, mask=Places(mask._a, (mask,)))


def _masked_scatter(a, src, *, mask):
    m = mask.get()
    r = np.broadcast_to(a, np.broadcast_shapes(a.shape, m.shape)).copy()
    m = np.broadcast_to(m, r.shape)
    r[m] = src.reshape(-1)[:int(np.count_nonzero(m))]
    return r


masked_scatter_ = primitive("masked_scatter", _masked_scatter, lambda c, g: masked_zero(g, mask=c.mask),
                            lambda c, g: _source_back(g, c.mask, c.shapes[1]), raw=True)


def _source_back(g, mask, shape):
    taken = masked_select_(g, mask=mask)
    n = int(np.prod(shape, dtype=np.int64))
    return reshape_(constant_pad(taken, (0, n - taken._numel)), shape)


@op(inplace=True)
def masked_scatter(input, mask, source):
    """input with the elements of source, in order, where the bool tensor mask is True."""
    need_tensor("masked_scatter", mask, "mask", 2)
    need_tensor("masked_scatter", source, "source", 3)
    if input._stype != source._stype:
        raise RuntimeError("masked_scatter: expected self and source to have same dtypes but "
                           f"got{title(input._stype)} and "
                           f"{title(source._stype)}")
    if mask._stype.kind != "b":
        raise RuntimeError("masked_scatter_ only supports boolean masks, but got mask with dtype "
                           f"{title(mask._stype)}")
    _shapes_fit(input, mask)
    shape = np.broadcast_shapes(mask._sizes, input._sizes)
    if int(np.count_nonzero(np.broadcast_to(mask._a, shape))) > source._numel:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    return masked_scatter_(input, source, mask=Places(mask._a, (mask,)))
