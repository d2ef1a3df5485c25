"""Source files as units of change: the body of each function is one unit, what is left of the module is another.

A unit is named `path`, for the module, or `path::Class.method`, for a function; a nested function is a unit of its own. Its digest is taken of the syntax tree, without
docstrings, comments and positions. The head of a function (decorators, arguments, defaults) belongs to the unit around it, in which it runs.
"""
import ast
import copy
import hashlib
import os
import pathlib
import re

from _imports import imports

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: these choose tests, and do nothing in those that run: only the tests of their own use them
SELECTION = {"tests/recorded.xz", *(f"tests/{name}.py" for name in (
    "_affected", "_mutants", "_recorder", "_record_plugin", "_selection", "_units", "changed", "mutate", "record", "shuffle"))}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def digest(data):
    """Eight hexadecimal digits of a text or of bytes."""
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
        """The unit's name; functions that share one (a property's setter, say) are numbered."""
        count = self.seen[qualified] = self.seen.get(qualified, 0) + 1
        return f"{self.path}::{qualified}" + (f"#{count}" if count > 1 else "")

    def take(self, unit, statements, prefix):
        """Records the digest of `statements` as that of `unit`, and the functions in them as units of their own."""
        kept = [self.hollow(statement, prefix) for statement in statements]
        self.found[unit] = digest("\n".join(map(ast.dump, kept)))

    def hollow(self, node, prefix):
        """A copy of a node in which functions have no body and nothing has a docstring."""
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
    """({unit: digest}, [(first line, last line, unit of a function)]) of a module's text; SyntaxError where it is not Python."""
    walk = _Walk(path)
    walk.take(path, _without_docstring(ast.parse(source).body), "")
    return walk.found, walk.ranges


def units_of_lines(ranges, lines, path):
    """The units in which some lines lie: each line is of the innermost function around it."""
    owner = {}
    for first, last, unit in sorted(ranges, key=lambda r: r[0] - r[1]):     # the outer ones first
        owner.update(dict.fromkeys(range(first, last + 1), unit))
    return {owner.get(line, path) for line in lines}


def imported(source, module, is_package):
    """Names of all that a module imports, inside functions too; `from a import b` gives both a and a.b."""
    return {full for _, target, name in imports(source, module, is_package) for full in (target, f"{target}.{name}" if name else target)}


def module_of(path):
    """(name, whether it is a package) of a module's path. Modules of tests/ are imported by their bare names."""
    parts = list(pathlib.PurePosixPath(path).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    parts = parts[:-1] if is_package else parts
    return parts[-1] if parts[0] == "tests" else ".".join(parts), is_package


#: the part of pyproject.toml that pytest reads, in place of a file's name
CONFIGURATION = "pyproject.toml#pytest"


def read(path, root=ROOT):
    """A file's bytes, or those of the part that a name with # stands for."""
    name, _, part = path.partition("#")
    data = (root / name).read_bytes()
    if part:
        found = re.search(rb"^\[tool\.pytest.*?(?=^\[|\Z)", data, re.M | re.S)
        return found[0] if found else b""
    return data


def files(root=ROOT):
    """Paths of the files of the tree, relative to its root; what is built, cached, hidden or installed is left out."""
    found = []
    for folder, folders, names in os.walk(root):
        # (Environments have fifty thousand files: they are not walked.)
        folders[:] = [n for n in folders if _kept(n) and n not in _MADE and not n.endswith(".egg-info")]
        found += [pathlib.Path(folder, n).relative_to(root).as_posix() for n in names if _kept(n) and os.path.isfile(os.path.join(folder, n))]
    found.sort()
    return [*found, CONFIGURATION] if "pyproject.toml" in found else found


_MADE = {"__pycache__", "build", "dist", "site"}


def _kept(name):
    return not name.startswith(".") or name in (".ci", ".gitignore")
