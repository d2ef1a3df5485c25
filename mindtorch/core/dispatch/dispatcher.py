"""The dispatcher: the one place to observe, change or replace a call before it is computed.

Every public function, Tensor method and in-place form is a function generated here. Every primitive
begins with the same test (`mindtorch/core/dispatch/primitives.py`). In the usual case a call costs one flag test
and one class check per required argument (about 30 ns of 2500). If the flag is set, or an argument
is neither a plain tensor nor a scalar, the call goes through the active layers in this order:

    native      MindSpore's own tensors among the arguments become Tensors  core/tensor/tensor.py
    function    modes and __torch_function__ of arguments  torch/_function_protocol.py
    transform   tensors created inside torch.func's transforms  core/transforms/functorch_levels.py
    autocast    casts operands to the dtype in the op's record  core/dispatch/autocast.py
    dispatch    modes and __torch_dispatch__ for non-primitive calls  torch/_dispatch_protocol.py
    vmap        ops that a vmap computes slice by slice  core/transforms/vmap.py
    trace       a trace records the op, or traces into it  core/compile/tracing.py
    meta        queries of tensors without values  torch/_meta.py
    saves       saved tensors are copied before a write  torch/autograd/_mutation.py
    forward     in-place ops on tensors with tangents  core/autograd/forward_ad.py
    anomaly     nodes record the call that created them  torch/autograd/anomaly_mode.py
    observe     profilers  torch/autograd/profiler.py

and a primitive through

    forward     propagates the operands' tangents  core/autograd/forward_ad.py
    vmap        all slices of a vmap at once  core/transforms/vmap.py
    saves       saved-tensor hooks get the values that nodes save  core/autograd/saves.py
    dispatch    modes and __torch_dispatch__, under aten's names  torch/_dispatch_protocol.py
    trace       as above  core/compile/tracing.py
    bits        operands that are lazily conjugated or negated  core/dispatch/lazy_conj.py
    device      the kernel of the operands' device  core/device/device_dispatch.py
    meta        shapes only  core/dispatch/meta.py

A layer is a function (entry, args, kwargs, below) that returns the call's result; `below(entry,
args, kwargs)` continues with the next register_layer. Where speed matters, its attribute `bound` takes
`below` in advance and returns (entry, args, kwargs) -> result. The flag is global to the process;
every layer tracks per thread whether it is active.
"""
from __future__ import annotations

import functools
import textwrap
import threading
import types
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.errors import host_memory_error
from mindtorch.core.dispatch.op_schema import OpSchema, arg_kinds
from mindtorch.core.dispatch.codegen import EMPTY, compile_template, parameters
from mindtorch.core.dispatch.generated_files import declaration
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.hooks import hooks

OPS = ("native", "function", "transform", "autocast", "dispatch", "vmap", "trace", "meta", "saves", "forward", "anomaly", "observe")
PRIMITIVES = ("forward", "vmap", "saves", "dispatch", "trace", "bits", "device", "meta")


class SparseUse(NotImplementedError):
    """Raised where a sparse tensor is used and dense memory is required."""


class _DispatchState:
    """Global state of the dispatcher.

        ops, primitives  True if calls go through the layers
        meta             True once a tensor without memory has existed
        call_primitive   the topmost layer for primitives
        dual             function: True if a tensor among its arguments has a tangent; None while
                         forward mode is off
    """

    __slots__ = ("ops", "primitives", "meta", "call_primitive", "dual")
    ops: bool
    primitives: bool
    meta: bool
    call_primitive: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    dual: Callable[..., bool] | None


class _DispatchOff:
    """Flags for the body of a primitive that has been dispatched already."""

    primitives = False


dispatch_state, DISPATCH_OFF = _DispatchState(), _DispatchOff()
dispatch_state.ops = dispatch_state.primitives = dispatch_state.meta = False
dispatch_state.dual = None

#: Classes of arguments that take part in no protocol.
NON_TENSOR_TYPES = {int, float, bool, complex, str, bytes, type(None), slice, type, type(Ellipsis), list, tuple,
                    *[np.dtype(c).type for c in "?bBhHiIlLqQefdFD"]}

#: The same classes without tensors, for arguments that should be scalars.
SCALAR_TYPES = set(NON_TENSOR_TYPES)

#: (entry or primitive, args, kwargs, below) -> the call's result
Layer: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]

_lock = module_lock(globals(), "_lock", threading.RLock)
_layers: dict[str, dict[str, Layer]] = {"ops": {}, "primitives": {}}  # name -> layer
_users: dict[tuple[str, str], int] = {}  # (kind, name) -> number of users


# ------------------------------------------------------------------ layers
def register_layer(kind: str, name: str) -> Callable[[Layer], Layer]:
    """Decorator: registers the layer `name` of "ops" or "primitives"."""
    assert name in (OPS if kind == "ops" else PRIMITIVES), name

    def deco(fn):
        _layers[kind][name] = fn
        _chains.clear()
        _link(kind)
        return fn
    return deco


def enable_layer(kind: str, name: str) -> None:
    """Activates a layer; to be matched by `disable_layer`."""
    with _lock:
        n = _users[kind, name] = _users.get((kind, name), 0) + 1
        if n == 1:
            _used[kind] |= _bits[kind, name]
            _link(kind)


def disable_layer(kind: str, name: str) -> None:
    """Reverts one `enable_layer`."""
    with _lock:
        n = _users[kind, name] = _users[kind, name] - 1
        if not n:
            _used[kind] &= ~_bits[kind, name]
            _link(kind)


def is_enabled(kind: str, name: str) -> bool:
    """True if calls go through a layer."""
    return _users.get((kind, name), 0) > 0


def is_unobserved() -> bool:
    """True if no layer observes or changes what the primitives of plain host tensors compute."""
    return not (_used["ops"] & _WATCHING["ops"] or _used["primitives"] & _WATCHING["primitives"])


_bits = {(kind, name): 1 << i for kind, names in (("ops", OPS), ("primitives", PRIMITIVES)) for i, name in enumerate(names)}
_used = {"ops": 0, "primitives": 0}  # bits of the active layers
#: Layers that observe the computation of plain tensors; the others handle arguments of their own
#: kind.
_WATCHING = {kind: sum([_bits[kind, name] for name in names]) for kind, names in (
    ("ops", ("transform", "dispatch", "vmap", "trace", "saves", "forward", "anomaly", "observe")),
    ("primitives", ("forward", "vmap", "saves", "dispatch", "trace", "meta")))}
_chains: dict[tuple[str, int], Any] = {}  # (kind, bits) -> the chained layers


def _link(kind: str) -> None:
    """Chains the active layers.

    Chains are cached, because transforms come and go with each of their calls.
    """
    global _dispatch_op
    used = _used[kind]
    run = _chains.get((kind, used))
    if run is None:
        run = _chains[kind, used] = _chained(kind)
    if kind == "ops":
        _dispatch_op = run
        dispatch_state.ops = used != 0
    else:
        dispatch_state.call_primitive = run
        dispatch_state.primitives = run is not _plain


def _chained(kind):
    run = body if kind == "ops" else _plain
    below = None
    for name in reversed(OPS if kind == "ops" else PRIMITIVES):
        fn = _layers[kind].get(name)
        if name in _ALWAYS and below is None:
            below = run
        if fn is not None and (is_enabled(kind, name) or name in _ALWAYS):
            run = getattr(fn, "bound", _bound_to(fn))(run)
    return run if below is None or below is body or any([is_enabled(kind, name) for name in _ALWAYS]) else _skip_if_plain(run, below)


def _skip_if_plain(run, below):
    """Returns a function that uses `below` unless an argument needs the permanent layers."""
    def dispatch(entry, args, kwargs):
        for a in args:
            c = a.__class__
            if c not in NON_TENSOR_TYPES or c is list or c is tuple:
                return run(entry, args, kwargs)
        if kwargs:
            for a in kwargs.values():
                c = a.__class__
                if c not in NON_TENSOR_TYPES or c is list or c is tuple:
                    return run(entry, args, kwargs)
        return below(entry, args, kwargs)
    return dispatch


def _bound_to(fn):
    def bound(below):
        def run(entry, args, kwargs):
            return fn(entry, args, kwargs, below)
        return run
    return bound


def body(entry: DispatchEntry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The end of the chain: computes the call."""
    try:
        return entry.run(*args, **kwargs)
    except SparseUse:
        return hooks.sparse_answer(entry.name, args, kwargs)


def _plain(prim, args, kwargs):
    return prim.plain(*args, **kwargs)


_dispatch_op, dispatch_state.call_primitive = body, _plain
_ALWAYS = ("native", "function")  # an argument's class alone can require these


def dispatch_op(entry: DispatchEntry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Sends a call through the active layers."""
    return _dispatch_op(entry, args, kwargs)


# ------------------------------------------------------------------ generated functions
class DispatchEntry:
    """A dispatchable function.

        func      the function that handlers receive
        run       computes it
        op        its entry in the op table
        recorded  computes an in-place op as if gradients were recorded
    """

    __slots__ = ("func", "run", "name", "op", "inplace", "autocast", "recorded")

    def __init__(self, run: Callable[..., Any], name: str, op: OpSchema | None = None, inplace: bool = False) -> None:
        self.run, self.name, self.op, self.inplace = run, name, op, inplace
        self.func: Callable[..., Any] | None = None
        self.recorded: Callable[..., Any] | None = None
        self.autocast = None if op is None else op.autocast

    def __repr__(self) -> str:
        return f"<entry {self.name}>"


#: Generated function -> its entry.
DISPATCH_ENTRIES: dict[Callable[..., Any], DispatchEntry] = {}

# PyTorch's functions also accept NumPy's argument names.
NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}


def _given(values, defaults):
    """Returns the keyword arguments that differ from their defaults."""
    return {k: v for k, v in values.items() if v is not defaults[k]}


def _renamed(kwargs, names):
    """Returns the keyword arguments under PyTorch's names."""
    for k in kwargs:
        if k in names:
            return {names.get(k, k): v for k, v in kwargs.items()}
    return kwargs


_PARAMETER = "r{}_"


def _source(required, keywords, star, method, may_override, out, renames, first_is_list, n_positional, all_scalars, named, looked):
    """Source of a generated function.

        required     number of required positional parameters
        keywords     number of keyword-only parameters
        star         it has further positional parameters
        method       the class of the first argument is not checked
        may_override the classes of the further arguments are checked, too
        n_positional number of positional arguments in the current order, where an older one exists
        all_numbers  the optional arguments are scalars
        named        some scalars can be passed by keyword
        looked       keywords that are scalars

    KNOWN0 and so on, and FURTHER, are the classes expected at these positions (scalars, or scalars
    and tensors). `entry.run` handles a tensor passed for a scalar; detecting it costs nothing where
    classes are checked anyway.
    """
    if star and renames:
        return _renaming(method, may_override, out, first_is_list, n_positional, all_scalars, named)
    rs = [_PARAMETER.format(i) for i in range(required)]
    test = ["dispatch_state.ops", *[f"{rs[i]}.__class__ not in KNOWN{i}" for i in range(method, required)]]
    if star:
        given = f"({''.join(r + ', ' for r in rs)}*args)" if rs else "args"
        call = ", ".join([*rs, "*args", "**kwargs"])
        dispatched = f"return dispatch_op(entry, {given}, kwargs)"
        lines = [f"def f({', '.join([*rs, '*args', '**kwargs'])}):", f"    if {' or '.join(test)}:\n        {dispatched}"]
        if first_is_list:
            first = rs[0] if rs else "args[0] if args else ()"
            lines.append(f"    for x_ in {first}:\n        if x_.__class__ not in NON_TENSOR_TYPES:\n            {dispatched}")
        if may_override:
            lines.append(f"    for x_ in args:\n        if x_.__class__ not in FURTHER:\n            {dispatched}")
        rare = [*(["kwargs and 'out' in kwargs"] if out else []), *([f"len(args) != {n_positional - required}"] if n_positional is not None else [])]
        if rare:
            lines.append(f"    if {' or '.join(rare)}:\n        return run({call})")
        # Unpacking a tuple and a dict into a call costs 80 ns more than the usual forms.
        lines.append(f"    if not kwargs:\n        if not args:\n            return fn({', '.join(rs)})")
        if all_scalars and not may_override:
            lines.append(f"        if args[0].__class__ not in SCALAR_TYPES:\n            {dispatched}")
        lines.append(f"        if len(args) == 1:\n            return fn({', '.join([*rs, 'args[0]'])})")
        if all_scalars and not may_override:
            lines.append(f"        for x_ in args:\n            if x_.__class__ not in SCALAR_TYPES:\n                {dispatched}")
        lines.append(f"        return fn({', '.join([*rs, '*args'])})")
        if named:
            lines.append(f"    for x_ in kwargs.values():\n        if x_.__class__ not in SCALAR_TYPES:\n            {dispatched}")
        lines.append(f"    return fn({call})")
        return "\n".join(lines)
    ks = [f"k{i}_" for i in range(keywords)] + (["out"] if out else [])
    test += [f"{k}.__class__ not in SCALAR_TYPES" for k in looked]
    head = ", ".join([*rs, *(["*", *ks] if ks else [])])
    values = "{" + ", ".join(f"{k!r}: {k}" for k in ks) + "}"
    lines = [f"def f({head}):"]
    args = "(" + "".join(r + ", " for r in rs) + ")"
    dispatched = f"return dispatch_op(entry, {args}, {f'given({values}, defaults)' if ks else '{}'})"
    lines.append(f"    if {' or '.join(test)}:\n        {dispatched}")
    if first_is_list:
        lines.append(f"    for x_ in {rs[0]}:\n        if x_.__class__ not in NON_TENSOR_TYPES:\n            {dispatched}")
    call = ", ".join([*rs, *[f"{k}={k}" for k in ks if k != "out"]])
    if out:
        lines.append(f"    if out is not None:\n        return run({call}, out=out)")
    lines.append(f"    return fn({call})")
    return "\n".join(lines)


def _renaming(method, may_override, out, first_is_list, n_positional, all_scalars, named):
    """Source of a generated function that also accepts NumPy's argument names.

    A call with such names fails before anything is computed, and is repeated with PyTorch's names.
    """
    dispatched = "return dispatch_op(entry, args, renamed(kwargs, names))"
    test = "dispatch_state.ops" if method else "dispatch_state.ops or args and args[0].__class__ not in KNOWN0"
    lines = [f"def f(*args, **kwargs):\n    if {test}:\n        {dispatched}"]
    if first_is_list:
        lines.append(f"    for x in args[0] if args else ():\n        if x.__class__ not in NON_TENSOR_TYPES:\n            {dispatched}")
    rare = [*(["kwargs and 'out' in kwargs"] if out else []), *([f"len(args) != {n_positional}"] if n_positional is not None else [])]
    if rare:
        lines.append(f"    if {' or '.join(rare)}:\n        return run(*args, **renamed(kwargs, names))")
    lines.append("    if not kwargs:\n        if len(args) == 1:\n            return fn(args[0])\n        if len(args) == 2:\n            a, b = args")
    if all_scalars or may_override:
        lines.append(f"            if b.__class__ not in FURTHER:\n                {dispatched}")
    lines.append("            return fn(a, b)")
    if all_scalars or may_override:
        lines.append(f"        for x in args[1:]:\n            if x.__class__ not in FURTHER:\n                {dispatched}")
    lines.append("        return fn(*args)")
    if all_scalars or may_override:
        lines.append(f"    for x in args[1:]:\n        if x.__class__ not in FURTHER:\n            {dispatched}")
    if named:
        lines.append(f"    for x in kwargs.values():\n        if x.__class__ not in SCALAR_TYPES:\n            {dispatched}")
    lines.append("    try:\n        return fn(*args, **kwargs)\n    except TypeError:\n        if not any([k in names for k in kwargs]):\n            raise\n"
                 "    return fn(*args, **renamed(kwargs, names))")
    return "\n".join(lines)


@functools.lru_cache(None)
def _guarded(*form):
    """Source of a generated function that reports the op that ran out of memory, and hides internal
    frames."""
    head, _, body = _source(*form).partition("\n")
    # Entering a try costs nothing from Python 3.11 on, and a few nanoseconds before.
    return (f"{head}\n    try:\n        try:\n" + textwrap.indent(body, "        ") + "\n        except MemoryError as e:\n"
            "            raise memory_error(e, entry.name) from None\n    except Exception as e:\n        hide_internal_frames(e)\n        raise")


def _reading(run, name, scalar_indices, kinds):
    """Returns `run` with tensors passed for scalars converted to scalars."""
    def read(*args, **kwargs):
        for i, p in scalar_indices.items():
            if i < len(args) and args[i].__class__ not in SCALAR_TYPES:
                args = (*args[:i], hooks.read_number(name, p, kinds[p], args[i]), *args[i + 1:])
        for p, x in kwargs.items():
            if x.__class__ not in SCALAR_TYPES and p in kinds:
                kwargs = {**kwargs, p: hooks.read_number(name, p, kinds[p], x)}
        return run(*args, **kwargs)
    read.__name__, read.__doc__ = run.__name__, run.__doc__
    read.__wrapped__ = run  # for inspect.signature
    return read


def make_dispatcher(fn: Callable[..., Any], entry: DispatchEntry, *, out: Callable[..., Any] | None = None, method: bool = False, may_override: bool = True,
                    n_positional: int | None = None, run: Callable[..., Any] | None = None, declared: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Returns a generated function that calls the layers if required, and `fn` otherwise.

        out      accepts fn's arguments and `out=` (None: there is no such argument)
        method   the first parameter is a Tensor; the flag tells whether subclasses exist
        may_override  optional arguments may override by their class alone, too
        n_positional  fn's number of positional arguments, where `run` also accepts an older order
        declared  the function that declares the op, if it is not `fn`
    """
    found = parameters(fn)
    required = [p for p in found if p.kind == "" and p.default is EMPTY]
    rest = [p for p in found if p.kind in ("*", "**") or p.kind == "" and p.default is not EMPTY]
    keywords = [p for p in found if p.kind == "keyword"]
    names = {p.name for p in found}
    renames = "dim" in names or "keepdim" in names
    star = bool(rest) or renames or n_positional is not None or any(p.default is EMPTY for p in keywords) or any(
        p.name.startswith("__") for p in found)
    first_is_list = not method and bool(required) and required[0].name in ("tensors", "arrays")
    kinds = arg_kinds(fn)
    scalar_indices = [i for i, p in enumerate(found) if p.kind == "" and p.name in kinds]
    may_override = may_override and not method and bool(rest)
    first, positional = 1 if renames else len(required), [p for p in found if p.kind in ("", "*")]
    # Each form is another source to compile, 0.3 ms of import time. Where scalars and tensors are
    # mixed, the body checks.
    all_scalars = len(positional) > first and all([p.name in kinds for p in positional[first:]])
    looked = tuple([f"k{i}_" for i, p in enumerate(keywords) if p.name in kinds]) if not star else ()
    src = _guarded(len(required), len(keywords), star, method, may_override, out is not None, renames, first_is_list, n_positional,
                  all_scalars and (renames or not may_override),
                  any([p.name in kinds for p in found if p.kind in ("", "keyword")]) and star, looked)
    if kinds:
        entry.run = _reading(entry.run, entry.name, {i: found[i].name for i in scalar_indices}, kinds)
        run = run and entry.run
    given = {_PARAMETER.format(i): p.name for i, p in enumerate(required)}
    given.update({f"k{i}_": p.name for i, p in enumerate(keywords)})
    defaults = {p.name: p.default for p in keywords}
    if out is not None:
        defaults["out"] = None
        names.add("out")
    scope = {"fn": fn, "entry": entry, "dispatch_op": dispatch_op, "dispatch_state": dispatch_state, "NON_TENSOR_TYPES": NON_TENSOR_TYPES,
             "SCALAR_TYPES": SCALAR_TYPES, "FURTHER": SCALAR_TYPES if all_scalars else NON_TENSOR_TYPES, "run": run or out, "given": _given,
             "defaults": defaults, "renamed": _renamed, "names": {k: v for k, v in NUMPY.items() if k not in names and v in names}}
    scope.update({f"KNOWN{i}": SCALAR_TYPES if i in scalar_indices else NON_TENSOR_TYPES for i in range(max(1, len(required)))})
    scope["memory_error"], scope["hide_internal_frames"] = host_memory_error, hide_internal_frames
    f: Any = compile_template(src, given, fn.__name__, "methods" if method else "functions",
                              f"{'Tensor.' if method and entry.op is not None else ''}{entry.name} from {declaration(declared or fn)}:", scope, (),
                              None if star else defaults)
    f.__doc__, f.__module__, f.__wrapped__ = fn.__doc__, fn.__module__, fn if out is None else out
    entry.func = f
    DISPATCH_ENTRIES[f] = entry
    return f


def dispatching(run: Callable[..., Any], name: str) -> Callable[[Any], tuple[Any, DispatchEntry]]:
    """Decorator of a Tensor method that checks the flag itself.

    The method begins with `if dispatch_state.ops: return dispatch_op(entry, args, kwargs)`. For methods with any
    number of arguments: passing those through costs 250 ns. Also returns the entry; `run` computes
    the method.
    """
    def deco(f):
        entry = DispatchEntry(run, name)
        entry.func, DISPATCH_ENTRIES[f] = f, entry
        return f, entry
    return deco


def is_generated(f: object) -> bool:
    """True if a function goes through the layers already."""
    return f.__class__ is types.FunctionType and f in DISPATCH_ENTRIES


def undispatched(f: Any) -> Callable[..., Any]:
    """Returns what a generated function calls if no layer is active."""
    return f.__globals__["fn"]
