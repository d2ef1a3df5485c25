"""`__torch_function__`: how arguments with that method, and TorchFunctionMode, intercept calls of
torch functions.

This is a layer of the dispatcher (`mindtorch/core/dispatch/dispatcher.py`). It is active while a mode is on,
and permanently after the first instance of a user's Tensor subclass is created. Arguments that are
no tensors but have the method are recognized by their class where a function requires them.
"""
import sys
import threading
from types import FunctionType

from mindtorch.backend.cpython import module_lock
from mindtorch.core.dispatch import dispatcher, error_messages, meta as _core_meta
from mindtorch.core.device.device import device, get_default as get_default_device
from mindtorch.core.tensor.dtypes import dtype
from mindtorch.core.tensor.sparse import Sparse
from mindtorch.core.tensor.tensor import Parameter, Size, Tensor, is_tensor
from mindtorch.torch import _meta
from mindtorch.torch._hooks import hooks

#: how torch.compile handles the functions of this module (see
#: `mindtorch/torch/_dynamo/_capture.py`)
CAPTURE = "followed"


class State(threading.local):
    """Per-thread state: nesting depth of disabled dispatch, the functions that disabled it, and the
    active modes."""

    off = 0
    running = ()
    modes = ()


state = State()


class Disabled:
    """Context manager inside which the `__torch_function__` of arguments is not called."""

    def __enter__(self):
        state.off += 1
        return self

    def __exit__(self, *exc):
        state.off -= 1
        return False


class StackedMode:
    """A mode as a context manager: while active, it is on top of its protocol's stack of modes.

    The protocol is a module with `state.modes`, `activate` and `deactivate`.
    """

    _protocol = None

    def __enter__(self):
        self._protocol.activate()
        self._protocol.state.modes += (self,)
        return self

    def __exit__(self, *exc):
        self._protocol.state.modes = self._protocol.state.modes[:-1]
        self._protocol.deactivate()
        return False

    @classmethod
    def push(cls, *args, **kwargs):
        """Returns a new mode."""
        return cls(*args, **kwargs)


def disabled_impl(func, types, args=(), kwargs=None):
    """`__torch_function__` implementation that calls the function itself."""
    kwargs = kwargs or {}
    if func in state.running:
        # No function of this library calls a handler while dispatch is off. The real PyTorch does,
        # and would recurse until the stack overflows.
        raise TypeError(error_messages.refusal(func))
    before = state.running
    state.running = (*before, func)
    try:
        with Disabled():
            return func(*args, **kwargs)
    finally:
        state.running = before


def _converted(r, cls):
    if is_tensor(r) and not isinstance(r, cls):
        return r.as_subclass(cls)
    if type(r) in (tuple, list):
        return type(r)(_converted(x, cls) for x in r)
    return r


# Results that PyTorch does not convert to the subclass.
_PLAIN = frozenset(["grad", "is_leaf", "as_subclass", "data", "backward", "numpy", "tolist", "item"])


def _tensor_function(cls, func, types, args=(), kwargs=None):
    """Calls the function and converts its tensors to the subclass."""
    if not all(issubclass(cls, t) for t in types):
        if any(map(error_messages.is_pytorch_tensor_class, types)):
            raise TypeError(error_messages.refusal(func))
        return NotImplemented
    r = disabled_impl(func, types, args, kwargs)
    return r if func.__name__ in _PLAIN else _converted(r, cls)


Tensor.__torch_function__ = classmethod(_tensor_function)
# neither is a user's subclass
Parameter.__torch_function__ = Sparse.__torch_function__ = staticmethod(disabled_impl)


def overrides(x):
    """True if the type of an argument takes part in the protocol."""
    cls = type(x)
    if cls is Tensor or cls is Parameter:
        return False
    f = getattr(cls, "__torch_function__", None)
    # Tensors of the real PyTorch, if it is loaded too, are excluded: their handler would call this
    # library's function again, endlessly.
    return f is not None and f is not disabled_impl and not error_messages.is_pytorch_tensor(x)


def overloaded(args):
    """Returns the arguments (also in lists and tuples) that take part: one per type, subclasses
    before their bases."""
    found = []
    collect(args, found, overrides)
    return found


def collect(args, found, takes, nests=(list, tuple), depth=16):
    """Adds the arguments for which `takes` is true to `found`: one per type, subclasses before
    their bases.

    Also searches `nests`, down to `depth` levels, because a list may contain itself.
    """
    for a in args:
        cls = type(a)
        if cls is Tensor:
            continue
        if cls in nests:
            if depth:
                collect(a.values() if cls is dict else a, found, takes, nests, depth - 1)
        elif takes(a) and all(type(o) is not cls for o in found):
            at = next((i for i, o in enumerate(found) if issubclass(cls, type(o))), len(found))
            found.insert(at, a)


_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_OPERATORS = frozenset([f"__{n}__" for n in ("eq", "ne", "lt", "le", "gt", "ge")] + [f"__{k}{n}__" for n in _BINARY for k in ("", "r", "i")])


def call(func, relevant, args, kwargs):
    """Calls the handler of the innermost mode, then those of the arguments. TypeError if all return
    NotImplemented."""
    types = tuple(type(a) for a in relevant)
    tried = []
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
        tried.append(type(mode).__name__)
    for a in relevant:
        r = a.__torch_function__(func, types, args, kwargs)
        if r is not NotImplemented:
            return r
        tried.append(type(a).__name__)
    if func.__name__ in _OPERATORS:
        # Python then tries the other operand, and otherwise compares by identity or raises
        # TypeError
        return NotImplemented
    raise TypeError(f"Multiple dispatch failed for 'torch.{func.__name__}'; all __torch_function__ handlers returned "
                    f"NotImplemented: {tried}")


# ------------------------------------------------------------------ layers of the dispatcher
@dispatcher.register_layer("ops", "function")
def _functions(entry, args, kwargs, below):
    if state.modes:
        return _dispatched(entry, () if state.off else overloaded(args if not kwargs else (*args, *kwargs.values())), args, kwargs)
    if not state.off:
        relevant = overloaded(args if not kwargs else (*args, *kwargs.values()))
        if relevant:
            return _dispatched(entry, relevant, args, kwargs)
    return below(entry, args, kwargs)


def _dispatched(entry, relevant, args, kwargs):
    if len(args) == 2 and entry.func.__name__ == "einsum" and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])  # handlers receive operands one by one, however they were passed
    return call(entry.func, relevant, args, kwargs)


@dispatcher.register_layer("ops", "meta")
def _shapes(entry, args, kwargs, below):
    if _meta.takes(entry.func, args, kwargs):
        return _meta.call(entry.func, lambda *a, **k: below(entry, a, k), args, kwargs)
    if not _core_meta.alive():
        # After more than 500 calls without live meta tensors this layer is deactivated, so that
        # calls regain their full speed.
        global _idle
        _idle += 1
        if _idle > 500:
            _meta_unwanted()
    return below(entry, args, kwargs)


@dispatcher.register_layer("ops", "observe")
def _observed(entry, args, kwargs, below):
    watched = _observer
    if watched is None or state.modes or _core_meta.state.on:
        return below(entry, args, kwargs)
    return watched(entry.func, lambda *a, **k: below(entry, a, k), args, kwargs)


dispatcher.NON_TENSOR_TYPES.update((Tensor, Parameter, Size, dtype, device))
dispatcher.SCALAR_TYPES.update((Size, dtype, device))


def activate():
    """Starts dispatching calls to modes and arguments. Each call must be matched by `deactivate`.
    """
    dispatcher.enable_layer("ops", "function")


def deactivate():
    """Undoes one `activate`."""
    dispatcher.disable_layer("ops", "function")


# ------------------------------------------------------------------ overridable functions
_NOT_METHODS = frozenset("""__new__ __init__ __init_subclass__ __torch_function__ __repr__ __str__ __format__ __hash__ __reduce__
 __reduce_ex__ __setstate__ __deepcopy__ __dir__ __setattr__ __getattr__ __getattribute__ __del__ as_subclass _make_subclass _make_wrapper_subclass
 __array__ __dlpack__ __dlpack_device__ register_hook requires_grad_ _typed_storage storage untyped_storage""".split())


def functions():
    """Yields (function, its namespace) for every overridable function."""
    torch = sys.modules["mindtorch.torch"]
    for scope in (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special):
        for name, f in vars(scope).items():
            if isinstance(f, FunctionType) and not name.startswith("_") and name not in _NOT_FUNCTIONS and f.__module__.startswith(
                    ("mindtorch", "torch")):
                yield f, scope
    for name, f in vars(Tensor).items():
        if isinstance(f, FunctionType) and name not in _NOT_METHODS:
            yield f, Tensor


# Functions of the torch namespace that arguments cannot override.
_NOT_FUNCTIONS = frozenset("""load save compile is_tensor is_storage manual_seed seed initial_seed get_rng_state set_rng_state typename
 set_default_dtype get_default_dtype set_default_device get_default_device set_printoptions is_grad_enabled
 is_inference_mode_enabled get_num_threads set_num_threads set_default_tensor_type use_deterministic_algorithms vmap
 are_deterministic_algorithms_enabled get_autocast_dtype is_autocast_enabled set_autocast_enabled set_autocast_dtype
 is_autocast_cache_enabled set_autocast_cache_enabled cond""".split())


def install():
    """Makes the facade functions that are not in the op table overridable too."""
    made = {}

    def generated(f, name, method):
        if f not in made:
            made[f] = dispatcher.make_dispatcher(f, dispatcher.DispatchEntry(f, name), method=method, may_override=False)
        return made[f]

    names = {}  # scope -> {id of an object: its names in the scope}
    # a function that is also a method is registered as the method
    for f, scope in sorted(functions(), key=lambda x: x[1] is not Tensor):
        if dispatcher.is_generated(f):
            continue
        method = scope is Tensor
        if scope not in names:
            found = names[scope] = {}
            for n, v in vars(scope).items():
                found.setdefault(id(v), []).append(n)
        for name in names[scope].get(id(f), ()):
            setattr(scope, name, generated(f, f"Tensor.{name}" if method else f"{scope.__name__.removeprefix('mindtorch.torch.')}.{name}", method))
    for name in _GETTERS:
        p = vars(Tensor)[name]
        entry = dispatcher.DispatchEntry(p.fget, f"Tensor.{name}.__get__")
        q = property(dispatcher.make_dispatcher(p.fget, entry, method=True), p.fset, p.fdel, p.__doc__)
        setattr(Tensor, name, q)
        entry.func = q.__get__


# Properties that return tensors. A handler receives the property's `__get__`.
_GETTERS = ("T", "mT", "H", "mH", "real", "imag", "data")


# ------------------------------------------------------------------ profilers
_observer = None


def observe(fn):
    """Routes every call through fn(func, original, args, kwargs) from now on; None ends it."""
    global _observer
    if fn is not None and _observer is None:
        dispatcher.enable_layer("ops", "observe")
    elif fn is None and _observer is not None:
        dispatcher.disable_layer("ops", "observe")
    _observer = fn


# ------------------------------------------------------------------ meta tensors
_lock = module_lock(globals(), "_lock", threading.RLock)
_idle = 0


def _meta_wanted():
    """Activates the layer that checks calls for meta tensors."""
    global _idle
    with _lock:
        _idle = 0
        if not dispatcher.is_enabled("ops", "meta"):
            dispatcher.enable_layer("ops", "meta")


def _meta_unwanted():
    with _lock:
        if dispatcher.is_enabled("ops", "meta") and not _core_meta.alive() and get_default_device().type != "meta":
            dispatcher.disable_layer("ops", "meta")


for _name, _f in vars(Tensor).items():
    # Handlers identify operators by Python's names for them.
    if isinstance(_f, FunctionType) and _name.startswith("__") and _f.__name__.startswith("_") and not _f.__name__.startswith("__"):
        _f.__name__ = _name


_core_meta.watch(_meta_wanted)


_known = set()  # subclasses that have been instantiated


_dispatching = {}  # subclass with its own memory -> True if it defines its own `__torch_dispatch__`


def subclass_made(cls, made=None):
    """Called when an instance of a Tensor subclass is created.

    made: the instance if it has its own memory (`mindtorch/torch/_dispatch_protocol.py` tracks the
    others).
    """
    if made is not None:
        has_handler = _dispatching.get(cls)
        if has_handler is None:
            has_handler = _dispatching[cls] = getattr(cls, "__torch_dispatch__", None) is not None and hooks.takes_part_class(cls)
        if has_handler:
            hooks.enrol(made)
    if cls not in _known:
        _known.add(cls)
        f = getattr(cls, "__torch_function__", None)
        if getattr(f, "__func__", f) is _tensor_function and getattr(cls, "__torch_dispatch__", None) is not None and hooks.takes_part_class(cls):
            # `__torch_dispatch__` determines the class of the results
            cls.__torch_function__ = staticmethod(disabled_impl)
        if getattr(cls, "__torch_function__", None) is not disabled_impl and not cls.__module__.startswith(("mindtorch.", "torch.")):
            activate()
