"""What is left of a compiled callable that cannot be captured whole: its modules, each captured by itself.

While a broken callable runs eagerly, `Module.__call__` asks `route`.  The outermost modules that the callable calls have a
variant cache of their own (`Part`); one that breaks too runs eagerly in its turn, and so its children are asked for.  The
parts belong to the broken callable and are only looked for inside its calls: the same modules called from elsewhere are eager,
and nothing is written to the modules.

A part is guarded as any compiled callable is, with the module as the root of what its code can reach; whatever the broken
callable does between its parts therefore reaches them either as an argument or through guarded state.
"""
import types
import weakref

from mindtorch.core.tensor import Tensor
from mindtorch.torch._dynamo import config
from mindtorch.torch._dynamo._callable import is_callable
from mindtorch.torch._dynamo.eval_frame import Compiled, _Call as _Whole, log, state
from mindtorch.torch.nn.modules import module as _module
from mindtorch.torch.nn.modules.module import _GO_ON, Module

# Finding, checking and entering a part costs as much as two or three modules' calls cost in eager code (measured: one Linear
# 12 -> 14 us, Linear and ReLU 13.5 -> 11.5, three ops 25 -> 20).  Below that many ops only a C kernel makes it pay.
LEAST_OPS = 3
# Parts that were not called for that many calls of the callable let go of what they captured, and so of their module.
PATIENCE = 256
NEVER = 1 << 62

_running = []


class Table:
    """The parts of one broken callable, by the module's id."""

    def __init__(self, owner):
        self.owner = weakref.ref(owner)
        self.parts, self.calls = {}, 0

    @property
    def variants(self):
        """How many there are of all parts."""
        return sum([len(p.entries) for p in list(self.parts.values())])

    def see(self, module):
        """Writes a module down.  Only those that are met again are captured: what is made anew at every call is not."""
        self.parts[id(module)] = Part(module, self)

    def tidy(self):
        """Forgets parts that are no longer called (of a module that was replaced, say)."""
        for part in list(self.parts.values()):
            if part.entries and part.used < self.calls - PATIENCE:
                part.reset()


class Part(Compiled):
    """The cache of one module inside a broken callable."""

    part = True

    def __init__(self, module, table):
        owner = table.owner()
        key, parts = id(module), table.parts

        def gone(ref):
            if key in parts and parts[key].module is ref:
                del parts[key]
        self.module, self.table = weakref.ref(module, gone), table
        self.parent, self.used, self._title = None, 0, None
        self.skipped = self.is_owner = module is _own_module(owner)       # its call is the one that is broken
        self.enough, self.tries = NEVER, 0                # data from which on it is worth another try
        super().__init__(_Call(self.module), owner.options)

    def _register(self):
        """A part is reset with its owner."""

    def _forget(self):
        table = self.table
        super()._forget()
        self.table = table

    def _roots(self):
        return [(self.module(), self.title)]

    def _too_many(self):
        return self.table.variants >= config.parts_limit

    def _capture(self, args, kwargs, key):
        self.parent = state.within
        return super()._capture(args, kwargs, key)

    def _worth(self, args, ops, fused):
        if ops >= LEAST_OPS or fused or self.entries or is_callable(self.options):
            return True
        # Whether there are C kernels depends on sizes: a first call with little data says little.
        self.skipped, self.enough = True, 4 * _size(args) or NEVER
        self.tries += 1
        log.debug("%s stays eager: %d ops", self.title, ops)
        return False

    def _is_break(self, reason):
        # What breaks a part has broken its caller before; the first part that does so is the same break, seen from nearer.
        p = self.parent
        if p is not None and reason in p.reasons and not p.passed_on:
            p.passed_on = True
            if reason in p.breaks:
                p.breaks.remove(reason)
                self.breaks.append(reason)
            return False
        return True

    @property
    def title(self):
        """Class, path in the outermost module that has it, and the broken callable."""
        if self._title is None or not self._title[1]:
            module, path, p = self.module(), "", self.parent
            while p is not None:
                top = p.module() if p.part else _own_module(p)
                path = _path(top, module) or path
                p = p.parent
            owner = self.table.owner()
            self._title = (f"{type(module).__name__} ({path + ', ' if path else ''}part of {owner.title if owner else 'nothing'})",
                           self.parent is not None)
        return self._title[0]


class _Call:
    """The module's call, past `route`; the module is not held."""

    def __init__(self, ref):
        self.ref = ref

    def __call__(self, *args, **kwargs):
        return self.ref()._call_impl(*args, **kwargs)


def _own_module(compiled):
    """The module whose call a compiled callable is, or None."""
    fn = compiled.fn
    if isinstance(fn, types.MethodType):
        return fn.__self__ if fn.__name__ in ("forward", "_call_impl") else None
    return fn.mod if isinstance(fn, _Whole) else None


def _path(top, module):
    """The name of a submodule."""
    seen, stack = set(), [("", top)]
    while stack:
        name, m = stack.pop()
        if m is module:
            return name
        if isinstance(m, Module) and id(m) not in seen:
            seen.add(id(m))
            stack += [(f"{name}.{k}" if name else k, c) for k, c in reversed(list(m._modules.items()))]
    return None


def _size(args):
    x = args[0] if args else None
    return x._numel if type(x) is Tensor else 0


def route(module, args, kwargs):
    """A module's call while some thread runs a broken callable: the result of its part, or _GO_ON."""
    within = state.within
    if within is None:
        return _GO_ON
    table = within.table
    if table is None:              # torch._dynamo.reset() was called meanwhile
        return _GO_ON
    part = table.parts.get(id(module))
    if part is None or part.module() is not module:
        if not state.off:
            table.see(module)
        return _GO_ON
    if part.skipped and (part.tries > 2 or _size(args) < part.enough) or state.capturing or state.off:
        return _GO_ON
    part.skipped = False
    part.used = table.calls
    return part(args, kwargs)


class noticed:
    """Inside, `route` is asked for modules, and belongs to `compiled`."""

    __slots__ = ("compiled", "before")

    def __init__(self, compiled):
        self.compiled = compiled

    def __enter__(self):
        c = self.compiled
        if c.table is None:
            c.table = Table(c)
        self.before = state.within
        _running.append(None)          # (list methods are atomic; a lock here could be left locked by an exception from outside)
        _module._route = route
        state.within = c

    def __exit__(self, *exc):
        state.within = self.before
        _running.pop()
        if not _running:
            _module._route = None
            if _running:               # another thread came in between
                _module._route = route


def run(compiled, args, kwargs):
    """Calls what is broken, its modules as parts."""
    if not compiled.part:
        if compiled.table is None:
            compiled.table = Table(compiled)
        table = compiled.table
        table.calls += 1
        if not table.calls % PATIENCE:
            table.tidy()
    with noticed(compiled):
        return compiled.fn(*args, **kwargs)


def _parts_of(compiled):
    return list(compiled.table.parts.values()) if compiled.table is not None else []


def all_of(compiled):
    """([entry], [(title, reason of a break)]) of a compiled callable and all its parts, in the order of their first calls."""
    every = [compiled, *_parts_of(compiled)]
    return [e for c in every for e in reversed(c.entries)], [(c.title, r) for c in every for r in c.breaks]


def attempts(compiled):
    """How many calls of parts were captured, or were tried to be; None if there are no parts."""
    parts = [p for p in _parts_of(compiled) if not p.is_owner]
    return sum(p.attempts for p in parts) if parts else None


Compiled.run_parts, Compiled.noticed = staticmethod(run), staticmethod(noticed)
