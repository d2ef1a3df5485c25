"""Layers as aten defines them: one operator forward and one backward, where mindtorch's autograd
uses several primitives for either.

A call of such a layer under a mode, or with operands of a class with `__torch_dispatch__`, is
dispatched as the aten operator (`say`). The handler's result gets an autograd node whose backward
is dispatched as aten's gradient operator (such as convolution_backward). If that gradient must
itself be differentiable, the layer is re-executed and differentiated through ordinary ops.

`PRIMITIVES` (filled by `mindtorch/torch/_aten_layer_table.py`) maps a primitive's name to the
function that dispatches its aten form. The function is called in the caller's grad mode and returns
the primitive's results, or NotImplemented. `OPS` does the same for ops that are composed of several
primitives; its keys are qualified names and its functions receive the op's arguments.
"""
import contextlib
import threading

from mindtorch.core.transforms import functorch_levels
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.autograd.grad_mode import enable_grad, mode
from mindtorch.core.tensor.tensor import TRANSFORMS, is_tensor
from mindtorch.torch import _ops

#: Set by `mindtorch/torch/_dispatch_protocol.py`. `answer`: (operator, args, kwargs) -> the result
#: of modes and operands' classes, or the computed one. `wants_dispatch`: true if there are any such
#: modes or classes. `unseen`: context manager that disables them. `takes_part`: true if a tensor's
#: class has a `__torch_dispatch__`.
answer = wants_dispatch = unseen = takes_part = None

PRIMITIVES, OPS, LAYERS = {}, {}, {}


class Layer:
    """Gradient rule of an operator.

        backward  backward(g, args, named, outs, mask) returns a gradient (or None) for each tensor
                  among args. mask marks the required ones; outs maps the indices in `keeps` to
                  the saved results
        loose     indices of arguments whose tensors are only used for their shape, or may be
                  modified in place in between
        again     again(*args): differentiable function to use where the operator itself has side
                  effects
    """

    def __init__(self, name, node, backward, keeps=(), loose=(), again=None):
        self.name, self.node, self.backward, self.keeps, self.loose, self.again = name, node, backward, keeps, loose, again
        self._function = None

    @property
    def function(self):
        """The autograd.Function class of its nodes."""
        if self._function is None:
            from mindtorch.torch.autograd.function import Function
            cls = type(self.node, (Function,), {"forward": staticmethod(_forward), "backward": staticmethod(_backward), "__module__": __name__})
            cls._backward_cls.__name__ = cls._backward_cls.__qualname__ = self.node
            self._function = cls
        return self._function


def layer(name, node, **named):
    """Decorator that registers a layer's backward."""
    def register(fn):
        LAYERS[name] = Layer(name, node, fn, **named)
        return fn
    return register


class _State(threading.local):
    """Per-thread state: whether layers are dispatched as the primitives that they are composed of.
    """

    taken_apart = False


state = _State()


def usable():
    """False inside torch.func transforms and forward-mode differentiation, and while a
    differentiable gradient is computed. These go through primitives."""
    return not state.taken_apart and dispatch_state.dual is None and not (TRANSFORMS.count and functorch_levels.levels())


def tensors_of(args):
    """Returns the tensors among the arguments, including those in lists."""
    found = []
    for a in args:
        if is_tensor(a):
            found.append(a)
        elif a.__class__ in (list, tuple):
            found += [t for t in a if is_tensor(t)]
    return found


def dispatch_layer(name, *args, **named):
    """Dispatches the aten operator `name` to active modes and classes (or computes it) and records
    its gradient."""
    func = _ops.find_overload("aten::" + name)
    found = tensors_of((*args, *named.values()))
    if not (mode.on and any([t._requires_grad_ for t in found])):
        return answer(func, args, named)
    made = LAYERS[name]
    return made.function.apply((made, func, args, named), *found)


_TENSOR = object()


def _filled(args, tensors):
    return [next(tensors) if a is _TENSOR else a for a in args]


def _forward(ctx, call, *tensors):
    made, func, args, named = call
    r = answer(func, args, named)
    outs = tuple(r) if isinstance(r, (tuple, list)) else (r,)
    saved = [a for i, a in enumerate(args) if is_tensor(a) and i not in made.loose] + [a for a in named.values() if is_tensor(a)]
    ctx.call = (made, func, [_TENSOR if is_tensor(a) and i not in made.loose else a for i, a in enumerate(args)],
                {k: _TENSOR if is_tensor(a) else a for k, a in named.items()})
    ctx.save_for_backward(*saved, *[outs[i] for i in made.keeps])
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*[o for o in outs[1:] if is_tensor(o)])
    return outs if isinstance(r, (tuple, list)) else r


def _backward(ctx, *gs):
    made, func, args, named = ctx.call
    saved, mask = iter(ctx.saved_tensors), list(ctx.needs_input_grad[1:])
    args = _filled(args, saved)
    named = dict(zip(named, _filled(named.values(), saved)))
    if gs[0] is None:
        return (None,) * (1 + len(mask))
    if mode.on:
        return None, *_differentiable_backward(made, func, args, named, gs[0], mask)
    found = made.backward(gs[0], args, named, dict(zip(made.keeps, saved)), mask)
    return None, *[g if wanted else None for g, wanted in zip(found, mask, strict=True)]


def _differentiable_backward(made, func, args, named, g, mask):
    """Returns gradients that are themselves differentiable."""
    from mindtorch.torch.autograd import grad
    wanted, leaves = iter(mask), []

    def leaf(a):
        if not is_tensor(a):
            return a
        if not next(wanted):
            return a
        leaves.append(a.view_as(a) if a._requires_grad_ else a.detach().requires_grad_())
        return leaves[-1]
    before, state.taken_apart = state.taken_apart, True
    try:
        with enable_grad(), contextlib.nullcontext() if any([takes_part(a) for a in (*args, *named.values())]) else unseen():
            given = [leaf(a) for a in args]
            keyed = {k: leaf(a) for k, a in named.items()}
            r = (made.again or func.fn)(*given, **keyed)
    finally:
        state.taken_apart = before
    out = r[0] if isinstance(r, (tuple, list)) else r
    found = iter(grad([out], leaves, [g], create_graph=True, allow_unused=True))
    return [next(found) if w else None for w in mask]


def run(name, *args, **named):
    """Dispatches an aten operator without recording its gradient."""
    return answer(_ops.find_overload("aten::" + name), args, named)


def _three(mask, args):
    """Expands the mask to aten's output_mask; arguments that are None get False."""
    it = iter(mask)
    return [next(it) if is_tensor(a) else False for a in args]


def _present(found, args):
    return [g for g, a in zip(found, args) if is_tensor(a)]


def _trimmed(given, defaults):
    """Drops trailing arguments that equal their defaults. `defaults` holds the defaults of the last
    arguments."""
    given, n = list(given), len(given)
    while n and len(given) - n < len(defaults) and _equal(given[n - 1], defaults[n - 1 - len(given)]):
        n -= 1
    return given[:n]


def _equal(a, b):
    return not is_tensor(a) and a.__class__ is b.__class__ and a == b


def prim(name):
    """Decorator that registers the aten form of a primitive."""
    def register(fn):
        PRIMITIVES[name] = fn
        return fn
    return register


def op(*names):
    """Decorator that registers the aten form of an op. The function receives all of the op's
    arguments by name."""
    def register(fn):
        for n in names:
            OPS[n] = fn
        return fn
    return register


def of_op(entry, args, kwargs):
    """Returns the result of an op of `OPS`; NotImplemented for any other op, or if the call has no
    aten form."""
    found = entry.op
    fn = None if found is None or entry.inplace else OPS.get(found.main.qualname)
    if fn is None or kwargs.get("out") is not None or not usable():
        return NotImplemented
    try:
        bound = found.signature.bind(*args, **{k: v for k, v in kwargs.items() if k != "out"})
    except TypeError:
        return NotImplemented
    bound.apply_defaults()
    return fn(**bound.arguments)
