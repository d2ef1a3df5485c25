"""sym_int, sym_max, ... on plain Python numbers: sizes are never symbolic here, so SymInt and its like have no instances."""
import math

__all__ = ["SymInt", "SymFloat", "SymBool", "sym_int", "sym_float", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sum", "sym_sqrt",
           "sym_constrain_range", "sym_constrain_range_for_size", "sym_fresh_size"]


class _Symbol:
    """Never made: `isinstance(n, torch.SymInt)` is False for every size."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"torch.{cls.__name__} is not supported: sizes are plain numbers here")


class SymInt(_Symbol):
    """A symbolic int, of which there are none."""


class SymFloat(_Symbol):
    """A symbolic float, of which there are none."""


class SymBool(_Symbol):
    """A symbolic bool, of which there are none."""


def sym_int(a):
    """int(a), towards zero."""
    return math.trunc(a) if isinstance(a, float) else int(a)


def sym_float(a):
    """float(a)."""
    return float(a)


def _larger(a, b, pick):
    r = pick(a, b)
    # A float among the operands makes the result a float, whichever wins.
    return float(r) if isinstance(a, float) or isinstance(b, float) else r


def sym_max(a, b):
    """The larger of two numbers; a float if either is one."""
    return _larger(a, b, max)


def sym_min(a, b):
    """The smaller of two numbers; a float if either is one."""
    return _larger(a, b, min)


def sym_not(a):
    """Logical negation."""
    return not a


def sym_ite(b, t, f):
    """t if b, else f."""
    if not isinstance(b, bool) or type(t) is not type(f):
        raise TypeError(f"sym_ite needs a bool and two values of one type, got {type(b).__name__}, {type(t).__name__}, {type(f).__name__}")
    return t if b else f


def sym_sum(*args):
    """Sum of a sequence of numbers."""
    return sum(args[0] if len(args) == 1 and not isinstance(args[0], (int, float)) else args)


def sym_sqrt(a):
    """Square root."""
    return math.sqrt(a)


def sym_constrain_range(size, *, min=None, max=None):
    """RuntimeError if a number lies outside [min, max]."""
    if min is not None and size < min or max is not None and size > max:
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}].")


def sym_constrain_range_for_size(size, *, min=None, max=None):
    """RuntimeError if a size lies outside [min, max]."""
    sym_constrain_range(size, min=min, max=max)


def sym_fresh_size(expr):
    """The size itself."""
    return expr
