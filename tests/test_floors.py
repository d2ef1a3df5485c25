"""The floors of the package hold: torch -> ops -> core -> backend, never upward, and MindSpore only at the bottom.

Read from the source by `ast`, so nothing is imported and imports inside functions count as well.
"""
import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "mindtorch"
# A floor may import itself and those before it. `tools` stands on all of them, and none of them knows of it.
FLOORS = ["backend", "core", "ops", "torch", "tools"]
TOUCH_MINDSPORE = {"backend", "tools"}


def imports(source, module, is_package=False):
    """[(line, module imported, name taken from it or None)] of a source text, relative imports resolved."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[:len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, base] if base else parts)
            found += [(node.lineno, base, alias.name) for alias in node.names]
    return found


def floor(module):
    """The floor of a module of ours: 'core' for mindtorch.core.tape; None outside the floors."""
    parts = module.split(".")
    return parts[1] if parts[0] == "mindtorch" and len(parts) > 1 and parts[1] in FLOORS else None


def complaints(source, module, is_package=False):
    """What the imports of one module break, as text."""
    here, found = floor(module), []
    for line, target, name in imports(source, module, is_package):
        full = f"{target}.{name}" if name else target
        there = floor(full)
        root = target.split(".")[0]
        if here and there and FLOORS.index(there) > FLOORS.index(here):
            found.append(f"{module}:{line}: {here} may not import {full}: {there} is a floor above it")
        if root == "mindspore" and here not in TOUCH_MINDSPORE:
            found.append(f"{module}:{line}: only backend and tools may import mindspore")
        if root == "mindspore" and here != "backend" and any(_is_private(p) for p in full.split(".")):
            found.append(f"{module}:{line}: {full} is private to MindSpore: only backend may use it")
        if root == "torch" and here != "tools":     # a tool may compare with real torch, and must see to it that it is
            found.append(f"{module}:{line}: `torch` may be the real one: import mindtorch.torch")
        if there and there != here and any(_is_private(p) for p in full.split(".")):
            found.append(f"{module}:{line}: {full} is private to the floor {there}")
    return found


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


@pytest.mark.parametrize("name", FLOORS)
def test_floor(name):
    checked, found = 0, []
    for path, module, is_package in modules():
        if floor(module) == name:
            checked += 1
            found += complaints(path.read_text("utf-8"), module, is_package)
    assert checked, f"no module of {name} was found under {PACKAGE}"
    assert not found, "\n" + "\n".join(found)


def test_root_stands_on_nothing():
    """`import mindtorch` must load neither MindSpore nor the facade: modules outside the floors import none of it."""
    for path, module, is_package in modules():
        if floor(module) is None:
            for line, target, name in imports(path.read_text("utf-8"), module, is_package):
                full = f"{target}.{name}" if name else target
                assert floor(full) is None, f"{module}:{line}: {full}"
                assert target.split(".")[0] not in ("mindspore", "torch"), f"{module}:{line}: {full}"


@pytest.mark.parametrize("source, module, count", [
    ("from mindtorch.ops.basic import add", "mindtorch.core.tape", 1),
    ("from mindtorch import torch", "mindtorch.ops.basic", 1),
    ("def f():\n    import mindtorch.torch.nn", "mindtorch.core.tape", 1),
    ("from mindtorch.tools import scan", "mindtorch.torch.nn", 1),
    ("from ..ops import basic", "mindtorch.core.tape", 1),
    ("from . import tensor", "mindtorch.core.tape", 0),
    ("from mindtorch.core import tensor", "mindtorch.ops.basic", 0),
    ("from mindtorch.core import _twister", "mindtorch.ops.basic", 1),
    ("from mindtorch.core.tape import _record", "mindtorch.ops.basic", 1),
    ("from mindtorch.core import _twister", "mindtorch.core.rng", 0),
    ("import mindspore as ms", "mindtorch.core.tape", 1),
    ("from mindspore import ops", "mindtorch.backend.cpu.heavy", 0),
    ("from mindspore import _c_expression", "mindtorch.backend.mindspore.private", 0),
    ("from mindspore import _c_expression", "mindtorch.tools.scan", 1),
    ("import torch.nn", "mindtorch.tools.scan", 0),
    ("import torch.nn", "mindtorch.core.tape", 1),
    ("from torch import nn", "mindtorch.torch.nn", 1),
    ("from . import torch", "mindtorch.backend.cpu.heavy", 0),
])
def test_the_lint_itself(source, module, count):
    """Each rule finds what it is for, and nothing else."""
    assert len(complaints(source, module)) == count
