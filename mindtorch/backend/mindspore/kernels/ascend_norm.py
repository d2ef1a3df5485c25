"""Ascend: RMS norm and instance norm, one launch forward, one for all gradients."""
from mindtorch.backend.mindspore.kernels._call import G, UnsupportedByKernel, dtype_of, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend, ones
from mindtorch.backend.mindspore.kernels.ascend_nn import _group_norm


@ascend("rms_norm", only=CUBE)
def _rms_norm(x, w, *, n, dims, eps):
    d, s = dtype_of(x), shape_of(x)
    if w is not None and dtype_of(w) is not d:
        raise UnsupportedByKernel
    y, rstd = op(G.RmsNorm, float(eps))(reshape(x, (-1, n)), ones(n, d) if w is None else reshape(w, (n,)))
    return reshape(y, s), reshape(rstd, (-1,))


@ascend("rms_norm_backward", only=CUBE)
def _rms_norm_backward(g, x, w, rstd, *, n, needs):
    d, s = dtype_of(x), shape_of(x)
    gx, gw = op(G.RmsNormGrad)(reshape(g, (-1, n)), reshape(x, (-1, n)), reshape(rstd, (-1, 1)), ones(n, d) if w is None else reshape(w, (n,)))
    if not needs[1]:
        return reshape(gx, s) if needs[0] else None, None
    gw = reshape(gw, shape_of(w))
    return reshape(gx, s) if needs[0] else None, gw if dtype_of(gw) is dtype_of(w) else op(G.Cast)(gw, dtype_of(w))


ascend("native_instance_norm", _group_norm, only=CUBE)


@ascend("instance_statistics", only=CUBE)
def _instance_statistics(x):
    """Returns the mean and variance of each channel of each sample, averaged over the samples:
    three launches."""
    var, mean = op(G.VarMean)(x, tuple(range(2, len(shape_of(x)))), 0, False)
    return op(G.MeanExt)(mean, (0,), False, None), op(G.MeanExt)(var, (0,), False, None)


@ascend("channel_window_sum", only=CUBE)
def _window_sum(x, *, size, before):
    """Sums windows of channels by an average pool over channels as rows of an image, with divisor 1
    (two launches)."""
    s = shape_of(x)
    if size > 255:
        raise UnsupportedByKernel  # aclnn does not support larger windows
    rows = op(G.ConstantPadND)(reshape(x, (s[0], 1, s[1], -1)), (0, 0, before, size - 1 - before), 0)
    return reshape(op(G.AvgPool2D)(rows, (size, 1), (1, 1), (0, 0), False, True, 1), s)
