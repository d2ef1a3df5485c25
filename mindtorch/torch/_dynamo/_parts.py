"""Partial capture of a compiled callable with a graph break: its modules are captured one by one.

While such a callable runs eagerly, `Module.__call__` calls `route`. The outermost modules that the
callable calls get their own variant caches (`Part`). A part with a graph break runs eagerly in
turn, so its child modules become parts. Parts belong to their callable and are only used during its
calls: the same modules called from elsewhere run eagerly, and nothing is written to the modules.

A part is guarded like any compiled callable, with the module as the root of what its code can
reach. Whatever the callable does between its parts therefore reaches them as an argument or through
guarded state.
"""
import types
import weakref

from mindtorch.core.tensor.tensor import Tensor
from mindtorch.torch._dynamo import config
from mindtorch.torch._dynamo._callable import is_callable
from mindtorch.torch._dynamo.eval_frame import Compiled, _Call as _Whole, log, state
from mindtorch.torch.nn.modules import module as _module
from mindtorch.torch.nn.modules.module import _GO_ON, Module

# Finding, checking and entering a part costs as much as two or three eager module calls (measured,
# eager vs part: one Linear 12 vs 14 us, Linear and ReLU 13.5 vs 11.5 us, three ops 25 vs 20 us).
# With fewer ops, a part only pays off if it contains a C kernel.
LEAST_OPS = 3
# Parts that were not used during this many calls of the callable release what they captured, and
# thus their module.
PATIENCE = 256
NEVER = 1 << 62

_running = []


class Table:
    """The parts of one callable with a graph break, by module id."""

    def __init__(self, owner):
        self.owner = weakref.ref(owner)
        self.parts, self.calls = {}, 0

    @property
    def variants(self):
        """Number of variants of all parts."""
        return sum([len(p.entries) for p in list(self.parts.values())])

    def see(self, module):
        """Registers a module. Only modules that are seen again are captured, so modules that are
        created at every call are not."""
        self.parts[id(module)] = Part(module, self)

    def tidy(self):
        """Drops parts that are no longer called (for example of a module that was replaced)."""
        for part in list(self.parts.values()):
            if part.entries and part.used < self.calls - PATIENCE:
                part.reset()


class Part(Compiled):
    """Variant cache of one module inside a callable with a graph break."""

    part = True

    def __init__(self, module, table):
        owner = table.owner()
        key, parts = id(module), table.parts

        def gone(ref):
            if key in parts and parts[key].module is ref:
                del parts[key]
        self.module, self.table = weakref.ref(module, gone), table
        self.parent, self.used, self._title = None, 0, None
        # its call is the one with the graph break
        self.skipped = self.is_owner = module is _own_module(owner)
        self.enough, self.tries = NEVER, 0  # input size from which another attempt is worthwhile
        super().__init__(_Call(self.module), owner.options)

    def _register(self):
        """Does nothing: a part is reset together with its owner."""

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
        # C kernels are chosen by size, so a first call with little data is not conclusive.
        self.skipped, self.enough = True, 4 * _size(args) or NEVER
        self.tries += 1
        log.debug("%s stays eager: %d ops", self.title, ops)
        return False

    def _is_break(self, reason):
        # A graph break of a part has already occurred in its caller. The first part with the same
        # reason is the same break, located more precisely.
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
        """Class, path within the outermost module that contains it, and the owning callable."""
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
    """The module's call, bypassing `route`. Does not keep the module alive."""

    def __init__(self, ref):
        self.ref = ref

    def __call__(self, *args, **kwargs):
        return self.ref()._call_impl(*args, **kwargs)


def _own_module(compiled):
    """Returns the module that a compiled callable calls, or None."""
    fn = compiled.fn
    if isinstance(fn, types.MethodType):
        return fn.__self__ if fn.__name__ in ("forward", "_call_impl") else None
    return fn.mod if isinstance(fn, _Whole) else None


def _path(top, module):
    """Returns the dotted name of a submodule."""
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
    """Handles a module call while a thread runs a callable with a graph break. Returns the result
    of its part, or _GO_ON."""
    within = state.within
    if within is None:
        return _GO_ON
    table = within.table
    if table is None:  # torch._dynamo.reset() was called in the meantime
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
    """Context manager: inside, module calls go through `route` on behalf of `compiled`."""

    __slots__ = ("compiled", "before")

    def __init__(self, compiled):
        self.compiled = compiled

    def __enter__(self):
        c = self.compiled
        if c.table is None:
            c.table = Table(c)
        self.before = state.within
        # list methods are atomic; an asynchronous exception could leave a lock held
        _running.append(None)
        _module._route = route
        state.within = c

    def __exit__(self, *exc):
        state.within = self.before
        _running.pop()
        if not _running:
            _module._route = None
            if _running:  # another thread entered in between
                _module._route = route


def run(compiled, args, kwargs):
    """Calls a callable with a graph break, with its modules as parts."""
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
    """Returns ([entry], [(title, reason of a graph break)]) of a compiled callable and all its
    parts, in the order of their first calls."""
    every = [compiled, *_parts_of(compiled)]
    return [e for c in every for e in reversed(c.entries)], [(c.title, r) for c in every for r in c.breaks]


def attempts(compiled):
    """Returns how many calls of parts were captured or attempted to be; None if there are no parts.
    """
    parts = [p for p in _parts_of(compiled) if not p.is_owner]
    return sum(p.attempts for p in parts) if parts else None


Compiled.run_parts, Compiled.noticed = staticmethod(run), staticmethod(noticed)
