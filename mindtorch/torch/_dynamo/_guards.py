"""What a captured call depends on besides its arguments, and whether any of it has changed since.

`Scope` walks everything that the code of a call can reach: the module or function itself, closures, defaults, the globals
that its code names, and what hangs on those.  CPython gives every change of a dict a new version tag, so that one comparison
of integers tells that no attribute, submodule, parameter slot or hook of a whole model was touched (about 0.05 us a dict).
Where a tag has moved, the contents are compared.  Anything whose state cannot be watched makes the walk *refuse*, and the
call then runs eagerly.
"""
import abc
import builtins
import contextlib
import contextvars
import enum
import functools
import gc
import importlib.util
import logging
import os
import sys
import sysconfig
import types
import weakref
from _abc import _get_dump
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np

import mindtorch
from mindtorch.backend.cpython import class_address, slot_address, tag_address, tags_work, used_address, watch, word_at
from mindtorch.core import device as _device
from mindtorch.core import dtypes as _dtypes
from mindtorch.core.rng import Generator
from mindtorch.core.tensor import Parameter, Size, Tensor, attributes, taken
from mindtorch.torch._dynamo._codes import computes_names, imports_of, module_of, names_of  # noqa: F401
from mindtorch.torch.nn.modules.module import Module

MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), Size, _dtypes.dtype,
           _device.device, range, slice)
_INERT = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
          types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
          np.ufunc, np.generic, np.dtype, Generator, types.CodeType,
          types.GenericAlias, types.UnionType, type(namedtuple("N", "a").a))
#: classes whose instances have no attributes of a user's (an instance of a subclass may have some)
_EXACT = frozenset(_SIMPLE)
#: entries of classes that say nothing about what its instances do, or that Python writes when it likes
_IDLE = frozenset("""__dict__ __weakref__ __doc__ __module__ __annotations__ __slotnames__ __abstractmethods__ _abc_impl __parameters__
 __qualname__ __firstlineno__ __static_attributes__""".split())

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
    return type(a) in _EXACT and a == b


def ours(filename):
    """Whether a code's file belongs to this package, or the package generated it."""
    return filename.startswith(PACKAGE) or filename.startswith(GENERATED)


def _foreign_class(cls):
    """Whether a class is the user's (its attributes may change), not Python's, NumPy's or ours."""
    module = module_of(cls)
    if module in ("", "builtins", "collections", "abc", "enum", "typing", "functools"):
        return False
    root = module.partition(".")[0]
    return root not in ("mindtorch", "torch", "numpy", "mindspore", "collections", "enum")


# ------------------------------------------------------------------ the walk
class Space:
    """A dict of which the code can read some entries: a module's globals, or what hangs on a module, a class or a function."""

    __slots__ = ("d", "kind", "names", "word", "version", "items")

    def __init__(self, d, kind, names):
        """names: those that can be read, also where there is no such entry."""
        self.d, self.kind, self.word, self.names = d, kind, watch(d), names
        self.version = self.word.value
        self.items = self.now()

    def more(self, names):
        """Further names that can be read."""
        new = names - self.names
        self.items.update((n, self.d.get(n, MISSING)) for n in new)
        self.names = self.names | new

    def now(self):
        """What is there of what can be read."""
        get = self.d.get
        return {n: get(n, MISSING) for n in self.names}

    def change(self):
        """What has changed, in words; None: nothing."""
        get = self.d.get
        for n, x in self.items.items():
            y = get(n, MISSING)
            if x is not y and not same(x, y):
                return f"{self.kind} {n!r}"
        return None


    def check(self):
        """The same of a dict that may have been written to; it is remembered that nothing has changed."""
        version = self.word.value
        bad = self.change()
        if bad is not None:
            return f"{bad} has changed"
        self.version = version
        return None


class _Whole(Space):
    """A dict whose entries are looked for."""

    __slots__ = ()

    def change(self):
        """What has changed, in words; None: nothing."""
        now, items = self.now(), self.items
        for n in (items if len(items) >= len(now) else now):
            x, y = now.get(n, MISSING), items.get(n, MISSING)
            if x is not y and not same(x, y):
                return f"{self.kind} {n!r}"
        return None


class _Keys(_Whole):
    """Which keys there are."""

    __slots__ = ()

    def now(self):
        return dict.fromkeys(self.d)


class _ClassSpace(_Whole):
    """The entries of a class that the code names (None: all), and those that Python calls without naming them."""

    __slots__ = ()

    def now(self):
        names = self.names
        return {k: x for k, x in list(self.d.items()) if k not in _IDLE and (
            names is None or k in names or isinstance(x, _CALLED) or k[:2] == "__" == k[-2:])}


class _LibraryClassSpace(_Whole):
    """The entries of a class of a library that the code names."""

    __slots__ = ()

    def now(self):
        names = self.names
        return {k: x for k, x in list(self.d.items()) if k in names}


_CALLED = (types.FunctionType, property, staticmethod, classmethod)


class Scope:
    """One walk.  `names`: what the executed code can name; None in the walk before the call, which refuses nothing."""

    def __init__(self, names=None, computed=False):
        """computed: the code also reads attributes whose names it works out."""
        self.names, self.computed = names, computed
        self.dicts, self.seqs, self.slots, self.tensors = {}, {}, [], {}
        self.spaces, self.classes, self.own, self.abstract, self.attributes = {}, {}, {}, {}, {}
        self.seen, self.refused, self.codes = {}, [], set()
        self.passing = set()           # ids of what a weak reference leads to: the guard must not keep it
        self._slot_keys = set()
        if names is not None:
            for cls in (Tensor, Parameter):        # (methods of tensors are called without any walk coming by)
                self._entries(cls, False)

    # -- roots
    def visit(self, value, path, strict=True):
        """Walks a value and what it reaches."""
        self._rest([(value, path, strict)])

    def function(self, fn, path, stack=None, globals_=True):
        """Closure, defaults and (for the user's functions) the globals that it names."""
        own = stack is None
        stack = [] if own else stack
        self._constants(fn)
        self._hung_on(fn, path, stack)
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
            self._rest(stack)

    def code(self, code, globals_):
        """The globals that an executed code object names."""
        stack = []
        self._globals(code, globals_, stack)
        self._rest(stack)

    def _hung_on(self, fn, path, stack):
        """The attributes of a function."""
        own = fn.__dict__
        if self.names is not None:
            self._space(own, "attribute", self.names | {"__signature__", "__wrapped__"})        # (these two for inspect)
        self._own(fn, own)
        for k, x in list(own.items()):
            stack.append((x, f"{path}.{k}", self.names is not None and self._wanted(k)))

    def _globals(self, code, scope, stack):
        key = (code, id(scope))
        if key in self.codes:
            return
        self.codes.add(key)
        names = names_of(code)[0]
        self._space(scope, "global", names)
        for name in names:
            v = scope.get(name, MISSING)
            if v is not MISSING:
                stack.append((v, f"global {name!r}", True))
                if self.names is None and isinstance(v, types.ModuleType):
                    self._module(v, name, stack, code)
        missing = names - scope.keys()
        if missing and self.names is not None:
            self._space(vars(builtins), "builtin", missing)
        self._imports(code, scope, stack)

    def _imports(self, code, scope, stack):
        """Modules that the code imports, which are nowhere else."""
        for level, name in imports_of(code):
            if level:
                package = scope.get("__package__") or ""
                try:
                    name = importlib.util.resolve_name("." * level + name, package)
                except ImportError:
                    continue
            parts = name.split(".")
            names = {".".join(parts[:i + 1]) for i in range(len(parts))}
            self._space(sys.modules, "module", names)
            for n in names:
                m = sys.modules.get(n)
                if m is not None:
                    stack.append((m, f"module {n!r}", True))
                    if self.names is None and isinstance(m, types.ModuleType):
                        self._module(m, n, stack, code)
        for c in code.co_consts:
            if isinstance(c, types.CodeType) and imports_of(c):
                self._imports(c, scope, stack)

    def library(self, code, globals_):
        """The functions, classes and modules that executed code of this package names (their states are its own affair)."""
        key = (code, id(globals_))
        if key in self.codes:
            return
        self.codes.add(key)
        names = frozenset(n for n in names_of(code)[0] if n[:1] != "_" and isinstance(globals_.get(n), (*_CALLED, type, types.ModuleType)))
        self._space(globals_, "global", names)
        stack = []
        for n in names:
            if isinstance(globals_[n], types.ModuleType):
                self._module(globals_[n], n, stack)
        self._rest(stack)

    def _rest(self, stack):
        while stack:
            v, p, s = stack.pop()
            self._one(v, p, s, stack)

    def _space(self, d, kind, names):
        """What can be read of a dict by name."""
        if names is None:
            return
        space = self.spaces.get(id(d))
        if space is None:
            self.spaces[id(d)] = Space(d, kind, names)
        else:
            space.more(names)

    def _own(self, v, d):
        """An object's class, and which dict it has for its attributes."""
        if id(v) not in self.own and id(v) not in self.passing:
            self.own[id(v)] = (v, type(v), d)

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
        t = type(v)
        if t in _EXACT or t is object:
            return
        if isinstance(v, _INERT) or isinstance(v, (*_SIMPLE, enum.Enum)) and not (_foreign_class(t) and t.__flags__ & (1 << 9)):
            return
        if id(v) in self.seen:
            return
        self.seen[id(v)] = v
        if issubclass(t, weakref.ref) or t in (weakref.ProxyType, weakref.CallableProxyType):
            return self._weak(v, path, strict, stack)
        if taken(v):
            if t is Tensor or t is Parameter:
                self.tensors[id(v)] = v
                if self.names is not None:
                    own = attributes(v)
                    self.attributes[id(v)] = (v, own, len(own), len(vars(v)))
                for k, x in list(vars(v).items()):
                    if self.names is not None and k in self.names:
                        self._slot(("tensor", id(v), k), ("attr", v, k, x))
                        stack.append((x, f"{path}.{k}", True))
            elif strict:
                self._refuse(path, v)
            return
        if isinstance(v, Module):
            self._object(v, path, stack, True)
        elif v is sys.modules:
            self.spaces.setdefault(-1, _Keys(v, "module", None))
            self._space(v, "module", self.names)
            for k in v.keys() & (self.names or ()):
                stack.append((v[k], f"module {k!r}", False))
        elif t is dict or t is OrderedDict or isinstance(v, dict):
            if t is defaultdict:
                self._slot(("factory", id(v)), ("attr", v, "default_factory", v.default_factory))
            elif t is not dict and isinstance(v, OrderedDict) and len(v) > 1:        # (no tag tells of move_to_end)
                self._slot(("order", id(v)), ("order", v, tuple(OrderedDict.__iter__(v)), True))
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
            if t not in (tuple, frozenset):
                self._object(v, path, stack, strict)
        elif isinstance(v, types.FunctionType):
            if is_stdlib(v.__code__.co_filename):        # (what functools and contextlib wrap, and registries of theirs)
                self._hung_on(v, path, stack)
                for cell in v.__closure__ or ():
                    with contextlib.suppress(ValueError):
                        stack.append((cell.cell_contents, path, False))
            elif not ours(v.__code__.co_filename):
                self.function(v, path, stack, self.names is None)
        elif isinstance(v, (staticmethod, classmethod)):
            stack.append((v.__func__, path, strict))
        elif isinstance(v, property):
            for f in (v.fget, v.fset):
                if f is not None:
                    stack.append((f, path, strict))
        elif isinstance(v, functools._lru_cache_wrapper):
            f = getattr(v, "__wrapped__", None)
            if isinstance(f, types.FunctionType) and not ours(f.__code__.co_filename) and not is_stdlib(f.__code__.co_filename):
                self._slot(("cache", id(v)), ("cache", v, v.cache_info().misses, True))
                self.function(f, path, stack)        # (it may have run before the capture)
        elif isinstance(v, logging.Logger):
            self._dict(vars(v))        # (its methods end the capture when they are called)
        elif isinstance(v, types.MethodType):
            stack.append((v.__self__, f"{path}.__self__", strict))
            stack.append((v.__func__, path, strict))
        elif isinstance(v, functools.partial):
            if isinstance(v.func, types.BuiltinFunctionType) and v.func.__name__ in ("print", "open", "input", "exec", "eval"):
                self.refused.append(f"it can call {path}, a partial of {v.func.__name__}")
            stack.append((v.func, f"{path}.func", strict))
            stack.append((v.args, f"{path}.args", strict))
            stack.append((v.keywords, f"{path}.keywords", strict))
            if vars(v):
                self._object(v, path, stack, strict)
        elif isinstance(v, types.ModuleType):
            self._module(v, path, stack)
        elif isinstance(v, type):
            self._class(v, path, stack)
        elif isinstance(v, types.MappingProxyType):
            for d in gc.get_referents(v):
                if isinstance(d, dict) and "__weakref__" not in d and "__module__" not in d:         # (not of a class)
                    stack.append((d, path, strict))
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
            self._own(v, None)
            self._class(t, path, stack)
        elif strict:
            self._refuse(path, v)

    def _object(self, v, path, stack, strict):
        own = getattr(v, "__dict__", None)
        if own is None:
            self._own(v, None)
            return self._class(type(v), path, stack)
        self._dict(own)
        self._own(v, own)
        hidden = isinstance(v, Module)
        for k, x in list(own.items()):
            inner = hidden and k in ("_parameters", "_buffers", "_modules")
            stack.append((x, path if inner else f"{path}.{k}", strict and (inner or self._wanted(k))))
        self._class(type(v), path, stack)

    def _weak(self, ref, path, strict, stack):
        """What a weak reference leads to.  A guard must not keep it alive."""
        target = _target(ref)
        self._slot(("weak", id(ref)), ("weak", ref, None, type(target)))
        if target is None or taken(target):
            return
        if id(target) not in self.seen:
            self.passing.add(id(target))
            own = getattr(target, "__dict__", None)
            if own is not None and not isinstance(target, (type, types.FunctionType, types.ModuleType)):
                self._slot(("weak dict", id(ref)), ("weak dict", ref, None, own))
        stack.append((target, path, strict))

    def _class(self, cls, path, stack):
        self.seen[id(cls)] = cls
        if id(cls) in self.classes:
            return
        self.classes[id(cls)] = cls
        if isinstance(cls, abc.ABCMeta):
            self.abstract[id(cls)] = cls
        if getattr(cls, "_is_protocol", False) and self.names is not None:
            self._protocol(cls)
        for c in cls.__mro__:
            foreign = _foreign_class(c)
            if c.__flags__ & (1 << 9) and (foreign or self.names is not None):
                self._entries(c, foreign)
            if not foreign:
                continue
            self._slot(("mro", id(c)), ("attr", c, "__mro__", c.__mro__))
            if self.names is not None and "__subclasses__" in self.names:
                self._slot(("subclasses", id(c)), ("subclasses", c, type.__subclasses__(c), True))
            for k, x in list(vars(c).items()):
                if k in _IDLE:
                    continue
                if self.names is not None and k not in self.names and not isinstance(x, _CALLED):
                    if k not in ("__init__",):
                        continue
                stack.append((x, f"{c.__name__}.{k}", self._wanted(k) and not isinstance(x, types.FunctionType)))
        if _foreign_class(type(cls)) and type(cls) is not abc.ABCMeta:
            self._class(type(cls), path, stack)

    def _entries(self, cls, foreign):
        """What stands in a class itself."""
        found = [d for d in gc.get_referents(vars(cls)) if isinstance(d, dict)]
        if found and id(found[0]) not in self.spaces:
            kind = _ClassSpace if foreign else _LibraryClassSpace
            self.spaces[id(found[0])] = kind(found[0], "class", None if self.computed and foreign else self.names)

    def _protocol(self, cls):
        """isinstance() looks for attributes that a protocol names."""
        self.names |= {k for c in cls.__mro__ for k in (*vars(c), *vars(c).get("__annotations__", ())) if getattr(c, "_is_protocol", False)}
        for space in self.spaces.values():
            if space.__class__ in (_ClassSpace, _LibraryClassSpace):
                space.items = space.now()

    def _module(self, m, path, stack, code=None):
        """code: in the walk before the call, code that names the module."""
        names = self.names if code is None else names_of(code)[1]
        if names is None or (id(m), code) in self.codes:
            return
        self.codes.add((id(m), code))
        f = getattr(m, "__file__", None) or "<frozen"
        near = not (is_stdlib(f) or f.startswith(_SITE) or m.__name__ == "builtins")
        own = vars(m)
        # (Private names of this package's modules are switches of the dispatcher.)
        self._space(own, "global", frozenset([n for n in names if n[:1] != "_"]) if ours(f) else names)
        for k in names & own.keys():
            x = own[k]
            if code is not None and isinstance(x, types.ModuleType):
                self._module(x, f"{path}.{k}", stack, code)
            elif not ours(f) or isinstance(x, (type, types.ModuleType)):
                stack.append((x, f"{m.__name__}.{k}", near))


def _target(ref):
    """What a weak reference or proxy stands for; None: it is gone."""
    if isinstance(ref, weakref.ref):
        return ref()
    try:
        return object.__getattribute__(ref.__dir__, "__self__")
    except (ReferenceError, AttributeError):
        return None


def registered(classes):
    """Classes that say of others that they are subclasses of theirs -> weak references to the others."""
    found, todo = {}, list(classes)
    while todo:
        c = todo.pop()
        if c not in found and isinstance(c, abc.ABCMeta):
            found[c] = set(_get_dump(c)[0])
            todo += type.__subclasses__(c)
    return {c: refs for c, refs in found.items() if refs}


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
    if kind == "weak":
        return type(_target(holder))
    if kind == "weak dict":
        return getattr(_target(holder), "__dict__", MISSING)
    if kind == "subclasses":
        return type.__subclasses__(holder) == name
    if kind == "order":
        return tuple(OrderedDict.__iter__(holder)) == name
    if kind == "cache":
        return holder.cache_info().misses >= name
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
    for space in before.spaces.values():
        if (now := space.change()) is not None:
            return f"it changes {now}"
    for v, t, own in before.own.values():
        if type(v) is not t or own is not None and getattr(v, "__dict__", None) is not own:
            return f"it changes the class or all attributes of a {t.__name__}"
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
    """The state that an `after` walk found, and a quick test that it is still so.

    CPython's words tell most of it: version tags of dicts, classes of objects, which dict an object has, how many entries a tensor's
    has.  Where a word is another one, what it stands for is compared."""

    def __init__(self, scope, tensors, lib=None):
        """lib: C kernels, which compare some hundred words in a microsecond."""
        self.tagged = tags_work()
        self.dicts = list(scope.dicts.values())
        self.spaces = self.all_spaces = list(scope.spaces.values())
        self.restless: list[Space] = []            # those that are written to without a change, as a script's globals are: asked one by one
        self.own = list(scope.own.values())
        self.attributes = [list(e) for e in scope.attributes.values()]
        self.names = scope.names
        self.seqs = [(s, items, len(items)) for s, items in scope.seqs.values()]
        self.slots = list(scope.slots)
        self.tensors = list({id(t): t for t in (*tensors, *scope.tensors.values())}.values())
        self.rg = [t._rg for t in self.tensors]
        self.arrays = [t._a for t in self.tensors]
        self.kept = {i: v for i, v in scope.seen.items() if i not in scope.passing}           # ids must stay taken
        self.lib = lib if self.tagged else None
        self.abstract = list(scope.abstract.values())
        self.registered = registered(self.abstract)
        self.token = abc.get_cache_token() if self.abstract else None
        self.loose = None if self.tagged else ()         # objects whose dict is where no word tells of it
        self._watch()

    @property
    def globals(self):
        """Names of globals that the code reads."""
        return [n for s in self.all_spaces if s.kind == "global" for n, x in s.items.items() if x is not MISSING]

    def _watch(self):
        """Notes the words as they are, of what has been found to be as it was."""
        if not self.tagged:
            return
        at = [tag_address(e[0]) for e in self.dicts] + [tag_address(s.d) for s in self.spaces]
        wanted = [e[2] for e in self.dicts] + [s.version for s in self.spaces]
        for v, t, own in self.own:
            at.append(class_address(v))
            wanted.append(id(t))
            slot = None if own is None else slot_address(v, own)
            if slot is not None:
                at.append(slot)
                wanted.append(id(own))
        for _, own, n, _ in self.attributes:
            at.append(used_address(own))
            wanted.append(n)
        if self.loose is None:
            self.loose = [(v, own) for v, _, own in self.own if own is not None and slot_address(v, own) is None]
        self._addresses, self._wanted = np.array(at, np.uint64), np.array(wanted, np.uint64)
        self._at = self._addresses.ctypes.data, self._wanted.ctypes.data, len(at)
        self._words, self._values = [word_at(a) for a in at], wanted

    def _unchanged(self):
        if self.lib is not None:
            return self.lib.mt_same(*self._at)
        return self.tagged and [c.value for c in self._words] == self._values

    def holds(self):
        """None, or what has changed."""
        if not self._unchanged():
            bad = self._compare()
            if bad is not None:
                return bad
        for space in self.restless:
            if space.word.value != space.version:
                bad = space.check()
                if bad is not None:
                    return bad
        for s, items, n in self.seqs:
            if len(s) != n:
                return f"a {type(s).__name__} has changed"
            if n:
                for x, y in zip(s, items):
                    if x is not y and not same(x, y):
                        return f"a {type(s).__name__} has changed"
        for kind, holder, name, v in self.slots:
            x = _current(kind, holder, name)
            if x is not v and not same(x, v):
                return f"{kind} {name or ''} has changed"
        for v, own in self.loose:
            if v.__dict__ is not own:
                return f"all attributes of a {type(v).__name__} have changed"
        if self.token is not None and abc.get_cache_token() != self.token:
            token = abc.get_cache_token()
            if registered(self.abstract) != self.registered:
                return "the classes registered with an abstract class have changed"
            self.token = token
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
        for v, t, own in self.own:
            if type(v) is not t:
                return f"the class of a {t.__name__} has changed"
            if own is not None and v.__dict__ is not own:
                return f"all attributes of a {t.__name__} have changed"
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
                    self._wanted[i] = self._values[i] = now
        restless = [s for s in self.spaces if s.word.value != s.version or not self.tagged]
        for s in restless:
            if (bad := s.check()) is not None:
                return bad
        grown = [e for e in self.attributes if len(e[1]) != e[2] or not self.tagged]
        for e in grown:
            t, own, _, given = e
            if len(vars(t)) != given and any([k in self.names for k in vars(t)]):
                return "an attribute of a tensor has changed"
            e[2], e[3] = len(own), len(vars(t))
        if self.tagged and (restless or grown):
            self.restless = [s for s in self.all_spaces if s in self.restless or s in restless]
            self.spaces = [s for s in self.all_spaces if s not in self.restless]
            self._watch()
        return None
