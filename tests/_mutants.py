"""Random mutants of the package's functions: one changed node of one syntax tree."""
import ast
import random
from typing import NamedTuple

import _units

_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
             ast.In: ast.NotIn, ast.NotIn: ast.In}
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}


class Mutant(NamedTuple):
    """A mutation of a file.

    `start` and `end` delimit the replaced text, `text` is the replacement, and `unit` contains it.
    """

    path: str
    start: int
    end: int
    text: str
    unit: str

    def planted(self, source):
        """Returns the file's text with the mutation applied."""
        return source[:self.start] + self.text + source[self.end:]

    def line(self, source):
        """Returns (line number, original line, mutated line)."""
        number = source.count("\n", 0, self.start)
        return number + 1, source.splitlines()[number].strip(), self.planted(source).splitlines()[number].strip()


def _changed(node):
    """Returns a mutated copy of a node, or None if there is no mutation for this kind of node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.Compare(node.left, [_COMPARED[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not isinstance(node.left, (ast.Constant, ast.JoinedStr)):
        return ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.IfExp):
        return ast.IfExp(node.test, node.orelse, node.body)
    if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return ast.Return(ast.Constant(None))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) or isinstance(node, ast.AugAssign):
        return ast.Pass()
    return None


def _nodes(function):
    """Yields the nodes of a function's body, except error messages (mere wording) and nested
    functions."""
    waiting = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, *_units.FUNCTIONS)):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def mutants_of(path, source):
    """Returns every mutant of one file."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    _, ranges = _units.units(source, path)
    lines = source.splitlines()

    def place(line, column):
        return offsets[line - 1] + len(lines[line - 1].encode()[:column].decode())
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, _units.FUNCTIONS):
            for node in _nodes(function):
                changed = _changed(node)
                if changed is not None:
                    text = ast.unparse(ast.fix_missing_locations(changed))
                    text = f"({text})" if isinstance(node, ast.expr) and not isinstance(changed, ast.Constant) else text
                    unit = next(iter(_units.units_of_lines(ranges, [node.lineno], path)))
                    found.append(Mutant(path, place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset), text, unit))
    return sorted(found)


def drawn(count, seed, folder="mindtorch/"):
    """Returns `count` mutants of the package, each in another function, sampled with this seed."""
    every = []
    for path in _units.files():
        if path.startswith(folder) and path.endswith(".py"):
            every += mutants_of(path, (_units.ROOT / path).read_text("utf-8"))
    random.Random(seed).shuffle(every)
    found, seen = [], set()
    for mutant in every:
        if mutant.unit not in seen and len(found) < count:
            seen.add(mutant.unit)
            found.append(mutant)
    return found
