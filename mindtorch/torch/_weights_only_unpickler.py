"""The unpickler behind ``torch.load(weights_only=True)``: it builds data and calls only allowlisted
functions.

It is a small stack machine for the opcodes used by pickles of data (protocols 2 to 5). Names in the
file are looked up in a table, never imported. The arguments of allowlisted functions are checked
too, because even `bytearray(10**12)` or a codec can do harm. Anything unexpected raises
``pickle.UnpicklingError``.
"""

import contextlib
import pickle
import pickletools
import struct
from collections import Counter, OrderedDict

from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes as _dtypes
from mindtorch.core.tensor.tensor import Parameter, Size, Tensor, own_names
from mindtorch.torch import _globals, _utils
from mindtorch.torch import storage as _storage
from mindtorch.torch._types import _get_layout

_BLOCKED = {"sys", "os", "posix", "nt", "subprocess", "importlib", "runpy", "shutil"}

# Maximum number of nodes hashed for a dict key or set member: nested shared tuples take exponential
# time to hash.
_KEY_NODES = 10_000


# Names that an error message must never suggest to allowlist: with them a file can run arbitrary
# code.
_RUNNERS = {"bdb", "code", "codeop", "commands", "ctypes", "imp", "marshal", "multiprocessing", "pdb", "pickle", "_pickle", "pip", "platform", "popen2",
            "profile", "cProfile", "pty", "socket", "_socket", "timeit", "trace", "urllib", "webbrowser"}
_RUNNING_BUILTINS = {"__import__", "apply", "breakpoint", "compile", "delattr", "eval", "exec", "execfile", "file", "getattr", "globals", "input",
                     "open", "setattr", "vars"}
_HOSTILE = "It can run any code, and no checkpoint needs it: do not trust this file."


class Refused(pickle.UnpicklingError):
    """Raised when the file names a global that weights_only does not allow. Allowlisting it would
    let the load continue."""


# ------------------------------------------------------------------ the user's allowlist
_safe = {}  # canonical name -> object


def _named(item):
    if isinstance(item, tuple):
        if len(item) != 2 or not isinstance(item[1], str):
            raise ValueError(
                f"expected a tuple of 2 items, an object and the full name it has in the file, got: {item!r}"
            )
        obj, name = item
        module, _, last = name.rpartition(".")
        return _globals.canonical(module or "builtins", last), obj
    return _globals.label(item), item


def add_safe_globals(safe_globals):
    """Lets `weights_only` loads use these classes and functions. An entry may be a pair (object,
    "full.name.in.the.file")."""
    if not isinstance(safe_globals, (list, tuple, set)):
        raise TypeError(f"add_safe_globals takes a list of classes and functions, got {type(safe_globals).__name__}")
    _safe.update([_named(item) for item in safe_globals])
    _entries.extend(item for item in safe_globals if item not in _entries)


_entries = []


def get_safe_globals():
    """Returns the entries added by `add_safe_globals`."""
    return list(_entries)


def clear_safe_globals():
    """Removes all entries added by `add_safe_globals`."""
    _safe.clear()
    _entries.clear()


@contextlib.contextmanager
def safe_globals(safe_globals):
    """Context manager: `add_safe_globals` for the duration of a ``with`` block."""
    before = list(_entries), dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _entries[:], names = before[0], before[1]
        _safe.clear()
        _safe.update(names)


# ------------------------------------------------------------------ default allowlist
def _fail(text):
    raise pickle.UnpicklingError(text)


def _check_key(key):
    """Rejects keys that are too expensive or impossible to hash."""
    if type(key) not in (tuple, frozenset):
        return
    left, stack = _KEY_NODES, [key]
    while stack:
        for item in stack.pop():
            left -= 1
            if left < 0:
                _fail("a dict key or set member is nested too deeply")
            if type(item) in (tuple, frozenset):
                stack.append(item)


def _members(values):
    if not isinstance(values, (list, tuple)):
        _fail(f"the members of a set must be a list or tuple, got {type(values).__name__}")
    for v in values:
        _check_key(v)
    return values


def _pairs(args, kind):
    if not args:
        return ()
    if len(args) != 1 or not isinstance(args[0], (list, dict, tuple)):
        _fail(f"{kind} of {[type(a).__name__ for a in args]}")
    if not isinstance(args[0], dict):
        for pair in args[0]:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                _fail(f"{kind}: key-value pairs were expected")
            _check_key(pair[0])
    return args


def _ordered_dict(*args):
    return OrderedDict(*_pairs(args, "OrderedDict"))


def _counter(*args):
    if args and not isinstance(args[0], dict):
        _fail(f"Counter expects a dict, got {type(args[0]).__name__}")
    return Counter(*args)


def _set(*args):
    return set(*[_members(a) for a in args])


def _bytearray(*args):
    if len(args) == 1 and isinstance(args[0], (bytes, bytearray)):
        return bytearray(args[0])
    if len(args) == 2 and isinstance(args[0], str):
        return bytearray(_encode(*args))
    if args:
        _fail(f"bytearray of {[type(a).__name__ for a in args]}")
    return bytearray()


def _encode(text, encoding="utf-8"):
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
        _fail(f"_codecs.encode with encoding {encoding!r} is not allowed")
    return text.encode(encoding)


def _bytes(*args):
    # Protocol 2 writes an empty bytes object as a call.
    if args:
        _fail("bytes called with arguments is not allowed")
    return b""


def _complex(*args):
    if len(args) > 2 or not all(isinstance(a, (int, float)) for a in args):
        _fail(f"complex expects at most two numbers, got {[type(a).__name__ for a in args]}")
    return complex(*args)


def _size(*args):
    if len(args) > 1 or args and not isinstance(args[0], (tuple, list)):
        _fail(f"torch.Size expects a tuple or list, got {[type(a).__name__ for a in args]}")
    return Size(*args)


def _make_device(*args):
    if not args or not isinstance(args[0], str) or len(args) > 2:
        _fail("torch.device without a type")
    return _device.device(*args)


def _from_type(func, new_type, args, state):
    # `func` comes from the allowlist. Here only the functions that rebuild tensors are accepted.
    if id(func) not in _REBUILDERS or not isinstance(args, tuple) or not isinstance(new_type, type):
        _fail("invalid arguments of _rebuild_from_type_v2")
    if not issubclass(new_type, Tensor):
        _fail(f"_rebuild_from_type_v2 for {new_type.__name__}, which is not a tensor class")
    for part in state if isinstance(state, tuple) else (state,):
        for name in part or ():
            if not isinstance(name, str) or name in own_names():
                _fail(f"a tensor's attribute {name!r} may not come from a file")
    return _utils._rebuild_from_type_v2(func, new_type, args, state)


def _with_state(data, requires_grad, backward_hooks, state):
    for part in state if isinstance(state, tuple) else (state,):
        for name in part or ():
            if not isinstance(name, str) or name in own_names():
                _fail(f"a Parameter's attribute {name!r} may not come from a file")
    return _utils._rebuild_parameter_with_state(data, requires_grad, backward_hooks, state)


_REBUILD_NAMES = (
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
    "_rebuild_parameter",
    "_rebuild_meta_tensor_no_storage",
    "_rebuild_sparse_tensor",
    "_rebuild_sparse_csr_tensor",
    "_rebuild_qtensor",
    "_rebuild_nested_tensor",
    "_rebuild_wrapper_subclass",
    "_rebuild_device_tensor_from_numpy",
    "_rebuild_device_tensor_from_cpu_tensor",
)
_REBUILDERS = {id(getattr(_utils, n)) for n in _REBUILD_NAMES} | {id(_with_state)}

# Name in files -> object. Functions in this table may be called; classes and dtypes may only be
# referenced.
_DEFAULT = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "set": _set,
    "bytes": _bytes,
    "bytearray": _bytearray,
    "complex": _complex,
    "_codecs.encode": _encode,
    "torch.Size": _size,
    "torch.device": _make_device,
    "torch.serialization._get_layout": _get_layout,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_parameter_with_state": _with_state,
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.storage.UntypedStorage": _storage.UntypedStorage,
    "torch.storage.TypedStorage": _storage.TypedStorage,
}
_DEFAULT.update((f"torch._utils.{n}", getattr(_utils, n)) for n in _REBUILD_NAMES)
_DEFAULT.update((f"torch.{n}", d) for n, d in _dtypes.NAMES.items())
for _n, _c in _storage.CLASSES.items():
    _DEFAULT[f"torch.{_n}"] = _DEFAULT[f"torch.cuda.{_n}"] = _c
# Ids are used because hashing an object that a hostile file put on the stack could take forever.
_CALLABLE = {id(f) for f in _DEFAULT.values() if callable(f) and not isinstance(f, type)}


def _find(module, name):
    full = _globals.canonical(module, name)
    qualified_name = f"{module}.{name}" if module not in ("builtins", "__builtin__") else name
    package = module.partition(".")[0]
    if package in _BLOCKED:
        raise Refused(f"Trying to load unsupported GLOBAL {qualified_name} whose module {package} is blocked. {_HOSTILE}")
    found = _safe.get(full)
    if found is None:
        found = _DEFAULT.get(full)
    if found is None and (package in _RUNNERS or package in ("builtins", "__builtin__") and name in _RUNNING_BUILTINS):
        raise Refused(f"Unsupported global: GLOBAL {qualified_name} was not an allowed global by default. {_HOSTILE}")
    if found is None:
        raise Refused(
            f"Unsupported global: GLOBAL {qualified_name} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{qualified_name}])` or the `torch.serialization.safe_globals([{qualified_name}])` "
            "context manager to allowlist this global if you trust this class/function."
        )
    return found


# ------------------------------------------------------------------ the stack machine
class _Mark:
    __slots__ = ()


_MARK = _Mark()
_TRUNCATED = "pickle data was truncated: the file ends in the middle of it"
_unpack_i = struct.Struct("<i").unpack
_unpack_I = struct.Struct("<I").unpack
_unpack_Q = struct.Struct("<Q").unpack
_unpack_d = struct.Struct(">d").unpack
_STATEFUL = (OrderedDict,)


class Unpickler:
    """Reads one pickle from `file` (``read`` and ``readline``). Storage references are resolved by
    `persistent_load`."""

    foreign = None

    def __init__(self, file, *, encoding="utf-8"):
        self._read = file.read
        self._readline = file.readline
        self._encoding = encoding

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("unexpected storage reference (persistent id) in the file")

    def load(self):
        """Returns the unpickled object. Raises pickle.UnpicklingError for anything but a harmless,
        well-formed pickle."""
        stack, memo, read, ops = [], {}, self._read, _OPS
        self.stack, self.memo = stack, memo
        try:
            while True:
                op = read(1)
                if op == b".":
                    break
                handler = ops.get(op)
                if handler is None:
                    if not op:
                        raise EOFError("Ran out of input: " + _TRUNCATED)
                    _fail(f"Unsupported operand {op[0]}")
                handler(self, stack)
            if len(stack) != 1:
                _fail(f"corrupt pickle: {len(stack)} objects on the stack at its end, expected 1")
            return stack.pop()
        except (pickle.UnpicklingError, EOFError, NotImplementedError, MemoryError):
            raise
        except (AttributeError, TypeError, ValueError, LookupError, OverflowError, RecursionError, struct.error) as e:
            if e is self.foreign:
                raise
            raise pickle.UnpicklingError(f"corrupt pickle ({type(e).__name__}: {e})") from e

    # ---- helpers for the opcodes
    def take(self, n):
        data = self._read(n)
        if len(data) != n:
            _fail(_TRUNCATED)
        return data

    def line(self):
        data = self._readline()
        if data[-1:] != b"\n":
            _fail(_TRUNCATED)
        return data[:-1].decode("utf-8")

    def pop_mark(self):
        stack = self.stack
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                items = stack[i + 1 :]
                del stack[i:]
                return items
        _fail("corrupt pickle: no mark on the stack")

    def get(self, i):
        try:
            self.stack.append(self.memo[i])
        except KeyError:
            _fail(f"Memo value not found at index {i}")

    def put(self, i):
        top = self.stack[-1]
        if top is _MARK:
            _fail("corrupt pickle: a mark cannot be stored in the memo")
        self.memo[i] = top


_OPS = {}


def _op(code):
    def register(f):
        _OPS[code] = f
        return f

    return register


def _simple():
    """Registers the opcodes that are one expression each."""

    def value(code, f):
        _OPS[code] = lambda u, stack: stack.append(f(u))

    for code, make in {
        b"N": lambda u: None,
        b"\x88": lambda u: True,
        b"\x89": lambda u: False,
        b")": lambda u: (),
        b"]": lambda u: [],
        b"}": lambda u: {},
        b"\x8f": lambda u: set(),
        b"(": lambda u: _MARK,
        b"K": lambda u: u.take(1)[0],
        b"M": lambda u: int.from_bytes(u.take(2), "little"),
        b"J": lambda u: _unpack_i(u.take(4))[0],
        b"G": lambda u: _unpack_d(u.take(8))[0],
        b"\x8a": lambda u: int.from_bytes(u.take(u.take(1)[0]), "little", signed=True),
        b"X": lambda u: u.take(_unpack_I(u.take(4))[0]).decode("utf-8", "surrogatepass"),
        b"\x8c": lambda u: u.take(u.take(1)[0]).decode("utf-8", "surrogatepass"),
        b"\x8d": lambda u: u.take(_unpack_Q(u.take(8))[0]).decode("utf-8", "surrogatepass"),
        b"B": lambda u: u.take(_unpack_I(u.take(4))[0]),
        b"C": lambda u: u.take(u.take(1)[0]),
        b"\x8e": lambda u: u.take(_unpack_Q(u.take(8))[0]),
        b"\x96": lambda u: bytearray(u.take(_unpack_Q(u.take(8))[0])),
        b"T": lambda u: _python2_string(u, u.take(_size4(u))),
        b"U": lambda u: _python2_string(u, u.take(u.take(1)[0])),
        b"t": lambda u: tuple(u.pop_mark()),
        b"l": lambda u: u.pop_mark(),
    }.items():
        value(code, make)
    for code, f in {
        b"h": lambda u, s: u.get(u.take(1)[0]),
        b"j": lambda u, s: u.get(_unpack_I(u.take(4))[0]),
        b"q": lambda u, s: u.put(u.take(1)[0]),
        b"r": lambda u, s: u.put(_unpack_I(u.take(4))[0]),
        b"\x94": lambda u, s: u.put(len(u.memo)),
        b"0": lambda u, s: s.pop(),
        b"1": lambda u, s: u.pop_mark(),
        b"2": lambda u, s: s.append(s[-1]),
        b"\x95": lambda u, s: u.take(8),
    }.items():
        _OPS[code] = f


def _size4(u):
    n = _unpack_i(u.take(4))[0]
    if n < 0:
        _fail(f"corrupt pickle: negative length {n}")
    return n


def _python2_string(u, data):
    return data if u._encoding == "bytes" else data.decode(u._encoding)


_simple()


@_op(b"\x80")
def _proto(u, stack):
    version = u.take(1)[0]
    if version < 2 or version > pickle.HIGHEST_PROTOCOL:
        _fail(f"pickle protocol {version} is not supported")


@_op(b"\x8b")
def _long4(u, stack):
    n = _size4(u)
    # Conversion to and from very long integers takes quadratic time, and no checkpoint contains
    # one.
    if n > 1024:
        _fail(f"integer too long: {n} bytes")
    stack.append(int.from_bytes(u.take(n), "little", signed=True))


@_op(b"c")
def _global(u, stack):
    module = u.line()
    stack.append(_find(module, u.line()))


@_op(b"\x93")
def _stack_global(u, stack):
    name, module = stack.pop(), stack.pop()
    if type(name) is not str or type(module) is not str:
        _fail("STACK_GLOBAL without names")
    stack.append(_find(module, name))


def _tuple_n(n):
    def op(u, stack):
        if len(stack) < n or _MARK in stack[-n:]:
            _fail(f"corrupt pickle: not enough items on the stack for a tuple of {n}")
        items = tuple(stack[-n:])
        stack[-n:] = [items]

    return op


_OPS.update({b"\x85": _tuple_n(1), b"\x86": _tuple_n(2), b"\x87": _tuple_n(3)})


@_op(b"a")
def _append(u, stack):
    item = stack.pop()
    _list(stack).append(item)


@_op(b"e")
def _appends(u, stack):
    items = u.pop_mark()
    _list(stack).extend(items)


def _list(stack):
    target = stack[-1]
    if type(target) is not list and not (hasattr(target, "extend") and _allowed_instance(target)):
        _fail(f"Can only append to lists, but got {type(target).__name__}")
    return target


@_op(b"s")
def _setitem(u, stack):
    value, key = stack.pop(), stack.pop()
    _check_key(key)
    _dict(stack)[key] = value


@_op(b"u")
def _setitems(u, stack):
    items = u.pop_mark()
    target = _dict(stack)
    if len(items) % 2:
        _fail("corrupt pickle: a key without a value")
    for i in range(0, len(items), 2):
        key = items[i]
        _check_key(key)
        target[key] = items[i + 1]


def _dict(stack):
    target = stack[-1]
    if type(target) not in (dict, OrderedDict, Counter) and not (
        isinstance(target, dict) and _allowed_instance(target)
    ):
        _fail(f"Can only set items of dicts, but got {type(target).__name__}")
    return target


@_op(b"\x90")
def _additems(u, stack):
    items = _members(u.pop_mark())
    if type(stack[-1]) is not set:
        _fail("Can only add items to sets")
    stack[-1].update(items)


@_op(b"\x91")
def _frozenset(u, stack):
    stack.append(frozenset(_members(u.pop_mark())))


def _callable(f):
    """True if `f` is an allowlisted function or class, not data that the pickle built."""
    return id(f) in _CALLABLE or any(f is s for s in _safe.values())


def _allowed_instance(obj):
    return any(type(obj) is s for s in _safe.values())


@_op(b"R")
def _reduce(u, stack):
    args, f = stack.pop(), stack.pop()
    if type(args) is not tuple:
        _fail(f"a call with arguments of type {type(args).__name__}")
    if not _callable(f):
        _fail(f"Trying to call reduce for unrecognized function {getattr(f, '__name__', type(f).__name__)!s}")
    try:
        stack.append(f(*args))
    except NotImplementedError:
        raise
    except TypeError as e:
        # The arguments of a rebuild function have the wrong types. PyTorch raises TypeError too.
        u.foreign = e
        raise
    except RuntimeError as e:
        raise pickle.UnpicklingError(f"{type(e).__name__}: {e}") from e


@_op(b"\x81")
def _newobj(u, stack):
    args, cls = stack.pop(), stack.pop()
    _new(stack, cls, args, {})


@_op(b"\x92")
def _newobj_ex(u, stack):
    kwargs, args, cls = stack.pop(), stack.pop(), stack.pop()
    _new(stack, cls, args, kwargs)


def _new(stack, cls, args, kwargs):
    if type(args) is not tuple or type(kwargs) is not dict:
        _fail("corrupt pickle: object without arguments")
    if cls is _ordered_dict and not args:
        stack.append(OrderedDict())
    elif isinstance(cls, type) and any(cls is s for s in _safe.values()):
        stack.append(cls.__new__(cls, *args, **kwargs))
    else:
        _fail(f"Trying to create new object for unrecognized class {getattr(cls, '__name__', type(cls).__name__)}")


@_op(b"b")
def _build(u, stack):
    state, obj = stack.pop(), stack[-1]
    if type(obj) in _STATEFUL:
        if type(state) is not dict or not all(type(k) is str for k in state):
            _fail("an OrderedDict's state must be a dict of names")
        obj.__dict__.update(state)
    elif _allowed_instance(obj):
        set_state = getattr(obj, "__setstate__", None)
        if set_state is not None:
            set_state(state)
        elif isinstance(state, dict) and hasattr(obj, "__dict__"):
            obj.__dict__.update(state)
        else:
            _utils.set_state(obj, state)
    else:
        _fail(
            "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got "
            f"{type(obj)}"
        )


@_op(b"Q")
def _binpersid(u, stack):
    pid = stack.pop()
    if type(pid) is not tuple:
        _fail(f"persistent_load id must be tuple, but got {type(pid).__name__}")
    try:
        stack.append(u.persistent_load(pid))
    except Exception as e:
        # A missing record or device, or an error in the user's map_location: not a fault of the
        # pickle, so it is raised unchanged.
        u.foreign = e
        raise


# ------------------------------------------------------------------ inspection without loading
def globals_in(data):
    """Returns (module, name) of all classes and functions that a pickle references, in order of
    appearance."""
    names, strings, memo = [], [], {}
    try:
        for op, arg, _ in pickletools.genops(data):
            name = op.name
            if name == "GLOBAL":
                names.append(tuple(arg.split(" ", 1)))
            elif name == "STACK_GLOBAL":
                if len(strings) < 2 or None in strings[-2:]:
                    raise pickle.UnpicklingError("STACK_GLOBAL without names")
                names.append(tuple(strings[-2:]))
            elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
                memo[int(arg)] = strings[-1] if strings else None
            elif name == "MEMOIZE":
                memo[len(memo)] = strings[-1] if strings else None
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                strings.append(memo.get(int(arg)))
            elif isinstance(arg, str):
                strings.append(arg)
            elif name not in ("FRAME", "PROTO"):
                strings.append(None)
    except (ValueError, IndexError) as e:
        raise pickle.UnpicklingError(f"corrupt pickle: {e}") from e
    return list(dict.fromkeys(names))


def unsafe_globals_in(data):
    """Returns the full names of those `globals_in` that a weights_only load would reject."""
    found = []
    for module, name in globals_in(data):
        full = _globals.canonical(module, name)
        if full not in _DEFAULT and full not in _safe:
            found.append(f"{module}.{name}")
    return found
