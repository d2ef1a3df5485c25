"""Argument orders of old that torch still takes (with a warning): x.add_(alpha, y), x.addcdiv_(value, a, b), torch.addmm(beta, x, alpha, a, b)."""
import functools
import warnings

from mindtorch.core.table import TABLE
from mindtorch.core.tensor import Tensor

_NUMBERS = (int, float, complex, bool)

# op -> how often a number may stand before its tensors, and the keyword that it is
_BEFORE_SECOND = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
_PRODUCTS = ("addmm", "addmv", "addr", "addbmm", "baddbmm")


def _warn(name, text):
    warnings.warn(f"This overload of {name} is deprecated:\n\t{name}({text})\nConsider using its keyword argument instead.", UserWarning, stacklevel=4)


def _scale_first(fn, name, keyword):
    count = 2 if keyword == "alpha" else 3

    def call(input, *args, **kwargs):
        if len(args) == count and isinstance(args[0], _NUMBERS) and keyword not in kwargs:
            _warn(name, f"Tensor input, Number {keyword}, ...")
            return fn(input, *args[1:], **{keyword: args[0]}, **kwargs)
        return fn(input, *args, **kwargs)
    return functools.wraps(fn)(call)


def _product(fn, name, method):
    def call(*args, **kwargs):
        first = list(args)
        scales = {}
        at = 1 if method else 0
        if len(first) > at and isinstance(first[at], _NUMBERS) and sum(not isinstance(a, _NUMBERS) for a in first) == 3:
            scales["beta"] = first.pop(at)
            if len(first) > 1 and isinstance(first[1], _NUMBERS):
                scales["alpha"] = first.pop(1)
            _warn(name, "Number beta, Tensor input, Number alpha, ...")
        return fn(*first, **scales, **kwargs)
    return functools.wraps(fn)(call)


for _name, _keyword in _BEFORE_SECOND.items():
    TABLE[_name].public = _scale_first(TABLE[_name].public, _name, _keyword)
    for _m in (_name, _name + "_"):
        setattr(Tensor, _m, _scale_first(getattr(Tensor, _m), _m, _keyword))
for _name in _PRODUCTS:
    TABLE[_name].public = _product(TABLE[_name].public, _name, False)
    for _m in (_name, _name + "_"):
        if hasattr(Tensor, _m):
            setattr(Tensor, _m, _product(getattr(Tensor, _m), _m, True))
