"""Core ops, forward, backward and double backward, run only through npu kernels. The test fails if
a kernel is lost or no longer supports an op's arguments.

Samples come from PyTorch's op database, in float32. A fallback to the host is an error here.
"""
import itertools

import pytest

import _on_device
from mindtorch.core.device import device_dispatch, rng
from mindtorch.tools import _opinfo_runner as C

#: ops without a single fallback; do not remove an op to make this pass
OPS = set("""abs add item arange normal.in_place uniform mul sub addmm addmm.decomposed baddbmm bmm addcmul addcdiv cdist ceil chunk clone contiguous clamp cos
 cumsum div.no_rounding_mode div.trunc_rounding div.floor_rounding exp expand expand_as eq remainder floor flip floor_divide log1p ge gt le linspace
 linspace.tensor_overload log logical_not lt masked_fill masked_scatter masked_select matmul max.reduction_with_dim max.reduction_no_dim
 meshgrid.variadic_tensors meshgrid.list_of_tensors min.reduction_with_dim min.reduction_no_dim max.binary maximum min.binary minimum logical_and
 logical_or softmax softmax.with_dtype nn.functional.cross_entropy nn.functional.normalize nn.functional.cosine_similarity
 nn.functional.adaptive_avg_pool2d nn.functional.binary_cross_entropy_with_logits nn.functional.relu nn.functional.conv1d nn.functional.conv2d
 nn.functional.group_norm nn.functional.instance_norm nn.functional.rms_norm nn.functional.pad.constant nn.functional.pad.reflect
 nn.functional.pad.replicate nn.functional.pad.replicate_negative nn.functional.pad.circular nn.functional.hardswish nn.functional.interpolate.nearest
 nn.functional.interpolate.nearest-exact nn.functional.interpolate.linear nn.functional.interpolate.bilinear nn.functional.interpolate.bicubic
 nn.functional.interpolate.trilinear nn.functional.interpolate.area nn.functional.leaky_relu nn.functional.avg_pool2d nn.functional.max_pool2d
 nn.functional.linear nn.functional.glu nn.functional.elu nn.functional.scaled_dot_product_attention nn.functional.silu nn.functional.hardsigmoid topk
 nn.functional.batch_norm nn.functional.binary_cross_entropy nn.functional.gelu mm ne narrow neg outer permute pow roll round round.decimals_0
 round.decimals_3 round.decimals_neg_3 sin sign split split.list_args __radd__ __rdiv__ __rmul__ __rsub__ select tanh reciprocal rsqrt sqrt square
 lerp isfinite isinf isnan einsum reshape view view_as flatten unflatten gather index_copy index_select index_add __getitem__ index_put sort unique
 scatter bfloat16 bool double float half int long zeros_like ones_like randn randn_like randint full_like new_zeros new_ones ones zeros full eye
 new_full multinomial normal normal.number_mean bernoulli scatter_add stack searchsorted cat unbind movedim repeat squeeze squeeze.multiple tile
 unsqueeze zero_ logsumexp transpose T mT tril triu sigmoid erf nn.functional.smooth_l1_loss nn.functional.l1_loss log_softmax log_softmax.with_dtype
 where nonzero norm norm.nuc norm.fro norm.inf nn.functional.dropout nn.functional.embedding nn.functional.multi_head_attention_forward
 nn.functional.softplus nn.functional.mse_loss nn.functional.grid_sample all any amax amin argmax argmin mean std std.unbiased var var.unbiased prod
 sum nn.functional.nll_loss argsort repeat_interleave nn.functional.pixel_shuffle nn.functional.kl_div scatter_reduce.sum scatter_reduce.prod
 scatter_reduce.mean scatter_reduce.amin scatter_reduce.amax linalg.norm linalg.norm.subgradients_at_zero linalg.vector_norm bmm.triton_optimized""".split())
CASES = [(name, op) for name, op in C.ops() if name in OPS]

#: ops whose double backward has steps without kernels
ONCE = {"nn.functional.grid_sample"}


@pytest.fixture(scope="module", autouse=True)
def strict(npu):
    before, device_dispatch.fallback.policy = device_dispatch.fallback.policy, "error"
    host, rng.policy.host = rng.policy.host, True
    with _on_device.Everything("npu"):
        yield
    device_dispatch.fallback.policy, rng.policy.host = before, host


@pytest.mark.parametrize("name,op", CASES, ids=[n for n, _ in CASES])
def test_op(name, op):
    bad = [f"{check} {outcome}: {detail}" for check, outcome, detail in C.judge(op, "float32", limit=2) if outcome != "pass"]
    assert not bad, "\n".join(bad)


TWICE = [(name, op) for name, op in CASES if op.supports_autograd and op.supports_gradgrad and name not in ONCE]


@pytest.mark.parametrize("name,op", TWICE, ids=[n for n, _ in TWICE])
def test_op_double_backward(name, op):
    torch, _ = C.real_torch()
    mt = C.facade()
    fn = C.facade_op(op, torch, mt)
    for s in itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), 2):
        carry = C.Carrier(torch, mt, "npu")
        args, kwargs = carry([s.input, *s.args]), carry(s.kwargs)
        outs = [o for o in C._float_leaves(mt.Tensor, fn(*args, **kwargs)) if o.requires_grad]
        leaves = [x for x in C._float_leaves(mt.Tensor, [args, kwargs]) if x.requires_grad]
        if not outs or not leaves:
            continue
        found = mt.autograd.grad(sum((o * o).sum() for o in outs), leaves, create_graph=True, allow_unused=True)
        found = [g for g in found if g is not None and g.requires_grad]
        if found:
            sum((g * g).sum() for g in found).backward()
            assert all(x.grad is None or x.grad.device.type == "npu" for x in leaves)


def test_listed_ops_exist():
    assert OPS == {name for name, _ in CASES}
