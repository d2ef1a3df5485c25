"""Optimizer steps on MindSpore's CPU target (Ascend: `ascend_optimizer.py`): the updates of
`mindtorch/backend/optimizer_formulas.py` over handles, one parameter at a time.

MindSpore's own Adam and Momentum are used where they are correct, with one launch per parameter.
They write in place, but only to memory in C order; other parameters are updated in a copy that is
written back. ApplyMomentum's Nesterov form (off by 1e-1) and ApplyRMSProp (adds epsilon under the
root) differ from PyTorch and are not used.
"""
import functools

import numpy as np


from mindtorch.backend import optimizer_formulas
from mindtorch.backend.mindspore.kernels._call import STATE, Number, P, copied, dtype_of, from_contiguous, kernel, ms, number, plain, shape_of
from mindtorch.backend.mindspore.npu import Npu

_memory = Npu("CPU")
_add, _mul, _sqrt = P.Add(), P.Mul(), P.Sqrt()
_sub, _div = P.Sub(), P.RealDiv()
_neg, _abs, _sign, _square = P.Neg(), P.Abs(), P.Sign(), P.Square()
_maximum, _minimum, _less, _greater, _select, _zeros = P.Maximum(), P.Minimum(), P.Less(), P.Greater(), P.Select(), P.ZerosLike()


def layout(handles):
    """Returns True if these kernels support all parameters, which must be float32; else None."""
    f32 = ms.float32
    for h in handles:
        if dtype_of(h) is not f32:
            return None
    return True


def _write(h, value):
    _memory.write(h, value)
    return value


def _number(c):
    """Converts a scalar to an operand. The scalars of a step change in every step, so they are not
    cached."""
    if c.__class__ is Number:
        return number(c, ms.float32)
    return from_contiguous(np.array(c, np.float32)) if c.__class__ is float or c.__class__ is int else c


class _Space:
    """Array namespace of handles, as `mindtorch/backend/optimizer_formulas.py` expects it."""

    # ---- values
    def gradient(self, g, p, wd, maximize, decay):
        if decay:
            return (_sub if maximize else _add)(_mul(p, _number(wd)), g)
        return _neg(g) if maximize else g

    def retained(self, x):
        return x

    def mul(self, x, y):
        return _mul(x, _number(y))

    def div(self, x, y):
        return _div(_number(x), _number(y))  # RAdam divides a scalar

    def sqrt(self, x):
        return _sqrt(x)

    def plus(self, x, c):
        return _add(x, _number(c))

    def less(self, x, c):
        return _less(x, _number(c))

    def add_scaled(self, x, y, c):
        return _add(x, _mul(y, _number(c)))

    def sub_square(self, x, y):
        return _sub(x, _square(y))

    def mul_rms_ratio(self, d, x, y, eps):
        eps = _number(eps)
        return _mul(_div(_sqrt(_add(x, eps)), _sqrt(_add(y, eps))), d)

    def by_sign(self, x, negative, above, below):
        zero = _zeros(x)
        one = _add(zero, _number(1))
        r = _select(_greater(x, _number(0)), _mul(one, _number(above)), one)
        return _select(negative, _mul(one, _number(below)), r)

    def zero_where(self, x, mask):
        return _select(mask, _zeros(x), x)

    # ---- states: a function whose name ends in _ modifies its first operand and returns the new value
    def start_(self, b, d):
        return _write(b, d)

    copy_ = start_

    def lerp_(self, m, d, w):
        return _write(m, _add(m, _mul(_sub(d, m), _number(w))))

    def moment_(self, v, d, beta, w):
        return _write(v, _add(_mul(v, _number(beta)), _mul(_square(d), _number(w))))

    def add_square_(self, v, d):
        return _write(v, _add(v, _square(d)))

    def maximum_(self, x, y):
        return _write(x, _maximum(x, y))

    def decay_maximum_(self, u, beta, d, eps):
        return _write(u, _maximum(_mul(u, _number(beta)), _add(_abs(d), _number(eps))))

    def decay_add_(self, b, mu, d, c):
        return _write(b, _add(_mul(b, _number(mu)), d if c == 1 else _mul(d, _number(c))))

    def decay_add_div_(self, b, mu, d, by):
        return _write(b, _add(_mul(b, _number(mu)), _div(d, by)))

    def clamped_mul_(self, x, y, low, high):
        return _write(x, _minimum(_maximum(_mul(x, y), _number(low)), _number(high)))

    def towards_(self, average, p, w):
        return _write(average, _add(average, _mul(_sub(p, average), _number(w))))

    # ---- the parameter
    def mul_(self, p, c):
        return _write(p, _mul(p, _number(c)))

    def sub_(self, p, x):
        return _write(p, _sub(p, x))

    def sub_scaled_(self, p, x, c):
        return _write(p, _sub(p, _mul(x, _number(c))))

    def sub_div_(self, p, x, y, c):
        return _write(p, _sub(p, _mul(_div(x, y), _number(c))))

    def sub_signed_(self, p, x, y):
        return _write(p, _sub(p, _mul(_sign(x), y)))


_SPACE = _Space()


def _by_words(update, layout, columns, consts):
    """Updates all parameters with tensor ops."""
    for (options, scalars), *row, g in zip(consts, *columns):
        if 0 not in shape_of(g):
            update(_SPACE, options, scalars, g, *row)


def _fused(step, update, columns, consts):
    """Calls step(options, numbers, gradient, *states) for each parameter that MindSpore's kernel
    supports. It does not support 0-d tensors, which use `update`."""
    for (options, scalars), *row, g in zip(consts, *columns):
        sizes = shape_of(g)
        if 0 in sizes:
            continue
        if not sizes:
            update(_SPACE, options, scalars, g, *row)
            continue
        # In a graph, MindSpore's optimizer kernels can only write to Parameters.
        if STATE.on is not None and not all([STATE.on.is_state(h) for h in row]):
            update(_SPACE, options, scalars, g, *row)
            continue
        given = [plain(h) for h in row]
        if all([h is not None for h in given]):
            step(options, scalars, g, *given)
        else:
            own = [copied(h) for h in row]
            step(options, scalars, g, *own)
            for h, new in zip(row, own):
                _write(h, new)


# ------------------------------------------------------------------ SGD
_momentum, _descent = P.ApplyMomentum(), P.ApplyGradientDescent()
_update_sgd, _update_adam = optimizer_formulas.STEPS["sgd_step"], optimizer_formulas.STEPS["adam_step"]


def _sgd(options, scalars, g, p, b=None):
    maximize, decay, momentum, nesterov, first = options
    lr, wd, mu, damp = scalars
    d = _SPACE.gradient(g, p, wd, maximize, decay)
    if not momentum:
        _descent(p, number(lr, ms.float32), d)
        return
    if first:
        _write(b, d)
        _descent(p, number(lr * (1 + mu) if nesterov else lr, ms.float32), d)
    elif not nesterov and damp == 1:
        # 60 us vs 150 us with two separate writes
        _momentum(p, b, number(lr, ms.float32), d, number(mu, ms.float32))
    else:
        b = _SPACE.decay_add_(b, mu, d, damp)
        _descent(p, number(lr, ms.float32), _SPACE.add_scaled(d, b, mu) if nesterov else b)


def sgd(layout, columns, consts):
    _fused(_sgd, _update_sgd, columns, consts)


# ------------------------------------------------------------------ Adam
_adam_op, _amsgrad_op = P.Adam(), P.ApplyAdamWithAmsgradV2()


class _Scalars:
    """Scalars of an Adam step as operands, cached while consecutive parameters share them."""

    __slots__ = ("of", "rate", "eps", "decay")

    def __init__(self):
        self.of = None

    def get(self, scalars):
        if self.of is not scalars:
            size, root, eps, wd = scalars[:4]
            # MindSpore's update is lr * m / (sqrt(v) + eps). The bias corrections are folded into
            # lr and eps, and its own corrections are disabled by beta powers of 0.
            self.of, self.rate, self.eps, self.decay = scalars, _number(size * root), _number(eps * root), _number(wd)
        return self


_scalars = _Scalars()


def _adam(options, scalars, g, p, m, v, largest=None):
    maximize, decay, decoupled, amsgrad = options
    s = _scalars.get(scalars)
    f32 = ms.float32
    beta1, beta2, zero = number(1 - scalars[4], f32), number(scalars[5], f32), number(0.0, f32)
    if decay and decoupled:
        _write(p, _mul(p, s.decay))
    d = _SPACE.gradient(g, p, s.decay, maximize, decay and not decoupled)
    if amsgrad:
        _amsgrad_op(p, m, v, largest, zero, zero, s.rate, beta1, beta2, s.eps, d)
    else:
        _adam_op(p, m, v, zero, zero, s.rate, beta1, beta2, s.eps, d)


def adam(layout, columns, consts):
    _fused(_adam, _update_adam, columns, consts)


kernel("optimizer_layout", layout, target="CPU")
for _name, _update in optimizer_formulas.STEPS.items():
    kernel(_name, {"sgd_step": sgd, "adam_step": adam}.get(_name) or functools.partial(_by_words, _update), target="CPU")
