"""Activations and softmax, whose result has the shape of the first operand; helper kernels shared
by losses."""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array
from mindtorch.backend.meta.elementwise import elementwise

kernel("hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh negative_part_backward prelu_kernel silu silu_backward threshold",
       elementwise)


@kernel("softmax log_softmax softmax_backward log_softmax_backward rrelu_noise")
def _same(fwd, arrays, kw):
    return meta_array(arrays[0].shape, arrays[0].dtype, arrays[0])


@kernel("gelu")
def _gelu(fwd, arrays, kw):
    return _same(fwd, arrays, kw), None


@kernel("gelu_backward")
def _gelu_grad(fwd, arrays, kw):
    return _same(fwd, arrays[1:], kw)


@kernel("mean_elements sum_elements")
def _total(fwd, arrays, kw):
    return meta_array((), arrays[0].dtype)


@kernel("expand_elements")
def _spread(fwd, arrays, kw):
    return meta_array(kw["shape"], arrays[0].dtype)
