"""__torch_function__: how arguments with that method, and TorchFunctionMode, take over calls of torch's functions.

Nobody pays for it until it is used: `activate` puts a trampoline in the place of every function's code object, so that
references that were taken before (``from torch import add``) reach it too, and `deactivate` puts the code back.  The
functions are active while a mode is on, and from the first instance of a user's Tensor subclass on.
"""
import sys
import threading
from types import FunctionType

from mindtorch.core import tensor as _core
from mindtorch.core.tensor import Parameter, Tensor


class State(threading.local):
    """Per thread: how often dispatch is switched off, whether a function's own code runs, and the modes that are on."""

    off = 0
    inside = 0
    modes = ()


state = State()


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
    with Disabled():
        return func(*args, **(kwargs or {}))


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
        return NotImplemented
    with Disabled():
        r = func(*args, **(kwargs or {}))
    return r if func.__name__ in _PLAIN else _converted(r, cls)


Tensor.__torch_function__ = classmethod(_tensor_function)
Parameter.__torch_function__ = staticmethod(disabled_impl)


def overrides(x):
    """Whether an argument's type takes part in the protocol."""
    cls = type(x)
    if cls is Tensor or cls is Parameter:
        return False
    f = getattr(cls, "__torch_function__", None)
    return f is not None and f is not disabled_impl


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
    if not state.inside:
        relevant = () if state.off else overloaded(args if not kwargs else (*args, *kwargs.values()))
        if relevant or state.modes:
            return call(func, relevant, args, kwargs)
    state.inside += 1
    try:
        return original(*args, **kwargs)
    finally:
        state.inside -= 1


# ------------------------------------------------------------------ trampolines
_templates = {}


class _Target:
    """What a trampoline calls; it stands among its code's constants."""

    __slots__ = ("func", "original")

    def __init__(self, func, original):
        self.func, self.original = func, original

    def call(self, args, kwargs):
        return _dispatch(self.func, self.original, args, kwargs)


def _trampoline(func, original):
    free = func.__code__.co_freevars
    if len(free) not in _templates:
        # A function's new code must have as many free variables as the old one; these are never read.
        names = [f"v{i}" for i in range(len(free))]
        touch = f"        if 0:\n            {', '.join(names)}\n" if names else ""
        scope = {}
        exec(f"def outer({', '.join(names)}):\n    def trampoline(*args, **kwargs):\n{touch}"
             "        return 'TARGET'.call(args, kwargs)\n    return trampoline\n", scope)
        _templates[len(free)] = scope["outer"](*names).__code__
    code = _templates[len(free)]
    target = _Target(func, original)
    consts = tuple(target if c == "TARGET" else c for c in code.co_consts)
    return code.replace(co_consts=consts, co_name=func.__name__, co_filename=func.__code__.co_filename)


_patched = {}     # function -> its own code
_asked = 0        # by how many modes and subclasses
_lock = threading.Lock()

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


def activate():
    """From now on calls ask modes and arguments; to be matched by `deactivate`."""
    global _asked
    with _lock:
        _asked += 1
        if _asked > 1:
            return
        for f, _ in list(functions()):
            if f in _patched or f.__code__.co_name == "trampoline":
                continue
            original = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
            original.__kwdefaults__ = f.__kwdefaults__
            _patched[f] = f.__code__
            f.__code__ = _trampoline(f, original)


def deactivate():
    """Takes one `activate` back."""
    global _asked
    with _lock:
        _asked -= 1
        if _asked == 0:
            for f, code in _patched.items():
                f.__code__ = code
            _patched.clear()


_known = set()    # subclasses of which an instance was made


def subclass_made(cls):
    """Called where an instance of a Tensor subclass is made."""
    if cls not in _known:
        _known.add(cls)
        if getattr(cls, "__torch_function__", None) is not disabled_impl and not cls.__module__.startswith(("mindtorch.", "torch.")):
            activate()


_core._subclass_made = subclass_made
