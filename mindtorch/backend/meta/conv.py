"""Convolutions."""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array
from mindtorch.backend.sizes import out_size


@kernel("convolution")
def _conv(fwd, arrays, kw):
    x, w = arrays[:2]
    out = kw.get("out")
    if out is None:
        out = out_size(x.shape[2:], w.shape[2:], kw["stride"], kw["padding"], kw["dilation"])
    return meta_array((x.shape[0], w.shape[0], *out), x.dtype)


@kernel("convolution_transposed")
def _conv_transposed(fwd, arrays, kw):
    g, w = arrays[:2]
    return meta_array((g.shape[0], w.shape[1] * kw["groups"], *kw["size"]), g.dtype)


@kernel("convolution_weight")
def _conv_weight(fwd, arrays, kw):
    g, x = arrays
    return meta_array((g.shape[1], x.shape[1] // kw["groups"], *kw["kernel"]), g.dtype)


@kernel("expand_channels")
def _spread(fwd, arrays, kw):
    return meta_array(kw["shape"], arrays[0].dtype)
