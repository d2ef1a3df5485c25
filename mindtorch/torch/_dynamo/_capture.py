"""Capture by running: one eager call, during which every call of a torch function is recorded.

The call is real: its results and side effects count. Three mechanisms observe it.

- The dispatcher passes every outermost call of a torch function or Tensor method to `Recorder`,
  which is on top of its stack of modes.
- A profile function sees every Python function and every C function that the user's code calls. It
  records which code ran (what that code can read is then guarded, see _guards.py), and detects
  effects that a replay would omit: printing, files, random numbers of other libraries, clocks,
  functions of this package that are not recorded.
- The state that the code can reach is traversed before and after the call. A call that changed any
  of it is not replayed.

Anything that may differ in a replay ends the recording with a reason; the call itself continues
eagerly.
"""
import contextlib
import contextvars
import dataclasses
import gc
import inspect
import sys
import types
from collections import OrderedDict

from mindtorch.backend.cpython import set_profile
from mindtorch.backend.graph import ResultBuilder, Graph, Node, Value, dtype_name, leaves, signature, values_in
from mindtorch.core.dispatch import autocast as _autocast
from mindtorch.core.dispatch.dispatcher import DISPATCH_ENTRIES
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.device.rng import Generator, default_generator, device_states
from mindtorch.core.dispatch.op_registry import record_of
from mindtorch.core.tensor.tensor import Parameter, Tensor, is_tensor
from mindtorch.core.compile.tracing import name_of
from mindtorch.torch import _function_protocol as _protocol
from mindtorch.torch._dynamo import _guards
from mindtorch.torch._dynamo.exc import Break

# How an op is captured is part of its record (`@op(capture=...)`). The sets below cover functions
# and methods that are not ops of the table.
#
# Independent of values and of everything that `Spec` does not compare: executed, not recorded.
META = frozenset("""size dim ndimension numel nelement element_size stride is_contiguous is_floating_point is_complex
 is_signed is_inference is_same_size get_device is_tensor is_storage typename result_type can_cast
 promote_types is_conj is_neg is_pinned has_names dim_order __len__ __hash__ type is_distributed __dir__ finfo iinfo
 is_cuda layout get_default_dtype _has_symbolic_sizes_strides is_coalesced sparse_dim dense_dim""".split())

# Passes values to Python, or has an effect that a replay would not have.
LEAVES = frozenset("""item tolist numpy __bool__ __float__ __int__ __index__ __complex__ __contains__ is_nonzero
 __format__ __repr__ __str__ __array__ __reduce_ex__ __deepcopy__ data_ptr storage untyped_storage _typed_storage share_memory_
 is_set_to storage_offset _is_view is_shared __dlpack__ to_dlpack from_dlpack from_file __setstate__ __array_wrap__ map_ map2_ apply_""".split())
GRADIENTS = frozenset("""backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ detach_ set_ resize_
 resize_as_ swap_tensors __setattr__ rename_ to_sparse""".split())
SIZES = frozenset("sparse_mask coalesce to_padded_tensor".split())

_SAFE_NAMES = frozenset("""is_scripting is_tracing is_compiling is_dynamo_compiling is_exporting is_in_onnx_export is_fx_tracing
 is_available is_grad_enabled is_inference_mode_enabled is_autocast_enabled get_autocast_dtype get_default_dtype __getattr__
 get_autocast_gpu_dtype get_autocast_cpu_dtype set_recording is_autocast_cache_enabled is_autocast_cpu_enabled mark_dynamic mark_static
 maybe_mark_dynamic get_default_device annotate _is_tracing __instancecheck__ __subclasscheck__ is_built""".split())
_STDLIB_SAFE = frozenset("""abc enum typing collections _collections_abc operator types numbers re string itertools keyword reprlib
 weakref _weakrefset inspect copy _weakref sre_parse sre_compile textwrap""".split())
_STDLIB_FOLLOWED = frozenset("functools contextlib dataclasses".split())

_C_MODULES = frozenset("math cmath _operator itertools _functools _collections _abc _weakref builtins".split())
_C_BARRED = frozenset("print input open exec eval compile __import__ breakpoint globals locals id __build_class__".split())
_C_OWNERS = (list, dict, tuple, str, set, frozenset, int, float, complex, range, bytes, bytearray, slice, bool, OrderedDict,
             types.GeneratorType, types.MappingProxyType, property, type(None), type({}.keys()), type({}.values()), type({}.items()))


_PRINTING = frozenset("print input open exec eval".split())
_TYPES_OF = frozenset("builtins collections enum abc typing types functools itertools dataclasses".split())


def _category(code, scope):
    """Returns how the capture treats a function that is entered.

    "U" (user code) and "N" (torch.nn) are guarded, "F" is followed, "S" (safe) is skipped. Any
    other string is the reason for a graph break.

        scope  the function's globals. A module of this package declares in CAPTURE how its
               functions are treated: "safe", "followed", "refused", or a dict by function name.
               Functions of torch.nn and of torch._dynamo are followed by default.
    """
    name, f = code.co_name, code.co_filename
    if name == "__del__" or f.startswith(_guards.GENERATED):
        return "S"
    if f.startswith(_guards.PACKAGE):
        policy = scope.get("CAPTURE")
        if policy.__class__ is dict:
            policy = policy.get(name) or policy.get((name, code.co_argcount))
        if policy == "safe" or name in _SAFE_NAMES:
            return "S"
        if policy == "followed" or (scope.get("__name__") or "").removeprefix("mindtorch.").startswith("torch._dynamo"):
            return "F"
        if policy != "refused" and (scope.get("__name__") or "").removeprefix("mindtorch.").startswith("torch.nn."):
            return "N"
        return f"it calls {code.co_qualname if hasattr(code, 'co_qualname') else name} ({scope.get('__name__')}), which capture does not follow"
    if _guards.is_stdlib(f):
        module = f[8:-1] if f.startswith("<frozen ") else f.rpartition("/")[2][:-3]
        if module.startswith("importlib"):
            return "S" if name in ("_handle_fromlist", "parent") else f"it imports a module ({name})"
        if module == "__init__":
            module = f.rpartition("/")[0].rpartition("/")[2]
        if module in _STDLIB_SAFE:
            return "S"
        if module in _STDLIB_FOLLOWED:
            return "F"
        return f"it calls {name} of Python's {module}"
    return "U"


def _name_of(f):
    """Returns the name of a recorded function in the graph. Functions without a record get the
    prefix "function."."""
    entry = DISPATCH_ENTRIES.get(f)
    return f"function.{f.__name__}" if entry is None else name_of(entry)


def modes_now():
    """Returns this thread's (grad mode, inference mode, autocast dtype on the host, autocast dtype
    on the accelerator)."""
    return mode.on, mode.inference, _autocast.state.to, _autocast.state.there


_PLAIN = _guards.SIMPLE
_properties = {}


def _rng_fingerprint():
    """Returns a fingerprint of the random generators: every draw changes part of it. Assembling the
    full state is slow."""
    return default_generator._buf, default_generator._pos, default_generator._cached_normal, device_states()


class Recorder:
    """The torch function mode on top of the stack while a call is captured."""

    def __init__(self, roots):
        self.reason, self.final = None, True
        self.nodes, self.codes, self.keep = [], {}, []
        self.values, self.facts = {}, {}  # id of a tensor -> its Value; Value -> its current facts
        self.count = 0
        self.parameters, self.graph = [], None
        self.skip = self.pending = None
        # whether the skipped function belongs to the Python standard library
        self.skip_library = False
        self.wholes = {}
        self.before = None
        self.roots = roots
        self.swallowed = []
        self.reads = frozenset()  # names of attributes that the code may read
        # ids of lists and dicts among the arguments; outputs so far
        self.given, self.returned = frozenset(), []
        self.rng_fingerprint = [*_rng_fingerprint()]  # fingerprint of the generators at the start
        self.known = frozenset()  # ids of the tensors that the code can reach by itself

    # -- graph breaks
    def fail(self, reason, final=True):
        """Ends the recording."""
        if self.reason is None:
            self.reason, self.final = reason, final
        self.nodes = []

    # -- the profile function
    def profile(self, frame, event, arg):
        if self.reason is not None:
            set_profile(None)
            return
        skip = self.skip
        if skip is not None:
            if event == "return" and frame is skip:
                self.skip = None
                if self.pending is not None:
                    pending, self.pending = self.pending, None
                    self._after(*pending, arg)
            elif self.skip_library:
                self._called_back(frame, event, arg)
            return
        if event == "call":
            code = frame.f_code
            complete = self.wholes.get(code)
            if complete is not None:
                self._enter(complete, frame)
                return
            cat = _categories.get(code)
            if cat is None:
                cat = _categories[code] = _category(code, frame.f_globals)
            if cat == "S":
                self.skip, self.skip_library = frame, _guards.is_stdlib(code.co_filename)
            elif cat == "U" or cat == "N":
                self._ran(code, frame.f_globals, cat)
            elif cat != "F":
                # the next attempt finds the module imported
                self.fail(cat, not cat.startswith("it imports"))
        elif event == "c_call":
            cat = _categories.get(frame.f_code)
            if cat != "N" and cat != "F":
                self._c_call(arg)

    def _ran(self, code, globals_, cat):
        """Records code that has been entered."""
        key = (code, id(globals_))
        if key in self.codes:
            return
        self.codes[key] = globals_
        if cat == "U":
            _, every, stores, values = _guards.names_of(code)
            if "_base" in every:  # a plain attribute, whose reads are not intercepted
                self.fail("it reads Tensor._base")
            elif stores:
                self.fail(f"it assigns to global {', '.join(sorted(stores))}")
            elif _PRINTING & values and (sys.version_info >= (3, 11) or {"map", "filter"} & values):
                # passed to code that calls it where the profile function does not see it
                self.fail(f"it passes {', '.join(sorted(_PRINTING & values))} to other code")

    def _called_back(self, frame, event, arg):
        """Watches user code that is called by the Python standard library. The library's own code
        is not watched."""
        code = frame.f_code
        cat = _categories.get(code)
        if cat is None:
            cat = _categories[code] = _category(code, frame.f_globals)
        if event == "c_call":
            if cat == "U":
                self._c_call(arg)
        elif event == "call":
            if cat == "U":
                self._ran(code, frame.f_globals, cat)
            elif cat not in ("S", "F", "N") and frame.f_back is not None and _categories.get(frame.f_back.f_code) == "U":
                self.fail(cat, not cat.startswith("it imports"))

    def _c_call(self, f):
        module, name = f.__module__, f.__name__
        owner = f.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            if module in _C_MODULES:
                if name in _C_BARRED:
                    self.fail(f"it calls {name}()")
                return
            if module is not None and module.startswith("numpy") and "random" not in module:
                return
        elif isinstance(owner, type):
            root = _guards.module_of(owner).partition(".")[0]
            if root in _TYPES_OF or root not in sys.stdlib_module_names and owner.__flags__ & (1 << 9):
                return
        elif isinstance(owner, _C_OWNERS) and not is_tensor(owner):
            return
        elif (kind := _guards.module_of(type(owner))).startswith("numpy") and "random" not in kind:
            return
        if f is set_profile or isinstance(owner, contextvars.ContextVar) and name == "get":
            return
        where = module or (_guards.module_of(type(owner)) + "." + type(owner).__name__ if owner is not None else "")
        self.fail(f"it calls {name}() of {where}")

    # -- functions that are recorded as one op
    def _enter(self, func, frame):
        """Called when Function.apply, or a function that the user allowed, is entered. The call is
        recorded as one op when it returns."""
        code, given = frame.f_code, frame.f_locals
        n = code.co_argcount
        names = code.co_varnames
        args = tuple([given[v] for v in names[:n]])
        at = n + code.co_kwonlyargcount
        kwargs = {v: given[v] for v in names[n:at]}
        if code.co_flags & inspect.CO_VARARGS:
            args += given[names[at]]
            at += 1
        if code.co_flags & inspect.CO_VARKEYWORDS:
            kwargs.update(given[names[at]])
        before = self._before(func, args, kwargs)
        if before is not None:
            self.pending, self.skip, self.skip_library = (func, *before), frame, False

    # -- torch functions
    def __torch_function__(self, func, types_, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.reason is not None or self.pending is not None:
            return func(*args, **kwargs)
        set_profile(None)
        try:
            name = func.__name__
            if (name in META and (name != "type" or len(args) + len(kwargs) == 1)) or _capture_setting(func) == "meta":
                return func(*args, **kwargs)
            if name == "__get__":
                func = _property_op(func)
                name = func.__name__
            if name == "__iter__":
                outs = self._recorded(Tensor.unbind, (args[0], 0), {})
                return iter(outs)
            return self._recorded(func, args, kwargs)
        finally:
            if self.reason is None:
                set_profile(self.profile)

    def _recorded(self, func, args, kwargs):
        before = self._before(func, args, kwargs)
        r = func(*args, **kwargs)
        if before is not None:
            self._after(func, *before, r)
        return r

    def _before(self, func, args, kwargs):
        """Returns what is recorded before a call: (modes, positional and keyword arguments as
        templates, facts about their Values). None if the call ends the recording."""
        name = func.__name__
        try:
            setting = _capture_setting(func)
            if name in LEAVES or setting == "values" or setting == "values of tensors" and any(is_tensor(x) for x in leaves(args)):
                raise Break(f"it takes values out of a tensor: {name}()")
            if name in GRADIENTS:
                raise Break(f"it calls Tensor.{name}()")
            if name in SIZES or _size_from_values(setting, args, kwargs) or name in ("getitem", "__getitem__") and _has_mask(args[1]):
                raise Break(f"the size of {name}()'s result depends on values")
            modes = modes_now()
            pa = tuple(self.template(a) for a in args)
            pk = {k: self.template(v) for k, v in kwargs.items()}
        except Break as b:
            self.fail(b.reason, b.final)
            return None
        return modes, pa, pk, {v: self.facts[v] for v in values_in((pa, pk))}

    def _after(self, func, modes, pa, pk, facts, r):
        """Records a call that has returned."""
        name = func.__name__
        try:
            outs, paths = [], []
            self._results(r, (), outs, paths)
            if not outs and not (name.endswith("_") or "out" in pk or name in ("setitem", "__setitem__")):
                raise Break(f"{name}() returns no tensor")
            if modes_now() != modes:
                raise Break(f"{name}() switches the grad mode")
            self.nodes.append(Node(_name_of(func), func, pa, pk, outs, paths, modes, facts))
        except Break as b:
            self.fail(b.reason, b.final)

    def _results(self, r, path, outs, paths):
        if is_tensor(r):
            v = self.values.get(id(r))
            if v is None and type(r) is not Tensor and type(r) is not Parameter:
                raise Break(f"a torch function returns a {type(r).__name__}")
            if v is None:
                v = self._source(r)
            if v is None:
                self.count += 1
                v = self._see(r, "node", f"v{self.count}")
            else:
                self.facts[v] = self.describe(r)
            outs.append(v)
            paths.append(path)
        elif isinstance(r, (tuple, list)):
            for i, x in enumerate(r):
                self._results(x, (*path, i), outs, paths)
        elif r is not None and not isinstance(r, _PLAIN):
            raise Break(f"a torch function returns a {type(r).__name__}")

    @staticmethod
    def describe(t):
        """Returns (shape, dtype, strides, requires_grad, True if it is a view)."""
        a = t._array
        return a.shape, a.dtype, a.strides, t._requires_grad_, t._base is not None

    def _see(self, t, kind, name):
        """Returns a new Value for a tensor."""
        a = t._array
        v = self.values[id(t)] = Value(kind, a.shape, dtype_name(a.dtype), name=name, tensor=t if kind == "parameter" else None)
        self.keep.append(t)
        self.facts[v] = self.describe(t)
        return v

    def harmless(self):
        """True if the recorded ops neither modify anything in place nor draw random numbers."""
        buffer, *fingerprint = _rng_fingerprint()
        if buffer is not self.rng_fingerprint[0] or fingerprint != self.rng_fingerprint[1:]:
            return False
        wholes = {"apply", *(f.__name__ for f in allowed)}
        for n in self.nodes:
            if n.func.__name__ in wholes:
                return False
            if _writes(n):
                return False
            if (not n.outputs or n.kwargs.get("out") is not None or n.written
                    or any(isinstance(x, Generator) for x in (*n.args, *n.kwargs.values()))):
                return False
        return True

    def tensors(self):
        """Returns {Value: tensor} for all recorded tensors."""
        return {self.values[id(t)]: t for t in self.keep}

    def _source(self, t):
        """Returns a new Value for a captured tensor (parameter, buffer, closure or global
        variable); None if its origin is unknown."""
        if self.before is not None and id(t) in self.before.tensors:
            v = self._see(t, "parameter", f"k{len(self.parameters)}")
            self.parameters.append(v)
            return v
        return None

    def template(self, a):
        """Returns an argument with its tensors replaced by Values."""
        if is_tensor(a):
            v = self.values.get(id(a)) or self._source(a)
            if v is None:
                raise Break("a tensor of unknown origin is used (made outside the recorded functions)", False)
            return v
        if isinstance(a, _PLAIN):
            if isinstance(a, slice):
                return slice(*(self.template(x) for x in (a.start, a.stop, a.step)))
            return a
        t = type(a)
        if t is tuple or t is list:
            return t(self.template(x) for x in a)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return tuple(self.template(x) for x in a)
        if isinstance(a, tuple):
            return tuple(self.template(x) for x in a)
        if t is dict:
            return {k: self.template(v) for k, v in a.items()}
        if isinstance(a, (Generator, type)) or _guards.module_of(t).startswith(("mindtorch", "torch")) and not callable(a):
            return a
        if isinstance(a, types.BuiltinFunctionType) and a.__module__ == "builtins":
            return a
        if isinstance(a, (dict, list)):
            raise Break(f"a torch function gets a {t.__name__}")
        if _guards.module_of(t) == "numpy" and hasattr(a, "item") and not hasattr(a, "__setitem__"):
            return a
        raise Break(f"a torch function gets an argument of type {t.__name__}")

    def output(self, r):
        """Returns the result as a template. Raises Break if it cannot be rebuilt."""
        if is_tensor(r):
            return self.template(r)
        if isinstance(r, _PLAIN):
            return r
        t = type(r)
        if t is not tuple:
            if id(r) in self.given:
                raise Break(f"it returns a {t.__name__} that is an argument")
            if id(r) in self.before.seen:
                # it existed before the call: the replay returns the same object
                return ResultBuilder(t, "object", r)
            if any(r is x for x in self.returned):
                raise Break(f"it returns the same {t.__name__} twice")
            self.returned.append(r)
        if t in (tuple, list):
            return t(self.output(x) for x in r)
        if isinstance(r, tuple) and hasattr(r, "_fields"):
            return ResultBuilder(t, "named", [self.output(x) for x in r])
        if isinstance(r, tuple):
            return ResultBuilder(t, "sequence", [self.output(x) for x in r])
        if t is dict or t is OrderedDict:
            if not all(isinstance(k, _PLAIN) for k in r):
                raise Break("it returns a dict with keys that are objects")
            return ResultBuilder(t, "dict", {k: self.output(v) for k, v in r.items()})
        if dataclasses.is_dataclass(r) and not isinstance(r, type) and hasattr(r, "__dict__"):
            fields = {k: self.output(v) for k, v in r.__dict__.items()}
            items = {k: self.output(v) for k, v in dict.items(r)} if isinstance(r, dict) else None
            return ResultBuilder(t, "dataclass", (fields, items))
        raise Break(f"it returns a {_guards.module_of(t)}.{t.__qualname__}")


def _capture_setting(func):
    """Returns the `capture` setting of an op's record, or None."""
    record = record_of(func)
    return None if record is None else record.capture


def _size_from_values(setting, args, kwargs):
    """True if the shape of the result depends on the values of a tensor, according to the op's
    record."""
    rest = (*args[1:], *kwargs.values())
    if setting == "sizes if alone":
        return not rest
    if setting == "sizes unless told":
        return not any(x.__class__ is int and x >= 0 for x in rest)
    if setting == "sizes of tensors":
        return any(is_tensor(x) for x in leaves(rest or args))
    return setting == "sizes"


def _writes(node):
    """True if a recorded call modifies something other than its results."""
    record = record_of(node.func)
    if record is None or record.writes is None:
        return False
    name, harmless = record.writes
    parameters = signature(record.body).parameters
    at = list(parameters).index(name)
    given = node.args[at] if len(node.args) > at else node.kwargs.get(name, parameters[name].default)
    return given is not harmless


def _nested(code):
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield c
            yield from _nested(c)


def _has_mask(i):
    if is_tensor(i):
        return i._np_dtype.kind == "b" or i._np_dtype.name == "uint8"
    return isinstance(i, (tuple, list)) and any(_has_mask(x) for x in i)


_categories = {}
_PROPERTIES = ("T", "mT", "H", "mH", "real", "imag", "data")


def _property_op(get):
    """Returns the getter of a computed Tensor property as a named function."""
    prop = get.__self__
    if prop not in _properties:
        name = next(n for n in _PROPERTIES if Tensor.__dict__[n] is prop)

        def run(t):
            return getattr(t, name)
        run.__name__ = "get_" + name
        _properties[prop] = run
    return _properties[prop]


@contextlib.contextmanager
def _recording(rec, wholes):
    """Context manager: torch functions are dispatched to `rec`, and the profile function is set."""
    _protocol.activate()
    collecting = gc.isenabled()
    gc.disable()  # garbage collector callbacks are not part of the call
    try:
        rec.wholes = {f.__code__: f for f in wholes}
        _protocol.state.modes += (rec,)
        set_profile(rec.profile)
        try:
            yield
        finally:
            set_profile(None)
            _protocol.state.modes = tuple(m for m in _protocol.state.modes if m is not rec)
    finally:
        _protocol.deactivate()
        if collecting:
            gc.enable()


def _active(rec):
    modes = _protocol.state.modes
    return modes[-1] if modes else None


#: functions that are recorded as one op (the user's, through allow_in_graph; Function.apply)
allowed = []


class _All(frozenset):
    """The set of all names."""

    def __contains__(self, name):
        return True


ALL_NAMES = _All()


def _containers(x):
    """Yields the tuples, lists and dicts that Spec traverses."""
    parts = _guards.parts(x)
    if parts is not None:
        yield x
        for i in parts:
            yield from _containers(i)


def _walk(roots, names, codes, computed=False):
    scope = _guards.Scope(names, computed)
    for value, path in roots:
        if isinstance(value, types.FunctionType):
            scope.function(value, path)
        scope.visit(value, path)
    for (code, _), globals_ in codes.items():
        if not _guards.ours(code.co_filename):
            scope.code(code, globals_)
        elif names is not None:
            scope.library(code, globals_)
    return scope


def capture(fn, roots, arg_roots, args, kwargs, inputs, known_codes):
    """Runs fn(*args, **kwargs) and returns (result, Recorder, traversal after the call).

        roots        [(object, its name in messages)]: where the code starts from
        arg_roots    likewise for the arguments
        inputs       tensors among the arguments, in order. `rec.fixed` holds the indices of those
                     that the code also reaches by itself
        known_codes  code objects that an earlier attempt has run
    """
    from mindtorch.torch.autograd.function import Function
    rec = Recorder(roots)
    before = rec.before = _walk(roots, None, known_codes)
    rec.fixed = {i for i, t in enumerate(inputs) if id(t) in before.tensors}
    reached = set(before.seen)  # without the arguments
    for value, path in arg_roots:
        before.visit(value, path)
    containers = [v for v in (*_containers(args), *_containers(kwargs)) if id(v) not in reached]
    rec.given = frozenset(map(id, containers))
    attributes = [(t, {k for k in vars(t) if k[:1] != "_"}) for t in (*inputs, *before.tensors.values())]
    graph_inputs = []
    for i, t in enumerate(inputs):
        if id(t) not in rec.values and i not in rec.fixed:
            graph_inputs.append(rec._see(t, "input", f"i{i}"))
        else:
            # the tensor already has a Value
            graph_inputs.append(Value("input", t._array.shape, dtype_name(t._array.dtype), name=f"i{i}"))
    modes = modes_now()
    with _recording(rec, [Function.__dict__["apply"].__func__, *allowed]):
        r = fn(*args, **kwargs)
    if rec.reason is not None:
        return r, rec, None
    try:
        if modes_now() != modes:
            raise Break("it changes the grad or autocast mode")
        names = set()
        for code, _ in rec.codes:
            names |= _guards.names_of(code)[1]
        everything = names & {"__dict__", "vars", "__getattribute__", "attrgetter"}
        if everything:
            names |= {k for d, *_ in before.dicts.values() for k in d if isinstance(k, str)}
        computed = any([_guards.computes_names(c) for c, _ in rec.codes if not _guards.ours(c.co_filename)])
        after = _walk(roots + arg_roots, names, rec.codes, computed)
        # Functions are found by the traversal or created during the call. For all other code
        # objects the function, with its closure, is searched on the heap.
        free = {c for c, _ in rec.codes if c.co_freevars and not _guards.ours(c.co_filename)}
        if free:
            free -= {f.__code__ for f in after.seen.values() if isinstance(f, types.FunctionType)}
            for c, _ in rec.codes:
                free.difference_update(_nested(c))
        if free:
            for f in gc.get_referrers(*free):
                if isinstance(f, types.FunctionType) and f.__code__ in free and f.__name__ != "<listcomp>":
                    after.function(f, f.__qualname__)
        if after.refused:
            raise Break(after.refused[0])
        changed = _guards.changes(before, after)
        if changed is _guards.MISSING:
            raise Break("it reaches state that was not watched during this call", False)
        if changed is not None:
            raise Break(changed, False)
        rec.reads = names = ALL_NAMES if everything else frozenset(names)
        for i, t in enumerate(inputs):
            read = [k for k in vars(t) if k in names]
            if read and i not in rec.fixed:
                raise Break(f"it may read attribute {read[0]!r} of a tensor that is an argument", False)
        for t, keys in attributes:
            if {k for k in vars(t) if k[:1] != "_"} != keys:
                raise Break("it sets attributes of a tensor")
        rec.graph = Graph(graph_inputs, rec.parameters, rec.nodes, rec.output(r), functional=False)
        rec.after = after
        rec.known = frozenset(i for i, t in after.tensors.items() if i in reached)
        # The arguments of this call do not constrain the next one (Spec does), and must not be kept
        # alive.
        for v in (*containers, *(t for i, t in enumerate(inputs) if i not in rec.fixed)):
            for table in (after.dicts, after.seqs, after.seen, after.tensors, after.own, after.attributes):
                table.pop(id(v), None)
    except Break as b:
        rec.fail(b.reason, b.final)
        return r, rec, None
    return r, rec, after
