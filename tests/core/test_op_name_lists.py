"""Lists of op names outside the op records: a module that needs a set of ops derives it from their
tags."""
import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "mindtorch"

#: (file, what the list is named by: see `owner`) -> why a literal list of op names there is not a
#: view of the records
EXCEPTIONS = {
    ("core/mindspore/functional_grad.py", "METHODS"): "methods of MindSpore's tensors",
    ("core/tensor/return_types.py", "for _name"): "names of result classes",
    ("core/transforms/vmap.py", "_view_geometries"): "primitives that vmap refuses, beside its rules",
    ("ops/_jvp_rules.py", "for (_name, _rule)"): "registers one rule for several primitives",
    ("ops/_jvp_rules.py", "forward_ad.REFUSED.update()"): "registers the ops without a rule",
    ("ops/_vmap_rules.py", "(_view, _permute, _expand, _bmm, _mm)"): "primitives that the rules call",
    ("ops/_vmap_rules.py", "_FULL_REDUCTIONS"): "registers one rule for several primitives",
    ("ops/_vmap_rules.py", "vmap.RULES.update()"): "registers one rule for several ops",
    ("ops/_legacy_overloads.py", "_BEFORE_SECOND"): "the deprecated overloads of PyTorch",
    ("ops/_legacy_overloads.py", "_PRODUCTS"): "the deprecated overloads of PyTorch",
    ("ops/basic.py", "(eq_, ne_, lt_, le_, gt_, ge_)"): "declares primitives in a loop",
    ("ops/elementwise/_logic.py", "_SIGN"): "declares ops in a loop",
    ("ops/elementwise/foreach.py", "_UNARY"): "declares ops in a loop",
    ("ops/elementwise/special.py", "_OF_X"): "ops whose parameter has another name",
    ("ops/indexing/_segments.py", "_KINDS"): "values of the argument `reduce`",
    ("ops/indexing/_writes.py", "for _name"): "declares in-place forms in a loop",
    ("ops/indexing/index.py", "scatter_reduce"): "values of the argument `reduce`",
    ("ops/indexing/index.py", "index_reduce"): "values of the argument `reduce`",
    ("ops/linalg/_common.py", "for (_name, _fields)"): "fields of result classes",
    ("ops/linalg/_legacy.py", "_GONE"): "declares removed functions in a loop",
    ("ops/masked.py", "_FILLINGS"): "identity elements of reductions",
    ("ops/sparse/_compressed_ops.py", "reduced_mm"): "values of the argument `reduce`",
    ("ops/sparse/_compressed_ops.py", "for _name"): "registers one sparse rule for several ops",
    ("ops/sparse/_pointwise.py", "KEEPING"): "registers one sparse rule for several ops",
    ("ops/sparse/_pointwise.py", "LINEAR"): "registers one sparse rule for several ops",
    ("ops/sparse/_pointwise.py", "for _name"): "registers one sparse rule for several ops",
    ("torch/_aten_calls.py", "_TENSOR_EVEN_FOR_NUMBERS"): "aten's overloads",
    ("torch/_aten_calls.py", "_TURNED"): "comparisons with their operands exchanged",
    ("torch/_aten_calls.py", "NAMES.update()"): "aten forms of primitives with other arguments",
    ("torch/_aten_calls.py", "for _n"): "aten forms of primitives with other arguments",
    ("torch/_aten_layer_names.py", "RESIZED"): "aten operators that this module's neighbour defines",
    ("torch/_aten_layer_names.py", "NAMES"): "aten operators that this module's neighbour defines",
    ("torch/_dynamo/_on_host.py", "_DRAWING"): "ops that draw in the memory order of their operand",
    ("torch/_function_protocol.py", "_OPERATORS"): "names of Python's operators",
    ("torch/_higher_order_ops/_broadcast.py", "_MAKE"): "methods that use only the dtype and device of their operand",
    ("torch/_inductor/lowering.py", "_NAMES"): "kinds of kernels",
    ("torch/_inherited.py", "_SHARED"): "public names of a class of MindSpore",
    ("torch/_meta.py", "_VALUES"): "ops without values on meta for want of a kernel",
    ("torch/_meta.py", "_SIZED"): "factories that meta.make computes",
    ("torch/_meta.py", "_PRODUCTS"): "calls whose operands must be on one device",
    ("torch/_meta.py", "_make"): "arguments of factories",
    ("torch/_namespace.py", "_FUNCTIONS"): "public names",
    ("torch/distributed/tensor/_api.py", "__all__"): "public names",
    ("torch/distributed/tensor/_utils.py", "_OPS"): "values of the argument `reduce_op`",
    ("torch/export/_aten.py", "_OTHER"): "aliases that exported graphs resolve",
    ("torch/export/_aten.py", "_TENSOR"): "aten's overloads",
    ("torch/export/_aten.py", "_WITH_DIM"): "aten's overloads",
    ("torch/export/_aten.py", "_ALWAYS"): "aten's overloads",
    ("torch/export/_aten.py", "_LISTED"): "ops that accept sizes or dimensions as separate arguments",
    ("torch/export/_record.py", "_MAKERS"): "functions that take Python values",
    ("torch/functional.py", "__all__"): "public names",
    ("torch/fx/_recorded.py", "_OPERATORS"): "names of Python's operators",
    ("torch/fx/experimental/_functionalize.py", "_KEPT"): "how a write to a view is undone",
    ("torch/fx/experimental/_functionalize.py", "_SAME_AGAIN"): "how a write to a view is undone",
    ("torch/fx/experimental/_functionalize.py", "_SEVERAL"): "how a write to a view is undone",
    ("torch/fx/experimental/_functionalize.py", "_VIEWS"): "how a write to a view is undone",
    ("torch/fx/experimental/_functionalize.py", "_Functional"): "how a write to a view is undone: one inverse for each",
    ("torch/fx/node.py", "_RANDOM"): "PyTorch's list of functions that Node.is_impure takes for random",
    ("torch/fx/proxy.py", "magic_methods"): "names of Python's operators",
    ("torch/fx/proxy.py", "_METHODS"): "names of Python's operators",
    ("torch/nn/init.py", "_LINEAR"): "values of the argument `nonlinearity`",
    ("torch/utils/_device.py", "_NAMES"): "public functions that accept `device`, sparse and nested ones included",
}


def texts(node):
    """Returns the strings of a literal collection, or of the split() of a literal; else ()."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split" and isinstance(node.func.value, ast.Constant) and (
            isinstance(node.func.value.value, str) and not node.args):
        return node.func.value.value.split()
    items = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, (ast.Set, ast.List, ast.Tuple)) else ()
    return [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)] if all(isinstance(i, ast.Constant) for i in items) else ()


def owner(statement):
    """Returns what a list in a statement of a module is named by: the variable, function or class
    that it defines, `f()` for a call of f, or `for x`."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
    if isinstance(statement, ast.For):
        return f"for {ast.unparse(statement.target)}"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return f"{ast.unparse(statement.value.func)}()"
    return getattr(statement, "name", type(statement).__name__)


def lists_of(source, names):
    """Returns (owner, line, items) of the literal collections with at least 4 items, most of which
    are in `names`."""
    found = []
    for statement in ast.parse(source).body:
        for node in ast.walk(statement):
            items = texts(node)
            if len(items) >= 4 and 2 * len([i for i in items if i in names]) > len(items):
                found.append((owner(statement), node.lineno, items))
    return found


@pytest.fixture(scope="module")
def names():
    import mindtorch.torch  # noqa: F401
    from mindtorch.core.dispatch.op_registry import OPS
    from mindtorch.core.dispatch.primitives import PRIMITIVES
    return {*OPS, *PRIMITIVES, *[n.rpartition(".")[2] for n in OPS]}


def test_lists_of_op_names_are_views_of_the_records(names):
    """backend names kernels and is below the records; tools check the ops from outside."""
    found = {}
    for floor in ("core", "ops", "torch", "torch_npu", "functorch"):
        for path in sorted((PACKAGE / floor).rglob("*.py")):
            for name, line, items in lists_of(path.read_text("utf-8"), names):
                found.setdefault((path.relative_to(PACKAGE).as_posix(), name), []).append((line, items))
    new = {key: lists for key, lists in found.items() if key not in EXCEPTIONS}
    assert not new, f"op names outside the records: derive them from tags, or give a reason in EXCEPTIONS: {new}"
    assert not EXCEPTIONS.keys() - found.keys(), "exceptions without such a list"


@pytest.mark.parametrize("source, count", [
    ("A = {'add', 'sub', 'mul', 'div'}", 1), ("A = 'add sub mul div'.split()", 1), ("A = ['add', 'sub', 'x', 'y']", 0), ("A = ('add', 'sub', 'mul')", 0),
    ("A = {'add': 1, 'sub': 2, 'mul': 3, 'div': 4}", 1), ("A = ['add', 'sub', 'mul', f()]", 0), ("A = 'add,sub,mul,div'.split(',')", 0),
])
def test_lists_are_detected(source, count):
    assert len(lists_of(source, {"add", "sub", "mul", "div"})) == count


@pytest.mark.parametrize("source, name", [
    ("A: set = {'add', 'sub', 'mul', 'div'}", "A"), ("for n in ('add', 'sub', 'mul', 'div'):\n    f(n)", "for n"), ("d.update({'add': 1, 'sub': 2, 'mul': 3, 'div': 4})", "d.update()"),
    ("def f():\n    return ['add', 'sub', 'mul', 'div']", "f"), ("class C:\n    A = ['add', 'sub', 'mul', 'div']", "C"), ("del {'add', 'sub', 'mul', 'div'}[0]", "Delete"),
])
def test_lists_are_named(source, name):
    assert [n for n, _, _ in lists_of(source, {"add", "sub", "mul", "div"})] == [name]


def test_views_and_random_ops_follow_from_tags():
    from mindtorch.core.dispatch.op_schema import tagged
    from mindtorch.torch import _aten_calls
    from mindtorch.torch.fx import node
    assert {"transpose", "split", "detach"} <= _aten_calls.VIEWS and not _aten_calls.VIEWS & {"clone", "contiguous", "add"}
    assert {"dropout", "rand_like", "native_dropout"} <= node._RANDOM_ATEN and "relu" not in node._RANDOM_ATEN
    assert "view" in tagged("view")
