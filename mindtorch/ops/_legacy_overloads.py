"""Deprecated argument orders that PyTorch still accepts (with a warning): x.add_(alpha, y),
x.addcdiv_(value, a, b), torch.addmm(beta, x, alpha, a, b)."""
import functools
import warnings

from mindtorch.core.dispatch import dispatcher
from mindtorch.core.dispatch.op_registry import OPS, publish
from mindtorch.core.tensor.tensor import Tensor, is_tensor

_NUMBERS = (int, float, complex, bool)

# op -> keyword of the scalar that may precede its tensors
_BEFORE_SECOND = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
_PRODUCTS = ("addmm", "addmv", "addr", "addbmm", "baddbmm")


def _warn(name, text):
    warnings.warn(f"This overload of {name} is deprecated:\n\t{name}({text})\nConsider using its keyword argument instead.", UserWarning, stacklevel=4)


def _scale_first(fn, name, keyword):
    count = 2 if keyword == "alpha" else 3

    def call(input, *args, **kwargs):
        if len(args) == count and keyword not in kwargs:
            scale = args[0]
            if is_tensor(scale) and not scale.ndim and not scale._requires_grad_:
                scale = scale.item()
            if isinstance(scale, _NUMBERS):
                _warn(name, f"Tensor input, Number {keyword}, ...")
                return fn(input, *args[1:], **{keyword: scale}, **kwargs)
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


def _add_legacy_order(name, legacy, n_positional):
    """Adds the deprecated argument order to an op, its method and its in-place method."""
    o = OPS[name]
    o.public = publish(o, lambda fn: legacy(fn, name, False), n_positional)
    for m in (name, name + "_"):
        f = vars(Tensor).get(m)
        if f is None:
            continue
        # hand-written in-place methods have no entry
        entry = dispatcher.DISPATCH_ENTRIES.get(f) or dispatcher.DispatchEntry(f, f"Tensor.{m}", None, m != name)
        body = dispatcher.undispatched(f) if dispatcher.is_generated(f) else f
        run = legacy(body, m, True)
        new = dispatcher.DispatchEntry(run, entry.name, entry.op, entry.inplace)
        new.recorded = None if entry.recorded is None else legacy(entry.recorded, m, True)
        setattr(Tensor, m, dispatcher.make_dispatcher(body, new, method=True, n_positional=n_positional, run=run))


for _name, _keyword in _BEFORE_SECOND.items():
    _add_legacy_order(_name, lambda fn, name, method, keyword=_keyword: _scale_first(fn, name, keyword), 2 if _keyword == "alpha" else 3)
for _name in _PRODUCTS:
    _add_legacy_order(_name, _product, 3)
