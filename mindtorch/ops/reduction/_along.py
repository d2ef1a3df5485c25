"""Truth along axes; picking and placing elements along one axis: what max, sort, topk, median ... and their gradients are made of."""
from mindtorch.core.tape import primitive

#: put_at: zeros of `shape` with the values at `index` (a tensor) along `axis`; `keepdim`: index and values have full
#: rank; `repeated`: several values may meet at one place and add up.  take_at is its adjoint.
put_at = primitive("put_along", "g, index, *, axis, keepdim, shape, repeated", lambda c, g: take_at(
    g, c.index, axis=c.axis, keepdim=c.keepdim, shape=c.shape, repeated=c.repeated), None)
take_at = primitive("take_along", "g, index, *, axis, keepdim, shape, repeated", lambda c, g: put_at(
    g, c.index, axis=c.axis, keepdim=c.keepdim, shape=c.shape, repeated=c.repeated), None, node="GatherBackward0")

all_, any_ = primitive("all", "a, *, axes, keepdim"), primitive("any", "a, *, axes, keepdim")
