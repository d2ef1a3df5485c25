"""all and any along axes; scatter and gather along one axis, from which max, sort, topk, median and
their gradients are built."""
from mindtorch.core.primitives import primitive

#: `put_at`: zeros of `shape` with the values at `index` (a tensor) along `axis`. `keepdim`: index
#: and values have full rank. `repeated`: an index may occur several times, and its values are
#: summed. `take_at` is the adjoint.
put_at = primitive("put_along", "g, index, *, axis, keepdim, shape, repeated", lambda c, g: take_at(
    g, c.index, axis=c.axis, keepdim=c.keepdim, shape=c.shape, repeated=c.repeated), None)
take_at = primitive("take_along", "g, index, *, axis, keepdim, shape, repeated", lambda c, g: put_at(
    g, c.index, axis=c.axis, keepdim=c.keepdim, shape=c.shape, repeated=c.repeated), None, node="GatherBackward0")

all_, any_ = primitive("all", "a, *, axes, keepdim"), primitive("any", "a, *, axes, keepdim")
