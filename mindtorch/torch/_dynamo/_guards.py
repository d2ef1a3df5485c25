"""The state that a captured call depends on besides its arguments, and the check that it is
unchanged.

`Scope` traverses everything that the code of a call can reach: the module or function itself,
closures, defaults, the globals that its code names, and what these refer to. CPython gives every
change of a dict a new version tag, so one integer comparison shows that no attribute, submodule,
parameter slot or hook of an entire model was modified (about 0.05 us per dict). If a tag has
changed, the contents are compared. Anything whose state cannot be watched makes the traversal
*refuse*, and the call then runs eagerly.
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
from mindtorch.core.device.rng import Generator
from mindtorch.core.dispatch import generated_files
from mindtorch.core.tensor.tensor import Parameter, Size, Tensor, attributes, is_tensor
from mindtorch.torch._dynamo._codes import computes_names, imports_of, module_of, names_of  # noqa: F401
from mindtorch.torch._dynamo._spaces import CALLED, EXACT, IDLE, MISSING, SIMPLE, ClassSpace, KeySpace, LibraryClassSpace, Space, same
from mindtorch.torch.nn.modules.module import Module

_INERT = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
          types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
          np.ufunc, np.generic, np.dtype, Generator, types.CodeType,
          types.GenericAlias, types.UnionType, type(namedtuple("N", "a").a))


def add_inert_class(cls):
    """Registers a class whose instances need no guards: the code that it calls does not read their
    state."""
    global _INERT
    _INERT += (cls,)


PACKAGE = os.path.dirname(mindtorch.__file__) + os.sep
GENERATED = (generated_files.folder(), "<mindtorch ")
_STDLIB = sysconfig.get_paths()["stdlib"]
_SITE = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])


def is_stdlib(filename):
    """True if a code object's file belongs to the Python standard library."""
    return filename.startswith("<frozen") or filename.startswith(_STDLIB) and not filename.startswith(_SITE)


def ours(filename):
    """True if a code object's file belongs to this package, or the package generated the code."""
    return filename.startswith(PACKAGE) or filename.startswith(GENERATED)


def _is_user_class(cls):
    """True for a user-defined class (whose attributes may change); False for classes of Python,
    NumPy or this package."""
    module = module_of(cls)
    if module in ("", "builtins", "collections", "abc", "enum", "typing", "functools"):
        return False
    root = module.partition(".")[0]
    return root not in ("mindtorch", "torch", "numpy", "mindspore", "collections", "enum")


# ------------------------------------------------------------------ the traversal
class Scope:
    """One traversal.

    `names`: the names that the executed code contains; None in the traversal before the call, which
    refuses nothing.
    """

    def __init__(self, names=None, computed=False):
        """computed: the code also reads attributes whose names it computes."""
        self.names, self.computed = names, computed
        self.dicts, self.seqs, self.slots, self.tensors = {}, {}, [], {}
        self.spaces, self.classes, self.own, self.abstract, self.attributes = {}, {}, {}, {}, {}
        self.seen, self.refused, self.codes = {}, [], set()
        # ids of the targets of weak references, which the guard must not keep alive
        self.passing = set()
        self._slot_keys = set()
        if names is not None:
            # methods of tensors are called without being reached by the traversal
            for cls in (Tensor, Parameter):
                self._entries(cls, False)

    # -- roots
    def visit(self, value, path, strict=True):
        """Traverses a value and everything it reaches."""
        self._rest([(value, path, strict)])

    def function(self, fn, path, stack=None, globals_=True):
        """Traverses the closure, defaults and (for user functions) the globals that a function
        names."""
        outermost = stack is None
        stack = [] if outermost else stack
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
        if outermost:
            self._rest(stack)

    def code(self, code, globals_):
        """Traverses the globals that an executed code object names."""
        stack = []
        self._globals(code, globals_, stack)
        self._rest(stack)

    def _hung_on(self, fn, path, stack):
        """Traverses the attributes of a function."""
        attribute_dict = fn.__dict__
        if self.names is not None:
            # the last two are read by inspect
            self._space(attribute_dict, "attribute", self.names | {"__signature__", "__wrapped__"})
        self._own(fn, attribute_dict)
        for k, x in list(attribute_dict.items()):
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
        """Traverses the modules that the code imports and that are not reachable otherwise."""
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
        """Watches the functions, classes and modules that executed code of this package names.
        Their state is not watched."""
        key = (code, id(globals_))
        if key in self.codes:
            return
        self.codes.add(key)
        names = frozenset(n for n in names_of(code)[0] if n[:1] != "_" and isinstance(globals_.get(n), (*CALLED, type, types.ModuleType)))
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
        """Watches the entries of a dict that can be read by name."""
        if names is None:
            return
        space = self.spaces.get(id(d))
        if space is None:
            self.spaces[id(d)] = Space(d, kind, names)
        else:
            space.more(names)

    def _own(self, v, d):
        """Records an object's class and which dict holds its attributes."""
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
        if t in EXACT or t is object:
            return
        if isinstance(v, _INERT) or isinstance(v, (*SIMPLE, enum.Enum)) and not (_is_user_class(t) and t.__flags__ & (1 << 9)):
            return
        if id(v) in self.seen:
            return
        self.seen[id(v)] = v
        if issubclass(t, weakref.ref) or t in (weakref.ProxyType, weakref.CallableProxyType):
            return self._weak(v, path, strict, stack)
        if is_tensor(v):
            return self._tensor(v, path, strict, stack)
        if v is sys.modules:
            return self._modules(v, stack)
        for classes, handler in _HANDLERS:
            if isinstance(v, classes):
                return handler(self, v, path, strict, stack)
        if hasattr(v, "__dict__") and not isinstance(v, (types.GeneratorType, types.CoroutineType)) and (
                # its class was created by a class statement
                t.__flags__ & (1 << 9) or t.__module__ == "types"):
            self._object(v, path, stack, strict)
        elif "__slots__" in vars(t) and t.__flags__ & (1 << 9):
            self._slotted(v, path, stack, strict)
        elif strict:
            self._refuse(path, v)

    # One method for each type of value: see _HANDLERS.
    def _tensor(self, v, path, strict, stack):
        if type(v) is Tensor or type(v) is Parameter:
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

    def _modules(self, v, stack):
        """Traverses sys.modules."""
        self.spaces.setdefault(-1, KeySpace(v, "module", None))
        self._space(v, "module", self.names)
        for k in v.keys() & (self.names or ()):
            stack.append((v[k], f"module {k!r}", False))

    def _large(self, v, path, strict, kind):
        """True if a container has too many entries to be watched; refuses it if it is read."""
        if len(v) <= 4096:
            return False
        if strict:
            self.refused.append(f"it can read {path}, a {kind} of {len(v)} entries")
        return True

    def _mapping(self, v, path, strict, stack):
        t = type(v)
        if t is defaultdict:
            self._slot(("factory", id(v)), ("attr", v, "default_factory", v.default_factory))
        # move_to_end does not change the version tag
        elif t is not dict and isinstance(v, OrderedDict) and len(v) > 1:
            self._slot(("order", id(v)), ("order", v, tuple(OrderedDict.__iter__(v)), True))
        if self._large(v, path, strict, "dict"):
            return
        self._dict(v)
        for k, x in list(entries(v)):
            stack.append((x, f"{path}[{k!r}]" if isinstance(k, (str, int)) else f"{path}[...]", strict))
            if not isinstance(k, SIMPLE):
                stack.append((k, f"a key of {path}", strict))
        if t is not dict and t is not OrderedDict:
            self._object(v, path, stack, strict)

    def _sequence(self, v, path, strict, stack):
        if self._large(v, path, strict, type(v).__name__):
            return
        self.seqs[id(v)] = (v, tuple(v))
        self._constant_sequence(v, path, strict, stack)

    def _constant_sequence(self, v, path, strict, stack):
        for i, x in enumerate(v):
            stack.append((x, f"{path}[{i}]", strict))
        if type(v) not in (list, set, deque, tuple, frozenset):
            self._object(v, path, stack, strict)

    def _function(self, v, path, strict, stack):
        # wrappers made by functools and contextlib, and their registries
        if is_stdlib(v.__code__.co_filename):
            self._hung_on(v, path, stack)
            for cell in v.__closure__ or ():
                with contextlib.suppress(ValueError):
                    stack.append((cell.cell_contents, path, False))
        elif not ours(v.__code__.co_filename):
            self.function(v, path, stack, self.names is None)

    def _property(self, v, path, strict, stack):
        for f in (v.fget, v.fset):
            if f is not None:
                stack.append((f, path, strict))

    def _cached(self, v, path, strict, stack):
        """Traverses a function wrapped by functools.lru_cache."""
        f = getattr(v, "__wrapped__", None)
        if isinstance(f, types.FunctionType) and not ours(f.__code__.co_filename) and not is_stdlib(f.__code__.co_filename):
            self._slot(("cache", id(v)), ("cache", v, v.cache_info().misses, True))
            self.function(f, path, stack)  # it may have run before the capture

    def _method(self, v, path, strict, stack):
        stack.append((v.__self__, f"{path}.__self__", strict))
        stack.append((v.__func__, path, strict))

    def _partial(self, v, path, strict, stack):
        if isinstance(v.func, types.BuiltinFunctionType) and v.func.__name__ in ("print", "open", "input", "exec", "eval"):
            self.refused.append(f"it can call {path}, a partial of {v.func.__name__}")
        stack.append((v.func, f"{path}.func", strict))
        stack.append((v.args, f"{path}.args", strict))
        stack.append((v.keywords, f"{path}.keywords", strict))
        if vars(v):
            self._object(v, path, stack, strict)

    def _proxy(self, v, path, strict, stack):
        for d in gc.get_referents(v):
            # not the dict of a class
            if isinstance(d, dict) and "__weakref__" not in d and "__module__" not in d:
                stack.append((d, path, strict))

    def _context(self, v, path, strict, stack):
        x = v.get(MISSING)
        self._slot(("context", id(v)), ("context", v, None, x))
        if x is not MISSING:
            stack.append((x, f"{path}'s value", strict))

    def _array(self, v, path, strict, stack):
        if strict:
            self._refuse(path, v)

    def _slotted(self, v, path, stack, strict):
        """Traverses an object without __dict__ whose class has __slots__."""
        for c in type(v).__mro__:
            slots = vars(c).get("__slots__", ())
            for n in (slots,) if isinstance(slots, str) else slots:
                x = getattr(v, n, MISSING)
                self._slot(("slot", id(v), n), ("attr", v, n, x))
                if x is not MISSING and self._wanted(n):
                    stack.append((x, f"{path}.{n}", strict))
        self._own(v, None)
        self._class(type(v), path, stack)

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
        """Traverses the target of a weak reference, which the guard must not keep alive."""
        target = _target(ref)
        self._slot(("weak", id(ref)), ("weak", ref, None, type(target)))
        if target is None or is_tensor(target):
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
            is_user_class = _is_user_class(c)
            if c.__flags__ & (1 << 9) and (is_user_class or self.names is not None):
                self._entries(c, is_user_class)
            if not is_user_class:
                continue
            self._slot(("mro", id(c)), ("attr", c, "__mro__", c.__mro__))
            if self.names is not None and "__subclasses__" in self.names:
                self._slot(("subclasses", id(c)), ("subclasses", c, type.__subclasses__(c), True))
            for k, x in list(vars(c).items()):
                if k in IDLE:
                    continue
                if self.names is not None and k not in self.names and not isinstance(x, CALLED):
                    if k not in ("__init__",):
                        continue
                stack.append((x, f"{c.__name__}.{k}", self._wanted(k) and not isinstance(x, types.FunctionType)))
        if _is_user_class(type(cls)) and type(cls) is not abc.ABCMeta:
            self._class(type(cls), path, stack)

    def _entries(self, cls, foreign):
        """Watches the entries of a class itself."""
        found = [d for d in gc.get_referents(vars(cls)) if isinstance(d, dict)]
        if found and id(found[0]) not in self.spaces:
            kind = ClassSpace if foreign else LibraryClassSpace
            self.spaces[id(found[0])] = kind(found[0], "class", None if self.computed and foreign else self.names)

    def _protocol(self, cls):
        """Adds the attribute names of a protocol, which isinstance() looks up."""
        self.names |= {k for c in cls.__mro__ for k in (*vars(c), *vars(c).get("__annotations__", ())) if getattr(c, "_is_protocol", False)}
        for space in self.spaces.values():
            if space.__class__ in (ClassSpace, LibraryClassSpace):
                space.items = space.now()

    def _module(self, m, path, stack, code=None):
        """code: in the traversal before the call, the code that names the module."""
        names = self.names if code is None else names_of(code)[1]
        if names is None or (id(m), code) in self.codes:
            return
        self.codes.add((id(m), code))
        f = getattr(m, "__file__", None) or "<frozen"
        near = not (is_stdlib(f) or f.startswith(_SITE) or m.__name__ == "builtins")
        own = vars(m)
        # Private names of this package's modules are dispatcher state.
        self._space(own, "global", frozenset([n for n in names if n[:1] != "_"]) if ours(f) else names)
        for k in names & own.keys():
            x = own[k]
            if code is not None and isinstance(x, types.ModuleType):
                self._module(x, f"{path}.{k}", stack, code)
            elif not ours(f) or isinstance(x, (type, types.ModuleType)):
                stack.append((x, f"{m.__name__}.{k}", near))


#: (types, method of Scope): the first entry of which a value is an instance traverses it
_HANDLERS = (
    (Module, lambda scope, v, path, strict, stack: scope._object(v, path, stack, True)),
    (dict, Scope._mapping),
    ((list, set, deque), Scope._sequence),
    ((tuple, frozenset), Scope._constant_sequence),
    (types.FunctionType, Scope._function),
    ((staticmethod, classmethod), lambda scope, v, path, strict, stack: stack.append((v.__func__, path, strict))),
    (property, Scope._property),
    (functools._lru_cache_wrapper, Scope._cached),
    # calls of its methods end the capture
    (logging.Logger, lambda scope, v, path, strict, stack: scope._dict(vars(v))),
    (types.MethodType, Scope._method),
    (functools.partial, Scope._partial),
    (types.ModuleType, lambda scope, v, path, strict, stack: scope._module(v, path, stack)),
    (type, lambda scope, v, path, strict, stack: scope._class(v, path, stack)),
    (types.MappingProxyType, Scope._proxy),
    (contextvars.ContextVar, Scope._context),
    (np.ndarray, Scope._array),
)


def _target(ref):
    """Returns the target of a weak reference or proxy; None if it has been freed."""
    if isinstance(ref, weakref.ref):
        return ref()
    try:
        return object.__getattribute__(ref.__dir__, "__self__")
    except (ReferenceError, AttributeError):
        return None


def registered(classes):
    """Returns {abstract class: weak references to the classes registered with it}."""
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
    """Returns the items of a dict, bypassing the methods of a subclass (which may compute them on
    access)."""
    return d.items() if type(d) is OrderedDict else dict.items(d)


_SLOTTED = {}


def parts(x):
    """Returns the parts of a tuple, list or dict argument: its items, then its attributes. None for
    other objects."""
    if not isinstance(x, (tuple, list, dict)) or isinstance(x, Size):
        return None
    t = type(x)
    if t in (tuple, list, dict):
        return x.values() if t is dict else x
    if t not in _SLOTTED:  # state in slots or a custom iterator: not traversed
        _SLOTTED[t] = any(vars(c).get("__slots__") for c in t.__mro__) or t.__iter__ not in (
            tuple.__iter__, list.__iter__, dict.__iter__, OrderedDict.__iter__)
    if _SLOTTED[t]:
        return None
    own = getattr(x, "__dict__", None)
    items = [dict.__getitem__(x, k) for k in keys_of(x)] if isinstance(x, dict) else x
    return (*items, *((own,) if own else ()))


def keys_of(d):
    """Returns the keys of a dict in order, bypassing the methods of a subclass."""
    return list((OrderedDict if isinstance(d, OrderedDict) else dict).__iter__(d))


def same_items(a, b):
    """True if two dicts hold the same values in the same order."""
    if dict.__len__(a) != dict.__len__(b):
        return False
    for (k, x), (m, y) in zip(entries(a), entries(b)):
        if k is not m and k != m or not same(x, y):
            return False
    return True


def changes(before, after):
    """Returns what a call has changed among the objects traversed before it, or None. MISSING if it
    reached objects that were not traversed."""
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
    """The state found by the traversal after a call, and a fast check that it is unchanged.

    Most of the check compares machine words of CPython: version tags of dicts, classes of objects,
    the dict of an object, the number of entries of a tensor's dict. If a word has changed, the
    contents are compared.
    """

    def __init__(self, scope, tensors, lib=None):
        """lib: C kernels, which compare about a hundred words per microsecond."""
        self.tagged = tags_work()
        self.dicts = list(scope.dicts.values())
        self.spaces = self.all_spaces = list(scope.spaces.values())
        # spaces that are written to without a change, such as a script's globals: checked one by
        # one
        self.restless: list[Space] = []
        self.own = list(scope.own.values())
        self.attributes = [list(e) for e in scope.attributes.values()]
        self.names = scope.names
        self.seqs = [(s, items, len(items)) for s, items in scope.seqs.values()]
        self.slots = list(scope.slots)
        self.tensors = list({id(t): t for t in (*tensors, *scope.tensors.values())}.values())
        self.rg = [t._requires_grad_ for t in self.tensors]
        self.arrays = [t._array for t in self.tensors]
        # keeps the objects alive, so that their ids are not reused
        self.kept = {i: v for i, v in scope.seen.items() if i not in scope.passing}
        self.lib = lib if self.tagged else None
        self.abstract = list(scope.abstract.values())
        self.registered = registered(self.abstract)
        self.token = abc.get_cache_token() if self.abstract else None
        # objects whose dict pointer is not covered by a word
        self.loose = None if self.tagged else ()
        self._watch()

    @property
    def globals(self):
        """Returns the names of the globals that the code reads."""
        return [n for s in self.all_spaces if s.kind == "global" for n, x in s.items.items() if x is not MISSING]

    def _watch(self):
        """Records the current words of everything that was found to be unchanged."""
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
        """Returns None, or what has changed."""
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
        if [t._requires_grad_ for t in self.tensors] != self.rg:
            return "requires_grad of a parameter has changed"
        for t, a in zip(self.tensors, self.arrays):
            b = t._array
            if b is not a:
                if b.shape != a.shape or b.dtype != a.dtype or b.strides != a.strides:
                    return "a parameter's or buffer's shape, dtype or layout has changed"
                self.arrays = [t._array for t in self.tensors]
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
