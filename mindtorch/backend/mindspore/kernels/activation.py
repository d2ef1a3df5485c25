"""Activation functions and their gradients. On Ascend, rows with a target are one aclnn launch."""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import mint, ASCEND, HALF, G, UnsupportedByKernel, P, all_of, cast, dtype_of, kernel, ms, op, shape_of
from mindtorch.backend.mindspore.kernels.ascend import CUBE

FLOATS = "float32 float64" if not ASCEND else "float32 float64 float16 bfloat16"
REAL = FLOATS + " int8 int16 int32 int64 uint8"


# ------------------------------------------------------------------ piecewise linear
# ReLU, 2 us faster, turns nan into 0
kernel("relu", lambda x: o.at_least(x, 0), target="CPU", only=REAL)
kernel("relu", lambda x: op(G.ReLU)(x), target="Ascend", only=CUBE)
kernel("relu_backward", lambda g, y: op(G.ReluGrad)(g, y), target="Ascend", only=CUBE)


@kernel("relu_backward", target="CPU", only=FLOATS)
def _relu_grad(g, y):
    if dtype_of(y) is not ms.float32:
        return o.where(o.le(y, 0), 0, g)
    # SoftShrinkGrad with 0 passes the gradient where y is outside of [0, 0]. y is never below 0,
    # and nan is outside, so nan passes the gradient, which ReluGrad sets to 0. 16x32x32x32 in a
    # graph: 111 us, ReluGrad 116, the gradient of Minimum(y, 1) 470; comparison and Select take
    # four times as long.
    return op(G.SoftShrinkGrad, 0.0)(g, y)


kernel("negative_part", lambda x: o.at_most(x, 0), only=REAL)
kernel("negative_part_backward", lambda g, x: o.where(o.gt(x, 0), 0, g), only=FLOATS)


kernel("leaky_relu", lambda x, *, slope: op(G.LeakyReLUExt)(x, slope), target="Ascend", only=CUBE)
kernel("leaky_relu_backward", lambda g, x, *, slope: op(G.LeakyReLUGradExt)(g, x, slope, False), target="Ascend", only=CUBE)


@kernel("leaky_relu", target="CPU", only=FLOATS)
def _leaky_relu(x, *, slope):
    # slope * x is below x for positive x, and above it for negative x.
    if 0 < slope <= 1:
        return op(P.Maximum)(x, o.mul(x, slope))
    return o.where(o.gt(x, 0), x, o.mul(x, slope))


@kernel("leaky_relu_backward", target="CPU", only=FLOATS)
def _leaky_relu_grad(g, x, *, slope):
    if 0 <= slope <= 1 and dtype_of(x) is ms.float32:
        # The derivative is 1 where x is positive, else the slope. Faster by a factor of 4 than
        # comparison and Select.
        return op(P.Mul)(g, op(P.Maximum)(o.scalar_like(slope, x), op(G.ReluGrad)(all_of(1, x), x)))
    return o.where(o.gt(x, 0), g, o.mul(g, slope))


kernel("prelu_kernel", lambda x, w: o.where(o.gt(x, 0), x, o.mul(x, w)), only=FLOATS)
kernel("hardtanh_backward", lambda g, x, *, low, high: o.where(o.or_(o.le(x, low), o.ge(x, high)), 0, g), only=FLOATS)
kernel("threshold", lambda x, *, threshold, value: o.where(o.le(x, threshold), value, x), only=REAL)
kernel("threshold_backward", lambda g, x, *, threshold: o.where(o.le(x, threshold), 0, g), only=FLOATS)
kernel("hardshrink", lambda x, *, lambd: o.where(o.le(o.abs_(x), lambd), 0, x), only=FLOATS)


@kernel("shrink_backward", only=FLOATS)
def _shrink_grad(g, x, *, lambd):
    if dtype_of(x) is ms.float32 and not ASCEND:
        return op(G.HShrinkGrad, lambd)(g, x)
    return o.where(o.le(o.abs_(x), lambd), 0, g)


kernel("softshrink", lambda x, *, lambd: o.sub(x, o.at_most(o.at_least(x, -lambd), lambd)), only=FLOATS)


def _sixths(x):
    """Returns min(max(x + 3, 0), 6) / 6."""
    return mint.nn.functional.hardsigmoid(x) if ASCEND else op(P.HSigmoid)(x)


kernel("hardsigmoid", lambda x: _sixths(x), only=FLOATS)


# HSigmoidGrad takes a fifth of the time, but passes the gradient where x is nan.
kernel("hardsigmoid_backward", lambda g, x: o.where(o.lt(o.abs_(x), 3), o.div(g, 6), 0), only=FLOATS)
kernel("hardswish", lambda x: o.mul(x, _sixths(x)), only=FLOATS)


@kernel("hardswish_backward", only=FLOATS)
def _hardswish_grad(g, x):
    # HSwishGrad treats the end points as inside.
    inside = o.mul(g, o.add(o.div(x, 3), 0.5))
    return o.where(o.le(x, -3), 0, o.where(o.ge(x, 3), g, inside))


# ------------------------------------------------------------------ exponential
kernel("sigmoid_backward", lambda g, y: op(G.SigmoidGrad)(y, g), only=CUBE if ASCEND else FLOATS)
kernel("tanh_backward", lambda g, y: op(G.TanhGrad)(y, g), only=CUBE if ASCEND else FLOATS)


def _scaled(x, k):
    return x if k == 1 else o.mul(x, k)


@kernel("elu celu", only=FLOATS)
def elu(x, *, alpha, scale, input_scale):
    return o.where(o.gt(x, 0), _scaled(x, scale), _scaled(o.expm1(_scaled(x, input_scale)), alpha * scale))


@kernel("elu_backward celu_backward", only=FLOATS)
def elu_backward(g, x, *, alpha, scale, input_scale):
    slope = _scaled(o.exp(_scaled(x, input_scale)), alpha * scale * input_scale)
    return o.mul(g, o.where(o.le(x, 0), slope, float(scale)))


# SiLU takes as long
kernel("silu", lambda x: o.mul(x, o.sigmoid(x)), target="CPU", only=FLOATS)
kernel("silu", lambda x: op(G.SiLU)(x), target="Ascend", only=CUBE)
kernel("silu_backward", lambda g, x: op(G.SiLUGrad)(g, x), target="Ascend", only=CUBE)


@kernel("silu_backward", target="CPU", only=FLOATS)
def _silu_grad(g, x):
    """Returns g s (1 + x (1 - s)), where s is the logistic function of x."""
    s = o.sigmoid(x)
    return o.mul(g, o.mul(s, o.add(o.mul(x, o.sub(1, s)), 1)))


def _mish_parts(x):
    """Returns (exp(x), n) with tanh(log(1 + exp(x))) = n / (n + 2)."""
    e = o.exp(o.at_most(x, 20.0))
    return e, o.mul(e, o.add(e, 2))


@kernel("mish", only=FLOATS)
def _mish(x):
    _, n = _mish_parts(x)
    return o.mul(x, o.quotient(n, o.add(n, 2)))


@kernel("mish_backward", only=FLOATS)
def _mish_grad(g, x):
    e, n = _mish_parts(x)
    t = o.quotient(n, o.add(n, 2))
    slope = o.mul(o.mul(o.sub(1, o.square(t)), o.quotient(e, o.add(e, 1))), x)
    return o.mul(g, o.add(slope, t))


def _log_of_more(x):
    """Returns log(1 + exp(-|x|)); x is float64 on the CPU target."""
    e = o.exp(o.neg(o.abs_(x)))
    return o.log1p(e) if ASCEND else o.log1p_small(e)


@kernel("softplus", only=FLOATS)
@o.in_double
def softplus(x, *, beta, threshold):
    if beta == 0:
        raise UnsupportedByKernel  # the result is infinity, by a reciprocal that Python cannot compute
    z = _scaled(x, beta)
    return o.where(o.gt(z, threshold), x, _scaled(o.add(o.at_least(z, 0), _log_of_more(z)), 1 / beta))


@kernel("softplus_backward", only=FLOATS)
def softplus_backward(g, x, *, beta, threshold):
    z = _scaled(x, beta)
    return o.where(o.gt(z, threshold), g, o.mul(g, o.sigmoid(z)))


kernel("log_sigmoid", o.in_double(lambda x: o.sub(o.at_most(x, 0), _log_of_more(x))), only=FLOATS)
kernel("log_sigmoid_backward", lambda g, x: o.quotient(g, o.add(o.exp(x), 1)), only=FLOATS)


# ------------------------------------------------- gelu: x times the normal CDF, exactly or by tanh
_K, _CUBE = math.sqrt(2 / math.pi), 0.044715
_LOG_PEAK = -0.5 * math.log(2 * math.pi)


def _tanh_part(x, s):
    """Returns tanh(k (x + c x^3)), with s = x^2."""
    return o.tanh(o.mul(o.mul(x, _K), o.add(o.mul(s, _CUBE), 1)))


#: Number of elements from which float32's tanh form is computed as x times a logistic function,
#: whose values are saved. 4x64x512: 240 us in a graph and 640 eager, GeLU 2150 and 2780; its
#: gradient 400 and 1240, GeLUGrad 2930 and 3030. (32768 elements, eager: 910 vs GeLU 1400, gradient
#: 1830 vs GeLUGrad 1440.)
_MANY = 65536


def _by_square(x, a, more=1):
    """Returns a k x (1 + more c x^2)."""
    return o.mul(o.add(o.mul(o.mul(x, x), a * _K * _CUBE * more), a * _K), x)


@kernel("gelu", target="CPU", only="float32 float64 float16 bfloat16")
def _gelu(x, *, approximate):
    d, x = dtype_of(x), o.upcast(x)
    if approximate == "tanh" and dtype_of(x) is ms.float32 and math.prod(shape_of(x)) >= _MANY:
        saved = o.sigmoid(_by_square(x, 2))
        r = o.mul(x, saved)
    elif approximate == "tanh":
        # GeLU's constants have six digits.
        r, saved = op(P.GeLU)(x) if dtype_of(x) is ms.float32 else o.mul(o.div(x, 2), o.add(_tanh_part(x, o.square(x)), 1)), None
    else:
        # The saved value is twice the CDF.
        saved = o.add(o.erf(o.mul(x, math.sqrt(0.5))), 1)
        r = o.mul(o.mul(x, 0.5), saved)
    return (cast(r, d) if d in HALF else r), saved


@kernel("gelu_backward", target="CPU", only=FLOATS)
def _gelu_grad(g, x, t, *, approximate):
    if approximate != "tanh":
        saved = o.add(o.erf(o.mul(x, math.sqrt(0.5))), 1) if t is None else t
        density = o.exp(o.add(o.mul(o.square(x), -0.5), _LOG_PEAK))
        return o.mul(g, o.add(o.mul(saved, 0.5), o.mul(x, density)))
    if t is not None:
        # p (1 + (1 - p) u'), where 1 - p is computed as the logistic function of -u: the
        # subtraction would lose digits.
        slope = o.mul(o.sigmoid(_by_square(x, -2)), _by_square(x, 2, 3))
        return o.mul(g, o.mul(t, o.add(slope, 1)))
    if dtype_of(x) is ms.float32:
        return op(G.GeLUGrad)(g, x, x)
    # GeLUGrad computes with seven digits in float64 too.
    s = o.square(x)
    t = _tanh_part(x, s)
    slope = o.mul(o.mul(o.sub(1, o.square(t)), o.div(x, 2)), o.mul(o.add(o.mul(s, 3 * _CUBE), 1), _K))
    return o.mul(g, o.add(o.div(o.add(t, 1), 2), slope))


kernel("gelu", lambda x, *, approximate: (op(G.GeluExt)(x, approximate), None), target="Ascend", only=CUBE)
kernel("gelu_backward", lambda g, x, t, *, approximate: op(G.GeluGradExt)(g, x, approximate), target="Ascend", only=CUBE)


# ------------------------------------------------------------------ glu
def _halves(x, dim):
    n = shape_of(x)[dim] // 2
    return x.narrow(dim, 0, n), x.narrow(dim, n, n)


@kernel("glu", only=FLOATS)
def _glu(x, *, dim):
    """Returns the first half along `dim` times the logistic function of the second."""
    if not ASCEND:
        return op(P.GLU, dim)(x)
    a, b = _halves(x, dim)
    return o.mul(a, o.sigmoid(b))


@kernel("glu_backward", only=FLOATS)
def _glu_grad(g, x, *, dim):
    a, b = _halves(x, dim)
    s = o.sigmoid(b)
    parts = o.mul(g, s), op(G.SigmoidGrad)(s, o.mul(g, a))
    return mint.cat(parts, dim) if ASCEND else op(P.Concat, dim)(parts)
