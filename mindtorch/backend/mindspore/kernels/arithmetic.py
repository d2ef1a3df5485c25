"""Arithmetic of two operands."""
from mindtorch.backend.mindspore.kernels._call import ASCEND, G, P, dtype_of, kernel, ms, number, op


def _pair(a, b):
    if a.__class__ in (int, float, bool, complex):
        return number(a, dtype_of(b)), b
    return (a, b) if b.__class__ not in (int, float, bool, complex) else (a, number(b, dtype_of(a)))


def _binary(name, prim, on_bools=None):
    @kernel(name, numbers=True)
    def f(a, b):
        a, b = _pair(a, b)
        return op(prim if on_bools is None or dtype_of(a) != ms.bool_ else on_bools)(a, b)
    return f


_binary("add", P.Add, P.LogicalOr)
_binary("mul", P.Mul, P.LogicalAnd)
_binary("sub", P.Sub if not ASCEND else G.Sub)
_binary("div", P.RealDiv if not ASCEND else G.Div)
