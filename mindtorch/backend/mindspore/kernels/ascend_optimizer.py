"""Optimizer steps on Ascend: the operations of `mindtorch/backend/optimizer_formulas.py` as aclnn kernels.
Hyperparameters are passed as scalars and optimizer states are updated in place.

Adam and AdamW launch one kernel per parameter (two for Adam with weight decay). The other
optimizers launch foreach kernels, one for all parameters, if kernels can be launched by name
(`mindtorch/backend/mindspore/aclnn.py`), and else MindSpore's for each parameter.
"""
import functools
from typing import Any

from mindtorch.backend import optimizer_formulas
from mindtorch.backend.mindspore.kernels._call import G, Number, P, STATE, dtype_of, ms, number, op, shape_of
from mindtorch.backend.mindspore.kernels.ascend import ascend, mint
from mindtorch.backend.mindspore.kernels.ascend_foreach import ForeachSpace, available, groups

_SUPPORTED = (ms.float32, ms.float16, ms.bfloat16)


@ascend("optimizer_layout")
def _layout(handles):
    """Returns True if these kernels support the dtypes of all parameters, else None."""
    for h in handles:
        if dtype_of(h) not in _SUPPORTED:
            return None
    return True


def _write(h, value):
    op(G.InplaceCopy)(h, value)
    return value


class _Space:
    """Array namespace of handles, as `mindtorch/backend/optimizer_formulas.py` expects it."""

    # ---- values
    def gradient(self, g, p, wd, maximize, decay):
        if decay:
            return self.add_scaled(op(G.Neg)(g) if maximize else g, p, wd)
        return op(G.Neg)(g) if maximize else g

    def retained(self, x):
        return op(G.Copy)(x)  # a copy, because states are modified in place

    def mul(self, x, y):
        return op(G.Muls)(x, y) if y.__class__ in (float, int, Number) else op(G.Mul)(x, y)

    def div(self, x, y):
        return mint.div(x, y)

    def sqrt(self, x):
        return op(G.Sqrt)(x)

    def plus(self, x, c):
        return op(G.AddScalar)(x, c, 1)

    def less(self, x, c):
        return mint.lt(x, number(c, dtype_of(x)))

    def add_scaled(self, x, y, c):
        return op(G.AddExt)(x, y, c)

    def sub_square(self, x, y):
        return op(G.SubExt)(x, op(G.Mul)(y, y), 1)

    def mul_rms_ratio(self, d, x, y, eps):
        return op(G.Mul)(mint.div(self.sqrt(self.plus(x, eps)), self.sqrt(self.plus(y, eps))), d)

    def by_sign(self, x, negative, above, below):
        return mint.where(negative, number(below, dtype_of(x)), mint.where(mint.gt(x, number(0.0, dtype_of(x))),
                                                                           number(above, dtype_of(x)), number(1.0, dtype_of(x))))

    def zero_where(self, x, mask):
        return mint.where(mask, number(0.0, dtype_of(x)), x)

    # ---- states: a function whose name ends in _ modifies its first operand and returns the new value
    def start_(self, b, d):
        _write(b, d)
        return b

    copy_ = start_

    def lerp_(self, m, d, w):
        return _write(m, op(G.LerpScalar)(m, d, w))

    def moment_(self, v, d, beta, w):
        op(G.InplaceMuls)(v, beta)
        return op(G.InplaceAddExt)(v, op(G.Mul)(d, d), w)

    def add_square_(self, v, d):
        return op(G.InplaceAddExt)(v, op(G.Mul)(d, d), 1)

    def maximum_(self, x, y):
        return _write(x, op(P.Maximum)(x, y))

    def decay_maximum_(self, u, beta, d, eps):
        return _write(u, op(P.Maximum)(op(G.Muls)(u, beta), self.plus(op(G.Abs)(d), eps)))

    def decay_add_(self, b, mu, d, c):
        op(G.InplaceMuls)(b, mu)
        return op(G.InplaceAddExt)(b, d, c)

    def decay_add_div_(self, b, mu, d, by):
        return self.decay_add_(b, mu, mint.div(d, by), 1)

    def clamped_mul_(self, x, y, low, high):
        return _write(x, op(G.ClampScalar)(op(G.Mul)(x, y), low, high))

    def towards_(self, average, p, w):
        return _write(average, p if w == 1 else op(G.LerpScalar)(average, p, w))

    # ---- the parameter
    def mul_(self, p, c):
        return op(G.InplaceMuls)(p, c)

    def sub_(self, p, x):
        return op(G.InplaceSubExt)(p, x, 1)

    def sub_scaled_(self, p, x, c):
        return op(G.InplaceSubExt)(p, x, c)

    def sub_div_(self, p, x, y, c):
        return op(G.InplaceSubExt)(p, mint.div(x, y), c)

    def sub_signed_(self, p, x, y):
        return op(G.InplaceSubExt)(p, op(G.Mul)(op(G.Sign)(x), y), 1)


_SPACE, _FOREACH = _Space(), ForeachSpace()


def _by_words(update, layout, columns, consts):
    # A graph has MindSpore's primitives only, and rprop selects by signs.
    if STATE.on is None and update is not optimizer_formulas.STEPS["rprop_step"] and available():
        for (options, scalars), rows in groups(columns, consts):
            *row, g = rows
            update(_FOREACH, options, scalars, g, *row)
        return
    for (options, scalars), *row, g in zip(consts, *columns):
        if 0 not in shape_of(g):
            update(_SPACE, options, scalars, g, *row)


def _adam(layout, columns, consts):
    """Runs Adam and AdamW with the AdamW kernel. The kernel receives a step number so large that
    its bias corrections are 1; the learning rate and epsilon passed to it include the real ones."""
    far = number(1e9, ms.float32)
    # Created once for all parameters that share hyperparameters: in a graph they are arguments.
    made: dict[int, Any] = {}
    for (options, scalars), *row, g in zip(consts, *columns):
        maximize, decay, decoupled, amsgrad = options
        size, root, eps, wd, w1, b2, _ = scalars
        p, m, v = row[:3]
        if id(scalars) not in made:
            rate = size * root
            made[id(scalars)] = rate, 1 - w1, (1 - wd) / rate if rate and decay and decoupled else 0.0, eps * root
        rate, b1, fading, least = made[id(scalars)]
        if 0 in shape_of(g):
            continue
        if not rate or any([dtype_of(h) is not ms.float32 for h in (*row, g)]):
            optimizer_formulas.adam(_SPACE, options, scalars, g, *row)
            continue
        if decay and not decoupled:
            g, maximize = _SPACE.gradient(g, p, wd, maximize, True), False
        # With decoupled decay, `wd` is the factor 1 - lr * decay. The kernel computes this factor
        # from the rate and the decay that it receives.
        op(G.AdamW)(p, m, v, row[3] if amsgrad else v, g, far, rate, b1, b2, fading, least, amsgrad, maximize)


for _name, _update in optimizer_formulas.STEPS.items():
    ascend(_name, functools.partial(_by_words, _update) if _name != "adam_step" else _adam)
