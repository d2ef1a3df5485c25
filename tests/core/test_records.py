"""Records of ops and primitives: names are unique, fields are correct, every primitive has a host
kernel, constants are plain values."""
import inspect
import re

import numpy as np
import pytest
import torch as real

import mindtorch.torch as torch
import mindtorch.torch.distributed.tensor  # noqa: F401  (declares a primitive)
from mindtorch.__main__ import main
from mindtorch.backend import kernels
from mindtorch.backend.mindspore import kernels as npu_kernels
from mindtorch.backend.export.lowering import LOWERINGS
from mindtorch.core.tensor import inplace
from mindtorch.core.device import device, device_dispatch, rng
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.compile import tracing
from mindtorch.core.dispatch.op_schema import ANNOTATIONS, CONDITIONS, OPS as SCHEMAS, TAGS, tagged
from mindtorch.core.dispatch.op_registry import register_op, record_of
from mindtorch.core.dispatch.primitives import PRIMITIVES, primitive, tagged as tagged_primitives
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.core.dispatch.tensor_list_primitive import tensor_list_primitive
from mindtorch.tools import _opinfo_runner as C, _kernels

RECORDS = [f.prim for f in PRIMITIVES.values()]
OPS = list({id(o.main): o.main for o in SCHEMAS.values()}.values())


# ------------------------------------------------------------------ names
def test_names_of_primitives_are_unique():
    assert all(name == f.prim.name == f.__name__ for name, f in PRIMITIVES.items())
    with pytest.raises(ValueError, match="there is a primitive 'neg' already"):
        primitive("neg", "a")
    with pytest.raises(ValueError, match="there is a primitive 'cat' already"):
        tensor_list_primitive("cat", "tensors, *, dim", lambda c, g: None)
    with pytest.raises(NotImplementedError, match="'no_such_kernel' has no kernel on device cpu"):
        primitive("no_such_kernel", "a")


def test_names_of_ops_are_unique():
    assert all(name == o.qualname for name, o in SCHEMAS.items())
    with pytest.raises(ValueError, match="there is an op 'neg' already"):
        register_op(name="neg")(lambda input: input)
    assert SCHEMAS["neg"].main is SCHEMAS["neg"] and SCHEMAS["negative"].main is SCHEMAS["neg"] and SCHEMAS["negative"].public is torch.neg


def test_duplicate_kernel_raises():
    with pytest.raises(ValueError, match="device cpu has a kernel 'neg' already"):
        kernels.registrar("cpu")("neg", np.negative)


# ------------------------------------------------------------------ primitives
def test_every_primitive_has_a_host_kernel_and_declared_constants():
    host = kernels.TABLES["cpu"]
    for p in RECORDS:
        assert p.fwd is host[p.name], p.name
        assert all(re.fullmatch(r"[a-z]\w*", n, re.I) for n in (*p.inputs, *p.attrs)), (p.name, p.inputs, p.attrs)
        assert len({*p.inputs, *p.attrs}) == len(p.inputs) + len(p.attrs), p.name
        assert len(p.grads) <= len(p.inputs) or p.joint, p.name
        for rule in p.layout if p.layout.__class__ is tuple else (p.layout,):
            assert rule is None or list(inspect.signature(rule).parameters) == ["r", "operands", "kw"], p.name
        for i in (*p.nondiff, *p.residuals, *(p.node_class.order or ())):
            assert i.__class__ is int and i >= 0, p.name


def test_every_device_kernel_belongs_to_a_primitive():
    for d, table in kernels.TABLES.items():
        if d != "cpu":
            # Only devices have "put", a write at indices: core/tensor/inplace.py writes at the
            # host's indices itself.
            assert set(table) - {"put"} <= set(kernels.TABLES["cpu"]), d


def test_npu_kernels_accept_their_primitives_arguments():
    kernels.load(npu_kernels)
    assert len(npu_kernels._found) > 400
    assert set(npu_kernels._found) <= set(kernels.TABLES["cpu"])
    for name, ways in npu_kernels._found.items():
        if name not in PRIMITIVES or PRIMITIVES[name].prim.variadic:
            continue
        p = PRIMITIVES[name].prim
        for fn in ways.values():
            try:
                inspect.signature(fn).bind(*p.inputs, **dict.fromkeys(p.attrs))
            except TypeError as e:
                raise AssertionError(f"{name}: {e}") from None


def test_host_kernels_accept_the_declared_constants():
    for p in RECORDS:
        try:
            s = inspect.signature(p.fwd)
        except (TypeError, ValueError):  # a ufunc, for example, has no signature
            continue
        if p.variadic:
            s.bind(0, 0, **dict.fromkeys(p.attrs))
        else:
            s.bind(*p.inputs, **dict.fromkeys(p.attrs))


# ------------------------------------------------------------------ fields
def test_op_fields_are_valid():
    for o in OPS:
        assert inspect.isfunction(o.autocast) or o.autocast in (None, "lower", "float32", "by_input"), o
        assert o.overlap in (None, *inplace.OVERLAPS) and (o.overlap is None or o.inplace or o.out), o
        assert o.tags <= TAGS.keys() and (o.condition is None or o.condition in CONDITIONS and o.tags & {"data_dependent_output", "dynamic_output_shape"}), o
        assert o.sharding in (None, "elementwise", "linear", "random"), o
        assert o.capture in (None, "meta", "values", "sizes", "values of tensors", "sizes of tensors", "sizes if alone", "sizes unless told"), o
        assert o.writes is None or o.writes[0] in o.signature.parameters, o
        assert not o.inplace or hasattr(Tensor, o.name + "_"), o
        for n in o.aliases:
            qualname = n if "." in n or not o.ns else f"{o.ns}.{n}"
            row = SCHEMAS[qualname]
            assert row.main is o and [getattr(row, f) for f in ("autocast", "overlap", "tags", "condition", "writes", "lowering")] == [
                o.autocast, o.overlap, o.tags, o.condition, o.writes, o.lowering], n


def test_tags_are_found_by_name():
    for tag in TAGS:
        assert tagged(tag) == {n for n, o in SCHEMAS.items() if tag in o.tags}
        assert tagged_primitives(tag) == {n for n, f in PRIMITIVES.items() if tag in f.prim.tags}
    assert {"neg", "negative"} <= tagged("linear_pointwise") < tagged("pointwise") and "sum" not in tagged("pointwise")
    assert "rand_like" in tagged("nondeterministic_seeded") and "nonzero" in tagged("dynamic_output_shape")
    assert {"transpose", "permute"} <= tagged_primitives("view") and "exp" in tagged_primitives("pointwise")
    assert "uniform" in tagged_primitives("nondeterministic_seeded")


def test_tags_have_torchs_names():
    ours = {"linear_pointwise", "metadata_only", "view"}
    assert all(hasattr(real.Tag, t) for t in TAGS.keys() - ours) and not any(hasattr(real.Tag, t) for t in ours)


def test_number_annotations_are_kinds_and_not_public():
    assert SCHEMAS["sum"].arg_kinds == {"dim": "index", "keepdim": "bool"} and SCHEMAS["addcmul"].arg_kinds == {"value": "number"}
    assert ANNOTATIONS.keys() == {k for o in OPS for k in o.arg_kinds.values()}
    for o in OPS:
        assert o.arg_kinds.keys() <= o.signature.parameters.keys(), o
        assert all(p.annotation is p.empty for f in (o.body, o.fn) for p in inspect.signature(f).parameters.values()), o
    assert not any(p.annotation is not p.empty for p in inspect.signature(Tensor.normal_).parameters.values())


def test_unknown_tag_or_condition_raises():
    with pytest.raises(ValueError, match="unknown tag 'elementwise'"):
        register_op(name="tried_tag", tags="elementwise")(lambda input: input)
    with pytest.raises(ValueError, match="'tried_tag': unknown condition 'sometimes'"):
        register_op(name="tried_tag", condition="sometimes")(lambda input: input)
    with pytest.raises(ValueError, match="unknown tag 'elementwise'"):
        tagged("elementwise")


def test_record_is_found_for_functions_and_methods():
    for f in (torch.add, Tensor.add, Tensor.add_):
        assert record_of(f) is SCHEMAS["add"]
    assert record_of(torch.multiply) is SCHEMAS["mul"] and record_of(torch.nn.functional.relu) is SCHEMAS["nn.functional.relu"]
    assert record_of(Tensor.where) is SCHEMAS["where"] and record_of(Tensor.squeeze_) is SCHEMAS["squeeze"]
    assert record_of(Tensor.__add__) is None and record_of(Tensor.item) is None and record_of(len) is None


def test_every_lowering_belongs_to_a_known_op():
    named = {o.qualname for o in OPS} | {"prim." + n for n in PRIMITIVES} | tracing.STEPS
    assert set(LOWERINGS) <= named
    with pytest.raises(ValueError, match="there is a lowering of 'exp' already"):
        LOWERINGS["exp"] = None
    assert SCHEMAS["absolute"].lowering is SCHEMAS["abs"].lowering is LOWERINGS["abs"] is not None
    assert PRIMITIVES["exp"].prim.lowering is LOWERINGS["prim.exp"] and PRIMITIVES["bincount"].prim.lowering is None


# ------------------------------------------------------------------ constants
PLAIN = (int, float, complex, bool, str, type(None), type(Ellipsis), np.dtype, device.device)


def odd(value):
    """Returns the part of a constant that is not plain; None if there is none."""
    if value.__class__ is tuple:
        return next((o for o in map(odd, value) if o is not None), None)
    if value.__class__ is slice:
        return odd((value.start, value.stop, value.step))
    return None if isinstance(value, PLAIN) and not isinstance(value, np.generic) else value


def calls(step):
    """Returns (names of primitives called, {primitive: (constant, the part that is not plain)}).

    Runs a sample of every `step`th op and its gradient.
    """
    called, found = set(), {}
    below_it = device_dispatch._on_device

    def look(prim, args, kw, below):
        called.add(prim.name)
        for n, v in kw.items():
            o = None if n == "generator" and (v is None or isinstance(v, rng.Generator)) else odd(v)
            if o is not None:
                found[prim.name] = n, type(o)
            if n not in prim.attrs:
                found[prim.name] = n, "is not declared"
        return below_it(prim, args, kw, below)

    torch_testing = pytest.MonkeyPatch()
    # it walks the stack for every sample
    torch_testing.setattr("torch.testing._internal.opinfo.core.extract_test_fn", lambda: None)
    dispatcher.register_layer("primitives", "device")(look)
    dispatcher.enable_layer("primitives", "device")
    try:
        for _, o in list(C.ops())[::step]:
            if o.supports_dtype(real.float32, "cpu"):
                for _ in C.judge(o, "float32", limit=1):
                    pass
    finally:
        dispatcher.disable_layer("primitives", "device")
        dispatcher.register_layer("primitives", "device")(below_it)
        torch_testing.undo()
    return called, found


def test_constants_of_primitives_are_plain_values():
    called, found = calls(4)
    assert not found
    assert len(called) > 0.3 * len(PRIMITIVES), len(called) / len(PRIMITIVES)


@pytest.mark.slow
def test_constants_of_all_primitives_are_plain_values():
    called, found = calls(1)
    assert not found
    assert len(called) > 0.7 * len(PRIMITIVES), sorted(set(PRIMITIVES) - called)


# ------------------------------------------------------------------ printed output
def test_coverage_lists_all_kernels(capsys, tmp_path):
    page = tmp_path / "kernels.md"
    assert main(["coverage", "--kernels", "--markdown", str(page)]) == 0
    printed, text = capsys.readouterr().out, page.read_text("utf-8")
    for p in RECORDS:
        assert re.search(rf"^{re.escape(p.name)} .* kernel ", printed, re.M), p.name
        assert f"| {p.name} | " in text
    assert f"{len(_kernels.primitives())} primitives" in printed and "cpu has no kernel" not in printed
    assert main(["coverage", "--kernels", "--filter", "softmax"]) == 0
    assert "softmax_backward" in (printed := capsys.readouterr().out) and "bincount" not in printed


def test_coverage_lists_missing_kernels(monkeypatch, capsys):
    monkeypatch.setitem(device_dispatch.DEVICES, "other", None)
    monkeypatch.setitem(kernels.TABLES, "other", {"neg": None})
    assert main(["coverage", "--kernels"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("other has no kernel for: "))
    assert " exp " in line and " neg " not in line and " transpose " not in line and " to_device " not in line


def test_coverage_shows_one_op(capsys):
    assert main(["coverage", "--op", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "op nn.functional.softmax(" in out and "primitive softmax(a, *, dim)" in out and "SoftmaxBackward0" in out
    assert main(["coverage", "--op", "negative"]) == 0
    out = capsys.readouterr().out
    assert "op neg(input)" in out and "torch.neg torch.negative Tensor.neg Tensor.negative Tensor.neg_ Tensor.negative_ (out=)" in out
    assert "sharding   linear" in out and "tags       linear_pointwise pointwise" in out and "aten       neg" in out
    assert "declared   mindtorch/ops/elementwise/unary.py:" in out and re.search(r"tests      tests/\S+\.py", out)
    assert main(["coverage", "--op", "addmm"]) == 0
    out = capsys.readouterr().out
    assert "op addmm(input, mat1, mat2, *, beta: Scalar = 1, alpha: Scalar = 1)" in out
    for line in ("rule       of \\w+: mindtorch/ops/", "tangent ", "batching   mindtorch/ops/_vmap_rules.py:", "strides ", "cpu        kernel  mindtorch/backend/cpu/",
                 "npu CPU    kernel.*  mindtorch/backend/mindspore/kernels/", "npu Ascend kernel.*  mindtorch/backend/mindspore/kernels/", "meta ", "lowering "):
        assert re.search(f"^  {line}", out, re.M), line
    for name in SCHEMAS:
        assert _kernels.describe(name), name
    assert main(["coverage", "--op", "no_such_op"]) == 1
    assert "no_such_op" in capsys.readouterr().err
