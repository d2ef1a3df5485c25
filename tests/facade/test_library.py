"""torch.library, torch.ops and the operators of torchvision's namespace."""
import copy
import math

import numpy as np
import pytest
import torch

import mindtorch.torch as mt
from mindtorch.torch import library, ops


@pytest.fixture
def lib():
    with library._scoped_library("mtest", "FRAGMENT") as one:
        yield one


def test_define_and_impl(lib):
    lib.define("scale(Tensor x, float by=2.0, *, int plus=0) -> Tensor")
    lib.impl("scale", lambda x, by, plus: x * by + plus, "CompositeImplicitAutograd")
    x = mt.ones(3, requires_grad=True)
    y = ops.mtest.scale(x, plus=1)
    assert y.tolist() == [3, 3, 3]
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert ops.mtest.scale.default(x, 3.0).tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="missing value for argument 'x'"):
        ops.mtest.scale()
    with pytest.raises(RuntimeError, match="Unknown keyword"):
        ops.mtest.scale(x, nothing=1)
    with pytest.raises(RuntimeError, match="multiple"):
        lib.define("scale(Tensor x) -> Tensor")


def test_operator_without_a_kernel_raises(lib):
    lib.define("nothing(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="mtest::nothing.*CPU"):
        ops.mtest.nothing(mt.ones(1))
    with pytest.raises(AttributeError):
        getattr(ops.mtest, "unheard_of")  # noqa: B009
    with pytest.raises(RuntimeError, match="does not exist"):
        library.register_fake("mtest::unheard_of", lambda: None)


def test_custom_op_with_gradient():
    @library.custom_op("mtest2::sine", mutates_args=())
    def sine(x: mt.Tensor, times: float = 1.0) -> mt.Tensor:
        return mt.from_numpy(np.sin(x.detach().numpy() * times))

    assert str(sine._opoverload._schema) == "sine(Tensor x, float times=1.0) -> Tensor"
    x = mt.tensor([0.5, 1.0], requires_grad=True)
    y = sine(x)
    assert y.requires_grad
    with pytest.raises(NotImplementedError, match="no autograd formula"):
        y.sum().backward()

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.times = inputs[1]

    sine.register_autograd(lambda ctx, g: (g * ctx.times * (ctx.saved_tensors[0] * ctx.times).cos(), None), setup_context=setup)
    sine(x, 2.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos([1.0, 2.0]), rtol=1e-6)
    assert ops.mtest2.sine(x).tolist() == pytest.approx([math.sin(0.5), math.sin(1.0)])


def test_custom_op_that_mutates():
    @library.custom_op("mtest2::fill", mutates_args=["x"])
    def fill(x: mt.Tensor, value: int) -> None:
        x.fill_(value)

    x = mt.zeros(2)
    assert fill(x, 3) is None and x.tolist() == [3, 3]
    with pytest.raises(ValueError, match="type annotation"):
        library.infer_schema(lambda x: x, mutates_args=())


def test_aten():
    a = mt.tensor([1.0, 4.0])
    assert ops.aten.add.Tensor(a, a).tolist() == [2, 8]
    assert ops.aten.sqrt.default(a).tolist() == [1, 2]
    assert not hasattr(ops.aten, "no_such_operator")
    with pytest.raises(OSError):
        ops.load_library("/nowhere/libsomething.so")


def test_nms():
    boxes = mt.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    scores = mt.tensor([0.5, 0.9, 0.3])
    assert ops.torchvision.nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert ops.torchvision.nms(boxes, scores, 0.9).tolist() == [1, 0, 2]
    with pytest.raises(RuntimeError, match="4 elements"):
        ops.torchvision.nms(boxes[:, :3], scores, 0.5)


def test_roi_operators():
    # Bilinear sampling reproduces a plane: the mean over a bin is the value at its centre.
    y, x = mt.meshgrid(mt.arange(12.0), mt.arange(12.0), indexing="ij")
    image = (2 * y + x).expand(1, 4, 12, 12).contiguous().requires_grad_()
    rois = mt.tensor([[0.0, 2, 2, 6, 6]])
    out = ops.torchvision.roi_align(image, rois, 1.0, 2, 2, 2, True)
    centres = np.array([2.5, 4.5])
    np.testing.assert_allclose(out.detach().numpy()[0, 0], 2 * centres[:, None] + centres[None], rtol=1e-6)
    out.sum().backward()
    assert image.grad.sum().item() == pytest.approx(16)
    pooled, where = ops.torchvision.roi_pool(image, rois, 1.0, 1, 1)
    assert pooled[0, 0].item() == 18 and where[0, 0].item() == 6 * 12 + 6
    ps, mapping = ops.torchvision.ps_roi_align(image, rois, 1.0, 2, 2, 2)
    assert ps.shape == (1, 1, 2, 2) and mapping.flatten().tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(ps.detach().numpy()[0, 0], out.detach().numpy()[0, 0], rtol=1e-6)


def test_deform_conv_without_offsets_is_conv():
    rng = np.random.default_rng(0)
    x, w = (mt.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in ((2, 4, 6, 6), (6, 2, 3, 3)))
    offset, none, bias = mt.zeros(2, 18, 6, 6), mt.zeros(2, 9, 6, 6), mt.zeros(6)
    got = ops.torchvision.deform_conv2d(x, w, offset, none, bias, 1, 1, 1, 1, 1, 1, 2, 1, False)
    want = mt.nn.functional.conv2d(x, w, padding=1, groups=2)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_deepcopy_keeps_operators_by_identity():
    assert copy.deepcopy({mt.ops.aten.addmm: 1}).get(mt.ops.aten.addmm) == 1
    assert copy.deepcopy([mt.ops.aten.add.Tensor])[0] is mt.ops.aten.add.Tensor


def test_grouping_tensors_by_device_and_dtype():
    from torch.utils import _foreach_utils as real

    from mindtorch.torch.utils import _foreach_utils as own

    def run(T, module):
        a = [T.ones(1), T.ones(2, dtype=T.float64), T.ones(3)]
        lists = [a, [None] * 3, [], [T.tensor(float(i)) for i in range(3)]]
        shown = [[(str(device), str(dtype), [[None if t is None else t.tolist() for t in part] for part in parts], list(at))
                  for (device, dtype), (parts, at) in sorted(module._group_tensors_by_device_and_dtype(lists, with_indices=w).items(), key=str)] for w in (False, True)]
        for wrong in ([], [[]], [[None]], [a, a[:1]]):
            with pytest.raises(RuntimeError):
                module._group_tensors_by_device_and_dtype(wrong)
        return shown, module._has_foreach_support(a, T.device("cpu"))
    assert run(mt, own) == run(torch, real)
