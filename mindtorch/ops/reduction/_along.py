"""all and any along axes; scatter and gather along one axis, from which max, sort, topk, median and
their gradients are built."""
from mindtorch.core.dispatch.primitives import primitive

#: `put_at`: zeros of `shape` with the values at `index` (a tensor) along `axis`. `keepdim`: index
#: and values have full rank. `repeated`: an index may occur several times, and its values are
#: summed. `take_at` is the adjoint.
put_at = primitive("put_along", "g, index, *, axis, keepdim, shape, repeated", lambda ctx, grad: take_at(
    grad, ctx.index, axis=ctx.axis, keepdim=ctx.keepdim, shape=ctx.shape, repeated=ctx.repeated), None)
take_at = primitive("take_along", "g, index, *, axis, keepdim, shape, repeated", lambda ctx, grad: put_at(
    grad, ctx.index, axis=ctx.axis, keepdim=ctx.keepdim, shape=ctx.shape, repeated=ctx.repeated), None, node="GatherBackward0")

all_, any_ = primitive("all", "a, *, axes, keepdim"), primitive("any", "a, *, axes, keepdim")
