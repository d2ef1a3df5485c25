"""Dicts that a guard watches: the globals of modules, and the attributes of modules, classes and
functions."""
import types

from mindtorch.backend.cpython import watch
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes as _dtypes
from mindtorch.core.tensor.tensor import Size

MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), Size, _dtypes.dtype,
          _device.device, range, slice)
#: classes whose instances have no user attributes (instances of subclasses may have some)
EXACT = frozenset(SIMPLE)
#: class entries that do not affect the behavior of instances, or that Python writes at any time
IDLE = frozenset("""__dict__ __weakref__ __doc__ __module__ __annotations__ __slotnames__ __abstractmethods__ _abc_impl __parameters__
 __qualname__ __firstlineno__ __static_attributes__""".split())
CALLED = (types.FunctionType, property, staticmethod, classmethod)


def same(a, b):
    """True if two guarded values are interchangeable: the same object, or equal plain values of one
    type."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and str(a) == str(b) or a != a and b != b
    if isinstance(a, (types.MethodType,)):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return type(a) in EXACT and a == b


class Space:
    """A dict of which the code can read some entries: the globals of a module, or the attributes of
    a module, class or function."""

    __slots__ = ("d", "kind", "names", "word", "version", "items")

    def __init__(self, d, kind, names):
        """names: the readable names, including those without an entry."""
        self.d, self.kind, self.word, self.names = d, kind, watch(d), names
        self.version = self.word.value
        self.items = self.now()

    def more(self, names):
        """Adds readable names."""
        new = names - self.names
        self.items.update((n, self.d.get(n, MISSING)) for n in new)
        self.names = self.names | new

    def now(self):
        """Returns the current values of the readable names."""
        get = self.d.get
        return {n: get(n, MISSING) for n in self.names}

    def change(self):
        """Returns a description of what has changed, or None."""
        get = self.d.get
        for n, x in self.items.items():
            y = get(n, MISSING)
            if x is not y and not same(x, y):
                return f"{self.kind} {n!r}"
        return None

    def check(self):
        """Like `change`, for a dict that may have been modified. If nothing has changed, records
        its version."""
        version = self.word.value
        bad = self.change()
        if bad is not None:
            return f"{bad} has changed"
        self.version = version
        return None


class WholeSpace(Space):
    """A dict whose set of watched entries is determined at each check."""

    __slots__ = ()

    def change(self):
        """Returns a description of what has changed, or None."""
        now, items = self.now(), self.items
        for n in (items if len(items) >= len(now) else now):
            x, y = now.get(n, MISSING), items.get(n, MISSING)
            if x is not y and not same(x, y):
                return f"{self.kind} {n!r}"
        return None


class KeySpace(WholeSpace):
    """The set of keys of a dict."""

    __slots__ = ()

    def now(self):
        return dict.fromkeys(self.d)


class ClassSpace(WholeSpace):
    """The entries of a class that the code names (None: all), and those that Python calls
    implicitly."""

    __slots__ = ()

    def now(self):
        names = self.names
        return {k: x for k, x in list(self.d.items()) if k not in IDLE and (
            names is None or k in names or isinstance(x, CALLED) or k[:2] == "__" == k[-2:])}


class LibraryClassSpace(WholeSpace):
    """The entries of a library class that the code names."""

    __slots__ = ()

    def now(self):
        names = self.names
        return {k: x for k, x in list(self.d.items()) if k in names}
