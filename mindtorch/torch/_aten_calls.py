"""Maps primitives to aten calls: the operator and its arguments.

`NAMES` maps a primitive's name to a function of its operands and attributes that returns (operator,
arguments[, named arguments]). A primitive without an entry is an operator of the `mindtorch`
namespace, with the primitive's operands in order and its attributes by keyword. `DECOMPOSED` holds
primitives that correspond to several aten operators: functions over tensors, whose calls are
dispatched one by one.
"""
import math

import numpy as np

from mindtorch.backend.cpu.as_strided import pick
from mindtorch.backend.strides import contiguous_strides
from mindtorch.core.device import rng
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.dispatch.op_schema import tagged
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, saved_to_tensor, wrap_array
from mindtorch.ops.linalg.matmul import broadcast_sizes
from mindtorch.torch import _ops, _schema
from mindtorch.torch._aten_losses import REDUCTIONS

NAMES, DECOMPOSED = {}, {}


def decomposition(prim):
    """Returns the function that expresses a primitive as several operators, or None."""
    return DECOMPOSED.get(prim.name)


def _number(x):
    """Converts an operand to what aten receives: scalar operands become Python scalars."""
    if x.__class__ is ScalarOperand:
        v = x._array.item()
        return v if v.__class__ in (int, float, bool, complex) else float(v)
    return saved_to_tensor(x) if x.__class__ is SavedArray else x


def _as_results(r):
    """Converts the results of a multi-output operator to the primitive's results."""
    return tuple(r) if isinstance(r, (list, tuple)) else r


class Primitive(_ops.OpOverload):
    """A primitive that has no aten operator."""

    def __init__(self, prim):
        packet = _ops.OpOverloadPacket("mindtorch", prim.name)
        names = [_schema.Argument(n, "Tensor[]" if prim.variadic else "Tensor") for n in prim.inputs] + [
            _schema.Argument(n, "Any", kwarg_only=True) for n in prim.attrs]
        text = f"mindtorch::{prim.name}({', '.join([a.name for a in names])}) -> Tensor"
        super().__init__(packet, _schema.FunctionSchema(packet._qualified_op_name, "", names, ["Tensor"], text))
        self.prim = prim
        packet._overloads["default"] = self

    def __call__(self, /, *args, **kwargs):
        r = self.prim.function(*args, **kwargs)
        if self.prim.residuals and r.__class__ is tuple:
            return tuple([saved_to_tensor(x) if x.__class__ is SavedArray else x for x in r])
        return r


_overloads = {}


def _own_overload(prim):
    found = _overloads.get(prim.name)
    if found is None:
        found = _overloads[prim.name] = Primitive(prim)
    return found


def of(prim, args, kw):
    """Returns the aten form of a call of a primitive.

    The result is (operator, arguments, named arguments, function from the operator's results to the
    primitive's results).
    """
    fn = NAMES.get(prim.name)
    if fn is not None:
        found = fn(*args, **kw)
        if found is not None:
            name, given, *rest = found
            named = rest[0] if rest else {}
            func = _ops.find_overload("aten::" + name)
            if func is not None:
                return func, tuple([_number(x) for x in given]), {k: _number(v) for k, v in named.items()}, rest[1] if len(rest) > 1 else _as_results
    if prim.variadic:
        return _own_overload(prim), (list(args[0]),), kw, _as_results
    given = tuple([wrap_array(x._array) if x.__class__ is ScalarOperand else saved_to_tensor(x) if x.__class__ is SavedArray else x for x in args])
    return _own_overload(prim), given, kw, _as_results


_NUMBER_CLASSES = (int, float, bool, complex)


def overload_for(name, args, kwargs):
    """Returns the operator of an in-place method; None if aten has none of that name."""
    other = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("value"))
    scalar = other.__class__ in _NUMBER_CLASSES
    base = name.rstrip("_")
    overload = ""
    if base in _TENSOR_EVEN_FOR_NUMBERS:
        overload = "Tensor_mode" if kwargs.get("rounding_mode") is not None else "Tensor"
    elif base in _WITH_NUMBER:
        overload = _WITH_NUMBER[base] if scalar else "Tensor"
    packet = _ops.find_packet("aten", name)
    return None if packet is None else getattr(packet, overload or "default")


_TENSOR_EVEN_FOR_NUMBERS = frozenset(["add", "sub", "mul", "div", "floor_divide"])


def _two_overloads():
    """Returns {operator: (overload for two tensors, overload for a tensor and a number)}."""
    declared = [f.prim.aten.split() for f in PRIMITIVES.values() if " " in (f.prim.aten or "")]
    return {a.partition(".")[0]: (a.partition(".")[2], b.partition(".")[2]) for a, b in declared}


BY_SECOND = _two_overloads()
#: in-place operator -> its overload for a number as second operand; that for a tensor is "Tensor"
_WITH_NUMBER = {**{name: number for name, (_, number) in BY_SECOND.items()}, "pow": "Scalar", "fill": "Scalar", "masked_fill": "Scalar", "lerp": "Scalar"}


#: aten operators whose result shares memory with their first operand: the ops with the tag "view",
#: and those that are attributes or methods here
VIEWS = tagged("view").union("detach slice numpy_T mT mH T H _reshape_alias".split())


# ------------------------------------------------------------------ the table
#: binary operators of aten -> the operator with its operands exchanged
_TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "add": "add", "mul": "mul"}


def _declared(prim):
    """Returns the entry of a primitive whose record declares aten's operator."""
    of_tensors, _, of_number = prim.aten.partition(" ")
    of_number, attrs = of_number or of_tensors, prim.attrs
    name, _, overload = of_number.partition(".")
    turned = _TURNED.get(name) if len(prim.inputs) == 2 else None

    def fn(*operands, **named):
        if operands[0].__class__ is ScalarOperand:
            return None if turned is None else (f"{turned}.{overload}", operands[::-1])
        return of_number if operands[-1].__class__ is ScalarOperand else of_tensors, (*operands, *[named[n] for n in attrs])
    return fn


NAMES.update({name: _declared(f.prim) for name, f in PRIMITIVES.items() if f.prim.aten})


def _sub(a, b):
    if a.__class__ is ScalarOperand:
        return "rsub.Scalar", (b, a)
    return "sub.Tensor", (a, b)


NAMES.update({
    "sub": _sub,
    "add_scaled": lambda a, b, *, alpha: None if a.__class__ is ScalarOperand else ("add.Tensor", (a, b), {"alpha": alpha}),
    "sub_scaled": lambda a, b, *, alpha: None if a.__class__ is ScalarOperand else ("sub.Tensor", (a, b), {"alpha": alpha}),
    "div_floor": lambda a, b: None if a.__class__ is ScalarOperand else ("div.Tensor_mode", (a, b), {"rounding_mode": "floor"}),
    "div_trunc": lambda a, b: None if a.__class__ is ScalarOperand else ("div.Tensor_mode", (a, b), {"rounding_mode": "trunc"}),
    "pow": lambda a, b: ("pow.Scalar" if a.__class__ is ScalarOperand else "pow.Tensor_Scalar" if b.__class__ is ScalarOperand else "pow.Tensor_Tensor", (a, b)),
    "pow_base": lambda a, b: ("pow.Scalar" if a.__class__ is ScalarOperand else "pow.Tensor_Tensor", (a, b)),
    "square": lambda a: ("pow.Tensor_Scalar", (a, 2)),
    "round": lambda a, *, decimals: ("round.decimals", (a,), {"decimals": decimals}) if decimals else ("round.default", (a,)),
    "where": lambda c, a, b: ("where.self" if a.__class__ is not ScalarOperand and b.__class__ is not ScalarOperand else
                              "where.ScalarOther" if a.__class__ is not ScalarOperand else "where.ScalarSelf", (c, a, b)),
    "clamp_tensors": lambda a, low, high: None if ScalarOperand in (low.__class__, high.__class__) else ("clamp.Tensor", (a, low, high)),
    "lerp": lambda a, b, w: ("lerp.Scalar" if w.__class__ is ScalarOperand else "lerp.Tensor", (a, b, w)),
    "lerp_number": lambda a, b, *, weight: ("lerp.Scalar", (a, b, weight)),
    "addcmul": lambda a, b, d, v: ("addcmul.default", (a, b, d), {"value": v}) if v.__class__ is ScalarOperand else None,
    "addcdiv": lambda a, b, d, v: ("addcdiv.default", (a, b, d), {"value": v}) if v.__class__ is ScalarOperand else None,
    "polygamma": lambda a, *, n: ("polygamma.default", (n, a)),
    # memory and dtypes
    "clone_format": lambda a, *, fmt: ("clone.default", (a,), {"memory_format": _format(fmt)}) if _format(fmt) is not None else None,
    "to_copy": lambda a, *, dtype: ("_to_copy.default", (a,), {"dtype": of_np(dtype)}),
    "to_device": lambda a, *, source, target: ("_to_copy.default", (a,), {"device": target}),
    "unsafe_view": lambda a, *, size: ("_unsafe_view.default", (a, list(size))),
    # views
    "view": lambda a, *, size: ("view.default", (a, list(size))),
    "expand": lambda a, *, size: ("expand.default", (a, list(size))),
    "broadcast": lambda a, *, shape: ("expand.default", (a, list(shape))),
    "squeeze": lambda a, *, axes: ("squeeze.dims", (a, list(axes))),
    "permute": lambda a, *, dims: ("permute.default", (a, list(dims))),
    "split_with_sizes": lambda a, *, dim, bounds: ("split_with_sizes.default", (a, [e - s for s, e in bounds], dim)),
    "split": lambda a, *, dim, bounds: ("split.Tensor", (a, max(bounds[0][1] - bounds[0][0], 1), dim)) if len({e - s for s, e in bounds[:-1]}) < 2 and bounds else None,
    "cat": lambda tensors, *, dim: ("cat.default", (list(tensors), dim)),
    "stack": lambda tensors, *, dim, strides: ("stack.default", (list(tensors), dim)),
    "flip": lambda a, *, dims: ("flip.default", (a, list(dims))),
    "roll": lambda a, *, shifts, dims: ("roll.default", (a, _list(shifts), _list(dims))),
    "repeat": lambda a, *, repeats: ("repeat.default", (a, list(repeats))),
    "gather": lambda a, index, *, dim, check: ("gather.default", (a, dim, index)),
    "index_select": lambda a, index, *, dim, check: ("index_select.default", (a, dim, index)),
    "masked_fill": lambda a, value, mask: ("masked_fill.Scalar" if value.__class__ is ScalarOperand else "masked_fill.Tensor", (a, mask, value)),
    "new_full": lambda like, *, size, value, np_dtype: ("new_zeros.default", (like, list(size)), {"dtype": of_np(np_dtype)}) if value.__class__ in (int, float, bool) and (
        value == 0) else ("new_full.default", (like, list(size), value), {"dtype": of_np(np_dtype)}),
    # reductions
    "sum_dims": lambda a, *, axes, keepdim: ("sum.dim_IntList", (a, _list(axes), keepdim)),
    "mean_dims": lambda a, *, axes, keepdim: ("mean.dim", (a, _list(axes), keepdim)),
    "mean_upcast": lambda a, *, axes, keepdim: ("mean.dim", (a, _list(axes), keepdim)),
    "amax": lambda a, *, axes, keepdim: ("amax.default", (a, _list(axes), keepdim)),
    "amin": lambda a, *, axes, keepdim: ("amin.default", (a, _list(axes), keepdim)),
    "logsumexp": lambda a, *, axes, keepdim: ("logsumexp.default", (a, _list(axes), keepdim)),
    "var": lambda a, *, axes, keepdim, correction: ("var.correction", (a, _list(axes)), {"correction": correction, "keepdim": keepdim}),
    "std": lambda a, *, axes, keepdim, correction: ("std.correction", (a, _list(axes)), {"correction": correction, "keepdim": keepdim}),
    "softmax": lambda a, *, dim: ("_softmax.default", (a, dim, False)),
    "log_softmax": lambda a, *, dim: ("_log_softmax.default", (a, dim, False)),
    # products
    "addmm": lambda c, a, b, *, beta, alpha: ("addmm.default" if a.ndim == 2 else "baddbmm.default", (c, a, b), {k: v for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}),
    # layers
    # new tensors
    "zeros": lambda *, size, stride, np_dtype, device: ("zeros.default", (list(size),), {"dtype": of_np(np_dtype), "device": device}) if _in_c_order(size, stride) else None,
    "full": lambda *, size, stride, value, np_dtype, device: _full(list(size), value, of_np(np_dtype), device) if _in_c_order(size, stride) else None,
    "uniform": lambda *, size, stride, np_dtype, generator, device: _random("rand", size, stride, np_dtype, generator, device),
    "normal": lambda *, size, stride, mean, std, np_dtype, generator, device: _random("randn", size, stride, np_dtype, generator, device) if (mean, std) == (0, 1) else None,
    "empty": lambda *, size, stride, np_dtype, device: ("empty.memory_format", (list(size),), {"dtype": of_np(np_dtype), "device": device}) if _in_c_order(
        size, stride) else None,
})


def _full(size, value, dtype, device):
    v = value.item() if hasattr(value, "item") else value
    named = {"dtype": dtype, "device": device}
    return ("ones.default", (size,), named) if v == 1 else ("full.default", (size, v), named)


def _random(name, size, stride, np_dtype, generator, device):
    if np_dtype.kind == "c" or not _in_c_order(size, stride):
        return None
    named = {"dtype": of_np(np_dtype), "device": device}
    return (f"{name}.default", (list(size),), named) if generator is None or generator is rng.default_generator else (f"{name}.generator", (list(size),), {"generator": generator, **named})


def _list(x):
    return list(x) if x.__class__ in (tuple, list) else x if x is None else [x]


def _format(fmt):
    """Returns the torch memory format for the primitive's name of it."""
    from mindtorch.torch import _types
    return _types.NAMES.get(fmt + "_format" if fmt in ("contiguous", "preserve") else fmt)


def _in_c_order(size, stride):
    return stride is None or tuple(stride) == tuple(contiguous_strides(tuple(size)))


# ------------------------------------------------------------------ several operators
def _decomposed(fn):
    DECOMPOSED[fn.__name__.strip("_")] = fn
    return fn


def _f(name, *args, **kwargs):
    return _ops.find_overload("aten::" + name)(*args, **kwargs)


def _swap(a, do=True):
    return (a.t() if a.ndim == 2 else a.transpose(-2, -1)) if do else a


@_decomposed
def mm(a, b, *, ta, tb):
    return _mm(_swap(a, ta), _swap(b, tb)) if ta or tb else NotImplemented


NAMES["mm"] = lambda a, b, *, ta, tb: ("mm.default", (a, b))
NAMES["bmm"] = lambda a, b, *, ta, tb: ("bmm.default", (a, b))


def _mm(a, b):
    return PRIMITIVES["mm"](a, b, ta=False, tb=False)


@_decomposed
def bmm(a, b, *, ta, tb):
    if not ta and not tb and a.ndim == 3 and a._sizes[0] == b._sizes[0] and b.ndim == 3:
        return NotImplemented
    a, b = _swap(a, ta), _swap(b, tb)
    if a.ndim == 2 and b.ndim == 2:
        return _mm(a, b)
    lead = broadcast_sizes(a._sizes[:-2], b._sizes[:-2])
    flat = [x.expand(*lead, *x._sizes[-2:]).reshape(math.prod(lead), *x._sizes[-2:]) for x in (a, b)]
    r = PRIMITIVES["bmm"](*flat, ta=False, tb=False)
    return r if len(lead) == 1 else PRIMITIVES["unsafe_view"](r, size=(*lead, *r._sizes[-2:]))


def _rows(x):
    return x if x.ndim == 2 else x.reshape(math.prod(x._sizes[:-1]), x._sizes[-1])


def _batches(r, x, view="unsafe_view"):
    return r if x.ndim == 2 else PRIMITIVES[view](r, size=(*x._sizes[:-1], r._sizes[-1]))


@_decomposed
def linear(x, w, b=None):
    if b is not None and b.ndim == 1 and (x.ndim == 2 or _in_c_order(x._sizes, x.stride())):
        rows = x.unsqueeze(0) if x.ndim == 1 else _rows(x)
        r = PRIMITIVES["addmm"](b, rows, w.t(), beta=1, alpha=1)
        return PRIMITIVES["view"](r, size=(r._sizes[-1],)) if x.ndim == 1 else _batches(r, x, "view")
    w = w.t()
    r = _batches(_mm(_rows(x), w), x) if x.ndim > 1 else _mm(x.unsqueeze(0), w).squeeze(0)
    return r if b is None else r + b


@_decomposed
def matmul_rows(x, w):
    return _batches(_mm(_rows(x), w), x) if x.ndim > 1 else _mm(x.unsqueeze(0), w).squeeze(0)


@_decomposed
def fold(a, b):
    a, b = _rows(a), _rows(b)
    return _mm(a.t(), b)


@_decomposed
def column_sum(a):
    return a.sum(list(range(a.ndim - 1))) if a.ndim > 1 else a.clone()


@_decomposed
def expand_rows(g, *, shape):
    return g.expand(shape).clone()


@_decomposed
def expand_reduced(g, *, shape, axes, keepdim):
    if axes is not None and not keepdim and len(shape) != g.ndim:
        for d in sorted([d % len(shape) for d in (axes if axes.__class__ in (tuple, list) else (axes,))]):
            g = g.unsqueeze(d)
    return g.expand(shape)


@_decomposed
def mv(a, v):
    if v.ndim != 1:
        return (a @ v.unsqueeze(-1)).squeeze(-1)
    if a.ndim == 2:
        return NotImplemented
    r = PRIMITIVES["mv"](_rows(a), v)
    return PRIMITIVES["unsafe_view"](r, size=a._sizes[:-1])


@_decomposed
def vm(a, u):
    if a.ndim == 2 and u.ndim == 1:
        return _ops.find_overload("aten::mv")(a.t(), u)
    return (a.mT @ u.unsqueeze(-1)).squeeze(-1)


@_decomposed
def outer(x, y):
    return x.unsqueeze(-1) * y.unsqueeze(-2)


@_decomposed
def sum_to_size(a, *, size):
    lead = a.ndim - len(size)
    dims = [i for i in range(a.ndim) if i < lead or size[i - lead] == 1 != a._sizes[i]]
    r = a.sum(dims, keepdim=True) if dims else a
    return r.view(size) if lead else r if dims else a.clone()


# ------------------------------------------------------------------ indices
_ALL = slice(None)
_END = 2 ** 63 - 1


def _steps(ndim, key):
    """Splits a basic index into single-dimension views: [(kind, dimension, item)]."""
    key = key if key.__class__ is tuple else (key,)
    taken_up = sum([k is not None and k is not ... for k in key])
    steps, d = [], 0
    for k in key:
        if k is ...:
            d += ndim - taken_up
        elif k is None:
            steps.append(("unsqueeze", d, None))
            d += 1
        elif k.__class__ is slice:
            if k != _ALL:
                steps.append(("slice", d, k))
            d += 1
        else:
            steps.append(("select", d, k))
    return steps


def _one(how, d, item):
    return (_ALL,) * d + (item, ...)


def _pick_name(a, *, key):
    steps = _steps(a.ndim, key)
    if not steps:
        return "alias.default", (a,)
    how, d, k = steps[0]
    if how == "unsqueeze":
        return "unsqueeze.default", (a, d)
    if how == "select":
        return "select.int", (a, d, int(k))
    return "slice.Tensor", (a, d, 0 if k.start is None else int(k.start), _END if k.stop is None else int(k.stop), *(() if k.step in (None, 1) else (k.step,)))


def _pick(a, *, key):
    pick(np.ndarray.view(a._array, np.ndarray), key=key)  # raises the error of an invalid index
    steps = _steps(a.ndim, key)
    if len(steps) < 2:
        return NotImplemented
    for how, d, k in steps:
        a = PRIMITIVES[how](a, dim=d) if how == "unsqueeze" else PRIMITIVES[how](a, key=_one(how, d, k))
    return a


def _slice_backward(g, *, shape, key):
    steps, shapes = _steps(len(shape), key), [tuple(shape)]
    if len(steps) == 1 and steps[0][0] != "unsqueeze":
        return NotImplemented
    for how, d, k in steps:
        s = shapes[-1]
        shapes.append((*s[:d], 1, *s[d:]) if how == "unsqueeze" else (*s[:d], *s[d + 1:]) if how == "select" else (
            *s[:d], len(range(*k.indices(s[d]))), *s[d + 1:]))
    for (how, d, k), s in zip(reversed(steps), reversed(shapes[:-1])):
        g = g.squeeze(d) if how == "unsqueeze" else PRIMITIVES["slice_backward"](g, shape=s, key=_one(how, d, k))
    return g.clone() if not steps else g


def _slice_backward_call(g, *, shape, key):
    how, d, k = _steps(len(shape), key)[0]
    if how == "select":
        return "select_backward.default", (g, list(shape), d, int(k))
    return "slice_backward.default", (g, list(shape), d, 0 if k.start is None else int(k.start), _END if k.stop is None else int(k.stop), k.step or 1)


for _n in ("slice", "select", "subscript_unsqueeze", "subscript_alias"):
    NAMES[_n], DECOMPOSED[_n] = _pick_name, _pick
NAMES["slice_backward"], DECOMPOSED["slice_backward"] = _slice_backward_call, _slice_backward


def _at(dims, indices):
    """Returns aten's list of indices, with None for dimensions without an index."""
    by = dict(zip(dims, indices))
    return [by.get(d) for d in range(max(dims) + 1)]


def _index(a, *indices, dims):
    return "index.Tensor", (a, _at(dims, indices))


def _index_put(a, value, *indices, dims):
    return "index_put.default", (a, _at(dims, indices), value)


def _index_put_add(a, value, *indices, dims):
    return "index_put.default", (a, _at(dims, indices), value, True)


def _index_backward(g, *indices, size, dims):
    return _f("index_put", g.new_zeros(size), _at(dims, indices), g, True)


for _n in "123":
    NAMES["index_" + _n], NAMES["index_put_" + _n], NAMES["index_put_add_" + _n] = _index, _index_put, _index_put_add
    DECOMPOSED["index_backward_" + _n] = _index_backward


# ------------------------------------------------------------------ layers
def _padding(pairs):
    """Returns one padding value per dimension; None if the two sides of a dimension differ."""
    return [lo for lo, _ in pairs] if all([lo == hi for lo, hi in pairs]) else None


def _convolution(x, w, b=None, *, stride, padding, dilation, groups, out):
    pads = _padding(padding)
    if out is not None or pads is None:
        return None
    return "convolution.default", (x, w, b, list(stride), pads, list(dilation), False, [0] * len(pads), groups)


def _convolution_transposed(g, w, b=None, *, size, stride, padding, dilation, groups):
    pads = _padding(padding)
    if pads is None:
        return None
    more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, s, p, d, k in zip(size, g._sizes[2:], stride, pads, dilation, w._sizes[2:])]
    if any([not 0 <= m < max(s, d) for m, s, d in zip(more, stride, dilation)]):
        return None
    return "convolution.default", (g, w, b, list(stride), pads, list(dilation), True, more, groups)


def _without_zeros(pads):
    """Drops the pairs of leading dimensions that are not padded."""
    n = next((i for i, pair in enumerate(pads) if any(pair)), len(pads))
    return pads[n:]


def _loss(name, param=None):
    def fn(x, target, *, reduction, param):
        given = (x, target, REDUCTIONS.index(reduction), *([] if param is None else [param]))
        return f"{name}.default", given[:2] if reduction == "mean" and param is None else given
    return fn


NAMES.update({
    "convolution": _convolution, "convolution_transposed": _convolution_transposed,
    "embedding": lambda w, index, *, padding, by_freq: ("embedding.default", (w, index, *((padding, by_freq) if by_freq else (padding,) if padding not in (None, -1) else ()))),
    "embedding_dense_backward": lambda g, index, *, padding, by_freq, rows: ("embedding_dense_backward.default", (g, index, rows, padding, by_freq)),
    "constant_pad_nd": lambda a, *, pads, value: ("constant_pad_nd.default", (a, [n for pair in reversed(_without_zeros(pads)) for n in pair], *((value,) if value else ()))),
    "mean_elements": lambda a, *, mean: ("mean.default" if mean else "sum.default", (a,)),
    "im2col": lambda x, *, kernel, dilation, padding, stride: ("im2col.default", (x, list(kernel), list(dilation), list(padding), list(stride))),
    "col2im": lambda x, *, size, kernel, dilation, padding, stride: ("col2im.default", (x, list(size), list(kernel), list(dilation), list(padding), list(stride))),
    "leaky_relu_backward": lambda g, x, *, slope: ("leaky_relu_backward.default", (g, x, slope, False)),
    **{name: _loss(name) for name in ("mse_loss", "smooth_l1_loss", "huber_loss")},
    "softmax_backward": lambda g, y, *, dim: ("_softmax_backward_data.default", (g, y, dim, of_np(y._np_dtype))),
    "log_softmax_backward": lambda g, y, *, dim: ("_log_softmax_backward_data.default", (g, y, dim, of_np(y._np_dtype))),
    "relu_backward": lambda g, y: ("threshold_backward.default", (g, y, 0)),
})
