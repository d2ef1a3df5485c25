"""Optimizer formulas over lists of tensors: one foreach kernel for all parameters.

MindSpore has no primitives for these kernels; they are launched by name
(`mindtorch/backend/mindspore/aclnn.py`).
"""
import math

from mindtorch.backend.mindspore import aclnn
from mindtorch.backend.mindspore.kernels._call import UnsupportedByKernel, dtype_of, ms, shape_of
from mindtorch.backend.mindspore.kernels.ascend import ascend, named, new_like, scalar_argument as _scalar

class _Kernels:
    """Launches the foreach kernels, each with its kinds of arguments (`aclnn.find`)."""

    KINDS = {"MulScalarV2": "ls", "AddScalarV2": "ls", "MaximumScalarV2": "ls", "MinimumScalarV2": "ls", "MulList": "ll", "DivList": "ll", "MaximumList": "ll",
             "AddListV2": "lls", "LerpScalar": "lls", "AddcmulScalarV2": "llls", "AddcdivScalarV2": "llls",
             "Sqrt": "l", "Abs": "l", "Neg": "l", "Copy": "l", "Reciprocal": "l"}

    def available(self):
        """True if every kernel can be launched."""
        return all(aclnn.find(f"Foreach{name}", kinds + "p") for name, kinds in self.KINDS.items())

    def new(self, name, *arguments):
        """Returns the results as new tensors, shaped like the tensors of the first list."""
        first = arguments[0]
        outputs = [new_like(t) for t in first]
        return aclnn.find(f"Foreach{name}", self.KINDS[name] + "p")(*arguments, outputs=outputs)

    def into(self, receivers, name, *arguments):
        """Writes the results to existing tensors and returns these."""
        aclnn.find(f"Foreach{name}", self.KINDS[name] + "l")(*arguments, receivers)
        return receivers


_K = _Kernels()
available = _K.available


class _Scaled:
    """A list of tensors times a factor, which the next kernel applies if it has a scalar."""

    __slots__ = ("factor", "tensors")

    def __init__(self, tensors, factor):
        self.tensors, self.factor = tensors, factor


def _parts(x):
    return (x.tensors, x.factor) if x.__class__ is _Scaled else (x, 1.0)


def _list(x):
    """Returns a list, after multiplication by its factor."""
    return _K.new("MulScalarV2", x.tensors, _scalar(x.factor)) if x.__class__ is _Scaled else x


class ForeachSpace:
    """Array namespace of lists of handles, as `mindtorch/backend/optimizer_formulas.py` expects it.
    The tensors of a list have one dtype and at least one element."""

    # ---- values
    def gradient(self, g, p, wd, maximize, decay):
        g = _K.new("Neg", g) if maximize else g
        return self.add_scaled(g, p, wd) if decay else g

    def retained(self, x):
        return x  # (values are new tensors; only rprop, which is not computed here, overwrites x first)

    def mul(self, x, y):
        x, factor = _parts(x)
        if y.__class__ in (float, int):
            return _Scaled(x, factor * y)
        y, more = _parts(y)
        r = _K.new("MulList", x, y)
        return r if factor * more == 1 else _Scaled(r, factor * more)

    def div(self, x, y):
        if x.__class__ in (float, int):
            return _Scaled(_K.new("Reciprocal", _list(y)), x)
        return self.mul(x, 1 / y) if y.__class__ in (float, int) else _K.new("DivList", _list(x), _list(y))

    def sqrt(self, x):
        return _K.new("Sqrt", _list(x))

    def plus(self, x, c):
        return _K.new("AddScalarV2", _list(x), _scalar(c))

    def add_scaled(self, x, y, c):
        y, factor = _parts(y)
        return _K.new("AddListV2", _list(x), y, _scalar(c * factor))

    def sub_square(self, x, y):
        return _K.new("AddcmulScalarV2", x, y, y, _scalar(-1.0))

    def mul_rms_ratio(self, d, x, y, eps):
        return _list(self.mul(self.div(self.sqrt(self.plus(x, eps)), self.sqrt(self.plus(y, eps))), d))

    # ---- states: a function whose name ends in _ modifies its first operand and returns the new value
    def start_(self, b, d):
        return _K.into(b, "Copy", d)

    copy_ = start_

    def lerp_(self, m, d, w):
        return _K.into(m, "LerpScalar", m, d, _scalar(float(w)))

    def moment_(self, v, d, beta, w):
        _K.into(v, "MulScalarV2", v, _scalar(beta))
        return _K.into(v, "AddcmulScalarV2", v, d, d, _scalar(w))

    def add_square_(self, v, d):
        return _K.into(v, "AddcmulScalarV2", v, d, d, _scalar(1.0))

    def maximum_(self, x, y):
        return _K.into(x, "MaximumList", x, y)

    def decay_maximum_(self, u, beta, d, eps):
        _K.into(u, "MulScalarV2", u, _scalar(beta))
        return _K.into(u, "MaximumList", u, self.plus(_K.new("Abs", d), eps))

    def decay_add_(self, b, mu, d, c):
        _K.into(b, "MulScalarV2", b, _scalar(mu))
        return _K.into(b, "AddListV2", b, d, _scalar(c))

    def decay_add_div_(self, b, mu, d, by):
        _K.into(b, "MulScalarV2", b, _scalar(mu))
        return _K.into(b, "AddcdivScalarV2", b, d, by, _scalar(1.0))

    def towards_(self, average, p, w):
        return _K.into(average, "Copy", p) if w == 1 else self.lerp_(average, p, w)

    # ---- the parameters
    def mul_(self, p, c):
        return _K.into(p, "MulScalarV2", p, _scalar(c))

    def sub_(self, p, x):
        return self.sub_scaled_(p, x, 1.0)

    def sub_scaled_(self, p, x, c):
        x, factor = _parts(x)
        return _K.into(p, "AddListV2", p, x, _scalar(-c * factor))

    def sub_div_(self, p, x, y, c):
        return _K.into(p, "AddcdivScalarV2", p, x, y, _scalar(-c))


def groups(columns, consts):
    """Returns [(const, columns)] of rows with equal constants and one dtype for each column, without
    empty rows."""
    found = {}
    for k, const in enumerate(consts):
        if math.prod(shape_of(columns[-1][k])):
            key = id(const), *[id(dtype_of(column[k])) for column in columns]
            found.setdefault(key, (const, [[] for _ in columns]))
            for rows, column in zip(found[key][1], columns):
                rows.append(column[k])
    return found.values()


def unscale(grads, found, inverse):
    """Multiplies gradients in place and sets `found` to 1 if an element is inf or nan. Gradients of
    each dtype are one launch."""
    launch = named("ForeachNonFiniteCheckAndUnscale", "ltt")
    if launch is None or any([dtype_of(g) not in _UNSCALED for g in grads]):
        raise UnsupportedByKernel
    for dtype in _UNSCALED:
        some = [g for g in grads if dtype_of(g) is dtype]
        if some:
            launch(some, found, inverse)


_UNSCALED = (ms.float32, ms.float16, ms.bfloat16)
ascend("unscale", unscale)
