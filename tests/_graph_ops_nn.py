"""Cases of tests/device/test_graph_ops_nn.py: layers, reductions, functions, products and random
ops, compiled for the npu device."""
import numpy as np

import mindtorch.torch as mt
from _graph_ops import Case, flags, positive, real, whole

F = mt.nn.functional
A = real(4, 6)
C = Case
IMAGES = real(2, 3, 6, 6)


def square(n, *lead):
    """Well-conditioned square matrices."""
    return lambda r: (r.randn(*lead, n, n) * 0.1 + 2 * np.eye(n)).astype(np.float32)


def unit(*shape):
    """Values between -0.9 and 0.9."""
    return lambda r: (r.rand(*shape) * 1.8 - 0.9).astype(np.float32)


def complexes(*shape):
    return lambda r: (r.randn(*shape) + 1j * r.randn(*shape)).astype(np.complex64)


def doubles(*shape):
    return lambda r: r.randn(*shape)


def _in_place(x, write):
    r = x.clone()
    write(r)
    return r


def _moved(norm):
    """Returns a function that computes a norm and returns its result and running statistics."""
    def f(x, *rest):
        mean, var = mt.zeros(3, device=x.device), mt.ones(3, device=x.device)
        return norm(x, mean, var, *rest), mean, var
    return f


def _recurrent(cls, **kw):
    def f(x, *weights):
        m = getattr(mt.nn, cls)(5, 4, **kw)
        names = [n for n, _ in m.named_parameters()]
        return mt.func.functional_call(m, dict(zip(names, weights)), (x,))[0]
    return f


def _weights(cls, **kw):
    return [real(*p.shape) for _, p in getattr(mt.nn, cls)(5, 4, **kw).named_parameters()]


def _attend(**kw):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **kw)


H = real(2, 2, 5, 4)

NETS = {
    # ---- norms
    "batch_norm": C(_moved(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=True)), IMAGES, positive(3), real(3), close=1e-5),
    "batch_norm rows": C(_moved(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=True)), real(8, 3), positive(3), real(3), close=1e-5),
    "batch_norm plain": C(lambda x: F.batch_norm(x, None, None, training=True), IMAGES, close=1e-5),
    "batch_norm lines": C(_moved(lambda x, m, v: F.batch_norm(x, m, v, training=True, momentum=0.3)), real(2, 3, 5), close=1e-5),
    "batch_norm eval": C(lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b), IMAGES, real(3), positive(3), positive(3), real(3), close=1e-5),
    "layer_norm": C(lambda x, w, b: F.layer_norm(x, (6,), w, b), A, positive(6), real(6), close=1e-5),
    "layer_norm plain": C(lambda x: F.layer_norm(x, (4, 6)), real(3, 4, 6), close=1e-5),
    "rms_norm": C(lambda x, w: F.rms_norm(x, (6,), w), A, positive(6), close=1e-5),
    "group_norm": C(lambda x, w, b: F.group_norm(x, 2, w, b), real(2, 4, 3, 3), positive(4), real(4), close=1e-5),
    "instance_norm": C(lambda x: F.instance_norm(x), IMAGES, close=1e-5),
    "local_response_norm": C(lambda x: F.local_response_norm(x, 2), IMAGES, close=1e-5),
    "normalize": C(lambda x: F.normalize(x, dim=1), A),
    "weight_norm": C(lambda v, g, x: F.linear(x, v * (g / mt.norm_except_dim(v, 2, 0))), real(3, 6), positive(3, 1), A, close=1e-5),
    # ---- convolutions
    "conv1d": C(lambda x, w, b: F.conv1d(x, w, b, padding=1), real(2, 3, 7), real(4, 3, 3), real(4), close=1e-5),
    "conv2d": C(lambda x, w, b: F.conv2d(x, w, b, padding=1), IMAGES, real(4, 3, 3, 3), real(4), close=1e-5),
    "conv2d strided": C(lambda x, w: F.conv2d(x, w, stride=2, padding=1), IMAGES, real(4, 3, 3, 3), close=1e-5),
    "conv2d groups": C(lambda x, w: F.conv2d(x, w, groups=3, dilation=2), IMAGES, real(3, 1, 3, 3), close=1e-5),
    "conv2d same": C(lambda x, w: F.conv2d(x, w, padding="same"), IMAGES, real(2, 3, 2, 2), close=1e-5),
    "conv3d": C(lambda x, w, b: F.conv3d(x, w, b), real(1, 2, 4, 4, 4), real(3, 2, 2, 2, 2), real(3), close=1e-5),
    "conv_transpose1d": C(lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2), real(2, 3, 5), real(3, 4, 3), real(4), close=1e-5),
    "conv_transpose2d": C(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1), real(2, 3, 4, 4), real(3, 4, 4, 4), real(4), close=1e-5),
    "conv2d one image": C(lambda x, w: F.conv2d(x, w), real(3, 5, 5), real(2, 3, 3, 3), close=1e-5),
    "unfold": C(lambda x: F.unfold(x, 3, padding=1), IMAGES),
    "fold": C(lambda x: F.fold(x, (4, 4), 2), real(2, 12, 9)),
    # ---- pools
    "max_pool1d": C(lambda x: F.max_pool1d(x, 2), real(2, 3, 8)),
    "max_pool2d": C(lambda x: F.max_pool2d(x, 2), IMAGES),
    "max_pool2d padded": C(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGES),
    "max_pool2d places": C(lambda x: F.max_pool2d(x, 2, return_indices=True)[0], IMAGES),
    "max_pool3d": C(lambda x: F.max_pool3d(x, 2), real(1, 2, 4, 4, 4)),
    "avg_pool1d": C(lambda x: F.avg_pool1d(x, 2), real(2, 3, 8)),
    "avg_pool2d": C(lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGES),
    "avg_pool3d": C(lambda x: F.avg_pool3d(x, 2), real(1, 2, 4, 4, 4)),
    "adaptive_avg_pool2d": C(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGES),
    "adaptive_avg_pool2d some": C(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGES),
    "adaptive_max_pool2d": C(lambda x: F.adaptive_max_pool2d(x, (2, 2)), IMAGES),
    "adaptive_avg_pool1d": C(lambda x: F.adaptive_avg_pool1d(x, 2), real(2, 3, 8)),
    "lp_pool2d": C(lambda x: F.lp_pool2d(x, 2, 2), real(2, 3, 6, 6), close=1e-5),
    "max_unpool2d": C(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), IMAGES),
    # ---- sizes
    "interpolate nearest": C(lambda x: F.interpolate(x, scale_factor=2), IMAGES),
    "interpolate bilinear": C(lambda x: F.interpolate(x, (5, 9), mode="bilinear"), IMAGES, close=1e-5),
    "interpolate corners": C(lambda x: F.interpolate(x, (5, 9), mode="bilinear", align_corners=True), IMAGES, close=1e-5),
    "interpolate bicubic": C(lambda x: F.interpolate(x, (5, 9), mode="bicubic"), IMAGES, close=1e-5),
    "interpolate area": C(lambda x: F.interpolate(x, (3, 2), mode="area"), IMAGES, close=1e-5),
    "grid_sample": C(lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGES, unit(2, 4, 4, 2), close=1e-5),
    "affine_grid": C(lambda t: F.affine_grid(t, (2, 3, 4, 4), align_corners=False), real(2, 2, 3), close=1e-5),
    "pixel_unshuffle": C(lambda x: F.pixel_unshuffle(x, 2), real(1, 2, 4, 4)),
    "channel_shuffle": C(lambda x: F.channel_shuffle(x, 2), real(1, 4, 3, 3), grads=False),
    # ---- attention, recurrent
    "attention": C(_attend(), H, H, H, close=1e-5),
    "attention causal": C(_attend(is_causal=True), H, H, H, close=1e-5),
    "attention mask": C(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), H, H, H, real(5, 5), close=1e-5),
    "attention flags": C(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m | mt.eye(5, device=m.device, dtype=mt.bool)), H, H, H, flags(5, 5),
                         close=1e-5),
    "attention dropout": C(_attend(dropout_p=0.3), H, H, H, close=1e-5),
    "multi_head": C(lambda x, wi, bi, wo, bo: F.multi_head_attention_forward(
        x, x, x, 6, 2, wi, bi, None, None, False, 0.1, wo, bo, training=True)[0], real(4, 2, 6), real(18, 6), real(18), real(6, 6), real(6), close=1e-5),
    "lstm": C(_recurrent("LSTM"), real(3, 2, 5), *_weights("LSTM"), close=1e-5),
    "lstm both ways": C(_recurrent("LSTM", bidirectional=True, batch_first=True), real(2, 3, 5), *_weights("LSTM", bidirectional=True), close=1e-5),
    "lstm layers": C(_recurrent("LSTM", num_layers=2, dropout=0.3), real(3, 2, 5), *_weights("LSTM", num_layers=2), close=1e-5),
    "gru": C(_recurrent("GRU"), real(3, 2, 5), *_weights("GRU"), close=1e-5),
    "rnn": C(_recurrent("RNN"), real(3, 2, 5), *_weights("RNN"), close=1e-5),
    "rnn relu": C(_recurrent("RNN", nonlinearity="relu"), real(3, 2, 5), *_weights("RNN"), close=1e-5),
    "lstm_cell": C(lambda x, h, c, wi, wh, bi, bh: mt.lstm_cell(x, (h, c), wi, wh, bi, bh), real(2, 5), real(2, 4), real(2, 4), real(16, 5), real(16, 4), real(16),
                   real(16), close=1e-5),
    "gru_cell": C(lambda x, h, wi, wh, bi, bh: mt.gru_cell(x, h, wi, wh, bi, bh), real(2, 5), real(2, 4), real(12, 5), real(12, 4), real(12), real(12), close=1e-5),
    # ---- softmax
    "softmax": C(lambda x: F.softmax(x, 1), A),
    "softmax first": C(lambda x: F.softmax(x, 0), A),
    "log_softmax": C(lambda x: F.log_softmax(x, -1), A),
    "softmin": C(lambda x: F.softmin(x, 1), A),
    "gumbel_softmax": C(lambda x: F.gumbel_softmax(x, 0.7), A, close=1e-5),
}

PRODUCTS = {
    "linear": C(F.linear, A, real(3, 6), real(3), close=1e-5),
    "linear deep": C(F.linear, real(2, 4, 6), real(3, 6), real(3), close=1e-5),
    "matmul": C(mt.matmul, A, real(6, 3), close=1e-5),
    "matmul stacks": C(mt.matmul, real(2, 4, 6), real(6, 3), close=1e-5),
    "matmul broadcast": C(mt.matmul, real(2, 1, 4, 6), real(3, 6, 3), close=1e-5),
    "matmul turned": C(lambda x, y: x.t() @ y, A, real(4, 3), close=1e-5),
    "bmm": C(mt.bmm, real(2, 4, 6), real(2, 6, 3), close=1e-5),
    "baddbmm": C(lambda c, a, b: mt.baddbmm(c, a, b, beta=0.5, alpha=2), real(2, 4, 3), real(2, 4, 6), real(2, 6, 3), close=1e-5),
    "addmm": C(lambda c, a, b: mt.addmm(c, a, b, beta=0.5, alpha=2), real(3), A, real(6, 3), close=1e-5),
    "mv": C(mt.mv, A, real(6), close=1e-5),
    "dot": C(mt.dot, real(6), real(6), close=1e-5),
    "outer": C(mt.outer, real(3), real(4)),
    "einsum": C(lambda a, b: mt.einsum("bij,bjk->bki", a, b), real(2, 4, 6), real(2, 6, 3), close=1e-5),
    "einsum outer": C(lambda a, b: mt.einsum("i,j->ij", a, b), real(3), real(4), close=1e-5),
    "tensordot": C(lambda a, b: mt.tensordot(a, b, 1), A, real(6, 3), close=1e-5),
    "bilinear": C(F.bilinear, A, real(4, 5), real(2, 6, 5), real(2), close=1e-5),
    "cross": C(lambda a, b: mt.linalg.cross(a, b), real(4, 3), real(4, 3)),
    "kron": C(mt.kron, real(2, 3), real(3, 2)),
    "cdist": C(lambda a, b: mt.cdist(a, b), A, real(5, 6), close=1e-5),
    "cdist near": C(lambda a, b: mt.cdist(a, b, p=1), A, real(5, 6), close=1e-5),
    "pairwise_distance": C(F.pairwise_distance, A, A, close=1e-5),
    "cosine_similarity": C(F.cosine_similarity, A, A, close=1e-5),
    "linalg.inv": C(mt.linalg.inv, square(4), close=1e-4),
    "linalg.solve": C(mt.linalg.solve, square(4), real(4, 2), close=1e-4),
    "linalg.det": C(mt.linalg.det, square(4), close=1e-4),
    "linalg.slogdet": C(lambda x: mt.linalg.slogdet(x)[1], square(4), close=1e-4),
    "linalg.cholesky": C(lambda x: mt.linalg.cholesky(x @ x.t() + mt.eye(4, device=x.device)), square(4), close=1e-4),
    "linalg.qr": C(lambda x: mt.linalg.qr(x), square(4), close=1e-4),
    "linalg.svdvals": C(mt.linalg.svdvals, square(4), close=1e-4),
    "linalg.solve_triangular": C(lambda a, b: mt.linalg.solve_triangular(a, b, upper=True), square(4), real(4, 2), close=1e-4),
    "linalg.norm": C(lambda x: (mt.linalg.norm(x), mt.linalg.vector_norm(x, 3, dim=1), mt.linalg.matrix_norm(x)), A, close=1e-5),
    "trace": C(mt.trace, square(4)),
    "matrix_power": C(lambda x: mt.linalg.matrix_power(x, 3), square(4), close=1e-4),
}

REDUCTIONS = {
    "sum": C(lambda x: (x.sum(), x.sum(1), x.sum((0, 1), keepdim=True)), A),
    "sum whole numbers": C(lambda x: (x.sum(), x.sum(0)), whole(9, 4, 6), grads=False),
    "sum flags": C(lambda x: (x.sum(), x.sum(0)), flags(4, 6), grads=False),
    "mean": C(lambda x: (x.mean(), x.mean(1), x.mean((0, 1), keepdim=True)), A),
    "prod": C(lambda x: (x.prod(), x.prod(1)), positive(4, 6), close=1e-5),
    "max": C(lambda x: (x.max(), x.max(1)[0], x.amax(0)), A),
    "min": C(lambda x: (x.min(), x.min(1)[0], x.amin((0, 1))), A),
    "argmax": C(lambda x: (x.argmax(), x.argmin(1)), A, grads=False),
    "var": C(lambda x: (x.var(), x.std(1), x.var(0, unbiased=False)), A, close=1e-5),
    "var_mean": C(lambda x: mt.var_mean(x, 1), A, close=1e-5),
    "norm": C(lambda x: (x.norm(), x.norm(1, dim=1), x.norm(float("inf"))), A, close=1e-5),
    "logsumexp": C(lambda x: x.logsumexp(1), A),
    "all": C(lambda x: (x.all(), x.any(1), x.any()), flags(4, 6), grads=False),
    "all numbers": C(lambda x: ((x > 0).all(0), x.any()), A, grads=False),
    "count_nonzero": C(lambda x: mt.count_nonzero(x), whole(2, 4, 6), grads=False),
    "nansum": C(lambda x: x.nansum(1), A),
    "aminmax": C(lambda x: mt.aminmax(x), A, grads=False),
    "dist": C(mt.dist, A, A, close=1e-5),
    "mean double": C(lambda x: (x.mean(0), x.var(1)), doubles(4, 6)),
}

_UNARY = ("abs neg exp exp2 expm1 sin cos tan sinh cosh tanh sigmoid atan asinh erf erfc floor ceil trunc round frac sign sgn square signbit "
          "deg2rad rad2deg i0 sinc relu")
_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal lgamma"
_UNIT = "asin acos atanh erfinv"
_NO_GRADS = ("signbit",)

FUNCTIONS = {n: C(lambda x, n=n: getattr(mt, n)(x), A, grads=n not in _NO_GRADS, close=1e-5) for n in _UNARY.split()}
FUNCTIONS |= {n: C(lambda x, n=n: getattr(mt, n)(x), positive(4, 6), close=1e-5) for n in _POSITIVE.split()}
FUNCTIONS |= {n: C(lambda x, n=n: getattr(mt, n)(x), unit(4, 6), close=1e-5) for n in _UNIT.split()}
FUNCTIONS |= {
    "acosh": C(lambda x: mt.acosh(x + 1), positive(4, 6), close=1e-5),
    "logit": C(lambda x: mt.logit(x.sigmoid(), 1e-6), A, close=1e-5),
    "xlogy": C(mt.xlogy, A, positive(4, 6), close=1e-5),
    "entr": C(mt.special.entr, positive(4, 6), close=1e-5),
    "ndtr": C(mt.special.ndtr, A, close=1e-5),
    "nan_to_num": C(mt.nan_to_num, A),
    "round decimals": C(lambda x: mt.round(x, decimals=2), A),
    # ---- binary
    "arithmetic": C(lambda x, y: (x + y, x - y, x * y, x / y), A, positive(4, 6)),
    "arithmetic rows": C(lambda x, y: (x + y, x - y, x * y, x / y), A, positive(6)),
    "arithmetic columns": C(lambda x, y: (x + y, y - x, x * y, y / x), positive(4, 1), positive(1, 6)),
    "arithmetic large": C(lambda x, y: (x + y, x - 2, 3 * x, x / y), real(64, 64), positive(64)),
    "numbers": C(lambda x: (x + 2, x - 3, 2 - x, x * 0.5, x / 4, 1 / x, 0 * x, -x), positive(4, 6)),
    "whole numbers": C(lambda x, y: (x + y, x - y, x * y, x / y, x // 2, x % 3, x + 2, 2 * x), whole(9, 4, 6), whole(9, 4, 6, low=1), grads=False),
    "add alpha": C(lambda x, y: (mt.add(x, y, alpha=2), mt.sub(x, y, alpha=0.5), mt.rsub(x, 3.0)), A, A),
    "floor_divide": C(lambda x, y: (x // y, x % y, mt.fmod(x, y), mt.div(x, y, rounding_mode="trunc")), A, positive(4, 6), grads=False),
    "remainder": C(lambda x, y: (mt.remainder(x, y), mt.fmod(x, 1.5)), A, positive(4, 6)),
    "pow": C(lambda x: (x ** 2, x ** 3, x ** 0.5, x ** -1, x ** 2.5, 2 ** x), positive(4, 6), close=1e-5),
    "pow tensors": C(mt.pow, positive(4, 6), A, close=1e-5),
    "maximum": C(lambda x, y: (mt.maximum(x, y), mt.minimum(x, y), mt.fmax(x, y), mt.fmin(x, y)), A, A),
    "atan2": C(lambda x, y: (mt.atan2(x, y), mt.hypot(x, y)), A, A, close=1e-5),
    "logaddexp": C(lambda x, y: (mt.logaddexp(x, y), mt.logaddexp2(x, y)), A, A, close=1e-5),
    "copysign": C(lambda x, y: (mt.copysign(x, y), mt.ldexp(x, y)), A, A, close=1e-5),
    "heaviside": C(lambda x, y: mt.heaviside(x, y), A, A, grads=False),
    "lerp": C(lambda x, y, w: (mt.lerp(x, y, w), mt.lerp(x, y, 0.3)), A, A, A),
    "addcmul": C(lambda x, y, z: (mt.addcmul(x, y, z, value=0.5), mt.addcdiv(x, y, z, value=2)), A, A, positive(4, 6), close=1e-5),
    "clamp": C(lambda x, y: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=1), x.clamp(min=y)), A, A),
    "clamp whole numbers": C(lambda x: (x.clamp(2, 5), x.clamp(min=3)), whole(9, 4, 6), grads=False),
    "in place": C(lambda x, y: _in_place(x, lambda r: r.add_(y).mul_(2).sub_(1).div_(3).clamp_(-1, 1)), A, A),
    "in place part": C(lambda x, y: _in_place(x, lambda r: r[1:3].mul_(2).add_(y)), A, real(2, 6)),
    "halves": C(lambda x, y: (x.half() * y.half() + 1, x.bfloat16() - y.bfloat16()), A, A, close=1e-2),
    "doubles": C(lambda x, y: (x * y, x.exp(), mt.tanh(x), x / y), doubles(4, 6), doubles(4, 6)),
    # ---- activations
    **{n: C(lambda x, n=n: getattr(F, n)(x), A, close=1e-5) for n in
       "relu relu6 leaky_relu elu selu celu silu mish gelu softplus logsigmoid hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink softsign".split()},
    "gelu tanh": C(lambda x: F.gelu(x, approximate="tanh"), A, close=1e-5),
    "prelu": C(F.prelu, real(2, 3, 4), real(3)),
    "glu": C(lambda x: F.glu(x, 1), A, close=1e-5),
    "threshold": C(lambda x: F.threshold(x, 0.1, 2.0), A),
    "relu large": C(F.relu, real(64, 64)),
    "gelu large": C(F.gelu, real(64, 64), close=1e-5),
    "relu in place": C(lambda x: F.relu(x * 1, inplace=True), A),
}

REGIONS = {
    "as_strided": C(lambda x: x.as_strided((3, 2), (6, 1), 1) * 2, A),
    "slices": C(lambda x: (x[1:, ::2] * 2, x[0], x[..., -1:]), A),
    "unfold": C(lambda x: x.unfold(1, 3, 2) * 1, A),
    "unfold over": C(lambda x: x.unfold(1, 3, 1) * 1, A),
    "slice_scatter": C(lambda x, y: mt.slice_scatter(x, y, 0, 1, 3), A, real(2, 6)),
    "select_scatter": C(lambda x, y: mt.select_scatter(x, y, 0, 1), A, real(6)),
    "view writes": C(lambda x, y: _in_place(x, lambda r: r.view(-1)[3:9].copy_(y)), A, real(6)),
    "turned writes": C(lambda x, y: _in_place(x, lambda r: r.t()[1:3].mul_(y)), A, real(2, 4)),
}

COMPLEX = {
    "fft": C(lambda x: mt.fft.fft(x).abs(), A, close=1e-4),
    "rfft": C(lambda x: mt.fft.irfft(mt.fft.rfft(x)), A, close=1e-4),
    "fft2": C(lambda x: mt.view_as_real(mt.fft.fft2(x)), A, close=1e-4),
    "complex": C(lambda x, y: (mt.complex(x, y) * mt.complex(y, x)).abs(), A, A, close=1e-5),
}

RANDOM = {
    "dropout": C(lambda x: F.dropout(x, 0.3), A),
    "dropout twice": C(lambda x: F.dropout(F.dropout(x, 0.3) * 2, 0.5), A),
    "dropout2d": C(lambda x: F.dropout2d(x, 0.4), IMAGES),
    "alpha_dropout": C(lambda x: F.alpha_dropout(x, 0.4, training=True), A, close=1e-5),
    "feature_alpha_dropout": C(lambda x: F.feature_alpha_dropout(x, 0.4, training=True), IMAGES, close=1e-5),
    "dropout half": C(lambda x: F.dropout(x.half(), 0.3), A),
    "rand": C(lambda x: (x + mt.rand(4, 6, device=x.device), mt.rand_like(x), mt.randn_like(x)), A),
    "randn": C(lambda x: x * mt.randn(4, 6, device=x.device), A),
    "randn odd": C(lambda x: mt.randn(3, 5, device=x.device) + 1, A, grads=False),
    "randint": C(lambda x: mt.randint(0, 9, (4, 6), device=x.device) + 1, A, grads=False),
    "randperm": C(lambda x: x[mt.randperm(4, device=x.device)], A),
    "uniform_": C(lambda x: _in_place(x, lambda r: r.uniform_(-1, 2)), A, grads=False),
    "normal_": C(lambda x: _in_place(x, lambda r: r.normal_(1, 2)), A, grads=False),
    "exponential_": C(lambda x: _in_place(x, lambda r: r.exponential_()), A, grads=False, close=1e-5),
    "bernoulli_": C(lambda x: _in_place(x, lambda r: r.bernoulli_(0.3)), A, grads=False),
    "rand double": C(lambda x: x + mt.rand(4, 6, device=x.device, dtype=mt.float64), doubles(4, 6)),
    "seeded within": C(lambda x: (F.dropout(x, 0.5), mt.manual_seed(7) and None, F.dropout(x, 0.5))[::2], A),
    "large": C(lambda x: F.dropout(x, 0.5), real(600, 512)),
}

#: Cases with graph breaks, and a part of the reason.
BREAKS = {"functions lgamma": "values are read",  # its gradient has only a host kernel
          # Factorizations check for singular or non-finite matrices on the host.
          **{f"products linalg.{n}": "it reads values in host memory" for n in "inv solve det slogdet cholesky qr".split()},
          **{f"complex {n}": "memory as" for n in ("fft2", "complex")}}
