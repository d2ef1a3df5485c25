"""Tests the steps of docs/adding.md: an op composed of other ops, an op with a kernel, the kernel
on a second device, a lowering.

Each is written once, as in the one file that it would be in. Everything else is derived: function,
method, in-place form, `out=`, gradients of first and second order, autocast, the meta device,
traces, export.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt
from mindtorch.backend.cpu import kernel
from mindtorch.backend.device import Device
from mindtorch.backend.export.lowering import to_model
from mindtorch.backend.export.rules import LOWERINGS, lowering
from mindtorch.backend.kernels import TABLES, registrar
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.primitives import PRIMITIVES, primitive
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.core.compile.tracing import trace
from mindtorch.ops.basic import mul_
from mindtorch.torch._graph import graph_cell


# ---- a second device, in its own folder
class Second(Device):
    type = "second"

    def upload(self, array):
        return [np.array(array)]

    def download(self, handle):
        return handle[0].copy()

    def geometry(self, handle):
        a = handle[0]
        return a.shape, a.dtype, tuple(s // a.itemsize for s in a.strides)


asked = []


@pytest.fixture(scope="module", autouse=True)
def declared():
    """Declares everything, and removes it afterwards, because other tests iterate over all ops."""
    # ---- an op made of other ops: one file of ops/
    @register_op(out=True, inplace=True)
    def tried_composite(input, other, *, scale=1.0):
        """scale * input * other + input."""
        return input * other * scale + input

    # ---- an op with a kernel: the op in a file of ops/, the kernel in one of backend/cpu/
    @kernel("tried_cube")
    def cube(a):
        return a * a * a
    cube.pointwise = True
    cube_ = primitive("tried_cube", "a", lambda c, g: mul_(g, mul_(mul_(c.a, c.a), mt.full_like(c.a, 3.0))))

    @register_op(out=True, autocast="float32")
    def tried_cube(input):
        """input to the power of 3."""
        return cube_(input)

    # ---- its kernel on the second device: one file of that folder
    @registrar("second")("tried_cube")
    def cube_on_second(handle):
        asked.append("second")
        return [handle[0] ** 3]

    # ---- its npu kernel, also used in MindSpore graphs and MindIR: one file of backend/mindspore/kernels/
    @registrar("npu")("tried_cube")
    def cube_on_npu(x):
        return ms.ops.Mul()(ms.ops.Mul()(x, x), x)

    # ---- its lowering to ONNX: one file of backend/export/
    @lowering("tried_cube")
    def lower_cube(k, x):
        return k.mul(k.mul(x, x), x)

    device = Second()
    device_dispatch.register(device)
    yield
    device_dispatch.unregister(device)
    for table in (OPS, PRIMITIVES, TABLES["cpu"], TABLES["second"], TABLES["npu"], LOWERINGS):
        for name in ("tried_composite", "tried_cube"):
            table.pop(name, None)
    for name in ("tried_composite", "tried_composite_", "tried_cube"):
        delattr(Tensor, name)


def tried_cube(x):
    return OPS["tried_cube"].public(x)


def test_a_composite_op():
    x, y = np.float32([1, -2, 3]), np.float32([0.5, 2, -1])
    a, b = mt.tensor(x, requires_grad=True), mt.tensor(y, requires_grad=True)
    p, q = real.tensor(x, requires_grad=True), real.tensor(y, requires_grad=True)
    got, want = OPS["tried_composite"].public(a, b, scale=2.0), p * q * 2.0 + p
    np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy())
    got.sum().backward(), want.sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), p.grad.numpy())
    np.testing.assert_array_equal(b.grad.numpy(), q.grad.numpy())
    out = mt.empty(3)
    assert OPS["tried_composite"].public(a.detach(), b.detach(), out=out) is out and out.tolist() == a.detach().tried_composite(b.detach()).tolist()
    c = a.detach().clone()
    assert c.tried_composite_(b.detach()) is c and c.tolist() == out.tolist()


def test_an_op_with_a_kernel():
    x = mt.tensor([1.0, -2.0, 3.0], dtype=mt.float64, requires_grad=True)
    assert mt.autograd.gradcheck(tried_cube, (x,)) and mt.autograd.gradgradcheck(tried_cube, (x,))
    assert tried_cube(x).grad_fn.name() == "TriedCubeBackward0" and x.tried_cube().tolist() == [1, -8, 27]
    half = mt.ones(2, dtype=mt.float16)
    assert tried_cube(half).dtype is mt.float16
    with mt.autocast("cpu", mt.bfloat16):
        assert tried_cube(half).dtype is mt.float32
    assert tried_cube(mt.ones(2, 3, device="meta")).shape == (2, 3)
    assert tried_cube(mt.ones(2, 3).t()).stride() == (1, 3)  # elementwise: PyTorch's strides


def test_kernel_on_a_second_device():
    x = mt.tensor([1.0, 2.0], requires_grad=False).to("second")
    y = tried_cube(x)
    assert asked == ["second"] and y.device.type == "second" and y.cpu().tolist() == [1, 8]


def test_trace_record_and_lowering():
    graph, out = trace(tried_cube, [mt.tensor([2.0])], leaf=lambda name: name == "tried_cube")
    assert [n.op for n in graph.nodes] == ["tried_cube"] and out.tolist() == [8]
    assert OPS["tried_cube"].autocast == "float32" and OPS["tried_cube"].lowering is LOWERINGS["tried_cube"]
    assert PRIMITIVES["tried_cube"].prim.elementwise and "tried_cube" in vars(Tensor)
    cell = graph_cell(graph)
    np.testing.assert_array_equal(ms.jit(cell.construct)(ms.Tensor(np.float32([3.0]))).asnumpy(), np.float32([27]))
    pytest.importorskip("onnx")
    assert [n.op_type for n in to_model(graph, 17).graph.node] == ["Mul", "Mul", "Identity"]


# ------------------------------------------------------------------ an op with all its rules
#: file -> code appended to it: everything that an op with a kernel for each device consists of
ADDED = {
    "mindtorch/ops/elementwise/unary.py": """

_tried_cubic = primitive("tried_cubic", "a", lambda ctx, grad: mul_(grad, _tried_slope(ctx.a)), tags="pointwise",
                         tangent=lambda ctx, tangents: mul_(tangents[0], _tried_slope(ctx.a)),
                         batch=lambda prim, operands, mapped, attrs, level: prim.function(*operands))


def _tried_slope(a):
    return mul_(mul_(a, a), scalar(3, a))


@register_op(out=True, inplace=True, tags="pointwise")
def tried_cubic(input):
    \"\"\"input to the power of 3.\"\"\"
    return _tried_cubic(input)
""",
    "mindtorch/backend/cpu/unary.py": """

kernel("tried_cubic", lambda a: a * a * a)
""",
    "mindtorch/backend/mindspore/kernels/unary.py": """

@kernel("tried_cubic")
def _tried_cubic(a):
    return op(P.Mul)(op(P.Mul)(a, a), a)
""",
    "tests/ops/test_tried_cubic.py": """
import pytest

import mindtorch.torch as torch
from mindtorch.core.device.device_dispatch import FALLBACKS


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_tried_cubic_has_values_gradients_tangents_and_batches(device):
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float32 if device == "npu" else torch.float64).to(device)
    assert x.tried_cubic().tolist() == [1, -8, 27]
    y = x.clone().requires_grad_()
    y.tried_cubic().sum().backward()
    assert y.grad.tolist() == [3, 12, 27] and x.clone().tried_cubic_().tolist() == [1, -8, 27]
    value, tangent = torch.func.jvp(torch.Tensor.tried_cubic, (x,), (torch.ones_like(x),))
    assert value.tolist() == [1, -8, 27] and tangent.tolist() == [3, 12, 27]
    assert torch.func.vmap(torch.Tensor.tried_cubic)(torch.stack([x, -x])).tolist() == [[1, -8, 27], [-1, 8, -27]]
    assert torch.func.vmap(torch.func.grad(lambda v: v.tried_cubic()))(x).tolist() == [3, 12, 27]
    assert ("npu", "tried_cubic") not in FALLBACKS
    if device == "cpu":
        assert torch.autograd.gradcheck(torch.Tensor.tried_cubic, (y,)) and torch.autograd.gradgradcheck(torch.Tensor.tried_cubic, (y,))
""",
}


def test_an_op_with_all_rules_changes_four_files(tmp_path):
    """Appends an op, its gradient, JVP and vmap rules, a kernel for the cpu and the npu, and its
    test to a copy of the package, and runs that test there."""
    root = pathlib.Path(__file__).parents[2]
    shutil.copytree(root / "mindtorch", tmp_path / "mindtorch", copy_function=os.symlink, ignore=shutil.ignore_patterns("_generated", "__pycache__"))
    for name, code in ADDED.items():
        path, text = tmp_path / name, (root / name).read_text("utf-8") if (root / name).exists() else ""
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + code, "utf-8")
    changed = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file() and not p.is_symlink()}
    assert changed == set(ADDED) and len(changed) <= 4
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "MINDTORCH_NPU": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
    test, = (n for n in ADDED if n.startswith("tests/"))
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test], cwd=tmp_path, env=env,
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0 and "2 passed" in run.stdout, run.stdout[-3000:] + run.stderr[-1000:]
    shown = subprocess.run([sys.executable, "-m", "mindtorch", "coverage", "--op", "tried_cubic"], cwd=tmp_path, env=env, capture_output=True, text=True,
                           check=False).stdout
    for name in ADDED:
        assert name in shown, shown
