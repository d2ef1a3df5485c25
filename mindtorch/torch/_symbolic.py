"""sym_int, sym_max, ... on plain Python scalars. Sizes are never symbolic, so SymInt and its
siblings have no instances."""
import math

__all__ = ["SymInt", "SymFloat", "SymBool", "sym_int", "sym_float", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sum", "sym_sqrt",
           "sym_constrain_range", "sym_constrain_range_for_size", "sym_fresh_size"]


class _Symbol:
    """Base of classes that cannot be instantiated: `isinstance(n, torch.SymInt)` is False for every
    size."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"torch.{cls.__name__} is not supported: sizes are plain ints")


class SymInt(_Symbol):
    """Symbolic int. Has no instances."""


class SymFloat(_Symbol):
    """Symbolic float. Has no instances."""


class SymBool(_Symbol):
    """Symbolic bool. Has no instances."""


def sym_int(a):
    """Converts to int, rounding toward zero."""
    return math.trunc(a) if isinstance(a, float) else int(a)


def sym_float(a):
    """Converts to float."""
    return float(a)


def _larger(a, b, pick):
    r = pick(a, b)
    # If either operand is a float the result is a float, even if the int operand is picked.
    return float(r) if isinstance(a, float) or isinstance(b, float) else r


def sym_max(a, b):
    """Returns the larger of two scalars, as a float if either is a float."""
    return _larger(a, b, max)


def sym_min(a, b):
    """Returns the smaller of two scalars, as a float if either is a float."""
    return _larger(a, b, min)


def sym_not(a):
    """Logical negation."""
    return not a


def sym_ite(b, t, f):
    """Returns t if b, else f."""
    if not isinstance(b, bool) or type(t) is not type(f):
        raise TypeError(f"sym_ite needs a bool and two values of one type, got {type(b).__name__}, {type(t).__name__}, {type(f).__name__}")
    return t if b else f


def sym_sum(*args):
    """Sum of a sequence of scalars."""
    return sum(args[0] if len(args) == 1 and not isinstance(args[0], (int, float)) else args)


def sym_sqrt(a):
    """Square root."""
    return math.sqrt(a)


def sym_constrain_range(size, *, min=None, max=None):
    """Raises RuntimeError if a scalar is outside [min, max]."""
    if min is not None and size < min or max is not None and size > max:
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}].")


def sym_constrain_range_for_size(size, *, min=None, max=None):
    """Raises RuntimeError if a size is outside [min, max]."""
    sym_constrain_range(size, min=min, max=max)


def sym_fresh_size(expr):
    """Returns the size unchanged."""
    return expr
