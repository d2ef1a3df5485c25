"""Source files as units of change: the body of each function is one unit, the rest of the module is
another.

A unit is named `path` for the module, or `path::Class.method` for a function; a nested function is
its own unit. A unit's digest is computed from the syntax tree without docstrings, comments and
positions. The head of a function (decorators, arguments, defaults) belongs to the enclosing unit,
in which it runs.
"""
import ast
import copy
import hashlib
import os
import pathlib
import re

from _imports import imports

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Files that select tests but do nothing in the tests that run; only their own tests use them.
SELECTION = {"tests/recorded.xz", *(f"tests/{name}.py" for name in (
    "_affected", "_mutants", "_recorder", "_record_plugin", "_selection", "_units", "changed", "mutate", "record", "shuffle"))}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def digest(data):
    """Returns an eight-digit hexadecimal digest of text or bytes."""
    return hashlib.blake2b(data.encode() if isinstance(data, str) else data, digest_size=4).hexdigest()


def _without_docstring(body):
    first = body[0] if body else None
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if documented else body


class _Walk:
    """Collects the units of one module."""

    def __init__(self, path):
        self.path, self.found, self.ranges, self.seen = path, {}, [], {}

    def name(self, qualified):
        """Returns the unit's name; functions that share a name (such as a property's setter) are
        numbered."""
        count = self.seen[qualified] = self.seen.get(qualified, 0) + 1
        return f"{self.path}::{qualified}" + (f"#{count}" if count > 1 else "")

    def take(self, unit, statements, prefix):
        """Records the digest of `statements` as that of `unit`, and the functions in them as their
        own units."""
        kept = [self.hollow(statement, prefix) for statement in statements]
        self.found[unit] = digest("\n".join(map(ast.dump, kept)))

    def hollow(self, node, prefix):
        """Returns a copy of a node without function bodies and docstrings."""
        node = copy.copy(node)
        if isinstance(node, FUNCTIONS):
            qualified = f"{prefix}{node.name}"
            unit = self.name(qualified)
            self.ranges.append((node.body[0].lineno, node.end_lineno, unit))
            self.take(unit, _without_docstring(node.body), f"{qualified}.")
            node.body = []
            return node
        if isinstance(node, ast.ClassDef):
            node.body = _without_docstring(node.body)
            prefix = f"{prefix}{node.name}."
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [self.hollow(v, prefix) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.hollow(value, prefix))
        return node


def units(source, path):
    """Returns ({unit: digest}, [(first line, last line, unit of a function)]) of a module's text;
    raises SyntaxError if it is not Python."""
    walk = _Walk(path)
    walk.take(path, _without_docstring(ast.parse(source).body), "")
    return walk.found, walk.ranges


def units_of_lines(ranges, lines, path):
    """Returns the units of some lines; a line belongs to its innermost enclosing function."""
    owner = {}
    for first, last, unit in sorted(ranges, key=lambda r: r[0] - r[1]):  # outer functions first
        owner.update(dict.fromkeys(range(first, last + 1), unit))
    return {owner.get(line, path) for line in lines}


def imported(source, module, is_package):
    """Returns the names of all that a module imports, also inside functions; `from a import b`
    yields both a and a.b."""
    return {full for _, target, name in imports(source, module, is_package) for full in (target, f"{target}.{name}" if name else target)}


def module_of(path):
    """Returns (module name, is_package) of a module's path. Modules of tests/ are imported by their
    bare names."""
    parts = list(pathlib.PurePosixPath(path).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    parts = parts[:-1] if is_package else parts
    return parts[-1] if parts[0] == "tests" else ".".join(parts), is_package


#: pseudo file name of the part of pyproject.toml that pytest reads
CONFIGURATION = "pyproject.toml#pytest"


def read(path, root=ROOT):
    """Returns a file's bytes, or those of the part that a name with # denotes."""
    name, _, part = path.partition("#")
    data = (root / name).read_bytes()
    if part:
        found = re.search(rb"^\[tool\.pytest.*?(?=^\[|\Z)", data, re.M | re.S)
        return found[0] if found else b""
    return data


def files(root=ROOT):
    """Returns the paths of the tree's files relative to its root, without built, cached, hidden or
    installed ones."""
    found = []
    for folder, folders, names in os.walk(root):
        # Do not descend into environments, which have fifty thousand files.
        folders[:] = [n for n in folders if _kept(n) and n not in _MADE and not n.endswith(".egg-info")]
        found += [pathlib.Path(folder, n).relative_to(root).as_posix() for n in names if _kept(n) and os.path.isfile(os.path.join(folder, n))]
    found.sort()
    return [*found, CONFIGURATION] if "pyproject.toml" in found else found


_MADE = {"__pycache__", "build", "dist", "site"}


def _kept(name):
    return not name.startswith(".") or name in (".ci", ".gitignore")
