"""The parts of CPython that are used beyond the language: hooks, and undocumented memory layout.
See backend/patching.py.

``MINDTORCH_PORTABLE=1`` selects code paths that need no private details of CPython and NumPy;
versions that lack those details use the same paths. The results are identical. Importing this
imports neither MindSpore nor NumPy.
"""
import atexit
import functools
import os
import sys
from collections.abc import Callable

from mindtorch.backend.patching import AT_TIMES, HOOKS, RELIES, declare, put, take_back  # noqa: F401

PORTABLE = os.environ.get("MINDTORCH_PORTABLE") == "1"
_CHECKED = ("python", "3.10", "3.11", "3.12")

# ------------------------------------------------------------------ hooks
FORKS = hasattr(os, "register_at_fork")

set_profile = sys.setprofile


def at_exit(what):
    """Decorator: runs the function at interpreter exit. `what` describes its purpose."""
    def register(fn):
        if what not in _EXIT.placed:
            _EXIT.placed.append(what)
        return atexit.register(fn)
    return register


not_at_exit = atexit.unregister


def at_fork(what, **callbacks):
    """Calls `os.register_at_fork`, where it exists. `what` describes the purpose."""
    if FORKS:
        _FORK.placed.append(what)
        os.register_at_fork(**callbacks)


_locks: list[tuple[dict, str, Callable]] = []  # (module namespace, name, factory)


def module_lock(namespace, name, make):
    """Returns `make()`, a new lock for `name` in a module's `namespace`. A forked child replaces it
    by a new one, because the thread that held it does not exist there."""
    _locks.append((namespace, name, make))
    return make()


def _renew_locks():
    for namespace, name, make in _locks:
        namespace[name] = make()


_EXIT = declare("atexit:register", HOOKS, "connections, directories and MindSpore's autograd are closed in an order that lets the process end", _CHECKED,
        ("tests/tools/test_cli.py", "tests/core/test_interop.py"))
_FORK = declare("os:register_at_fork", HOOKS, "threads and locks do not survive a fork", _CHECKED,
                ("tests/facade/test_data_workers.py", "tests/facade/test_multiprocessing.py"))
at_fork("locks of modules", after_in_child=_renew_locks)
declare("sys:setprofile", HOOKS, "torch.compile sees the functions of a call; only during capture", _CHECKED,
        ("tests/facade/test_compile.py", "tests/facade/test_compile_breaks.py"))
declare("sys:meta_path", HOOKS, "`import torch` finds the facade (tools/_hook.py); only while it is enabled", _CHECKED, ("tests/tools/test_hook.py",))
declare("sys:excepthook", AT_TIMES, "`python -m mindtorch run` reports a script's traceback starting at the script", _CHECKED, ("tests/tools/test_cli.py",))
declare("multiprocessing.spawn:get_preparation_data", AT_TIMES, "spawned children import the facade as `torch` before they unpickle", _CHECKED,
        ("tests/tools/test_hook.py",), takes="name")


# ------------------------------------------------------------------ dict version tags
class _NoTag:
    value = 0


def tag_address(d):
    """Returns the address of a dict's version tag, which changes with every modification (CPython
    up to 3.12)."""
    return id(d) + 24


def _tag(d):
    import ctypes
    return ctypes.c_uint64.from_address(tag_address(d))


@functools.cache
def tags_work():
    """True if this interpreter stores dict version tags at the expected address and updates them
    for every kind of change.

    If not (3.13 has no tags), contents are compared.
    """
    import ctypes
    if PORTABLE or sys.implementation.name != "cpython" or sys.version_info[:2] not in ((3, 10), (3, 11), (3, 12)) or ctypes.sizeof(
            ctypes.c_void_p) != 8:
        return False

    class Probe:
        pass

    def store(o):
        for i in range(64):  # enough iterations for the interpreter to specialize the instruction
            o.x = i
            yield

    p = Probe()
    p.x = -1
    d = p.__dict__
    tag, seen = _tag(d), set()

    def moved():
        before = len(seen)
        seen.add(tag.value)
        return len(seen) > before
    ok = moved()
    for _ in store(p):
        ok = ok and moved()
    for change in (lambda: d.update(y=1), lambda: d.pop("y"), lambda: d.__setitem__("x", object()), lambda: setattr(p, "z", 1),
                   lambda: delattr(p, "z"), lambda: d.setdefault("w", 2), lambda: d.clear()):
        change()
        ok = ok and moved()
    still = tag.value
    d.get("x"), "x" in d, list(d.items())
    return ok and tag.value == still and _words_work(p, Probe)


def _words_work(p, cls):
    """True if an object's class, its attribute dict and that dict's size are at the expected
    addresses."""
    class Other:
        pass
    d, new = p.__dict__, {"a": 1, "b": 2}
    at, kind, used = slot_address(p, d), word_at(class_address(p)), word_at(used_address(d))
    ok = at is not None and kind.value == id(cls) and used.value == len(d)
    d["more"] = 1
    p.__class__ = Other
    p.__dict__ = new
    return ok and used.value == len(d) and kind.value == id(Other) and slot_address(p, new) is not None


def class_address(x):
    """Returns the address at which CPython stores an object's class."""
    return id(x) + 8


def used_address(d):
    """Returns the address at which CPython stores a dict's number of entries."""
    return id(d) + 16


@functools.cache
def _dict_slot():
    import ctypes
    get = ctypes.pythonapi._PyObject_GetDictPtr
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object]
    return get


def slot_address(x, d):
    """Returns the address at which CPython stores the pointer to an object's attribute dict,
    currently `d`; None if it is stored elsewhere."""
    import ctypes
    at = _dict_slot()(x)
    return at if at and ctypes.c_uint64.from_address(at).value == id(d) else None


def word_at(address):
    """Returns an object whose `.value` is the 8-byte word at an address."""
    import ctypes
    return ctypes.c_uint64.from_address(address)


def watch(d):
    """Returns an object whose `.value` changes with every modification of the dict (always 0 if
    there are no tags)."""
    return _tag(d) if tags_work() else _NoTag


def _tags_check():
    return None if tags_work() else "not available: contents are compared"


declare("builtins:dict", RELIES, "dict version tags show that a compiled function's environment is unchanged (0.05 us per dict)", _CHECKED,
        ("tests/facade/test_compile.py", "tests/backend/test_patches.py"), check=_tags_check)


# ------------------------------------------------------------------ metaclasses
def _class_of(cls):
    import ctypes
    return ctypes.py_object.from_address(id(cls) + object.__basicsize__ - ctypes.sizeof(ctypes.c_void_p))       # an object's last field


def set_class(cls, kind):
    """Makes `kind` the class of the class `cls`. Python rejects assigning `__class__` if one of the
    two is a built-in class, such as `type`."""
    class_field = _class_of(cls)
    if class_field.value is not type(cls):
        raise NotImplementedError(f"set_class: {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]} keeps the class of "
                                  f"{cls.__name__} elsewhere")
    class_field.value = kind


declare("builtins:type", RELIES, "address of an object's class: the metaclass of MindSpore's Cell makes Modules instances of Cell", _CHECKED,
        ("tests/facade/test_data_model.py",), check=lambda: None if _class_of(_NoTag).value is type else "it is not the last field of an object")
