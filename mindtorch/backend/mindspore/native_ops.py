"""What of MindSpore's own code may be a call of a step that is compiled (core/native_ops.py): ops, functions, layers and optimizers of which it is known that
they compute values from values, by primitives that the recorder sees.

A call is known by its `Form`: all of it but its tensors.  What a graph would freeze, random places, sizes that hang on values, is none of these.
"""
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.backend.mindspore.graph import _readable
from mindtorch.backend.mindspore.npu import STYPES, converted, is_contiguous, shape_of, stype_of
from mindtorch.backend.mindspore.patches import UNSEEN, put, take_back
from mindtorch.backend.mindspore.private import _TensorPy, attributes, from_contiguous, MSParameter, MSTensor, unrecorded
from mindtorch.backend.mindspore.recording import STATE, Number, aside, constant, slot
from mindtorch.backend.mindspore.runtime import ms, target
from mindtorch.backend.mindspore.steps import plainly

import numpy as np  # noqa: E402
from mindspore.graph.jit_context import JitContext, set_jit_context  # noqa: E402
from mindspore.nn.optim import adam as _adam, momentum as _momentum, sgd as _sgd  # noqa: E402
from mindspore.ops import auto_generate as G  # noqa: E402
from mindspore.ops._primitive_cache import _get_cache_prim  # noqa: E402
from mindspore.ops.primitive import Primitive  # noqa: E402

#: ops whose result is new memory, and of a size that shapes and constants alone decide; and what MindSpore does between them
PURE = frozenset("""
Abs Acos Acosh Add AddExt Addcdiv Addcmul Any AddN AddScalar AddcdivExt AddcmulExt Adds AllFinite Argmax ArgMaxWithValue Asin Asinh Atan Atan2 Atanh BitwiseAnd
BitwiseNot BitwiseOr BitwiseXor
BroadcastTo Cast Ceil ClampScalar ClampTensor ClipByNorm Concat Cos Cosh CumSum CumsumExt Depend Div DivMod DivMods Divs Dot EqScalar
Equal Erf Erfc Exp Expm1 FillScalar FillTensor FillV2 Floor FloorDiv FloorDivScalar FloorMod FmodScalar FmodTensor Gather GeLU GreaterEqual
GreaterEqualScalar Greater GreaterScalar Identity IsFinite IsInf IsNan L2Normalize LeScalar Less LessEqual LessEqualScalar LessScalar Log Log1p LogSoftmax
LogSoftmaxExt LogicalAnd LogicalNot LogicalOr LogicalXor LtScalar MatMul MatMulExt MaskedFill Max MaxDim Maximum MaximumExt Mean MeanExt Min MinDim Minimum
MulScalar Mul Muls NanToNum NeScalar Neg Norm NotEqual Ones OnesLike OnesLikeExt Pow PowScalarTensor PowTensorScalar ProdExt RealDiv Reciprocal
ReduceAll ReduceAny ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReLU ReluGrad RemainderTensorScalar RemainderTensorTensor Round Rsqrt
Select SeLUExt Sigmoid Sign Silu Sin Sinh Softmax SoftplusExt Sqrt Square Stack StackExt SubExt SubScalar Sub Subs Sum SumExt Tan Tanh ToDtype
Where Zeros ZerosLike ZerosLikeExt
""".split())
#: what is a view, which inside of a function that gives new memory is as good
_VIEWS = frozenset("Broadcast BroadcastToView ExpandDims ExpandDimsView Reshape Squeeze Transpose TransposeView View".split())
_WRITES = frozenset("Adam AdamWeightDecay ApplyMomentum Assign AssignAdd AssignSub SGD".split())
#: functions that MindSpore puts under its own jit: (module, name); jit_fallback.py asks for those of this module
FUNCTIONS = frozenset(("mindspore.amp", n) for n in ("_grad_scale_map", "_grad_unscale_map", "_all_finite"))
#: layers that are made for one call
LAYERS = frozenset((("mindspore.ops.function.clip_func", "_ClipByGlobalNorm"),))
#: optimizers whose steps were compared with those that MindSpore compiles
OPTIMIZERS = (_momentum.Momentum, _sgd.SGD, _adam.Adam, _adam.AdamWeightDecay)

_ON_ASCEND = target() == "Ascend"
_PLAIN = frozenset((int, bool, str, type(None), type(Ellipsis)))
_HOOKS = ("_lazy_forward_pre_hook", "_lazy_forward_hook", "_lazy_backward_pre_hook", "_lazy_backward_hook", "_shard_fn", "_recompute_cell",
          "mixed_precision_type")


def _quiet(record):
    """(MindSpore's own code calls what it warns of.)"""
    return "pytype_to_dtype" not in record.getMessage()


class Unknown(Exception):
    """A call has something in it of which nobody knows whether it is the same the next time."""


# ------------------------------------------------------------------ forms
class _Leaf:
    """A tensor's place: the operand is a tensor (None), or a number of this element type."""

    __slots__ = ("stype",)

    def __init__(self, stype=None):
        self.stype = stype

    def __eq__(self, o):
        return o.__class__ is _Leaf and o.stype == self.stype

    def __hash__(self):
        return hash(self.stype)


_TENSOR = _Leaf()


def taken_apart(x: Any, operand: Callable[[Any], Any]) -> Any:
    """An argument but for its tensors, which operand(tensor) takes; it gives the element type of one that becomes a number."""
    c = x.__class__
    if c in _PLAIN:
        return c, x
    if c is float:
        return c, x, math.copysign(1, x)
    if c.__module__ == "mindspore.graph.mutable" and issubclass(c, (tuple, list)):
        c = tuple if issubclass(c, tuple) else list
    if c is tuple or c is list:
        return c, tuple([taken_apart(i, operand) for i in x])
    if c is dict:
        return c, tuple(x), tuple([taken_apart(i, operand) for i in x.values()])
    if isinstance(x, MSTensor):
        stype = operand(x)
        return _TENSOR if stype is None else _Leaf(stype)
    if isinstance(x, ms.Type):
        return "dtype", x
    if isinstance(x, Primitive) and c.__module__.startswith("mindspore."):
        return _Same(x)
    raise Unknown


class _Same:
    """A primitive: another one of the same class with the same settings is as good."""

    __slots__ = ("prim",)

    def __init__(self, prim):
        self.prim = prim

    def __eq__(self, o):
        if o.__class__ is not _Same or o.prim.__class__ is not self.prim.__class__:
            return False
        a, b = self.prim, o.prim
        return a is b or a.name == b.name and a.init_attrs == b.init_attrs and repr(a) == repr(b)

    def __hash__(self):
        return hash(self.prim.__class__)


def put_together(form: Any, operands: Any) -> Any:
    """The argument that a form stands for, with tensors of an iterator in their places."""
    c = form.__class__
    if c is _Leaf:
        h = next(operands)
        return h if form.stype is None else _as_tensor(h, form.stype)
    if c is _Same:
        return form.prim
    if form[0] is tuple or form[0] is list:
        return form[0]([put_together(i, operands) for i in form[1]])
    if form[0] is dict:
        return {k: put_together(i, operands) for k, i in zip(form[1], form[2])}
    return form[1]


def _as_tensor(n, stype):
    if n.__class__ is Number:
        return slot(n, stype)
    return constant(aside(_resident, from_contiguous(np.asarray(n, stype))))


def _resident(h):
    return ms.mint.empty_like(h, device="Ascend").copy_(h) if _ON_ASCEND else h


class Form:
    """A call but for its tensors.

    key       what is called, comparable
    settings  of its arguments: what `taken_apart` gives
    run       run(settings, operands) calls it
    result    the form of what it has given, where it has been computed
    refused   why no graph may have it, where that has been seen
    """

    __slots__ = ("name", "key", "settings", "run", "whole", "result", "refused")

    def __init__(self, name: str, key: Any, settings: Any, run: Callable[..., Any], whole: bool) -> None:
        self.name, self.key, self.settings, self.run, self.whole = name, key, settings, run, whole
        self.result: Any = None
        self.refused: str | None = None

    def __eq__(self, o: object) -> bool:
        return o.__class__ is Form and self.name == o.name and self.key == o.key and self.settings == o.settings

    def __hash__(self) -> int:
        return hash(self.name)


class _Watcher(JitContext):
    """Sees which primitives a call consists of."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.known = PURE | _VIEWS | _WRITES if form.whole else PURE

    def run_op(self, prim: Any, r: Any, *args: Any) -> Any:
        """See JitContext."""
        name = type(prim).__name__
        if name not in self.known and not (self.form.whole and name.startswith("Inplace")):
            self.form.refused = f"MindSpore's {self.form.name} calls {name}, which no graph may have"
        return r

    def pass_trace_node(self, before: Any, after: Any) -> None:
        """See JitContext."""

    def default_output(self) -> Any:
        """See JitContext."""
        return None

    def __enter__(self):
        set_jit_context(self)

    def __exit__(self, *error):
        set_jit_context(None)


#: what MindSpore's recording does not see -> the same for its compiler
_READABLE = {"__mul__": _readable.times, "__rmul__": _readable.times, "__add__": _readable.plus, "__radd__": _readable.plus, "__truediv__": _readable.over,
             "__rtruediv__": _readable.under, "__sub__": _readable.minus, "all": _readable.everywhere,
             "ops:less": _readable.below, "reshape": _readable.shaped, "astype": _readable.typed}
_OPS = {**dict.fromkeys(("Mul", "Muls"), _readable.times), **dict.fromkeys(("Add", "AddScalar"), _readable.plus),
        **dict.fromkeys(("Div", "Divs"), _readable.over)}


@contextlib.contextmanager
def _seen():
    """The recorder is told of methods that it does not see."""
    for name in UNSEEN:
        own = name.rpartition(".")[2]
        put(name, _told(ms.ops.less if own == "ops:less" else getattr(MSTensor, own), _READABLE[own]))
    try:
        yield
    finally:
        for name in UNSEEN:
            take_back(name)


def _told(method, function):
    def tells(*args):
        r = method(*args)
        if STATE.on is not None and r is not NotImplemented:
            STATE.on.called(function, r, args)
        return r
    return tells


def _as_primitive(op, name, args, kwargs):
    """An op while the recorder is on, which does not see what goes on natively: called by its primitive, or told of."""
    function = None if kwargs else _OPS.get(name)
    if function is not None:
        r = op(*args)
        STATE.on.called(function, r, args)
        return r
    if name == "Cast" or name == "ToDtype":         # (which are told of dtypes as numbers)
        r = op(*args, **kwargs)
        if STATE.on.find(r) is None:
            STATE.on.cast(args[0], r)
        return r
    if len(args) == 3 and isinstance(args[0], Primitive) and args[1].__class__ is str:
        prim, given = args[0], args[2]
        code = type(prim).__call__.__code__
        calls = [lambda: prim(*(given if code.co_flags & 4 else given[:code.co_argcount - 1]))]         # (what follows are its own settings)
    else:
        made = getattr(G, name, None)
        calls = [] if made is None else [lambda: _get_cache_prim(made)()(*args, **kwargs), lambda: _get_cache_prim(made)(*args[1:], **kwargs)(args[0])]
    for call in calls:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):          # (it takes them in another way)
            return call()
    return op(*args, **kwargs)          # (the recorder will say that it has not seen it)


def compute(form: Form, handles: Sequence[Any]) -> tuple[Any, ...] | None:
    """Calls it; its tensors, each in memory of its own, or None."""
    plainly.n += 1
    logger = ms.log._get_logger()
    logger.addFilter(_quiet)
    try:
        with unrecorded(), _Watcher(form) if STATE.on is None else _seen():
            r = form.run(form.settings, handles)
    finally:
        plainly.n -= 1
        logger.removeFilter(_quiet)
    found: list[Any] = []
    try:
        form.result = taken_apart(r, found.append)
    except Unknown:
        form.result, form.refused = (type(None), None), f"MindSpore's {form.name} gives {type(r).__name__}"
        return None
    given = {_start(h) for h in handles if isinstance(h, MSTensor)}
    for i, t in enumerate(found):
        if _start(t) in given or isinstance(t, MSParameter):
            form.refused = f"MindSpore's {form.name} gives a view of its operand"
        elif not is_contiguous(t):
            found[i] = converted(t, stype_of(t))
    return tuple(found) if found else None


def _start(t):
    return _TensorPy._data_ptr(t) - _TensorPy.storage_offset(t) * t._itemsize


def is_dtype_of(x: Any, stype: Any) -> bool:
    """Whether x is MindSpore's dtype for an element type."""
    return isinstance(x, ms.Type) and STYPES.get(x) == stype


# ------------------------------------------------------------------ what is called
def _settings(x, operand):
    """taken_apart, or None where something in it is unknown."""
    try:
        return taken_apart(x, operand)
    except Unknown:
        return None


def op_form(op: Any, name: str, args: Any, kwargs: Any, operand: Callable[[Any], Any]) -> Form | None:
    """A call of one op, as MindSpore hands it on; None: it is not known."""
    if name not in PURE:
        return None
    settings = _settings((tuple(args), kwargs), operand)
    if settings is None:
        return None

    def run(settings, handles):
        a, k = put_together(settings, iter(handles))
        return op(*a, **k) if STATE.on is None else _as_primitive(op, name, a, k)
    return Form(name, type(op).__name__, settings, run, False)


def function_form(fn: Any, args: Any, kwargs: Any, operand: Callable[[Any], Any]) -> Form | None:
    """A call of a function of MindSpore's that is under its jit."""
    if (fn.__module__, fn.__name__) not in FUNCTIONS:
        return None
    settings = _settings((tuple(args), kwargs), operand)
    if settings is None:
        return None

    def run(settings, handles):
        a, k = put_together(settings, iter(handles))
        return fn(*a, **k)
    return Form(fn.__name__.strip("_"), fn, settings, run, True)


def _own_settings(cell, tensors):
    """Numbers and the like among a Cell's attributes; its tensors go to the list."""
    found = []
    for name, v in vars(cell).items():
        if name[0] == "_" or name in ("init_params", "init_learning_rate", "init_args", "parameters"):
            continue
        if isinstance(v, MSTensor) and not isinstance(v, MSParameter):
            tensors.append(v)
        elif v.__class__ in (tuple, list):
            with contextlib.suppress(Unknown):
                found.append((name, taken_apart(v, tensors.append)))
        elif v.__class__ in _PLAIN or v.__class__ is float:
            found.append((name, v.__class__, v))
    return tuple(found)


def layer_form(cell: Any, args: Any, operand: Callable[[Any], Any]) -> Form | None:
    """A call of a layer of MindSpore's that is made for one call; its own numbers are part of what it is."""
    if (type(cell).__module__, type(cell).__name__) not in LAYERS or any([vars(cell).get(n) for n in _HOOKS]):
        return None
    own: list[Any] = []
    key = type(cell), _own_settings(cell, own), tuple([(t.shape, str(t.dtype), t.asnumpy().tobytes()) for t in own])
    settings = _settings(tuple(args), operand)
    if settings is None:
        return None

    def run(settings, handles):
        for t in own:
            constant(t)
        return cell.construct(*put_together(settings, iter(handles)))
    return Form(type(cell).__name__.strip("_"), key, settings, run, True)


def optimizer_state(opt: Any) -> tuple[Any, list[Any], list[Any]] | None:
    """(settings, Parameters, other tensors) of an optimizer of MindSpore's; None where it is not known what a step of it does."""
    if type(opt) not in OPTIMIZERS or opt.use_parallel or getattr(opt, "use_offload", False) or getattr(opt, "use_lazy", False):
        return None
    tensors: list[Any] = []
    settings = []
    for _, c in opt.cells_and_names():
        if not type(c).__module__.startswith("mindspore.") or any([vars(c).get(n) for n in _HOOKS]):
            return None
        settings.append((type(c), _own_settings(c, tensors)))
    return tuple(settings), list(opt.get_parameters()), tensors


def optimizer_form(opt: Any, state: Any, gradients: Any, operand: Callable[[Any], Any], device: Any) -> Form | None:
    """A step of an optimizer of MindSpore's; its Parameters and tensors are the last operands."""
    own, parameters, tensors = state
    _device[:] = [device]
    settings = _settings(gradients, operand)
    if settings is None:
        return None
    n = len(parameters)

    def run(settings, handles):
        at = len(handles) - n - len(tensors)
        mine = handles[at:at + n]
        for p, h in zip(parameters, mine):
            bind(p, h, device)
        return opt.construct(put_together(settings, iter(handles)))
    return Form(type(opt).__name__, (opt, own), settings, run, True)


def bind(p: Any, h: Any, device: Any) -> None:
    """Puts a Parameter on the memory of a handle."""
    if _TensorPy._data_ptr(p) != h._data_ptr():
        MSTensor.assign_value_cpp(p, device.writable(h))


def set_in_place(p: Any, value: Any) -> bool:
    """Whether a Parameter has been given a value where it lies, so that a recording sees it: inside of a call that is recorded."""
    if type(value) is not MSTensor or not isinstance(p, MSParameter) or shape_of(value) != shape_of(p) or stype_of(value) != stype_of(p):
        return False
    _device[0].write(handle_of(p), value)
    return True


#: the device that graphs are for
_device: list[Any] = []


# ------------------------------------------------------------------ MindSpore's own tensors as operands

def handle_of(p: Any) -> Any:
    """A handle on the memory of a tensor of MindSpore's: the same one as long as it lies there."""
    own = attributes(p)
    h = own.get("_mindtorch_handle")
    if h is None or h._data_ptr() != _TensorPy._data_ptr(p):
        h = MSTensor(p)
        if _ON_ASCEND and isinstance(p, MSParameter):           # (what is of the host would move at its first use)
            h = _resident(h)
            MSTensor.assign_value_cpp(p, h)
        own["_mindtorch_handle"] = h
    return h
