"""Ops that are a single operator in aten but not a primitive here. Modes and classes with
`__torch_dispatch__` see them as that operator.

The handler's result gets its own autograd node. Its backward recomputes the op from the operands
(with dispatch disabled if these are plain tensors) and differentiates the recomputation; the
primitives of the gradient are dispatched. Random ops, views and in-place ops are not included.
"""
from mindtorch.core.transforms import functorch_levels
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.core.tensor.dtypes import I64
from mindtorch.core.autograd.grad_mode import enable_grad, mode
from mindtorch.core.tensor.tensor import TRANSFORMS, is_tensor
from mindtorch.torch import _aten_losses, _ops

#: Set by `mindtorch/torch/_dispatch_protocol.py`. `takes_part`: true if a tensor's class has a
#: `__torch_dispatch__`. `unseen`: context manager that disables dispatch to modes and classes.
takes_part = unseen = None

def _single(op):
    return lambda arguments: f"{op.aten_name}.{op.aten_overload}"


#: ops that are declared as a single operator of aten, and those below
_ROWS = {name: _single(op) for name, op in OPS.items() if op.aten_overload and op.main is op}


def _without_gradient(op):
    """True if the op is a primitive without gradient rules."""
    f = PRIMITIVES.get(op.name)
    return f is not None and not f.prim.grads


# Entries: functions from the arguments by name (which they may change) to the overload; None if the
# call is not a single operator.
def _moments(name):
    def fn(a):
        dim, unbiased = a["dim"], a.pop("unbiased")
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None:
            a["correction"] = int(unbiased)
        a["dim"] = dim if dim is None else [dim] if isinstance(dim, int) else list(dim)
        if a["dim"] is not None and unbiased is None and a["correction"] is None:
            a["correction"] = 1
        keepdim = a.pop("keepdim")
        a["keepdim"] = _Keyword(keepdim)
        return name + ".correction"
    return fn


class _Keyword:
    """A value that aten receives by keyword and the public function by position."""

    def __init__(self, value):
        self.value = value


_ROWS["var_mean"], _ROWS["std_mean"] = _moments("var_mean"), _moments("std_mean")


def _with_dims(name):
    def fn(a):
        if a["dim"] is not None:
            a["dim"] = [a["dim"]] if isinstance(a["dim"], int) else list(a["dim"])
        return name + ".default"
    return fn


_ROWS["nansum"], _ROWS["linalg.vector_norm"] = _with_dims("nansum"), _with_dims("linalg_vector_norm")


def _with_dim(name):
    def fn(a):
        if a["dim"] is None:
            return None if a["keepdim"] else f"{name}.default"
        return f"{name}.dim" if isinstance(a["dim"], int) else None
    return fn


for _n in ("median", "nanmedian"):
    _ROWS[_n] = _with_dim(_n)


_signatures = {}


def of(entry, args, kwargs):
    """Returns (operator, arguments, named arguments) for a call of an op that is a single operator
    in aten; None for any other."""
    op = entry.op
    if op is None:
        return _subscript(*args) if entry.name == "Tensor.__getitem__" and not kwargs else None
    if entry.inplace:
        return None
    row = _ROWS.get(op.main.qualname)
    if row is None or kwargs.get("out") is not None or dispatch_state.dual is not None or TRANSFORMS.count and functorch_levels.levels():
        return None
    sig = _signatures.get(op)
    if sig is None:
        sig = _signatures[op] = op.signature
    try:
        bound = sig.bind(*args, **{k: v for k, v in kwargs.items() if k != "out"})
    except TypeError:
        return None
    bound.apply_defaults()
    a = bound.arguments
    if a.pop("inplace", False):
        return None
    loss = op.main.qualname.removeprefix("nn.functional.")
    if loss in _aten_losses.SIGNATURES:
        given = _aten_losses.arguments(loss, a)
        return None if given is None else (_ops.find_overload(f"aten::{loss}.default"), given, {})
    name = row(a)
    if name is None:
        return None
    func = _ops.find_overload("aten::" + name)
    if func is None:
        return None
    given, named = _trimmed(sig, a)
    return func, given, named


def _subscript(x, key):
    """Returns the aten form of x[key] if the key contains a mask, else None.

    The basic items become views; the tensors go to one index operator, which receives masks
    unchanged.
    """
    if dispatch_state.dual is not None or TRANSFORMS.count and functorch_levels.levels():
        return None
    items, masked = [], False
    for k in key if key.__class__ is tuple else (key,):
        if is_tensor(k) and k.ndim and k._np_dtype.kind == "b":
            masked = True
        elif not (k is None or k is Ellipsis or k.__class__ is int or k.__class__ is slice or is_tensor(k) and k.ndim and k._np_dtype == I64):
            return None
        items.append(k)
    if not masked:
        return None
    given = sum([k.ndim if is_tensor(k) and k._np_dtype.kind == "b" else k is not None and k is not Ellipsis for k in items])
    if given > x.ndim or len([k for k in items if k is Ellipsis]) > 1:
        return None  # the op itself raises the error
    basic, indices = [], []
    for k in items:
        if k is Ellipsis:
            basic += [slice(None)] * (x.ndim - given)
            indices += [None] * (x.ndim - given)
        elif is_tensor(k):
            basic += [slice(None)] * (k.ndim if k._np_dtype.kind == "b" else 1)
            indices.append(k)
        else:
            basic.append(k)
            indices += [None] * (k.__class__ is not int)
    while indices[-1] is None:
        indices.pop()
    view = x if all([k.__class__ is slice and k == slice(None) for k in basic]) else x[tuple(basic)]
    return _ops.find_overload("aten::index.Tensor"), (view, indices), {}


def _trimmed(sig, a):
    """Drops trailing and keyword arguments that equal their defaults."""
    given, named, n = [], {}, 0
    for k, v in a.items():
        p = sig.parameters[k]
        if p.kind is p.VAR_POSITIONAL:
            v = list(v)
        keyword = p.kind is p.KEYWORD_ONLY or v.__class__ is _Keyword
        v = v.value if v.__class__ is _Keyword else v
        n_positional = p.default is not p.empty and (v is p.default or not is_tensor(v) and v.__class__ is p.default.__class__ and v == p.default)
        v = list(v) if v.__class__ is tuple and not any([is_tensor(x) for x in v]) else v
        if keyword:
            if not n_positional:
                named[k] = v
        else:
            given.append(v)
            n = n if n_positional else len(given)
    return tuple(given[:n]), named


# ------------------------------------------------------------------ autograd graph
def _tensors(args, kwargs):
    found = []
    for a in (*args, *kwargs.values()):
        if is_tensor(a):
            found.append(a)
        elif a.__class__ in (list, tuple):
            found += [t for t in a if is_tensor(t)]
    return found


_TENSOR = object()  # placeholder for a tensor: tensors are stored as saved tensors only


def _put_in(args, kwargs, tensors):
    """Returns the arguments with their tensors (and placeholders) replaced by `tensors`, in order.
    """
    it = iter(tensors)

    def one(a):
        if a is _TENSOR or is_tensor(a):
            return next(it)
        return type(a)([one(t) for t in a]) if a.__class__ in (list, tuple) else a
    return [one(a) for a in args], {k: one(v) for k, v in kwargs.items()}


_functions = {}


def recorded(entry, func, args, kwargs, handler):
    """Returns the result of the handler `ask()`, with its gradient recorded."""
    found = _tensors(args, kwargs)
    if not (mode.on and any([t._requires_grad_ for t in found])) or entry.op is not None and _without_gradient(entry.op.main):
        return handler()
    cls = _functions.get(func._opname)
    if cls is None:
        cls = _functions[func._opname] = _make(func._opname)
    kind = []

    def run_handler():
        r = handler()
        kind.append(r)
        return r
    r = cls.apply((entry, args, kwargs, run_handler), *found)
    shape = kind[0]
    return type(shape)(r) if isinstance(shape, tuple) and hasattr(type(shape), "fields") else list(r) if isinstance(shape, list) else r


def _make(name):
    from mindtorch.torch.autograd.function import Function
    type_name = "".join([p.capitalize() for p in name.split("_")])
    cls = type(type_name, (Function,), {"forward": staticmethod(_forward), "backward": staticmethod(_backward), "__module__": __name__})
    cls._backward_cls.__name__ = cls._backward_cls.__qualname__ = type_name + "Backward0"
    return cls


def _forward(ctx, call, *tensors):
    ctx.call = call[0], *_put_in(call[1], call[2], [_TENSOR] * len(tensors))
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)
    r = call[3]()
    outs = tuple(r) if isinstance(r, (tuple, list)) else (r,)
    ctx.mark_non_differentiable(*[o for o in outs if is_tensor(o) and o._np_dtype.kind not in "fcV"])
    return outs if isinstance(r, (tuple, list)) else r


def _backward(ctx, *gs):
    from mindtorch.torch.autograd import grad
    entry, args, kwargs = ctx.call
    saved, wanted, twice = ctx.saved_tensors, ctx.needs_input_grad[1:], mode.on
    has_handler = any([takes_part(t) for t in saved])

    def recompute():
        leaves = [(t.view_as(t) if twice and t._requires_grad_ else t.detach().requires_grad_()) if w else t for t, w in zip(saved, wanted)]
        given, named = _put_in(args, kwargs, leaves)
        r = entry.run(*given, **named)
        return leaves, r if isinstance(r, (tuple, list)) else (r,)
    with enable_grad():
        if has_handler:
            leaves, outs = recompute()
        else:
            with unseen():
                leaves, outs = recompute()
    pairs = [(o, g) for o, g in zip(outs, gs) if g is not None and is_tensor(o) and o._requires_grad_]
    requested = [t for t, w in zip(leaves, wanted) if w]
    found = iter(grad([o for o, _ in pairs], requested, [g for _, g in pairs], create_graph=twice, allow_unused=True) if pairs else [None] * len(requested))
    return (None, *[next(found) if w else None for w in wanted])
