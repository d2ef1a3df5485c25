"""Import hook: while it is enabled, ``torch`` and every ``torch.x.y`` resolve to the facade's own
module objects.

Each facade module is one object with two names. ``mindtorch.torch.nn`` is always imported under
that name, by Python's standard import system. A finder at the head of ``sys.meta_path`` resolves
``torch.nn`` to the same object. While the hook is enabled, a facade module is *published*: it is
also in ``sys.modules`` under torch's name, and the ``__name__``, ``__spec__`` and ``__module__`` of
the module, its classes and its functions use that name, so that reprs and pickles match PyTorch's.
Disabling reverts all of this, name by name, from a record of the changes.
"""
import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import threading
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import FunctionType, ModuleType

import mindtorch.backend.mindspore.at_exit  # noqa: F401
from mindtorch.backend.cpython import module_lock, put, take_back

TORCH = "torch"
FACADE = "mindtorch.torch"
#: public package -> its implementation: torch, the package that scripts for Ascend import next to
#: it, and torch.func's older name
PACKAGES = {TORCH: FACADE, "torch_npu": "mindtorch.torch_npu", "functorch": "mindtorch.functorch"}
_FACADES = {facade: public for public, facade in PACKAGES.items()}

_lock = module_lock(globals(), "_lock", threading.RLock)
_published = {}   # facade name -> _Published


def _under(name, package):
    return name == package or name.startswith(package + ".")


def _package(name, packages):
    """Returns the package in `packages` that a dotted name equals or belongs to, or None."""
    for package in packages:
        if _under(name, package):
            return package
    return None


@functools.lru_cache(1024)
def _public(name):
    """Returns the torch name of a facade name."""
    facade = _package(name, _FACADES)
    return _FACADES[facade] + name[len(facade):]


def _private(name):
    """Returns the facade name of a torch name."""
    package = _package(name, PACKAGES)
    return PACKAGES[package] + name[len(package):]


@functools.lru_cache(1024)  # (called for the module of every function)
def _is_facade(name):
    return _package(name, _FACADES) is not None


# ---------------------------------------------------------------- loading
class _Alias:
    """Loader of a ``torch`` name: imports the facade's module and returns that object."""

    def __init__(self, fullname, path=None):
        self.name, self.path, self._handed_out = fullname, path, False

    def create_module(self, spec):
        real = _private(spec.name)
        module = importlib.import_module(real)
        self._handed_out = True
        with _lock:
            # Publish modules that the publishing loader did not load: modules created by hand, and
            # namespace packages.
            if is_enabled() and real not in _published and not getattr(module.__spec__, "_initializing", False):
                _publish(real, module, module.__spec__)
        return module

    def exec_module(self, module):
        if not self._handed_out:
            raise ImportError(f"{self.name} cannot be reloaded: it does not come from a source file", name=self.name)


class _SourceAlias(_Alias, SourceFileLoader):
    """Like `_Alias`, for a source file: `inspect`, `runpy` and tracebacks find its source under
    torch's name."""

    def exec_module(self, module):
        if not self._handed_out:               # importlib.reload
            SourceFileLoader.exec_module(self, module)


class _Refusal:
    """Loader of a torch module that is deliberately unsupported."""

    def __init__(self, reason):
        self.reason = reason

    def create_module(self, spec):
        raise ModuleNotFoundError(f"{spec.name} is not supported: {self.reason}", name=spec.name)

    def exec_module(self, module):
        """Never called, because `create_module` raises."""


class _Publishing:
    """Loader of a facade module: delegates to the standard loader, then publishes the module."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        # The module executes under the facade's name, so that locks, circular imports and lookups
        # of a new class's module in sys.modules (dataclasses, enum, typing) see a consistent name.
        # The names change only when it has finished.
        spec = module.__spec__
        self.loader.exec_module(module)
        spec.loader = module.__loader__ = self.loader
        with _lock:
            if is_enabled():
                _publish(spec.name, module, spec)


class _Finder:
    """Meta-path finder for ``torch``, ``torch_npu`` and the facade's packages. It also serves
    `importlib.metadata` queries for ``torch``."""

    def find_spec(self, fullname, path=None, target=None):
        if _package(fullname, PACKAGES):
            return _find_alias(fullname)
        if _is_facade(fullname):
            spec = self._find_elsewhere(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Publishing(spec.loader)
            return spec
        return None

    def _find_elsewhere(self, fullname, path, target):
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def find_distributions(self, context=None):
        from mindtorch.tools._distribution import find

        return find(context)

    def invalidate_caches(self):
        """Nothing to do: the finder has no cache, and the finders it delegates to have their own.
        """


_finder = _Finder()


def _find_alias(fullname):
    real = _private(fullname)
    module = sys.modules.get(real)
    spec = importlib.util.find_spec(real) if module is None else module.__spec__
    if spec is None and module is None:
        from mindtorch.tools._refused_modules import why

        reason = why(fullname)
        return reason and ModuleSpec(fullname, _Refusal(reason))
    return _alias_spec(fullname, spec, module)


def _alias_spec(fullname, spec, module):
    """Creates the result of ``importlib.util.find_spec(fullname)`` from the spec of the facade's
    module (None if the module was created by hand)."""
    loader = getattr(spec, "loader", None)
    if isinstance(loader, _Publishing):
        loader = loader.loader
    if isinstance(loader, SourceFileLoader):
        alias = ModuleSpec(fullname, _SourceAlias(fullname, loader.path), origin=spec.origin)
        alias.has_location, alias.cached = True, spec.cached
    else:
        alias = ModuleSpec(fullname, _Alias(fullname), origin=getattr(spec, "origin", None))
    path = getattr(spec, "submodule_search_locations", None)
    alias.submodule_search_locations = getattr(module, "__path__", None) if path is None else path
    return alias


# ---------------------------------------------------------------- names
class _Published:
    """Changes made to one module, and how to undo them."""

    _ATTRIBUTES = ("__name__", "__package__", "__loader__", "__spec__")

    def __init__(self, module):
        self.module = module
        self.before = {a: getattr(module, a, None) for a in self._ATTRIBUTES}
        self.renamed = []  # (class or function, its previous __module__)

    def undo(self):
        for a, value in self.before.items():
            setattr(self.module, a, value)
        for thing, name in reversed(self.renamed):
            thing.__module__ = name


def _publish(real, module, spec):
    name = _public(real)
    module.__spec__ = spec  # a circular import under torch's name may have set its own spec
    record = _published[real] = _Published(module)
    alias = _alias_spec(name, spec, module)
    module.__name__, module.__spec__, module.__loader__ = name, alias, alias.loader
    module.__package__ = alias.name if alias.submodule_search_locations is not None else alias.parent
    for thing in list(vars(module).values()):
        if isinstance(thing, ModuleType):
            _publish_made_by_hand(thing)
        else:
            _rename(thing, record.renamed)
    sys.modules[name] = module


def _publish_made_by_hand(module):
    """Publishes a module that another module created and put into sys.modules
    (torch.backends.cudnn), so that no loader has seen it."""
    name = vars(module).get("__name__", "")
    if vars(module).get("__spec__") is None and _is_facade(name) and name not in _published:
        if sys.modules.get(name) is module:
            _publish(name, module, None)


def _rename(thing, record):
    """Sets the torch name in the ``__module__`` of a class (with everything defined in it) or of a
    function, once."""
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    elif isinstance(thing, property):
        for f in (thing.fget, thing.fset, thing.fdel):
            if f is not None:
                _rename(f, record)
        return
    is_class = isinstance(thing, type)
    if not is_class and not isinstance(thing, FunctionType):
        return
    module = vars(thing).get("__module__") if is_class else thing.__module__
    if not isinstance(module, str) or not _is_facade(module):
        return
    record.append((thing, module))
    thing.__module__ = _public(module)
    if is_class:
        for inner in list(vars(thing).values()):
            _rename(inner, record)


# ---------------------------------------------------------------- spawned processes
class _EnableOnLoad:
    """An object whose unpickling enables the hook in the unpickling process."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        source = ("import sys\n"
                  f"sys.path[:] = {[*self.path, root]!r}\n"
                  "from mindtorch.tools import mstorch_enable\n")
        return exec, (source, {"__name__": __name__})


_SPAWNING = "multiprocessing.spawn:get_preparation_data"


def _get_preparation_data(name):
    data = _get_preparation_data.original(name)
    if is_enabled():
        data["mindtorch"] = _EnableOnLoad(data.get("sys_path", sys.path))
    return data


def _wrap_spawn():
    """Enables the hook in children of multiprocessing's spawn and forkserver before they unpickle
    anything of torch.

    The first thing that such a child reads is its preparation data, a plain dict that
    multiprocessing pickles for it. The main module and the Process object with the user's classes
    come only after that. So this adds an entry to that dict whose unpickling enables the hook. It
    works for every kind of pool. The alternatives are worse: an environment variable would also
    reach unrelated programs and outlive disabling, a .pth file would act at every start of Python,
    and a wrapped target would be unpickled together with the objects that need the hook. The child
    has not set sys.path yet at that moment, so the entry carries the parent's path, with the folder
    of this package last; multiprocessing sets its own path right afterwards. Forked children
    inherit the hook unchanged.
    """
    from multiprocessing import spawn

    if spawn.get_preparation_data is not _get_preparation_data:
        _get_preparation_data.original = spawn.get_preparation_data
        put(_SPAWNING, _get_preparation_data)


def _unwrap_spawn():
    # If the function has been wrapped again meanwhile, this wrapper stays in the chain and, while
    # disabled, adds nothing.
    take_back(_SPAWNING)


# ---------------------------------------------------------------- on and off
def is_enabled():
    """True if ``import torch`` currently returns the facade."""
    return _finder in sys.meta_path


def enable():
    """Makes ``torch`` the facade; does nothing if it already is.

    RuntimeError if PyTorch has been imported before, because modules that already hold it could not
    be changed.
    """
    with _lock:
        if is_enabled():
            return
        other = sys.modules.get(TORCH)
        if other is not None:
            raise RuntimeError(_too_late(other))
        # this process runs on the CANN simulator (also its ranks and workers)
        if "MINDTORCH_STANDIN_SOCKET" in os.environ:
            from mindtorch.tools.standin import _attach
            _attach.attach()
        for name in [n for n in sys.modules if _package(n, PACKAGES)]:
            # None, which blocks the import, or the remains of a failed import of PyTorch
            del sys.modules[name]
        sys.meta_path.insert(0, _finder)
        _wrap_spawn()
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            if _is_facade(name) and isinstance(module, ModuleType) and not getattr(spec, "_initializing", False):
                _publish(name, module, spec)


def disable():
    """Restores ``torch``: the next ``import torch`` finds PyTorch, if it is installed.

    The facade stays available as ``mindtorch.torch``, and modules that imported it as ``torch``
    keep it. Does nothing if the hook is not enabled.
    """
    with _lock:
        if not is_enabled():
            return
        sys.meta_path.remove(_finder)
        _unwrap_spawn()
        for record in _published.values():
            record.undo()
        _published.clear()
        for name in [n for n in sys.modules if _package(n, PACKAGES)]:
            del sys.modules[name]
        # Removed from sys.modules, so that a later `from mindtorch.tools import mstorch_enable`
        # executes and enables the hook again.
        if sys.modules.pop("mindtorch.tools.mstorch_enable", None) is not None:
            vars(sys.modules["mindtorch.tools"]).pop("mstorch_enable", None)


@contextlib.contextmanager
def enabled():
    """Context manager: ``torch`` is the facade inside the block; afterwards the previous state is
    restored."""
    before = is_enabled()
    enable()
    try:
        yield
    finally:
        if not before:
            disable()


def _too_late(other):
    frame = sys._getframe(1)
    passing = ("mindtorch.", "importlib", "contextlib")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(passing):
        frame = frame.f_back
    where = f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame is not None else ""
    return ("mstorch_enable comes too late: real torch has already been imported, from "
            f"{getattr(other, '__file__', None) or other!r}. Move the line "
            f"`from mindtorch.tools import mstorch_enable`{where} above the first `import torch`, and above imports of "
            "packages that import torch themselves.")
