"""What a captured call depends on besides its arguments, and whether any of it has changed since.

`Scope` walks everything that the code of a call can reach: the module or function itself, closures, defaults, the globals
that its code names, and what hangs on those.  CPython gives every change of a dict a new version tag, so that one comparison
of integers tells that no attribute, submodule, parameter slot or hook of a whole model was touched (about 0.05 us a dict).
Where a tag has moved, the contents are compared.  Anything whose state cannot be watched makes the walk *refuse*, and the
call then runs eagerly.
"""
import contextvars
import dis
import enum
import functools
import logging
import os
import sysconfig
import types
import weakref
from collections import OrderedDict, deque, namedtuple

import numpy as np

import mindtorch
from mindtorch.backend.cpython import tag_address, tags_work, watch
from mindtorch.core import device as _device
from mindtorch.core import dtypes as _dtypes
from mindtorch.core.rng import Generator
from mindtorch.core.tensor import Parameter, Size, Tensor, taken
from mindtorch.torch.nn.modules.module import Module

MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), Size, _dtypes.dtype,
           _device.device, range, slice)
_INERT = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
          types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, property, staticmethod,
          classmethod, np.ufunc, np.generic, np.dtype, weakref.ref, functools._lru_cache_wrapper, Generator, types.CodeType,
          types.GenericAlias, types.UnionType, type(namedtuple("N", "a").a), logging.Logger)        # (a logger's methods end the capture when they are called)

PACKAGE = os.path.dirname(mindtorch.__file__) + os.sep
GENERATED = ("<op ", "<primitive ")
_STDLIB = sysconfig.get_paths()["stdlib"]
_SITE = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])


def is_stdlib(filename):
    """Whether a code's file belongs to Python's own library."""
    return filename.startswith("<frozen") or filename.startswith(_STDLIB) and not filename.startswith(_SITE)


def same(a, b):
    """Whether two guarded values are interchangeable: one object, or equal plain values of one type."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and str(a) == str(b) or a != a and b != b
    if isinstance(a, (types.MethodType,)):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return isinstance(a, _SIMPLE) and a == b


# ------------------------------------------------------------------ the walk
def names_of(code):
    """(global names, all names and string constants, globals assigned, globals used other than by calling them) of a code object and
    those inside it."""
    out = _names.get(code)
    if out is None:
        g, every, stores, values = set(), set(), set(), set()
        for i in dis.get_instructions(code):
            if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                g.add(i.argval)
                if not i.argrepr.startswith("NULL + ") and not i.argrepr.endswith(" + NULL"):
                    values.add(i.argval)        # not called on the spot (before 3.11 one cannot tell)
            elif i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                stores.add(i.argval)
        every.update(code.co_names)
        for c in code.co_consts:
            if isinstance(c, str):
                every.add(c)
            elif isinstance(c, tuple):
                every.update(x for x in c if isinstance(x, str))
            elif isinstance(c, types.CodeType):
                gi, ei, si, vi = names_of(c)
                g, every, stores, values = g | gi, every | ei, stores | si, values | vi
        out = _names[code] = (frozenset(g), frozenset(every), frozenset(stores), frozenset(values))
    return out


_names = {}


def ours(filename):
    """Whether a code's file belongs to this package, or the package generated it."""
    return filename.startswith(PACKAGE) or filename.startswith(GENERATED)


def _foreign_class(cls):
    """Whether a class is the user's (its attributes may change), not Python's, NumPy's or ours."""
    module = cls.__module__
    if module in ("builtins", "collections", "abc", "enum", "typing", "functools"):
        return False
    root = module.partition(".")[0]
    return root not in ("mindtorch", "torch", "numpy", "mindspore", "collections", "enum")


class Scope:
    """One walk.  `names`: what the executed code can name; None in the walk before the call, which refuses nothing."""

    def __init__(self, names=None):
        self.names = names
        self.dicts, self.seqs, self.slots, self.tensors = {}, {}, [], {}
        self.seen, self.refused, self.codes = {}, [], set()
        self._slot_keys = set()
        self._stack = []

    # -- roots
    def visit(self, value, path, strict=True):
        """Walks a value and what it reaches."""
        stack = [(value, path, strict)]
        while stack:
            v, p, s = stack.pop()
            self._one(v, p, s, stack)

    def function(self, fn, path, stack=None, globals_=True):
        """Closure, defaults and (for the user's functions) the globals that it names."""
        own = stack is None
        stack = [] if own else stack
        self._constants(fn)
        for i, cell in enumerate(fn.__closure__ or ()):
            try:
                v = cell.cell_contents
            except ValueError:
                v = MISSING
            self._slot(("cell", id(cell)), ("cell", cell, None, v))
            name = fn.__code__.co_freevars[i]
            if v is not MISSING:
                stack.append((v, f"{path}'s variable {name!r}", True))
        if fn.__defaults__:
            stack.append((fn.__defaults__, f"{path}'s defaults", True))
        if fn.__kwdefaults__:
            stack.append((fn.__kwdefaults__, f"{path}'s defaults", True))
        if globals_ and not ours(fn.__code__.co_filename) and not is_stdlib(fn.__code__.co_filename):
            self._globals(fn.__code__, fn.__globals__, stack)
        if own:
            while stack:
                v, p, s = stack.pop()
                self._one(v, p, s, stack)

    def code(self, code, globals_):
        """The globals that an executed code object names."""
        stack = []
        self._globals(code, globals_, stack)
        while stack:
            v, p, s = stack.pop()
            self._one(v, p, s, stack)

    def _globals(self, code, scope, stack):
        key = (code, id(scope))
        if key in self.codes:
            return
        self.codes.add(key)
        for name in names_of(code)[0]:
            v = scope.get(name, MISSING)
            self._slot(("global", id(scope), name), ("global", scope, name, v))
            if v is not MISSING:
                stack.append((v, f"global {name!r}", True))

    def _slot(self, key, slot):
        if key not in self._slot_keys:
            self._slot_keys.add(key)
            self.slots.append(slot)

    def _constants(self, fn):
        for n in ("__defaults__", "__kwdefaults__", "__code__"):
            self._slot((n, id(fn)), ("attr", fn, n, getattr(fn, n)))

    def _refuse(self, path, v):
        self.refused.append(f"it can read {path} of type {type(v).__module__}.{type(v).__qualname__}, whose state cannot be watched")

    def _wanted(self, name):
        return self.names is None or name in self.names

    def _dict(self, d):
        if id(d) not in self.dicts:
            w = watch(d)
            self.dicts[id(d)] = [d, w, w.value, dict(entries(d))]

    # -- one value
    def _one(self, v, path, strict, stack):
        if isinstance(v, _SIMPLE) or isinstance(v, _INERT) or isinstance(v, enum.Enum) or type(v) is object:
            return
        if id(v) in self.seen:
            return
        self.seen[id(v)] = v
        t = type(v)
        if taken(v):
            if t is Tensor or t is Parameter:
                self.tensors[id(v)] = v
                for k, x in list(vars(v).items()):
                    if k[:1] != "_" and self.names is not None and k in self.names:
                        self._slot(("tensor", id(v), k), ("attr", v, k, x))
                        stack.append((x, f"{path}.{k}", True))
            elif strict:
                self._refuse(path, v)
            return
        if isinstance(v, Module):
            self._object(v, path, stack, True)
        elif t is dict or t is OrderedDict or isinstance(v, dict):
            if len(v) > 4096:
                if strict:
                    self.refused.append(f"it can read {path}, a dict of {len(v)} entries")
                return
            self._dict(v)
            for k, x in list(entries(v)):
                stack.append((x, f"{path}[{k!r}]" if isinstance(k, (str, int)) else f"{path}[...]", strict))
                if not isinstance(k, _SIMPLE):
                    stack.append((k, f"a key of {path}", strict))
            if t is not dict and t is not OrderedDict:
                self._object(v, path, stack, strict)
        elif isinstance(v, (list, set, deque)):
            if len(v) > 4096:
                if strict:
                    self.refused.append(f"it can read {path}, a {t.__name__} of {len(v)} entries")
                return
            self.seqs[id(v)] = (v, tuple(v))
            for i, x in enumerate(v):
                stack.append((x, f"{path}[{i}]", strict))
            if t not in (list, set, deque):
                self._object(v, path, stack, strict)
        elif isinstance(v, (tuple, frozenset)):
            for i, x in enumerate(v):
                stack.append((x, f"{path}[{i}]", strict))
        elif isinstance(v, types.FunctionType):
            if not ours(v.__code__.co_filename) and not is_stdlib(v.__code__.co_filename):
                self.function(v, path, stack, self.names is None)
        elif isinstance(v, types.MethodType):
            stack.append((v.__self__, f"{path}.__self__", strict))
            stack.append((v.__func__, path, strict))
        elif isinstance(v, functools.partial):
            if isinstance(v.func, types.BuiltinFunctionType) and v.func.__name__ in ("print", "open", "input", "exec", "eval"):
                self.refused.append(f"it can call {path}, a partial of {v.func.__name__}")
            stack.append((v.func, f"{path}.func", strict))
            stack.append((v.args, f"{path}.args", strict))
            stack.append((v.keywords, f"{path}.keywords", strict))
        elif isinstance(v, types.ModuleType):
            self._module(v, path, stack)
        elif isinstance(v, type):
            self._class(v, path, stack)
        elif isinstance(v, types.MappingProxyType):
            return
        elif isinstance(v, contextvars.ContextVar):
            x = v.get(MISSING)
            self._slot(("context", id(v)), ("context", v, None, x))
            if x is not MISSING:
                stack.append((x, f"{path}'s value", strict))
        elif isinstance(v, np.ndarray):
            if strict:
                self._refuse(path, v)
        elif hasattr(v, "__dict__") and not isinstance(v, (types.GeneratorType, types.CoroutineType)) and (
                type(v).__flags__ & (1 << 9) or t.__module__ == "types"):        # a class made by a class statement
            self._object(v, path, stack, strict)
        elif "__slots__" in vars(t) and t.__flags__ & (1 << 9):
            for c in t.__mro__:
                slots = vars(c).get("__slots__", ())
                for n in (slots,) if isinstance(slots, str) else slots:
                    x = getattr(v, n, MISSING)
                    self._slot(("slot", id(v), n), ("attr", v, n, x))
                    if x is not MISSING and self._wanted(n):
                        stack.append((x, f"{path}.{n}", strict))
            self._class(t, path, stack)
        elif strict:
            self._refuse(path, v)

    def _object(self, v, path, stack, strict):
        own = getattr(v, "__dict__", None)
        if own is None:
            return self._class(type(v), path, stack)
        self._dict(own)
        if not isinstance(v, (Module, type, types.ModuleType)):
            self._slot(("dict", id(v)), ("attr", v, "__dict__", own))
        hidden = isinstance(v, Module)
        for k, x in list(own.items()):
            inner = hidden and k in ("_parameters", "_buffers", "_modules")
            stack.append((x, path if inner else f"{path}.{k}", strict and (inner or self._wanted(k))))
        self._class(type(v), path, stack)

    def _class(self, cls, path, stack):
        if id(cls) in self.seen and self.seen[id(cls)] is not cls:
            return
        self.seen[id(cls)] = cls
        for c in cls.__mro__:
            if not _foreign_class(c):
                continue
            for k, x in list(vars(c).items()):
                if k in ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"):
                    continue
                if self.names is not None and k not in self.names and not isinstance(x, (types.FunctionType, property)):
                    if k not in ("__init__",):
                        continue
                self._slot(("class", id(c), k), ("class", c, k, x))
                stack.append((x, f"{c.__name__}.{k}", self._wanted(k) and not isinstance(x, types.FunctionType)))

    def _module(self, m, path, stack):
        f = getattr(m, "__file__", None) or "<frozen"
        if ours(f) or is_stdlib(f) or f.startswith(_SITE) or m.__name__ == "builtins":
            return
        own = vars(m)
        for k in list(own):
            if self.names is not None and k in self.names:
                self._slot(("global", id(own), k), ("global", own, k, own[k]))
                stack.append((own[k], f"{m.__name__}.{k}", True))


def _current(kind, holder, name):
    if kind == "global":
        return holder.get(name, MISSING)
    if kind == "cell":
        try:
            return holder.cell_contents
        except ValueError:
            return MISSING
    if kind == "context":
        return holder.get(MISSING)
    if kind == "class":
        return vars(holder).get(name, MISSING)
    return getattr(holder, name, MISSING)


def entries(d):
    """What a dict holds, past the methods of a subclass (which may make things up at each access)."""
    return d.items() if type(d) is OrderedDict else dict.items(d)


_SLOTTED = {}


def parts(x):
    """What an argument that is a tuple, list or dict consists of: its items and then its attributes.  None for other objects."""
    if not isinstance(x, (tuple, list, dict)) or isinstance(x, Size):
        return None
    t = type(x)
    if t in (tuple, list, dict):
        return x.values() if t is dict else x
    if t not in _SLOTTED:        # state in slots, or a tuple's items given out by other means: not looked into
        _SLOTTED[t] = any(vars(c).get("__slots__") for c in t.__mro__) or t.__iter__ not in (
            tuple.__iter__, list.__iter__, dict.__iter__, OrderedDict.__iter__)
    if _SLOTTED[t]:
        return None
    own = getattr(x, "__dict__", None)
    items = [dict.__getitem__(x, k) for k in keys_of(x)] if isinstance(x, dict) else x
    return (*items, *((own,) if own else ()))


def keys_of(d):
    """The keys of a dict in order, past the methods of a subclass."""
    return list((OrderedDict if isinstance(d, OrderedDict) else dict).__iter__(d))


def same_items(a, b):
    """Whether two dicts hold the same things in the same order."""
    if dict.__len__(a) != dict.__len__(b):
        return False
    for (k, x), (m, y) in zip(entries(a), entries(b)):
        if k is not m and k != m or not same(x, y):
            return False
    return True


def changes(before, after):
    """What a call has changed among the things walked before it; None if nothing.  MISSING: not known, it was not walked."""
    for d, _, _, items in before.dicts.values():
        if not same_items(items, d):
            now = dict(entries(d))
            changed = [str(k) for k in {*items, *now} if not same(items.get(k, MISSING), now.get(k, MISSING))]
            return f"it changes attributes or entries of an object that outlives it ({', '.join(sorted(changed)[:4]) or 'their order'})"
    for seq, items in before.seqs.values():
        if len(seq) != len(items) or not all(map(same, seq, items)):
            return f"it changes a {type(seq).__name__} that outlives it"
    for kind, holder, name, v in before.slots:
        if not same(_current(kind, holder, name), v):
            return f"it changes {'a variable of an enclosing function' if kind == 'cell' else f'{kind} {name!r}'}"
    for i in after.dicts:
        if i not in before.dicts:
            return MISSING
    for i in after.seqs:
        if i not in before.seqs:
            return MISSING
    return None


class Guard:
    """The state that an `after` walk found, and a quick test that it is still so."""

    def __init__(self, scope, tensors, lib=None):
        """lib: C kernels, which compare the versions of some hundred dicts in a microsecond."""
        self.dicts = [e for e in scope.dicts.values()]
        self.cells = [e[1] for e in self.dicts]
        self.versions = [e[2] for e in self.dicts]
        self.tagged = tags_work()
        if not self.tagged:
            self.cells, self.versions = [], []
        self.seqs = [(s, items, len(items)) for s, items in scope.seqs.values()]
        self.globals = [(h, n, v) for k, h, n, v in scope.slots if k == "global"]
        self.others = [s for s in scope.slots if s[0] != "global"]
        self.tensors = list(tensors)
        self.rg = [t._rg for t in self.tensors]
        self.arrays = [t._a for t in self.tensors]
        self.kept = scope.seen           # ids must stay taken
        self.lib = lib if self.tagged else None
        self._addresses = np.array([tag_address(e[0]) for e in self.dicts], np.uint64)
        self._pack()

    def _pack(self):
        self._wanted = np.array(self.versions, np.uint64)
        self._at = self._addresses.ctypes.data, self._wanted.ctypes.data, len(self.versions)

    def _unchanged(self):
        if self.lib is not None:
            return self.lib.mt_same(*self._at)
        return self.tagged and [c.value for c in self.cells] == self.versions

    def holds(self):
        """None, or what has changed."""
        if not self._unchanged():
            bad = self._compare()
            if bad is not None:
                return bad
        for s, items, n in self.seqs:
            if len(s) != n:
                return f"a {type(s).__name__} has changed"
            if n:
                for x, y in zip(s, items):
                    if x is not y and not same(x, y):
                        return f"a {type(s).__name__} has changed"
        for d, n, v in self.globals:
            x = d.get(n, MISSING)
            if x is not v and not same(x, v):
                return f"global {n!r} has changed"
        for kind, holder, name, v in self.others:
            x = _current(kind, holder, name)
            if x is not v and not same(x, v):
                return f"{kind} {name or ''} has changed"
        if [t._rg for t in self.tensors] != self.rg:
            return "requires_grad of a parameter has changed"
        for t, a in zip(self.tensors, self.arrays):
            b = t._a
            if b is not a:
                if b.shape != a.shape or b.dtype != a.dtype or b.strides != a.strides:
                    return "a parameter's or buffer's shape, dtype or layout has changed"
                self.arrays = [t._a for t in self.tensors]
        return None

    def _compare(self):
        for i, e in enumerate(self.dicts):
            d, w, version, items = e
            now = w.value
            if now != version or not self.tagged:
                if not same_items(items, d):
                    new = dict(entries(d))
                    changed = sorted(str(k) for k in {*items, *new} if not same(items.get(k, MISSING), new.get(k, MISSING)))
                    return f"{', '.join(changed[:4]) or 'the order of a dict'} changed"
                e[2] = now
                if self.tagged:
                    self.versions[i] = now
        self._pack()
        return None
