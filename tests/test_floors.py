"""The layers of the package: torch -> ops -> core -> backend, with no upward imports, and MindSpore
only at the bottom.

The source is read with `ast`: nothing is imported, and imports inside functions count as well.
"""
import ast
import pathlib

import pytest
from _imports import imports

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "mindtorch"
# A layer may import itself and the layers before it. `tools` may import all of them, and none of
# them imports it.
FLOORS = ["backend", "core", "ops", "torch", "torch_npu", "functorch", "tools"]
TOUCH_MINDSPORE = {"backend", "tools"}


def floor(module):
    """Returns the layer of a mindtorch module: 'core' for mindtorch.core.dispatch.primitives; None outside the
    layers."""
    parts = module.split(".")
    return parts[1] if parts[0] == "mindtorch" and len(parts) > 1 and parts[1] in FLOORS else None


def complaints(source, module, is_package=False):
    """Returns the rules that the imports of a module violate, as text."""
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
        # a tool may compare with PyTorch, and must check that `torch` is PyTorch
        if root == "torch" and here != "tools":
            found.append(f"{module}:{line}: `torch` may be the real one: import mindtorch.torch")
        if there and there != here and any(_is_private(p) for p in full.split(".")):
            found.append(f"{module}:{line}: {full} is private to the floor {there}")
    return found


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if "_generated" in parts:
            continue  # not modules, and not in git
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


@pytest.mark.parametrize("name", FLOORS)
def test_layer_imports_are_valid(name):
    checked, found = 0, []
    for path, module, is_package in modules():
        if floor(module) == name:
            checked += 1
            found += complaints(path.read_text("utf-8"), module, is_package)
    assert checked, f"no module of {name} was found under {PACKAGE}"
    assert not found, "\n" + "\n".join(found)


# Import cycles within one layer. Only torch has one, which follows from its public names. The first
# module of each stands for the cycle. The module `mindtorch.torch`, which all modules there use,
# does not count.
CIRCLES = {
    "mindtorch.torch.autograd": "functional and gradcheck call torch.autograd.grad, which stands beside them",
}


def circles(graph):
    """Returns the sets of modules that reach each other in {module: its imports}, by Tarjan's
    algorithm."""
    number, low, stack, found = {}, {}, [], []

    def visit(v):
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in number:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == number[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in sorted(graph):
        if v not in number:
            visit(v)
    return found


def named_modules(source):
    """Returns the names that a source passes to `import_module` as literals."""
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Constant)]
    return {n.args[0].value for n in calls if getattr(n.func, "attr", getattr(n.func, "id", None)) == "import_module"}


def import_graph(name):
    """Returns {module of a layer: modules of the same layer that it imports, also inside
    functions and by `import_module("name")`, but not under `if TYPE_CHECKING`}."""
    here = {module: (path, is_package) for path, module, is_package in modules() if floor(module) == name and module != "mindtorch.torch"}
    graph = {}
    for module, (path, is_package) in here.items():
        source = path.read_text("utf-8")
        targets = {f"{target}.{n}" if f"{target}.{n}" in here else target for _, target, n in imports(source, module, is_package, typing=False)}
        targets.update(named_modules(source))
        graph[module] = (targets & here.keys()) - {module}
    return graph


@pytest.mark.parametrize("name", FLOORS)
def test_imports_within_a_layer_have_no_cycles(name):
    found = circles(import_graph(name))
    assert not [c for c in found if c[0] not in CIRCLES], f"modules that import each other: {found}"
    gone = {m for m in CIRCLES if floor(m) == name} - {c[0] for c in found}
    assert not gone, f"no circles any more: {gone}"


def test_import_cycles_are_detected():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    graph = import_graph("core")
    assert "mindtorch.core.tensor.tensor" in graph["mindtorch.core.dispatch.primitives"] and "mindtorch.core.device.device_dispatch" in graph["mindtorch.core.tensor.inplace"]


def test_root_package_imports_no_layer():
    """`import mindtorch` loads neither MindSpore nor `mindtorch.torch`: modules outside the layers
    import none of it."""
    for path, module, is_package in modules():
        if floor(module) is None:
            for line, target, name in imports(path.read_text("utf-8"), module, is_package):
                full = f"{target}.{name}" if name else target
                assert floor(full) is None, f"{module}:{line}: {full}"
                assert target.split(".")[0] not in ("mindspore", "torch"), f"{module}:{line}: {full}"


@pytest.mark.parametrize("source, module, count", [
    ("from mindtorch.ops.basic import add", "mindtorch.core.dispatch.primitives", 1),
    ("from mindtorch import torch", "mindtorch.ops.basic", 1),
    ("def f():\n    import mindtorch.torch.nn", "mindtorch.core.dispatch.primitives", 1),
    ("from mindtorch.tools import scan", "mindtorch.torch.nn", 1),
    ("from ...ops import basic", "mindtorch.core.dispatch.primitives", 1),
    ("from . import tensor", "mindtorch.core.dispatch.primitives", 0),
    ("from mindtorch.core import tensor", "mindtorch.ops.basic", 0),
    ("from mindtorch.backend.cpu import _numpy_private", "mindtorch.ops.basic", 1),
    ("from mindtorch.core.dispatch.primitives import _record", "mindtorch.ops.basic", 1),
    ("from mindtorch.backend.cpu import _numpy_private", "mindtorch.backend.cpu.random", 0),
    ("import mindspore as ms", "mindtorch.core.dispatch.primitives", 1),
    ("from mindspore import ops", "mindtorch.backend.cpu.matmul", 0),
    ("from mindspore import _c_expression", "mindtorch.backend.mindspore.private", 0),
    ("from mindspore import _c_expression", "mindtorch.tools.scan", 1),
    ("import torch.nn", "mindtorch.tools.scan", 0),
    ("import torch.nn", "mindtorch.core.dispatch.primitives", 1),
    ("from torch import nn", "mindtorch.torch.nn", 1),
    ("from . import torch", "mindtorch.backend.cpu.matmul", 0),
])
def test_the_lint_itself(source, module, count):
    """Each rule finds its violation and nothing else."""
    assert len(complaints(source, module)) == count


# ----------------------------------------------- ops define semantics, not how a host computes them
EXCEPTED = {
}


def host_bound(source):
    """Returns the accesses to host memory in a source text: NumPy, a tensor's array, imported
    kernels."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [f"{node.module}.{a.name}" for a in node.names]
            for name in names:
                if name.split(".")[0] == "numpy" or name.startswith(("mindtorch.backend.cpu", "mindtorch.backend.c_kernels")):
                    found.append(f"line {node.lineno}: imports {name}")
        elif isinstance(node, ast.Attribute) and node.attr == "_array":
            found.append(f"line {node.lineno}: reads _a")
    return found


def test_ops_are_device_neutral():
    wrong = {}
    for path, module, _ in modules():
        if floor(module) == "ops":
            name = path.relative_to(PACKAGE).as_posix()
            found = host_bound(path.read_text("utf-8"))
            if found and name not in EXCEPTED:
                wrong[name] = found
            assert not (name in EXCEPTED and not found), f"{name} needs no exception any more"
    assert not wrong, wrong


@pytest.mark.parametrize("source, count", [
    ("import numpy as np", 1), ("from numpy import ndarray", 1), ("from mindtorch.backend.cpu import matmul", 1),
    ("from mindtorch.backend.c_kernels import thread_pool", 1), ("def f(x):\n    return x._array.shape", 1), ("x._array = 1", 1),
    ("from mindtorch.core.dispatch.primitives import primitive", 0), ("def f(x):\n    return x._sizes", 0), ("from mindtorch.backend import errors", 0),
])
def test_neutrality_lint_detects_violations(source, count):
    assert len(host_bound(source)) == count


# ------------------------------------------------------------------ the dispatcher is the only interception
def interceptions(source):
    """Returns assignments to a function's code or defaults, and changes of a function's globals."""
    found = []
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        for t in targets:
            for part in ast.walk(t):
                if isinstance(part, ast.Attribute) and part.attr == "__code__":
                    found.append(f"line {node.lineno}: assigns __code__")
                if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Attribute) and part.value.attr == "__globals__":
                    found.append(f"line {node.lineno}: rewrites a function's globals")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = node.func.value
            if isinstance(inner, ast.Attribute) and inner.attr == "__globals__" and node.func.attr in ("update", "__setitem__", "pop", "setdefault"):
                found.append(f"line {node.lineno}: rewrites a function's globals")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3 and (
                isinstance(node.args[1], ast.Constant) and node.args[1].value == "__code__"):
            found.append(f"line {node.lineno}: assigns __code__")
    return found


def test_the_dispatcher_is_the_only_interception():
    wrong = {module: found for path, module, _ in modules() if (found := interceptions(path.read_text("utf-8")))}
    assert not wrong, wrong


@pytest.mark.parametrize("source, count", [
    ("f.__code__ = g.__code__", 1), ("a, f.__code__ = 1, c", 1), ("setattr(f, '__code__', c)", 1), ("f.__globals__['x'] = 1", 1),
    ("f.__globals__.update(x=1)", 1), ("del f.__globals__['x']", 1), ("c = f.__code__", 0), ("x = f.__globals__['x']", 0),
])
def test_interception_lint_detects_violations(source, count):
    assert len(interceptions(source)) == count


# ------------------------------------------------------------------ no module assigns another one's variables
# Exceptions: {assigning module: reason}. Lower layers use a field of `hooks` instead.
ASSIGN = {
    "mindtorch.torch._dispatch_protocol": "is loaded with the first tensor with __torch_dispatch__, and gives its entry points to three modules that it imports",
    "mindtorch.torch._dynamo._parts": "switches the capture of Module calls on and off; every call of a Module tests this global",
    "mindtorch.torch.nn.modules._cells": "gives two functions to a module that it imports",
    "mindtorch.torch.testing._internal.common_utils": "fill_uninitialized_memory is a public setting of torch.utils.deterministic",
}


def assignments(source, module, is_package, known):
    """Returns the assignments and deletions of variables of other modules of the package, as text.
    known: the names of all its modules."""
    tree, aliases, found = ast.parse(source), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                aliases[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            base = imports(ast.unparse(node), module, is_package)[0][1]
            for a in node.names:
                aliases[a.asname or a.name] = f"{base}.{a.name}"

    def module_of(node):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            outer = module_of(node.value)
            name = outer and f"{outer}.{node.attr}"
        else:
            name = aliases.get(node.id) if isinstance(node, ast.Name) else None
        return name if name in known else None

    for node in ast.walk(tree):
        target, name = None, ""
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            target, name = node.value, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr") and node.args:
            target, name = node.args[0], ast.unparse(node.args[1])
        if target is not None and (there := module_of(target)) and there != module:
            found.append(f"{module}:{node.lineno}: assigns {there}.{name}")
    return found


def test_modules_assign_no_variables_of_others():
    known = {module for _, module, _ in modules()}
    wrong = {module: found for path, module, is_package in modules() if (found := assignments(path.read_text("utf-8"), module, is_package, known))}
    assert not {m: found for m, found in wrong.items() if m not in ASSIGN}
    assert not ASSIGN.keys() - wrong.keys(), "these need no exception any more"


@pytest.mark.parametrize("source, count", [
    ("from mindtorch.core import hooks\nhooks.x = 1", 1), ("from . import hooks as h\nh.x, y = 1, 2", 1), ("import mindtorch.core.hooks as h\ndef f():\n    h.x += 1", 1),
    ("import mindtorch.core.hooks\nmindtorch.core.hooks.x = 1", 1), ("from mindtorch.core import hooks\ndel hooks.x", 1), ("from mindtorch.core import hooks\nhooks.x: int = 1", 1),
    ("from mindtorch.core import hooks\nfor hooks.x in y: pass", 1), ("from mindtorch.core import hooks\nsetattr(hooks, n, 1)", 1),
    ("from mindtorch.core.hooks import hooks\nhooks.x = 1", 0), ("from mindtorch.core import hooks\nhooks.x.y = 1", 0), ("from mindtorch.core import hooks\nhooks.x['y'] = 1", 0),
    ("import os\nos.x = 1", 0), ("from mindtorch.core import hooks\nhooks = 1", 0), ("from mindtorch.core import hooks\nhooks.x.append(1)", 0),
])
def test_assignment_lint_detects_violations(source, count):
    assert len(assignments(source, "mindtorch.core.tensor", False, {"mindtorch", "mindtorch.core", "mindtorch.core.hooks"})) == count


# Interfaces: the modules against which a device, a kernel, an op or a layer is written.
INTERFACES = """core/tensor/inplace core/device/device core/device/device_dispatch core/dispatch/dispatcher core/tensor/dtypes core/autograd/engine
core/autograd/validate_grad core/dispatch/error_messages core/autograd/grad_mode core/tensor/from_data core/tensor/stride_rules core/dispatch/meta
core/mindspore/grad core/tensor/scalars core/dispatch/type_promotion core/dispatch/op_schema core/tensor/sparse core/dispatch/codegen
core/dispatch/generated_files core/dispatch/traceback_filter
core/dispatch/op_registry core/dispatch/primitives core/tensor/sync core/dispatch/tensor_list_primitive backend/device backend/errors backend/kernels
backend/secure_files backend/sizes backend/strides backend/meta/arrays backend/cpu/half backend/cpu/host backend/cpu/memory backend/cpu/pointwise""".split()


@pytest.mark.parametrize("name", INTERFACES)
def test_interfaces_are_annotated(name):
    """Their public functions have type annotations; mypy checks that these are correct."""
    missing = []
    for node in ast.parse((PACKAGE / f"{name}.py").read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            given = node.args
            named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
            if node.returns is None or any(a.annotation is None for a in named):
                missing.append(node.name)
    assert not missing
