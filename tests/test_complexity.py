"""The cyclomatic complexity of the package's functions: the number of paths through each one."""
import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "mindtorch"
LIMIT = 60
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.With, ast.AsyncWith, ast.Assert, ast.match_case)


def complexity(function):
    """Returns the complexity of a function's syntax tree, including the functions within it."""
    n = 1
    for x in ast.walk(function):
        if isinstance(x, _BRANCHES):
            n += 1
        elif isinstance(x, ast.BoolOp):
            n += len(x.values) - 1
        elif isinstance(x, ast.comprehension):
            n += 1 + len(x.ifs)
    return n


def functions():
    """Yields (file:line name, syntax tree) of every function and method of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for x in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{path.relative_to(PACKAGE).as_posix()}:{x.lineno} {x.name}", x


def test_no_function_is_too_complex():
    found = {name: complexity(x) for name, x in functions()}
    assert len(found) > 5000
    assert not {name: n for name, n in found.items() if n > LIMIT}


@pytest.mark.parametrize("body, count", [
    ("pass", 1), ("if a: pass", 2), ("if a: pass\n elif b: pass\n else: pass", 3), ("return a if b else c", 2), ("for i in a: pass", 2),
    ("while a: pass", 2), ("try: pass\n except A: pass\n except B: pass\n finally: pass", 3), ("with a, b: pass", 2), ("assert a", 2),
    ("return a and b and c or d", 4), ("return [x for x in a if x if y]", 4), ("return {x: y for x in a for y in b}", 3),
    ("match a:\n  case 1: pass\n  case _: pass", 3), ("def g():\n  if a: pass", 2), ("return lambda: a or b", 2),
])
def test_complexity_counts_branches(body, count):
    assert complexity(ast.parse(f"def f():\n {body}\n").body[0]) == count
