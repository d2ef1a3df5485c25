"""MindSpore code that may be a call in a compiled step (`mindtorch/core/mindspore/ops.py`): ops,
functions, layers and optimizers that are known to compute values from values with primitives that
the recorder sees.

A call is identified by its `Form`: everything but its tensors. Code whose random state or
value-dependent sizes a graph would freeze is not included.
"""
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch.backend.mindspore.graph import _readable
from mindtorch.backend.mindspore.npu import STYPES, converted, is_contiguous, shape_of, stype_of
from mindtorch.backend.mindspore.patches import UNSEEN, put, take_back
from mindtorch.backend.mindspore.private import _TensorPy, attributes, from_contiguous, MSParameter, MSTensor, unrecorded
from mindtorch.backend.mindspore.recorder_api import STATE, Number, untraced, constant, slot
from mindtorch.backend.mindspore.runtime import ms, target
from mindtorch.backend.mindspore.graph_mode_step import plainly

import numpy as np  # noqa: E402
from mindspore.graph.jit_context import JitContext, set_jit_context  # noqa: E402
from mindspore.nn.optim import adam as _adam, momentum as _momentum, sgd as _sgd  # noqa: E402
from mindspore.ops import auto_generate as G  # noqa: E402
from mindspore.ops._primitive_cache import _get_cache_prim  # noqa: E402
from mindspore.ops.primitive import Primitive  # noqa: E402

#: Primitives of MindSpore's, not mindtorch's, whose result is newly allocated and whose output shape
#: depends only on shapes and constants, and those that MindSpore calls in between.
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
#: Views of MindSpore's, which are allowed inside a function that returns newly allocated tensors.
_VIEWS = frozenset("Broadcast BroadcastToView ExpandDims ExpandDimsView Reshape Squeeze Transpose TransposeView View".split())
#: Primitives of MindSpore's that write to their operands.
_WRITES = frozenset("Adam AdamWeightDecay ApplyMomentum Assign AssignAdd AssignSub SGD".split())
#: Functions that MindSpore runs under its own jit: (module, name). `jit_fallback.py` queries those
#: of this module.
FUNCTIONS = frozenset(("mindspore.amp", n) for n in ("_grad_scale_map", "_grad_unscale_map", "_all_finite"))
#: Layers that MindSpore creates for a single call.
LAYERS = frozenset((("mindspore.ops.function.clip_func", "_ClipByGlobalNorm"),))
#: Optimizers whose recorded steps were compared with MindSpore's compiled ones.
OPTIMIZERS = (_momentum.Momentum, _sgd.SGD, _adam.Adam, _adam.AdamWeightDecay)

_ON_ASCEND = target() == "Ascend"
_PLAIN = frozenset((int, bool, str, type(None), type(Ellipsis)))
_HOOKS = ("_lazy_forward_pre_hook", "_lazy_forward_hook", "_lazy_backward_pre_hook", "_lazy_backward_hook", "_shard_fn", "_recompute_cell",
          "mixed_precision_type")


def _quiet(record):
    """Log filter: drops the deprecation warning about a function that MindSpore's own code calls.
    """
    return "pytype_to_dtype" not in record.getMessage()


class Unknown(Exception):
    """Raised for a call with an argument that cannot be compared between calls."""


# ------------------------------------------------------------------ forms
class _Leaf:
    """Placeholder of a tensor operand (None), or of an operand that becomes a scalar of this dtype.
    """

    __slots__ = ("np_dtype",)

    def __init__(self, np_dtype=None):
        self.np_dtype = np_dtype

    def __eq__(self, o):
        return o.__class__ is _Leaf and o.np_dtype == self.np_dtype

    def __hash__(self):
        return hash(self.np_dtype)


_TENSOR = _Leaf()


def described(x: Any, operand: Callable[[Any], Any]) -> Any:
    """Describes an argument without its tensors, which are passed to operand(tensor). `operand`
    returns the dtype of a tensor that becomes a scalar, else None."""
    c = x.__class__
    if c in _PLAIN:
        return c, x
    if c is float:
        return c, x, math.copysign(1, x)
    if c.__module__ == "mindspore.graph.mutable" and issubclass(c, (tuple, list)):
        c = tuple if issubclass(c, tuple) else list
    if c is tuple or c is list:
        return c, tuple([described(i, operand) for i in x])
    if c is dict:
        return c, tuple(x), tuple([described(i, operand) for i in x.values()])
    if isinstance(x, MSTensor):
        np_dtype = operand(x)
        return _TENSOR if np_dtype is None else _Leaf(np_dtype)
    if isinstance(x, ms.Type):
        return "dtype", x
    if isinstance(x, Primitive) and c.__module__.startswith("mindspore."):
        return _Same(x)
    raise Unknown


class _Same:
    """A primitive. It equals another primitive of the same class with the same settings."""

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
    """Rebuilds the argument that a form describes, with tensors taken from an iterator."""
    c = form.__class__
    if c is _Leaf:
        h = next(operands)
        return h if form.np_dtype is None else _as_tensor(h, form.np_dtype)
    if c is _Same:
        return form.prim
    if form[0] is tuple or form[0] is list:
        return form[0]([put_together(i, operands) for i in form[1]])
    if form[0] is dict:
        return {k: put_together(i, operands) for k, i in zip(form[1], form[2])}
    return form[1]


def _as_tensor(n, np_dtype):
    if n.__class__ is Number:
        return slot(n, np_dtype)
    return constant(untraced(_resident, from_contiguous(np.asarray(n, np_dtype))))


def _resident(h):
    return ms.mint.empty_like(h, device="Ascend").copy_(h) if _ON_ASCEND else h


class Form:
    """A call without its tensors.

        key       what is called, comparable
        settings  the result of `described` for its arguments
        run       run(settings, operands) executes the call
        result    the form of its result, once computed
        refused   reason why a graph cannot contain it, once known
    """

    __slots__ = ("name", "key", "settings", "run", "complete", "result", "refused")

    def __init__(self, name: str, key: Any, settings: Any, run: Callable[..., Any], complete: bool) -> None:
        self.name, self.key, self.settings, self.run, self.complete = name, key, settings, run, complete
        self.result: Any = None
        self.refused: str | None = None

    def __eq__(self, o: object) -> bool:
        return o.__class__ is Form and self.name == o.name and self.key == o.key and self.settings == o.settings

    def __hash__(self) -> int:
        return hash(self.name)


class _Watcher(JitContext):
    """Observes the primitives that a call consists of."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.known = PURE | _VIEWS | _WRITES if form.complete else PURE

    def run_op(self, prim: Any, r: Any, *args: Any) -> Any:
        """Overrides JitContext."""
        name = type(prim).__name__
        if name not in self.known and not (self.form.complete and name.startswith("Inplace")):
            self.form.refused = f"MindSpore's {self.form.name} calls {name}, which a graph cannot contain"
        return r

    def pass_trace_node(self, before: Any, after: Any) -> None:
        """Overrides JitContext."""

    def default_output(self) -> Any:
        """Overrides JitContext."""
        return None

    def __enter__(self):
        set_jit_context(self)

    def __exit__(self, *error):
        set_jit_context(None)


#: Methods and functions that MindSpore's recording does not see -> equivalents that its compiler
#: can read.
_READABLE = {"__mul__": _readable.times, "__rmul__": _readable.times, "__add__": _readable.plus, "__radd__": _readable.plus, "__truediv__": _readable.over,
             "__rtruediv__": _readable.under, "__sub__": _readable.minus, "all": _readable.everywhere,
             "ops:less": _readable.below, "reshape": _readable.shaped, "astype": _readable.typed}
_OPS = {**dict.fromkeys(("Mul", "Muls"), _readable.times), **dict.fromkeys(("Add", "AddScalar"), _readable.plus),
        **dict.fromkeys(("Div", "Divs"), _readable.over)}


@contextlib.contextmanager
def _seen():
    """Reports to the recorder the methods that it does not see by itself."""
    for name in UNSEEN:
        own = name.rpartition(".")[2]
        put(name, _reported(ms.ops.less if own == "ops:less" else getattr(MSTensor, own), _READABLE[own]))
    try:
        yield
    finally:
        for name in UNSEEN:
            take_back(name)


def _reported(method, function):
    def reporting(*args):
        r = method(*args)
        if STATE.on is not None and r is not NotImplemented:
            STATE.on.called(function, r, args)
        return r
    return reporting


def _as_primitive(op, name, args, kwargs):
    """Calls an op while the recorder is on. Native ops are invisible to the recorder, so the op is
    called by its primitive or reported explicitly."""
    function = None if kwargs else _OPS.get(name)
    if function is not None:
        r = op(*args)
        STATE.on.called(function, r, args)
        return r
    if name == "Cast" or name == "ToDtype":  # the primitives of these ops receive dtypes as numbers
        r = op(*args, **kwargs)
        if STATE.on.find(r) is None:
            STATE.on.cast(args[0], r)
        return r
    if len(args) == 3 and isinstance(args[0], Primitive) and args[1].__class__ is str:
        prim, given = args[0], args[2]
        code = type(prim).__call__.__code__
        # the remaining values are the primitive's own settings
        calls = [lambda: prim(*(given if code.co_flags & 4 else given[:code.co_argcount - 1]))]
    else:
        made = getattr(G, name, None)
        calls = [] if made is None else [lambda: _get_cache_prim(made)()(*args, **kwargs), lambda: _get_cache_prim(made)(*args[1:], **kwargs)(args[0])]
    for call in calls:
        # wrong calling convention: try the next one
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            return call()
    return op(*args, **kwargs)  # the recorder will report that it did not see this call


def compute(form: Form, handles: Sequence[Any]) -> tuple[Any, ...] | None:
    """Executes a call. Returns its tensors, each in its own storage, or None."""
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
        form.result = described(r, found.append)
    except Unknown:
        form.result, form.refused = (type(None), None), f"MindSpore's {form.name} returns {type(r).__name__}"
        return None
    given = {_start(h) for h in handles if isinstance(h, MSTensor)}
    for i, t in enumerate(found):
        if _start(t) in given or isinstance(t, MSParameter):
            form.refused = f"MindSpore's {form.name} returns a view of its operand"
        elif not is_contiguous(t):
            found[i] = converted(t, stype_of(t))
    return tuple(found) if found else None


def _start(t):
    return _TensorPy._data_ptr(t) - _TensorPy.storage_offset(t) * t._itemsize


def is_dtype_of(x: Any, np_dtype: Any) -> bool:
    """True if x is MindSpore's dtype for this NumPy dtype."""
    return isinstance(x, ms.Type) and STYPES.get(x) == np_dtype


# ------------------------------------------------------------------ forms of calls
def _settings(x, operand):
    """Returns `described` of x, or None if x contains something unknown."""
    try:
        return described(x, operand)
    except Unknown:
        return None


def op_form(op: Any, name: str, args: Any, kwargs: Any, operand: Callable[[Any], Any]) -> Form | None:
    """Returns the form of a call of one op, as MindSpore dispatches it, or None for an unknown op.
    """
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
    """Returns the form of a call of a function that MindSpore runs under its jit, or None."""
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
    """Returns the comparable attributes of a Cell (scalars, strings, lists). Appends its tensors to
    the list."""
    found = []
    for name, v in vars(cell).items():
        if name[0] == "_" or name in ("init_params", "init_learning_rate", "init_args", "parameters"):
            continue
        if isinstance(v, MSTensor) and not isinstance(v, MSParameter):
            tensors.append(v)
        elif v.__class__ in (tuple, list):
            with contextlib.suppress(Unknown):
                found.append((name, described(v, tensors.append)))
        elif v.__class__ in _PLAIN or v.__class__ is float:
            found.append((name, v.__class__, v))
    return tuple(found)


def layer_form(cell: Any, args: Any, operand: Callable[[Any], Any]) -> Form | None:
    """Returns the form of a call of a layer that MindSpore creates for a single call, or None. The
    layer's own settings are part of the key."""
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
    """Returns (settings, Parameters, other tensors) of a MindSpore optimizer, or None if the effect
    of its step is not known."""
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
    """Returns the form of a step of a MindSpore optimizer. Its Parameters and tensors are the last
    operands."""
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
    """Binds a Parameter to the memory of a handle."""
    if _TensorPy._data_ptr(p) != h._data_ptr():
        MSTensor.assign_value_cpp(p, device.writable(h))


def set_in_place(p: Any, value: Any) -> bool:
    """Assigns a value to a Parameter in place, so that a recording sees the write; for use inside a
    recorded call. Returns False if it cannot."""
    if type(value) is not MSTensor or not isinstance(p, MSParameter) or shape_of(value) != shape_of(p) or stype_of(value) != stype_of(p):
        return False
    _device[0].write(handle_of(p), value)
    return True


#: The device that graphs are recorded for.
_device: list[Any] = []


# ------------------------------------------------------------------ MindSpore tensors as operands

def handle_of(p: Any) -> Any:
    """Returns a handle to the memory of a MindSpore tensor. The handle is cached until the tensor
    moves to other memory."""
    own = attributes(p)
    h = own.get("_mindtorch_handle")
    if h is None or h._data_ptr() != _TensorPy._data_ptr(p):
        h = MSTensor(p)
        # a host tensor would move to the device at its first use
        if _ON_ASCEND and isinstance(p, MSParameter):
            h = _resident(h)
            MSTensor.assign_value_cpp(p, h)
        own["_mindtorch_handle"] = h
    return h
