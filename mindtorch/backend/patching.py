"""Register of patches: everything in MindSpore, NumPy or CPython that is replaced, added or hooked
into, or whose private layout is relied on.

A patch is declared with its reason, the versions it was checked with and the tests that cover it,
in one of three files: `backend/mindspore/patches.py`, `backend/cpu/_numpy_private.py`,
`backend/cpython.py`. The replacement code stays in the module to which it belongs. `put` in this
module installs it, after verifying that the target is what the code was written for. `python -m
mindtorch doctor` prints the list; tests/backend/test_patches.py verifies that there are no other
patches.

Importing this imports neither MindSpore nor NumPy.
"""
import importlib
import sys
from typing import Any

REPLACES, ADDS, AT_TIMES, RELIES, HOOKS = "replaces", "adds", "replaces at times", "relies on", "hooks into"


class PatchError(ImportError):
    """The target of a patch does not exist, or differs from what the patch was written for."""


class Patch:
    """One patch.

    `name`: "module:attribute.attribute". `takes`: the parameters of the replaced function (None: it
    is written in C, or is not a function). `check`: for layout that is relied on, a function that
    returns a description of the problem (None: no problem). `placed`: for patches, (object,
    attribute, value) of each installed one; for hooks, their purposes.
    """

    __slots__ = ("name", "kind", "why", "takes", "checked", "tests", "check", "placed", "before")

    def __init__(self, name, kind, why, checked, tests, takes=None, check=None):
        self.name, self.kind, self.why, self.checked, self.tests, self.takes, self.check = name, kind, why, checked, tests, takes, check
        self.placed, self.before = [], []

    @property
    def package(self):
        """The patched package: "mindspore", "numpy" or "python"."""
        return self.checked[0]

    def version(self):
        """Returns the running version of the package; None if it is not loaded."""
        if self.package == "python":
            return ".".join(map(str, sys.version_info[:3]))
        return getattr(sys.modules.get(self.package), "__version__", None)

    def known_version(self):
        """True if the patch was checked with the running version ("3.11" matches all 3.11.x)."""
        now = self.version()
        return now is None or any(now == v or now.startswith(v + ".") for v in self.checked[1:])

    def wrong(self, found):
        """Returns the error for a patch that does not fit."""
        package, *versions = self.checked
        return PatchError(f"mindtorch {self.kind} {self.name} ({self.why}), as it is in {package} {', '.join(versions)}; in the {package} {self.version()} "
                          f"that is installed {found}. Remedy: {package} {versions[-1]}, or a mindtorch that knows this one")

    def owner(self):
        """Returns (object that has the attribute, name of the attribute)."""
        module, path = self.name.split(":")
        obj = sys.modules.get(module)
        *way, last = path.split(".")
        try:
            if obj is None:
                obj = importlib.import_module(module)
            for step in way:
                obj = getattr(obj, step)
        except (ImportError, AttributeError) as e:
            raise self.wrong(f"there is none ({e})") from e
        return obj, last

    def look(self, owner, attr):
        """Raises PatchError if the attribute to replace does not exist or takes other arguments, or
        if the attribute to add already exists."""
        if self.kind == ADDS:
            if attr in vars(owner):
                raise self.wrong("there is something of that name already")
            return
        there = getattr(owner, attr, None)
        if there is None:
            raise self.wrong("there is none")
        if self.takes is not None and parameters(there) != self.takes:
            raise self.wrong(f"it takes ({parameters(there)}), not ({self.takes})")

    def state(self):
        """Returns (True if all is well, description)."""
        if self.kind == HOOKS:
            good, message = True, "for " + ", ".join(self.placed) if self.placed else "in use where needed"
        elif self.kind == RELIES:
            message = self.check()
            good = message is None
            message = message or "as expected"
        else:
            good = all(vars(owner).get(attr) is value or getattr(owner, attr) == value for owner, attr, value in self.placed)
            message = ("in place" if self.placed else "not in use") if good else "other code has replaced it since"
        if not self.known_version():
            return False, f"{message}; {self.package} {self.version()} is not one it was checked with ({', '.join(self.checked[1:])})"
        return good, message


PATCHES: dict[str, Patch] = {}        # name -> Patch


def declare(name, kind, why, checked, tests, takes=None, check=None):
    """Registers a patch."""
    if name in PATCHES:
        raise ValueError(f"the patch {name} is declared twice")
    PATCHES[name] = p = Patch(name, kind, why, checked, tests, takes, check)
    return p


def parameters(f):
    """Returns a Python function's parameters as text, following `__wrapped__`; None for other
    callables."""
    f = getattr(f, "__func__", f)
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    code = getattr(f, "__code__", None)
    if code is None:
        return None
    n, keywords = code.co_argcount, code.co_kwonlyargcount
    names, at = list(code.co_varnames[:n]), n + keywords
    if code.co_flags & 4:
        names.append("*" + code.co_varnames[at])
        at += 1
    elif keywords:
        names.append("*")
    names += code.co_varnames[n:n + keywords]
    if code.co_flags & 8:
        names.append("**" + code.co_varnames[at])
    return ", ".join(names)


def put(name: str, value: Any, owner: Any = None) -> None:
    """Installs a patch: sets the named attribute to `value`. `owner`: the object that has the
    attribute, if known."""
    p = PATCHES[name]
    if p.placed and p.kind != AT_TIMES:
        raise RuntimeError(f"the patch {name} is made twice")
    owner, attr = p.owner() if owner is None else (owner, name.rpartition(".")[2])
    if not p.placed:
        p.look(owner, attr)
    p.before.append(vars(owner)[attr] if attr in vars(owner) else None)
    setattr(owner, attr, value)
    p.placed.append((owner, attr, value))


def put_everywhere(name: str, value: Any) -> None:
    """Like `put`, in all loaded modules of the package that have imported the function by name."""
    p = PATCHES[name]
    owner, attr = p.owner()
    there = vars(owner).get(attr)
    put(name, value)
    root = name.partition(".")[0]
    for m in [m for n, m in sys.modules.items() if n.partition(".")[0] == root]:
        if m is not owner and vars(m).get(attr) is there:
            setattr(m, attr, value)
            p.placed.append((m, attr, value))


def take_back(name: str) -> None:
    """Removes a temporary patch. Does nothing if it is not installed, or if other code has replaced
    the attribute since."""
    p = PATCHES[name]
    if p.placed:
        owner, attr, value = p.placed[-1]
        before = p.before[0]
        if vars(owner).get(attr) is value:
            if before is None:
                delattr(owner, attr)
            else:
                setattr(owner, attr, before)
        p.placed.clear()
        p.before.clear()
