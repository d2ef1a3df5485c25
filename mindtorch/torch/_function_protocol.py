"""__torch_function__: how arguments with that method, and TorchFunctionMode, take over calls of torch's functions.

Nobody pays for it until it is used: `activate` puts a trampoline in the place of every function's code object, so that
references that were taken before (``from torch import add``) reach it too, and `deactivate` puts the code back.  The
functions are active while a mode is on, and from the first instance of a user's Tensor subclass on.
"""
import sys
import threading
from types import FunctionType

from mindtorch.core import foreign, meta as _core_meta, table as _table, tensor as _core
from mindtorch.core.device import device, get_default as get_default_device
from mindtorch.core.dtypes import dtype
from mindtorch.core.sparse import SparseTensor
from mindtorch.core.tensor import Parameter, Size, Tensor
from mindtorch.torch import _meta


class State(threading.local):
    """Per thread: how often dispatch is switched off, by which functions, the modes that are on; for all: whether meta tensors are looked for."""

    off = 0
    running = ()
    modes = ()
    meta = False


state, state_class = State(), State


class Disabled:
    """Context manager: __torch_function__ of arguments is not asked inside."""

    def __enter__(self):
        state.off += 1
        return self

    def __exit__(self, *exc):
        state.off -= 1
        return False


def disabled_impl(func, types, args=(), kwargs=None):
    """A __torch_function__ that calls the function itself."""
    kwargs = kwargs or {}
    if func in state.running:
        # Nothing of this library asks while dispatch is off: real PyTorch does, and would until the stack overflows.
        raise TypeError(foreign.refusal(func))
    before = state.running
    state.running = (*before, func)
    try:
        with Disabled():
            return func(*args, **kwargs)
    finally:
        state.running = before


def _converted(r, cls):
    if isinstance(r, Tensor) and not isinstance(r, cls):
        return r.as_subclass(cls)
    if type(r) in (tuple, list):
        return type(r)(_converted(x, cls) for x in r)
    return r


# What torch gives back as it is, also for a subclass.
_PLAIN = frozenset(["grad", "is_leaf", "as_subclass", "data", "backward", "numpy", "tolist", "item"])


def _tensor_function(cls, func, types, args=(), kwargs=None):
    """Calls the function and gives its tensors the subclass."""
    if not all(issubclass(cls, t) for t in types):
        if any(map(foreign.is_foreign_class, types)):
            raise TypeError(foreign.refusal(func))
        return NotImplemented
    r = disabled_impl(func, types, args, kwargs)
    return r if func.__name__ in _PLAIN else _converted(r, cls)


Tensor.__torch_function__ = classmethod(_tensor_function)
Parameter.__torch_function__ = SparseTensor.__torch_function__ = staticmethod(disabled_impl)     # neither is a user's subclass


def overrides(x):
    """Whether an argument's type takes part in the protocol."""
    cls = type(x)
    if cls is Tensor or cls is Parameter:
        return False
    f = getattr(cls, "__torch_function__", None)
    # (Tensors of real torch, where that is loaded beside: their handler would call this library's function again, for ever.)
    return f is not None and f is not disabled_impl and not foreign.is_foreign(x)


def overloaded(args):
    """Arguments (also in lists and tuples) that take part, one of a type, subclasses before their bases."""
    found = []
    _collect(args, found)
    return found


def _collect(args, found):
    for a in args:
        cls = type(a)
        if cls is Tensor:
            continue
        if cls is list or cls is tuple:
            _collect(a, found)
        elif overrides(a) and all(type(o) is not cls for o in found):
            at = next((i for i, o in enumerate(found) if issubclass(cls, type(o))), len(found))
            found.insert(at, a)


def call(func, relevant, args, kwargs):
    """Asks the modes, then the arguments; TypeError if all decline."""
    types = tuple(type(a) for a in relevant)
    asked = []
    if state.modes:
        before = state.modes
        mode = before[-1]
        state.modes = before[:-1]
        try:
            r = mode.__torch_function__(func, types, args, kwargs)
        finally:
            state.modes = before
        if r is not NotImplemented:
            return r
        asked.append(type(mode).__name__)
    for a in relevant:
        r = a.__torch_function__(func, types, args, kwargs)
        if r is not NotImplemented:
            return r
        asked.append(type(a).__name__)
    raise TypeError(f"Multiple dispatch failed for 'torch.{func.__name__}'; all __torch_function__ handlers returned "
                    f"NotImplemented: {asked}")


def _dispatch(func, original, args, kwargs):
    if len(args) == 2 and func.__name__ == "einsum" and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])          # handlers get operands one by one, however they were given
    if _observer is not None and not (state.modes or _meta_on and _core_meta.state.on):
        watched = _observer

        def original(*args, _run=original, **kwargs):
            return watched(func, _run, args, kwargs)
    relevant = () if state.off else overloaded(args if not kwargs else (*args, *kwargs.values()))
    if relevant or state.modes:
        return call(func, relevant, args, kwargs)
    if _meta_on:
        if _meta.takes(func, args, kwargs):
            return _meta.call(func, original, args, kwargs)
        if not _core_meta.alive():
            # Once there have been none for a while, calls are as fast again as before.
            global _idle
            _idle += 1
            if _idle > 500:
                _meta_unwanted()
    return original(*args, **kwargs)


# ------------------------------------------------------------------ trampolines
# Classes of arguments that no call needs to be stopped for.  (While there are meta tensors, Tensor is not one of them.)
class _Classes(set):
    """A set that may stand among a code object's constants."""

    __hash__ = object.__hash__


_PLAIN_CLASSES = _Classes((Tensor, Parameter, int, float, bool, complex, str, bytes, type(None), slice, type, type(Ellipsis), Size, dtype, device))
_WITH_VALUES = frozenset([Tensor, Parameter])
_ALL_PLAIN = frozenset(_PLAIN_CLASSES)
_templates = {}


class _Target:
    """What a trampoline calls; it stands among its code's constants."""

    __slots__ = ("func", "run")

    def __init__(self, func, run):
        self.func, self.run = func, run

    def ask(self, args, kwargs):
        return _dispatch(self.func, self.run, args, kwargs)


_SOURCE = """def outer({names}):
    def trampoline(*args, **kwargs):
{touch}        for a in args:
            if a.__class__ not in 'PLAIN':
                return 'TARGET'.ask(args, kwargs)
        if kwargs:
            for a in kwargs.values():
                if a.__class__ not in 'PLAIN':
                    return 'TARGET'.ask(args, kwargs)
        if 'STATE'.modes{always}:
            return 'TARGET'.ask(args, kwargs)
        return 'TARGET'.run(*args, **kwargs)
    return trampoline
"""


def _trampoline(func, original, known_as=None):
    free = func.__code__.co_freevars
    maker = func.__name__ in _meta._MAKERS
    if (len(free), maker) not in _templates:
        # A function's new code must have as many free variables as the old one; these are never read.
        names = [f"v{i}" for i in range(len(free))]
        touch = f"        if 0:\n            {', '.join(names)}\n" if names else ""
        scope = {}
        # Functions that make tensors may be meant for the meta device without a word of it among their arguments.
        exec(_SOURCE.format(names=", ".join(names), touch=touch, always=" or 'STATE'.meta" if maker else ""), scope)
        _templates[len(free), maker] = scope["outer"](*names).__code__
    code = _templates[len(free), maker]
    values = {"TARGET": _Target(known_as or func, original), "PLAIN": _PLAIN_CLASSES, "STATE": state}
    consts = tuple(values.get(c, c) if c.__class__ is str else c for c in code.co_consts)
    return code.replace(co_consts=consts, co_name=func.__name__, co_filename=func.__code__.co_filename)


_codes = {}       # function -> (its own code, its trampoline's)
_asked = 0        # by how many modes and subclasses
_lock = threading.RLock()

_NOT_METHODS = frozenset("""__new__ __init__ __init_subclass__ __torch_function__ __repr__ __str__ __format__ __hash__ __reduce__
 __reduce_ex__ __setstate__ __deepcopy__ __dir__ __setattr__ __getattr__ __getattribute__ __del__ as_subclass _make_subclass
 __array__ __dlpack__ __dlpack_device__ register_hook requires_grad_ _typed_storage storage untyped_storage""".split())


def functions():
    """Every function that takes part: (function, where it is)."""
    torch = sys.modules["mindtorch.torch"]
    for scope in (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special):
        for name, f in vars(scope).items():
            if isinstance(f, FunctionType) and not name.startswith("_") and name not in _NOT_FUNCTIONS and f.__module__.startswith(
                    ("mindtorch", "torch")):
                yield f, scope
    for name, f in vars(Tensor).items():
        if isinstance(f, FunctionType) and name not in _NOT_METHODS:
            yield f, Tensor


# Functions of the torch namespace that no argument can take over.
_NOT_FUNCTIONS = frozenset("""load save compile is_tensor is_storage manual_seed seed initial_seed get_rng_state set_rng_state typename
 set_default_dtype get_default_dtype set_default_device get_default_device set_printoptions is_grad_enabled
 is_inference_mode_enabled get_num_threads set_num_threads set_default_tensor_type use_deterministic_algorithms vmap
 are_deterministic_algorithms_enabled get_autocast_dtype is_autocast_enabled set_autocast_enabled set_autocast_dtype
 is_autocast_cache_enabled set_autocast_cache_enabled cond""".split())


def _getters():
    """(function, what a handler gets for it) of the properties that give tensors."""
    for name in ("T", "mT", "H", "mH", "real", "imag", "data"):
        p = vars(Tensor)[name]
        yield p.fget, p.__get__


def activate():
    """From now on calls ask modes and arguments; to be matched by `deactivate`."""
    global _asked
    with _lock:
        _asked += 1
        if _asked > 1:
            return
        for f, known_as in [*((f, None) for f, _ in functions()), *_getters()]:
            if f not in _codes and f.__code__.co_consts is not None and not _is_trampoline(f):
                original = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
                original.__kwdefaults__ = f.__kwdefaults__
                _codes[f] = f.__code__, _trampoline(f, original, known_as)
                if not hasattr(f, "__wrapped__"):
                    f.__wrapped__ = original         # where `inspect.signature` finds the arguments' names
        for f, (_, code) in _codes.items():
            f.__code__ = code


def _is_trampoline(f):
    return any(c.__class__ is _Target for c in f.__code__.co_consts)


def deactivate():
    """Takes one `activate` back."""
    global _asked
    with _lock:
        _asked -= 1
        if _asked == 0:
            for f, (code, _) in _codes.items():
                f.__code__ = code


# ------------------------------------------------------------------ profilers
_observer = None


def observe(fn):
    """Has fn(func, original, args, kwargs) run every call from now on; None ends it."""
    global _observer
    with _lock:
        if fn is not None and _observer is None:
            _PLAIN_CLASSES.clear()
            activate()
        elif fn is None and _observer is not None:
            _PLAIN_CLASSES.update(_ALL_PLAIN if not _meta_on else _ALL_PLAIN - _WITH_VALUES)
            deactivate()
        _observer = fn


# ------------------------------------------------------------------ meta tensors
_meta_on = False
_idle = 0


def _meta_wanted():
    """Calls have to be looked at for meta tensors."""
    global _meta_on, _idle
    with _lock:
        _idle = 0
        if not _meta_on:
            _meta_on = True
            state_class.meta = True
            _PLAIN_CLASSES.difference_update(_WITH_VALUES)
            activate()


def _meta_unwanted():
    global _meta_on
    with _lock:
        if _meta_on and not _core_meta.alive() and get_default_device().type != "meta":
            _meta_on = False
            state_class.meta = False
            if _observer is None:
                _PLAIN_CLASSES.update(_WITH_VALUES)
            deactivate()


for _name, _f in vars(Tensor).items():
    # Handlers know operators by Python's names for them.
    if isinstance(_f, FunctionType) and _name.startswith("__") and _f.__name__.startswith("_") and not _f.__name__.startswith("__"):
        _f.__name__ = _name


_core_meta.watch(_meta_wanted)


def _ducks(args):
    """Whether an argument that an op could not do with takes part in the protocol; the call is then made again."""
    foreign.refuse(args)
    if _asked or not overloaded(args):
        return False
    activate()
    return True


_table.ducks = _ducks


_known = set()    # subclasses of which an instance was made


def subclass_made(cls):
    """Called where an instance of a Tensor subclass is made."""
    if cls not in _known:
        _known.add(cls)
        if getattr(cls, "__torch_function__", None) is not disabled_impl and not cls.__module__.startswith(("mindtorch.", "torch.")):
            activate()


_core._subclass_made = subclass_made
