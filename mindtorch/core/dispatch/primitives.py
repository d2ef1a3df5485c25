"""Reverse-mode autograd: recording of nodes and saved tensors, and `primitive`, which creates a
differentiable kernel (the backward engine is in engine.py).

MindSpore's own autograd (`run_backward`) is not used: on CPU it costs 20-60 us per op, has wrong or
missing gradients for many kernels, cannot follow writes through views, and takes 55 us for every
kernel that is not its own. This one costs about 1 us per op, and its rules are PyTorch's: hooks,
version counters, views, retain_grad, double backward.
"""
from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from mindtorch.backend import cpu, kernels
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.pointwise import HALF
from mindtorch.backend.interface import Array, Kernel, Layout
from mindtorch.backend.mindspore.private import STRIDED, from_array, from_contiguous, grad_flag, native_recording
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import stride_rules as layouts
from mindtorch.core.mindspore import grad as mindspore_grad
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits
from mindtorch.core.dispatch.dispatcher import dispatch_state, DISPATCH_OFF
from mindtorch.core.dispatch.codegen import compile_template
from mindtorch.core.dispatch.generated_files import caller
from mindtorch.core.tensor.dtypes import LOW
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.dispatch.op_schema import parse_tags
from mindtorch.core.autograd.grad_mode import INFERENCE, mode
from mindtorch.core.autograd.graph import (AccumulateGrad, Edge, Node, RemovableHandle, SavedTensor, _Out, _Packed, _save, _unpack, hooks_here,  # noqa: F401
                                           new_node, saved_hooks, sequence)
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Tensor, VersionCounter, shallow_copy, check_inplace_on_view, wrap_array
from mindtorch.core.tensor.view_meta import register_view, register_views

kernels.load(cpu)
HOST = kernels.TABLES["cpu"]

#: gradient rule: (saved values of the forward pass, gradient of the result) -> operand's gradient
Rule: TypeAlias = Callable[[Any, Any], Any]
#: what a primitive accepts as a tensor
Operand: TypeAlias = Tensor | ScalarOperand | SavedArray


class PrimitiveFunction(Protocol):
    """Result of `primitive`: a function over Tensors, with its record."""

    prim: Primitive

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

_F32 = np.dtype(np.float32)


# ------------------------------------------------------------------ primitives
PRIMITIVES: dict[str, PrimitiveFunction] = {}  # name -> function created by `primitive`


class Primitive:
    """A differentiable kernel: `fwd` over arrays, with one gradient rule per tensor input."""

    shares = False  # the result shares the first input's memory, but is not a view for autograd
    variadic = False  # a call's operands are one sequence (core/dispatch/tensor_list_primitive.py)
    #: together(node, g): computes all gradients in one device kernel from the saved tensors; None:
    #: the individual rules are used
    together: Rule | None = None
    #: JVP rule: "linear" (apply the primitive itself), or rule(c, {operand index: tangent}); None:
    #: see core/autograd/forward_ad.py
    forward: Any = None
    #: vmap rule: computes all slices at once. rule(prim, operands over all slices, for each operand
    #: whether it is batched, constants, level) -> results over all slices, or None to run slice by
    #: slice (core/transforms/vmap.py)
    batch: Any = None
    #: what PyTorch's node saves while hooks are active, if it differs (core/autograd/saves.py)
    saved_spec: Any = None
    declared_tags: frozenset[str] = frozenset()
    #: aten's operator with the same arguments (see `primitive`); None: torch/_aten_calls.py has its
    #: form, or it has none
    aten: str | None = None

    def __init__(self, name: str, fwd: Kernel, grads: tuple[Rule | None, ...],
                 inputs: list[str], attrs: list[str], node_name: str | None, view: bool, raw: bool, nondiff: tuple[int, ...], saves: Sequence[str],
                 order: tuple[int, ...] | None = None, layout: Layout | tuple[Layout | None, ...] | None = None, residuals: tuple[int, ...] = ()) -> None:
        self.name, self.fwd, self.grads, self.inputs, self.attrs = name, fwd, grads, inputs, attrs
        self.view, self.raw, self.nondiff, self.residuals = view, raw, (*nondiff, *residuals), residuals
        camel = "".join(p[:1].upper() + p[1:] for p in re.split(r"[_.]", name))
        self.node_class = type((node_name or camel) + ("" if "Backward" in (node_name or "") else "Backward0"),
                               (Node,), {"__slots__": (), "__module__": "torch.autograd.functions", "order": order})
        self.joint = len(grads) == 1 and len(inputs) > 1 and grads[0] is not None
        #: number of inputs with gradient edges, if not all: trailing inputs such as indices and
        #: masks have none
        self.edges = None
        if grads and grads[-1] is None and order is None:
            self.edges = next((i + 1 for i in range(len(grads) - 1, 0, -1) if grads[i] is not None), 1)
            self.grads = grads[:self.edges]
        #: indices of the inputs without a rule: they get no edge, as the engine would wait for a
        #: gradient that never arrives
        self.ruleless = () if self.joint else tuple([i for i in range(len(inputs)) if i >= len(self.grads) or self.grads[i] is None])
        self.optional: tuple[int, ...] = ()  # indices of the inputs that may be None
        self.single_rule = len(self.grads) == 1 and self.grads[0] is not None
        self.function: Any = None
        self._plain: types.FunctionType | None = None
        self.shapes: Kernel | None = None
        self._masks: dict[int, tuple[Any, ...]] = {}
        self._reads: set[str] | None = None
        self._explicit = saves
        self.elementwise = isinstance(fwd, np.ufunc) or hasattr(fwd, "pointwise")
        #: rule for the results' strides; see core/tensor/stride_rules.py
        self.layout = layout or (layouts.pointwise if self.elementwise else layouts.contiguous)
        #: number of held results, if these are all but the first: the node then has one output, and
        #: rules receive its gradient directly
        self.rest = len(residuals) if residuals and not nondiff and residuals == tuple(range(1, len(residuals) + 1)) else 0

    @property
    def tags(self) -> frozenset[str]:
        """Declared tags and those that follow from other fields.

        "view" of a view, "pointwise" of an elementwise host kernel, "nondeterministic_seeded" of a
        primitive with the constant `generator`.
        """
        derived = (("view", self.view), ("pointwise", self.elementwise), ("nondeterministic_seeded", "generator" in self.attrs))
        return self.declared_tags.union([t for t, has in derived if has])

    @property
    def plain(self) -> types.FunctionType:
        """The generated function without dispatch."""
        if self._plain is None:
            f = self.function
            self._plain = types.FunctionType(f.__code__, {**f.__globals__, "dispatch_state": DISPATCH_OFF}, f.__name__, f.__defaults__)
        return self._plain

    @property
    def lowering(self) -> Callable[..., Any] | None:
        """Lowering of the primitive for export formats (backend/export); None: there is none."""
        from mindtorch.backend.export.lowering import LOWERINGS
        return LOWERINGS.get("prim." + self.name)

    @property
    def reads(self) -> set[str]:
        """Names that the gradient rules read."""
        if self._reads is None:
            self._reads = set().union(*[_names_read(rule.__code__) for rule in self.grads if rule is not None], self._explicit)
        return self._reads

    def run_with(self, fwd: Kernel, low: Callable[..., Any] | None, args: Sequence[Operand | None], kw: dict[str, Any]) -> Any:
        """Runs the primitive with `fwd` on the operands' arrays, for the dispatcher's layers.

        low: function that casts half precision for it.
        """
        try:
            arrays = tuple([None if x is None else x._array for x in args])
        except AttributeError:
            raise _operand_error(self.name, self.inputs, args) from None
        return finish(self, self.compute(arrays, kw, fwd, low), args, kw)

    def compute(self, arrays: Sequence[Array | None], kw: dict[str, Any], fwd: Kernel | None = None, low: Callable[..., Any] | None = None) -> Any:
        """Runs the host's kernel (or `fwd`) on arrays.

        Handles half precision and layouts as in a call.
        """
        fwd, low = fwd or self.fwd, None if self.raw or self.view else low or _low
        if not self.view and arrays and STRIDED.on and (STRIDED.unusual_strides or not all([a is None or a.flags.c_contiguous for a in arrays])):
            return _strided(self, fwd, low, arrays, kw)
        if low is not None and any([a is not None and a.itemsize == 2 for a in arrays]):
            return low(fwd, arrays, kw)
        return fwd(*arrays, **kw)

    def needed(self, mask: int) -> tuple[Any, ...]:
        """Returns the names that the rules of the inputs in `mask` read.

        Nothing else is saved.
        """
        names = set()
        for i, rule in enumerate(self.grads):
            if rule is not None and (self.joint or mask >> i & 1):
                names.update(_names_read(rule.__code__))
        if self._explicit:
            names.update(self._explicit)
        ins = [(n, i) for i, n in enumerate(self.inputs) if n in names]
        outs = [(n, 0 if n == "out" else int(n[3:])) for n in sorted(names) if re.fullmatch(r"out\d*", n)]
        r = self._masks[mask] = (ins, outs, "shapes" in names, "dtypes" in names, "needs" in names)
        return r

    def backward(self, node: Node, gs: Any) -> Sequence[Tensor | None]:
        """Computes the gradients of the inputs; `gs` holds one gradient (or None) per output."""
        if len(node._input_metadata) == 1:
            g = gs[0]
        else:
            g = [_zeros(m, gs) if x is None and m is not None else x for x, m in zip(gs, node._input_metadata)]
        if self.joint:
            return self.grads[0](node, g)       # type: ignore[misc]
        if self.single_rule:
            return (None if node._next_edges[0] is None else self.grads[0](node, g)),         # type: ignore[misc]
        if self.together is not None and g._handle is not None and g._handle.__class__ is not ConjNegBits:
            r = self.together(node, g)
            if r is not None:
                return r
        return [None if e is None or rule is None else rule(node, g) for e, rule in zip(node._next_edges, self.grads)]


def _names_read(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for c in code.co_consts:
        if hasattr(c, "co_names"):
            names |= _names_read(c)
    return names


def _zeros(meta, gs):
    like = next((g for g in gs if g is not None), None)
    if like is None or like._handle is None:
        return wrap_array(np.zeros(meta[0], meta[1]))
    return hooks.new_full(like, size=meta[0], value=0, np_dtype=meta[1])


def record(prim: Primitive, outs: Any, ins: Sequence[Any], kw: dict[str, Any]) -> Any:
    """Attaches a new node to the results. `outs` is a Tensor or a tuple of them."""
    if prim.view and INFERENCE.ever and ins[0]._inference:
        return outs  # see core/tensor/view_meta.py
    node: Any = object.__new__(prim.node_class)  # as in new_node
    node._tensor_hooks = node._retains_grad = node._pre_hooks = node._post_hooks = node._saved = node._metadata = None
    node._released = False
    node._sequence_number = next(sequence)
    node._prim = prim
    mask, edges, i = 0, [], 0
    for x in ins:
        if x is not None and x._requires_grad_:
            mask |= 1 << i
            gn = x._grad_fn_
            if x._creation_meta is not None:
                check_inplace_on_view(x)
            edges.append((gn, x._output_nr) if gn is not None else None if x._view_without_history else x)
        else:
            edges.append(None)
        i += 1
    for i in prim.ruleless:
        if edges[i] is not None:
            edges[i] = None
            mask &= ~(1 << i)
            if not mask:
                return outs
    node._next_edges = edges
    single = outs.__class__ is not tuple
    if single or prim.rest:
        t = outs if single else outs[0]
        a = t._array
        if a.dtype.kind not in "fcV":
            return outs
        node._input_metadata = ((a.shape, a.dtype),)
        t._grad_fn_, t._requires_grad_ = node, True
    else:
        meta: list[Any] = []
        for i, t in enumerate(outs):
            if t is None or t._array.dtype.kind not in "fcV" or i in prim.nondiff:
                meta.append(None)
                continue
            meta.append((t._array.shape, t._array.dtype))
            t._grad_fn_, t._requires_grad_, t._output_nr = node, True, i
        node._input_metadata = tuple(meta)
    saved_ins, saved_outs, shapes, dtypes, needs = prim._masks.get(mask) or prim.needed(mask)
    if shapes:
        kw["shapes"] = [None if x is None else x._array.shape for x in ins]
    if dtypes:
        kw["dtypes"] = [None if x is None else x._array.dtype for x in ins]
    if needs:
        kw["needs"] = tuple([e is not None for e in edges])
    node._attrs = kw
    if saved_ins or saved_outs:
        saved: dict[str, Any] = {}
        for n, i in saved_ins:
            x = ins[i]
            if x is None or x.__class__ is SavedArray or x.__class__ is ScalarOperand:
                saved[n] = x
            elif saved_hooks or INFERENCE.ever:
                _save(n, x, saved)
            else:
                ver = x._version_counter
                if ver is None:
                    ver = x._version_counter = VersionCounter()
                saved[n] = (x, ver, ver.v)
        for n, i in saved_outs:
            t = outs if single else outs[i]
            if t is None or t.__class__ is SavedArray:
                saved[n] = t
            elif saved_hooks:
                d = shallow_copy(t)
                if node._input_metadata[i] is not None:  # integer outputs such as indices have no history
                    d._grad_fn_, d._output_nr, d._requires_grad_ = node, i, True
                _save(n, d, saved, i)
            else:
                saved[n] = _Out(t, i)
        node._saved = saved
    if grad_flag() and native_recording():
        mindspore_grad.link(node, outs, ins)
    return outs


def _low(fwd, arrays, kw):
    """Computes float16 and bfloat16 in float32 and rounds the result, like PyTorch's CPU kernels.

    Uses a single-pass C loop where there is one.
    """
    in_c = HALF.get(fwd)
    if in_c is not None:
        r = in_c(*arrays, **kw)
        if r is not None:
            return r
    return _upcast_call(fwd, arrays, kw)


@quiet
def _upcast_call(fwd, arrays, kw):
    to = None
    for x in arrays:
        if x is not None and x.dtype in LOW:
            to = x.dtype
    if to is None:
        return fwd(*arrays, **kw)
    arrays = [upcast(x) if x is not None and x.dtype in LOW else x for x in arrays]
    r = fwd(*arrays, **kw)
    if r.__class__ is tuple:
        return tuple(downcast(x, to) if x is not None and x.dtype == _F32 else x for x in r)
    return downcast(r, to) if r.dtype == _F32 else r


_PLAIN = frozenset((int, float, bool, complex, str, type(None)))


def _strided(prim, fwd, low, arrays, kw):
    """Runs a primitive on operands of which some are not in C order; results get PyTorch's layout.

    Elementwise kernels receive their operands with the dimensions in the order of the result's
    memory, so that the result is in C order for the kernel and needs no copy. low: `_low` for
    kernels that compute half precision in float32.
    """
    rule = prim.layout
    strides = None
    if rule is layouts.pointwise and prim.elementwise and (not kw or all([v.__class__ in _PLAIN for v in kw.values()])):
        # The plan is cached by the operands' layouts: 1 us vs 9 us to compute it.
        key = (STRIDED.unusual_strides, *[None if a is None else (a.shape, a.strides, a.itemsize) for a in arrays])
        plan = _plans.get(key)
        if plan is None:
            if len(_plans) > 4096:
                _plans.clear()
            plan = layouts.pointwise_plan(arrays)
            plan = _plans[key] = (*plan, layouts.mixed_order_operands(arrays, plan), {}, any([a is not None and a.itemsize == 2 for a in arrays]))
        strides, order, inverse, crossing, in_bytes, half = plan
        given = arrays if order is None else [a if a is None or not a.ndim else a.transpose(order) for a in arrays]
        if crossing:
            given = [layouts.in_c_order(a, fwd) if i in crossing else a for i, a in enumerate(given)]
    else:
        given, order = arrays, None
        half = low is not None and any([a is not None and a.itemsize == 2 for a in arrays])
    if half and low is not None:
        r = low(fwd, given, kw)
    else:
        r = fwd(*given, **kw)
    if order is not None:
        r = tuple([x.transpose(inverse) for x in r]) if r.__class__ is tuple else r.transpose(inverse)
    if strides is not None and r.__class__ is np.ndarray:
        k = r.itemsize
        wanted = in_bytes.get(k)
        if wanted is None:
            wanted = in_bytes[k] = tuple([s * k for s in strides])
        return r if r.strides == wanted else layouts.as_strided_copy(r, strides)
    return layouts.restride(rule, r, arrays, kw)


#: layouts of an elementwise primitive's operands -> layouts.pointwise_plan, layouts.crossing,
#: {itemsize: strides in bytes}, whether an operand has 2-byte elements
_plans: dict[Any, Any] = {}


def _operand_error(name, inputs, values):
    for i, (n, v) in enumerate(zip(inputs, values)):
        if v is not None and not hasattr(v, "_array"):
            return TypeError(f"{name}(): argument '{n}' (position {i + 1}) must be Tensor, not {type_name(v)}")
    return AttributeError(f"{name}(): internal error: a tensor argument has no storage")


_TEMPLATE = """
def {name}({sig}):
    if dispatch_state.primitives:
        return dispatch_state.call_primitive(PRIM, ({args}), {kw})
    try:
        {arrays}
    except AttributeError:
        raise _bad({name!r}, {inputs!r}, ({args})) from None
    {compute}
{several}
    t_ = {native}
    t_.__class__ = Tensor
    t_._array = r_
{view}
{tail}
    return {result}
"""


_SEVERAL = """
    if r_.__class__ is not ndarray:
        if r_.__class__ is tuple:
            return _many(PRIM, r_, ({args}), {kw})
        r_ = asarray(r_)
"""
# Fast path where all results but the first are held, as in norms, dropout, pooling and losses.
_REST = """
    if r_.__class__ is not tuple:
        return finish(PRIM, r_, ({args}), {kw})
    r_, {names} = r_
    if r_.__class__ is not ndarray:
        r_ = asarray(r_)
"""


@functools.lru_cache(None)
def _primitive_source(inputs, optional, attrs, grads, view, raw, elementwise, rest):
    """Returns the source of a primitive over inputs a0_, a1_, ... and constants s0_, s1_, ...

    optional: indices of the inputs that may be None. rest: number of held results, where these are
    all but the first.
    """
    inputs, attrs = [f"a{i}_" for i in range(inputs)], [f"s{i}_" for i in range(attrs)]
    optional = {inputs[i] for i in optional}
    args = "".join(n + ", " for n in inputs)
    sig = args + ("*, " + ", ".join(attrs) if attrs else "")
    arrays = "; ".join(f"x_{n} = None if {n} is None else {n}._array" if n in optional else f"x_{n} = {n}._array" for n in inputs) or "pass"
    xs = "".join("x_" + n + ", " for n in inputs)
    kws = ", ".join(f"{s}={s}" for s in attrs)
    kw = "{" + ", ".join(f"{s!r}: {s}" for s in attrs) + "}"
    ways = []
    native = "from_contiguous(r_) if r_.flags.carray else from_array(r_)"
    if not view and inputs:
        plain = " and ".join(f"x_{n}.flags.c_contiguous" if n not in optional else f"(x_{n} is None or x_{n}.flags.c_contiguous)" for n in inputs)
        strided = f"_strided(PRIM, fwd, {'None' if raw else '_low'}, ({xs}), {kw})"
        if elementwise:
            # The result of an elementwise kernel on operands in C order is in C order; skipping the
            # check saves 45 ns.
            strided, native = f"return finish(PRIM, {strided}, ({args}), {kw})", "from_contiguous(r_)"
        else:
            strided = "r_ = " + strided
        ways.append((f"STRIDED.on and (STRIDED.unusual_strides or not ({plain}))", strided))
    if inputs and not (raw or view):
        half = " or ".join(f"x_{n}.itemsize == 2" if n not in optional else f"(x_{n} is not None and x_{n}.itemsize == 2)"
                           for n in inputs)
        ways.append((half, f"r_ = _low(fwd, ({xs}), {kw})"))
    compute = f"r_ = fwd({xs}{kws})"
    for i, (when, what) in enumerate(reversed(ways)):
        compute = f"if {when}:\n        {what}\n    el" + compute if i else f"if {when}:\n        {what}\n    else:\n        {compute}"
    result, several = "t_", _SEVERAL.format(args=args, kw=kw)
    if rest:
        residuals = [f"h{i}_" for i in range(rest)]
        several = _REST.format(names=", ".join(residuals), args=args, kw=kw)
        result = f"(t_, {', '.join([f'None if {h} is None else SavedArray({h})' for h in residuals])})"
    viewlines = f"    register_view(t_, {inputs[0]})" if view else ""
    tail = ""
    if grads:
        anyrg = " or ".join(f"({n} is not None and {n}._requires_grad_)" if n in optional else f"{n}._requires_grad_" for n in inputs)
        # Checking whether operands require grad (25 ns each) is cheaper than checking whether this
        # thread records (50 ns).
        tail = f"    if {anyrg}:\n        if MODE.on:\n            return record(PRIM, {result}, ({args}), {kw})"
    if not view:
        tail += ("\n" if grads else "") + "    if INFERENCE.ever and MODE.inference:\n        t_._inference = True"
    source = _TEMPLATE.format(name="name_", sig=sig, arrays=arrays, inputs=tuple(inputs), args=args, kw=kw, compute=compute, view=viewlines, tail=tail,
                            native=native, several=several.strip("\n"), result=result)
    return "\n".join([line for line in source.split("\n") if line.strip()])


def finish(prim: Primitive, r: Array | tuple[Array | None, ...], ins: Sequence[Any], kw: dict[str, Any]) -> Any:
    """Wraps a kernel's result or results as tensors with history."""
    return _many(prim, r, ins, kw) if r.__class__ is tuple else link(prim, wrap_array(r), ins, kw)


def link(prim: Primitive, outs: Any, ins: Sequence[Any], kw: dict[str, Any]) -> Any:
    """Records views and history of a primitive's results (a Tensor or a tuple)."""
    if prim.view:
        if outs.__class__ is tuple:
            register_views(outs, ins[0])
        elif outs is not None:
            register_view(outs, ins[0])
    if prim.grads:
        for x in ins:
            if x is not None and x._requires_grad_:
                return record(prim, outs, ins, kw) if mode.on else outs
    return outs


def _many(prim, arrays, ins, kw):
    residuals = prim.residuals
    if residuals:
        outs = tuple([None if a is None else SavedArray(a) if i in residuals else wrap_array(a) for i, a in enumerate(arrays)])
    else:
        outs = tuple([None if a is None else wrap_array(a) for a in arrays] if dispatch_state.meta or INFERENCE.ever else _wrap_arrays(arrays))
    return link(prim, outs, ins, kw)


def _wrap_arrays(arrays):
    """Like `wrap_array` for each array, with the common checks made once (saves 0.2 us per view)."""
    outs = []
    for a in arrays:
        if a.__class__ is np.ndarray and a.flags.carray:
            t = from_contiguous(a)
            t.__class__ = Tensor
            t._array = a
            outs.append(t)
        else:
            outs.append(None if a is None else wrap_array(a))
    return outs


def _declared(signature: str) -> tuple[list[str], tuple[int, ...], list[str]]:
    """Parses a signature such as "a, b=None, *, dim, keepdim".

    Returns (names of the tensors, positions of those that may be None, names of the constants).
    """
    before, _, behind = signature.partition("*")
    tensors = [p.strip() for p in before.split(",") if p.strip()]
    optional = tuple(i for i, p in enumerate(tensors) if p.endswith("=None"))
    tensors, constants = [p.removesuffix("=None") for p in tensors], [p.strip() for p in behind.split(",") if p.strip()]
    return tensors, optional, constants


def tagged(tag: str) -> frozenset[str]:
    """Returns the names of the primitives with a tag of `TAGS` (core/dispatch/op_schema.py)."""
    parse_tags(tag)
    return frozenset([name for name, f in PRIMITIVES.items() if tag in f.prim.tags])


_RESERVED = re.compile(r"out\d*|shapes|dtypes|needs")


def host_kernel(name: str) -> Kernel:
    """Returns the host's kernel for a primitive that is about to be declared."""
    if name in PRIMITIVES:
        raise ValueError(f"there is a primitive {name!r} already")
    fwd = HOST.get(name)
    if fwd is None:
        raise NotImplementedError(f"primitive {name!r} has no kernel on device cpu")
    return fwd


def primitive(name: str, signature: str, *grads: Rule | None, node: str | None = None, view: bool = False, raw: bool = False,
              nondiff: tuple[int, ...] = (), residuals: tuple[int, ...] = (), saves: Sequence[str] = (), order: tuple[int, ...] | None = None,
              layout: Layout | tuple[Layout | None, ...] | None = None, tags: str = "", tangent: str | Rule | None = None,
              batch: Callable[..., Any] | None = None, together: Rule | None = None, aten: str | None = None) -> PrimitiveFunction:
    """Creates a differentiable function over Tensors from the devices' kernels of this name.

        name       unique; the kernels are in the devices' tables (backend/kernels.py)
        signature  "a, b=None, *, dim, keepdim": tensors before the star (`=None`: may be None),
                   constants after it, which are plain Python values. A kernel receives the tensors'
                   arrays in this order and the constants by keyword, and returns one result or a
                   tuple
        grads      one rule `lambda c, g: ...` per tensor (None: not differentiable), or one rule
                   for all of them that returns a tuple. A rule reads the forward's values as
                   c.<parameter>, c.out (c.out0, ...), c.<constant>, c.shapes, c.dtypes, c.needs;
                   only what it reads is saved. The engine reduces gradients to the input's shape
                   and dtype, so rules of broadcasting kernels need not do so. Rules use Tensor ops
                   and are therefore differentiable themselves
        node       class name of grad_fn, if it is not derived from the primitive's name
        view       the result shares the first input's memory
        raw        the kernel only moves bits and accepts float16/bfloat16 directly; other kernels
                   compute these in float32
        nondiff    indices of outputs without a gradient
        residuals  indices of outputs (arrays or None) that only gradient rules and other primitives
                   read; they are not Tensors
        order      positions of the inputs in the order in which gradients are returned, where
                   PyTorch's order differs from that of the inputs; hooks on parameters can observe
                   it
        layout     rule for the results' strides (core/tensor/stride_rules.py) where an operand is not in C
                   order; default: elementwise order for elementwise kernels, C order for others
        tags       space-separated names of `TAGS` (core/dispatch/op_schema.py); `Primitive.tags`
                   adds those that follow from other fields
        tangent    JVP rule: "linear" (the primitive itself is applied to the tangents), "constant"
                   (no tangent), or `rule(c, {operand index: tangent})`, which returns the result's
                   tangent. Default: derived from the gradient rules (ops/_jvp_rules.py lists the
                   exceptions)
        batch      vmap rule: `rule(prim, operands of all slices, for each operand whether it is
                   batched, constants, level)`, which returns the results of all slices, or None to
                   compute slice by slice. Default: slice by slice (ops/_vmap_rules.py lists the
                   exceptions)
        together   `rule(node, g)`: computes all gradients in one kernel of a device
        aten       "neg.default": aten's operator and overload whose arguments are the tensors and
                   the constants in this order. "eq.Tensor eq.Scalar": the second if the last tensor
                   is a number
    """
    fwd = host_kernel(name)
    inputs, optional, attrs = _declared(signature)
    read = set().union(*[_names_read(rule.__code__) for rule in grads if rule is not None])
    reserved = [n for n in (*inputs, *attrs) if n in read and _RESERVED.fullmatch(n)]
    if reserved:
        raise ValueError(f"primitive {name!r}: a parameter that gradient rules read cannot be named {reserved[0]!r}, which is reserved")
    prim = Primitive(name, fwd, grads, inputs, attrs, node, view, raw, nondiff, saves, order, layout, residuals)
    prim.optional, prim.declared_tags, prim.forward, prim.batch, prim.together = optional, parse_tags(tags), tangent, batch, together
    prim.aten = aten
    given = {f"s{i}_": n for i, n in enumerate(attrs)}
    given["name_"] = name
    for i, n in enumerate(inputs):
        given[f"a{i}_"], given[f"x_a{i}_"] = n, "x_" + n
    scope = {"fwd": fwd, "PRIM": prim, "ndarray": np.ndarray, "asarray": np.asarray, "from_contiguous": from_contiguous,
             "from_array": from_array, "Tensor": Tensor, "MODE": mode, "INFERENCE": INFERENCE, "record": record, "_low": _low, "_many": _many,
             "SavedArray": SavedArray,
             "_bad": _operand_error, "STRIDED": STRIDED, "_strided": _strided, "register_view": register_view, "dispatch_state": dispatch_state,
             "finish": finish}
    src = _primitive_source(len(inputs), optional, len(attrs), bool(grads), view, raw, prim.elementwise, prim.rest)
    # Optional tensors default to None; constants have no default.
    first = optional[0] if optional else len(inputs)
    f: Any = compile_template(src, given, re.sub(r"\W", "_", name), "primitives", f"{name} from {caller()}:", scope, (None,) * (len(inputs) - first))
    f.prim, prim.function = prim, f
    f.__module__ = "mindtorch.core.dispatch.primitives"
    PRIMITIVES[name] = f
    return f
