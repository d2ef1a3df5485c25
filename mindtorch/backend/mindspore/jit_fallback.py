"""Functions under `mindspore.jit`, and MindSpore Cells in graph mode, that use torch-style code.

MindSpore's graph compiler reads Python source and translates what it recognizes. It cannot read the
facade's source, and it would give MindSpore's meaning to what it can read of a torch-style
function. So when a compilation encounters the facade (a Module, an optimizer, one of its functions,
or one of its tensors as an argument), the compilation is abandoned. The function runs eagerly from
then on, with a warning. Functions that use only MindSpore are compiled unchanged.
"""
import contextlib
import dis
import functools
import os
import sys
import threading
import time
import types
import warnings
import weakref
from typing import Any

from mindtorch.backend.hooks import NO, hooks
from mindtorch.backend.mindspore import ir_dump, graph_mode_step
from mindtorch.backend.mindspore.cell import is_module
from mindtorch.backend.mindspore.patches import put, put_everywhere, take_back
from mindtorch.backend.mindspore.private import MSParameter, MSTensor, executor, is_ours, native_recording
from mindtorch.backend.mindspore.runtime import ms
from mindtorch.backend.mindspore.graph_mode_step import plainly

from mindspore import context as _context  # noqa: E402
from mindspore.graph import _parse, api as _api  # noqa: E402

_MINDSPORE = os.path.dirname(os.path.abspath(ms.__file__)) + os.sep
# the project's only module for MindSpore's compiler
_READABLE = os.path.join("mindspore", "graph", "_readable.py")
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class _State(threading.local):
    met = None  # name of the facade object that the current compilation has encountered


_state = _State()


class MeetsFacade(RuntimeError):
    """Raised when a compilation encounters torch-style code."""


# ------------------------------------------------------------------ what the compiler encounters
def _ours(name):
    """True if a module of this name belongs to this package. Under the import hook, modules and
    their contents bear torch's names."""
    if name.startswith("mindtorch."):
        return True
    module = sys.modules.get("mindtorch." + name)
    return module is not None and module.__name__ == name


def _facade_name(obj):
    """Returns a name for `obj` if it belongs to the facade and is no tensor, else None."""
    if is_module(obj):
        return f"the module {type(obj).__name__}"
    if isinstance(obj, (types.FunctionType, types.MethodType)):
        # Functions generated from source have no file, or one outside the package: their
        # `__module__` decides. Graphs of native ops have a file.
        file = getattr(getattr(obj, "__code__", None), "co_filename", "")
        ours = file.startswith(_HERE) and not file.endswith(_READABLE) or (
            file.startswith("<") or os.path.basename(os.path.dirname(file)) == "_generated") and _ours(obj.__module__ or "")
        return f"the function {obj.__name__}" if ours else None
    if isinstance(obj, functools.partial):
        return _facade_name(obj.func)
    cls = obj if isinstance(obj, type) else type(obj)
    if getattr(cls, "_mindtorch_graph", False):
        return None         # a Cell of native ops made from a trace
    if issubclass(cls, (MSTensor, MSParameter)):
        return None
    for c in cls.__mro__:
        if _ours(c.__module__):
            return f"{'the class' if cls is obj else 'an object of'} {cls.__name__}"
    return None


def _meet(obj):
    name = _facade_name(obj)
    if name is not None:
        _state.met = name
        raise MeetsFacade(f"MindSpore's graph compiler cannot read {name}, which is torch-style code")


_get_obj_type, _parser_init = _parse.get_obj_type, _parse.Parser.__init__


def _get_obj_type_of_native(obj):
    _meet(obj)
    return _get_obj_type(obj)


def _init_for_native(self, fn, parse_method=None):
    _meet(fn)
    _parser_init(self, fn, parse_method)


put("mindspore.graph._parse:get_obj_type", _get_obj_type_of_native)
put("mindspore.graph._parse:parser.get_obj_type", _get_obj_type_of_native)
put("mindspore.graph._parse:Parser.__init__", _init_for_native)


# A failed compilation takes time, and MindSpore logs it and writes a file. So everything that can
# be detected beforehand is checked.
@functools.lru_cache(maxsize=4096)
def _globals_read(code):
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            names |= _globals_read(c)
    return names


def _parts(obj):
    """Yields (getter, key, value) for what a function, object or Cell refers to: getter(key) is the
    value until it is replaced."""
    if isinstance(obj, types.FunctionType):
        if obj.__code__.co_filename.startswith(_MINDSPORE) and not obj.__closure__:
            return
        for n in _globals_read(obj.__code__):
            if n in obj.__globals__:
                yield obj.__globals__.__getitem__, n, obj.__globals__[n]
        for cell in obj.__closure__ or ():
            with contextlib.suppress(ValueError):  # a variable that has no value yet
                yield functools.partial(getattr, cell), "cell_contents", cell.cell_contents
        yield getattr, None, getattr(obj, "__wrapped__", None)
    elif isinstance(obj, ms.nn.Cell):
        for _, c in obj.cells_and_names():
            if c is not obj:
                yield getattr, None, c
        for name, p in obj._params.items():
            yield obj._params.__getitem__, name, p
        for name, v in vars(obj).items():
            if name != "_params" and not name.startswith("_mindtorch_"):
                yield vars(obj).__getitem__, name, v
    elif isinstance(obj, (list, tuple)):
        for i, v in enumerate(obj[:64]):
            yield obj.__getitem__, i, v
    elif isinstance(obj, dict):
        for k in list(obj)[:64]:
            yield obj.__getitem__, k, obj[k]
    elif not isinstance(obj, type) and not type(obj).__module__.startswith(("mindspore", "builtins", "numpy")):
        for name, v in getattr(obj, "__dict__", {}).items():
            yield vars(obj).__getitem__, name, v


def _seen_in(obj, seen, weights=None, depth=6):
    """Returns a name for a facade object that a function, object or Cell refers to, as far as that
    is easily detected.

    `weights` collects the Parameters found on the way, for graphs that may contain them. Without it
    a Parameter counts as such an object.
    """
    if id(obj) in seen or depth < 0:
        return None
    seen.add(id(obj))
    if isinstance(obj, MSTensor):
        return "a torch-style tensor" if _facade_tensor((obj,)) else None
    if isinstance(obj, types.ModuleType):
        name = obj.__name__
        return f"the module {name}" if f"{name}.".startswith("mindtorch.torch.") or _ours(name) and not name.startswith("mindtorch.") else None
    name = _facade_name(obj)
    if name is not None:
        return name
    if isinstance(obj, types.MethodType):
        return _seen_in(obj.__func__, seen, weights, depth) or _seen_in(obj.__self__, seen, weights, depth - 1)
    for get, key, part in list(_parts(obj)):
        if isinstance(part, MSParameter):
            if is_ours(part):
                if weights is None:
                    return f"the weight {part.name}, which belongs to torch-style code"
                weights.append((get, key, part, part._native))
            continue
        name = _seen_in(part, seen, weights, depth - 1)
        if name is not None:
            return name
    return None


class _Weights:
    """The facade's Parameters that a Cell's graph contains.

    The graph stores the tensor behind a Parameter, and sees writes to it and its replacement
    (`replace_memory`). Another dtype or shape, or another Parameter under the same name, requires
    another graph. A graph would copy a Parameter whose memory is strided. (The graph of a function
    under `mindspore.jit` stores the values that it was compiled with, so it may contain no
    Parameter.)
    """

    __slots__ = ("parameters", "met")

    def __init__(self, cell):
        self.parameters = []
        self.met = _seen_in(cell, set(), self.parameters)

    def changed(self):
        """True if a graph compiled since the last check is no longer valid."""
        for get, key, p, native in self.parameters:
            if p._native is not native:
                return True
            try:
                if get(key) is not p:
                    return True
            except (LookupError, ValueError):
                return True
        return False

    def strided(self):
        return next((f"the weight {p.name}, whose memory is strided" for _, _, p, _ in self.parameters if not p._array.flags.c_contiguous), None)


def _facade_tensor(values):
    for v in values:
        if isinstance(v, MSTensor):
            # A Parameter, or a tensor that MindSpore made, is a MindSpore tensor as well.
            if is_ours(v) and not v._from_mindspore and not isinstance(v, MSParameter):
                return True
        elif isinstance(v, (list, tuple)):
            if _facade_tensor(v):
                return True
        elif isinstance(v, dict):
            if _facade_tensor(v.values()):
                return True
    return False


hooks.seen_in, hooks.holds_facade_tensor = _seen_in, _facade_tensor


# ------------------------------------------------------------------ running eagerly
@contextlib.contextmanager
def pynative():
    """Switches to MindSpore's eager mode inside this context."""
    if _context._get_mode() == ms.PYNATIVE_MODE:
        yield
        return
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        yield
    finally:
        ms.set_context(mode=ms.GRAPH_MODE)


_CLEARING = "mindspore.graph.api:_pynative_executor.clear_res"


@contextlib.contextmanager
def _preserved_recording():
    """Preserves what MindSpore has recorded for gradients of an outer function when a compilation
    meets the facade.

    MindSpore clears its recording when a compilation fails.
    """
    if not executor.grad_flag():
        yield
        return
    put(_CLEARING, lambda: None)
    try:
        yield
    except MeetsFacade:
        raise
    except Exception:
        take_back(_CLEARING)
        executor.clear_res()
        raise
    finally:
        take_back(_CLEARING)


def _warn(what, where, why):
    # Attribute the warning to the user's line, regardless of the number of this project's and
    # MindSpore's frames.
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, _MINDSPORE)):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{what} ({where}) runs eagerly instead of as a compiled graph: MindSpore's compiler cannot read torch-style "
                  f"code, and this uses {why}. The results are the same.", RuntimeWarning, stacklevel=level)


def _run(key, fn, args, kwargs, report):
    """Runs a function that MindSpore's compiler cannot read: as a recorded step, else eagerly,
    which `report()` reports."""
    with pynative():
        if hooks.step_active():
            return fn(*args, **kwargs)
        if not hooks.step_possible():
            report()
            return fn(*args, **kwargs)
        # an eager user function is being differentiated, and its autograd graph stores values
        if native_recording():
            return fn(*args, **kwargs)
        with hooks.step_session(key) as step:
            try:
                r = fn(*args, **kwargs)
            finally:
                graph_mode_step.forget()
        if not step.recorded:
            report()
        return r


# ------------------------------------------------------------------ ms.jit
_jit_call, _jit_compile = _api._JitExecutor.__call__, _api._JitExecutor.compile


class _Marks:
    """Status of a function, by the id of the object that it is a method of (None: it is no method).

    `met` has the reasons why MindSpore's compiler cannot read it, `native` the objects for which it
    can, and `keys` the keys of its recorded steps. `warned`: the warning that they run eagerly was
    issued.
    """

    __slots__ = ("met", "native", "keys", "warned")

    def __init__(self):
        self.met, self.native, self.keys, self.warned = {}, set(), {}, False

    def key(self, me, fn, level):
        """Returns the key of the function with this object."""
        found = self.keys.get(me)
        if found is None:
            found = self.keys[me] = graph_mode_step.Key(fn.__qualname__, level)
        return found


def _marks(fn):
    fn = getattr(fn, "__func__", fn)
    marks = fn.__dict__.get("_mindtorch_jit")
    if marks is None:
        marks = fn._mindtorch_jit = _Marks()
    return marks


def _compile_or_meet(self, *args, **kwargs):
    _state.met, start = None, time.time()
    try:
        return _jit_compile(self, *args, **kwargs)
    except Exception as e:
        met, _state.met = _state.met, None
        if met is None:
            raise
        ir_dump.drop(start)
        fn = getattr(self.fn, "__func__", self.fn)
        fn.__dict__.pop("__jit_function__", None)
        raise MeetsFacade(met) from e


def _call_compiled_or_eagerly(self, *args, **kwargs):
    return _call(self.fn, self.obj, args, kwargs, functools.partial(_jit_call, self), _level(self.jit_config_dict))


def _level(settings):
    """Returns the jit_level, from MindSpore's settings, with which graphs of steps are compiled."""
    return "O1" if (settings or {}).get("jit_level") == "O1" else "O0"


def _call(fn, obj, args, kwargs, compiled, level="O0"):
    """Calls MindSpore's compiled form of a function, or runs the function. obj: the object that it
    is a method of."""
    if plainly.n:  # inside a recorded call
        return fn(*args, **kwargs)
    if fn.__module__ == "mindspore.amp" and hooks.step_active():
        r = hooks.step_function(fn, args, kwargs)
        if r is not NO:
            return r
    marks = _marks(fn)
    me = None if obj is None else id(obj)
    met = marks.met.get(me)
    if met is None:
        if me not in marks.native:
            met = _seen_in(fn, seen := set()) or (None if obj is None else _seen_in(obj, seen))
            if met is not None:
                marks.met[me] = met
            else:
                marks.native.add(me)
        if met is None and (_facade_tensor(args) or _facade_tensor(kwargs.values())):
            met = "its argument, which is a torch-style tensor"
        if met is None:
            try:
                with _preserved_recording():
                    return compiled(*args, **kwargs)
            except MeetsFacade as e:
                met = marks.met[me] = str(e)
    return _run(marks.key(me, fn, level), fn, args, kwargs, functools.partial(_report_function, fn, marks, met))


def _report_function(fn, marks, met):
    if not marks.warned and not fn.__code__.co_filename.startswith(_MINDSPORE):
        marks.warned = True
        _warn(fn.__name__, f"{fn.__code__.co_filename}, line {fn.__code__.co_firstlineno}", met)


put("mindspore.graph.api:_JitExecutor.__call__", functools.wraps(_jit_call)(_call_compiled_or_eagerly))
put("mindspore.graph.api:_JitExecutor.compile", functools.wraps(_jit_compile)(_compile_or_meet))


# The other two capture modes see only MindSpore's ops: values that torch-style code computes
# between them would be constants of the graph.
_jit_trace, _capture = _api._jit_trace, _api.PIJitCaptureContext.__call__


def _chosen_at_call(fn, captured):
    if not isinstance(fn, types.FunctionType) or captured is fn:
        return captured

    @functools.wraps(captured)
    def call(*args, **kwargs):
        obj = args[0] if args and not isinstance(args[0], MSTensor) and hasattr(args[0], fn.__name__) else None
        return _call(fn, obj, args, kwargs, captured)
    return call


def _trace_unless_it_meets(jit_config):
    native = _jit_trace(jit_config)
    return lambda fn: _chosen_at_call(fn, native(fn))


def _capture_unless_it_meets(self, fn):
    return _chosen_at_call(fn, _capture(self, fn))


_BELOW = tuple([os.path.join(_MINDSPORE, folder) + os.sep for folder in ("common", "ops", "nn")])


def _lines_of_callers():
    """Returns (files, lines) of the frames above MindSpore's ops that have a file."""
    files, lines, frame = [], [], sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", *_BELOW)):
            files.append(file)
            lines.append(frame.f_lineno)
        frame = frame.f_back
    return files, lines


put("mindspore.graph.jit_trace:_get_caller_lines", _lines_of_callers)
put_everywhere("mindspore.graph.jit_trace:_jit_trace", functools.wraps(_jit_trace)(_trace_unless_it_meets))
put("mindspore.graph._utils.pijit_context:PIJitCaptureContext.__call__", functools.wraps(_capture)(_capture_unless_it_meets))


# ------------------------------------------------------------------ Cells in graph mode
_cell_run = ms.nn.Cell.compile_and_run
_cell_weights: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_NONE = types.SimpleNamespace(met=None)


def _cell_compiled_or_eagerly(self, *args, **kwargs):
    own = self.__dict__
    if not own.get("_mindtorch_eager"):
        weights = _cell_weights.get(self)
        if weights is None or weights.parameters and weights.changed():
            if weights is not None and self.compile_cache:
                _api._cell_graph_executor.del_net_res(self, self.compile_cache)
                self.compile_cache.clear()
            weights = _cell_weights[self] = _Weights(self)
        met = weights.met
        this_time = weights.strided() if met is None and weights.parameters else None
        by_args = met is None and this_time is None and (_facade_tensor(args) or _facade_tensor(kwargs.values()))
        if by_args:
            this_time = "its argument, which is a torch-style tensor"
        if met is None and this_time is None:
            own["_mindtorch_eager"] = False
            _state.met, start = None, time.time()
            try:
                with _preserved_recording():
                    return _cell_run(self, *args, **kwargs)
            except Exception:
                met, _state.met = _state.met, None
                if met is None:
                    raise
                ir_dump.drop(start)
        if met is not None:
            own["_mindtorch_eager"] = met
    else:
        met, this_time = own["_mindtorch_eager"], None
    key = own.get("_mindtorch_step")
    if key is None:
        key = own["_mindtorch_step"] = graph_mode_step.Key(type(self).__name__, _level(own.get("_jit_config_dict")))
    return _run(key, self, args, kwargs, functools.partial(_report_cell, self, met or this_time))


def _report_cell(cell, met):
    own = cell.__dict__
    if not own.get("_mindtorch_warned") and not type(cell).__module__.startswith("mindspore."):
        own["_mindtorch_warned"] = True
        _warn(type(cell).__name__, "a MindSpore Cell", met)


_cell_compile = ms.nn.Cell.compile


def _compile_unless_it_meets(self, *args, **kwargs):
    if is_module(self) or _cell_weights.get(self, _NONE).met is not None or self not in _cell_weights and _Weights(self).met is not None:
        return
    _cell_compile(self, *args, **kwargs)


put("mindspore.nn.cell:Cell.compile_and_run", functools.wraps(_cell_run)(_cell_compiled_or_eagerly))
put("mindspore.nn.cell:Cell.compile", functools.wraps(_cell_compile)(_compile_unless_it_meets))
