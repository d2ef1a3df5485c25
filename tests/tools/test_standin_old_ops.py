"""The CANN simulator's ops of the old (aclop) path: PyTorch and mindtorch compute the same."""
import json

import numpy as np
import pytest

from _standin_cases import Outcome, old, out

R = np.random.RandomState(0)


def f(*shape):
    return np.asarray(R.randn(*shape), "float32")


def p(*shape):
    return np.asarray(R.rand(*shape) + .2, "float32")


def n(*numbers, dtype="int64"):
    return np.array(numbers if len(numbers) > 1 else numbers[0], dtype)


def result(inputs, *shape, dtype="float32", name, **attributes):
    return old(name, inputs, [out(*shape, dtype=dtype)], **attributes)


X, Y, S = f(4, 8), f(4, 8), np.tril(p(3, 3)) + np.eye(3, dtype="float32")
UNIT = p(4, 8) * np.float32(.6)


def cases():
    for name in "Identity ZerosLike OnesLike Neg Square Exp Tan Atan Asinh Lgamma CustLgamma Digamma CustBesselI0".split():
        yield result([X], 4, 8, name=name)
    for name in "Sqrt Log".split():
        yield result([p(4, 8)], 4, 8, name=name)
    for name in "Acos Asin".split():
        yield result([UNIT], 4, 8, name=name)
    yield result([UNIT + 1], 4, 8, name="Acosh")
    for name in "Add AddV2 Sub Mul RealDiv Div Maximum Minimum".split():
        yield result([X, f(8)], 4, 8, name=name)
    yield result([n(7, -7), n(2, 2)], 2, dtype="int64", name="Div")
    yield result([p(4, 8), Y], 4, 8, name="Pow")
    yield result([p(4, 8), p(4, 8)], 4, 8, name="CustIgamma")
    yield result([n(1), p(4, 8)], 4, 8, name="CustPolygamma")
    yield result([f(2, 3, 4), f(3)], 2, 3, 4, name="BiasAdd")
    yield result([f(2, 3, 4)], 3, name="BiasAddGrad")
    yield result([X], name="L2Loss")
    for name in "SqrtGrad RsqrtGrad ReciprocalGrad AcosGrad AsinGrad AtanGrad AcoshGrad AsinhGrad".split():
        yield result([UNIT, Y], 4, 8, name=name)
    for name in "Assign AssignAdd AssignSub".split():
        yield result([X, Y], 4, 8, name=name)
    yield result([X, n([2, 0]), f(2, 8)], 4, 8, name="ScatterUpdate", use_locking=True)
    yield result([X, n([2, 2]), f(2, 8)], 4, 8, name="ScatterAdd")
    for name in "ReduceSum ReduceMean ReduceProd".split():
        yield result([f(2, 3, 4), n([0, -1])], 3, name=name, keep_dims=False)
        yield result([f(2, 3, 4), n([1])], 2, 1, 4, name=name, keep_dims=True)
        yield result([X, np.zeros(0, "int64")], name=name, keep_dims=False)
    yield result([X, np.zeros(0, "int64")], 4, 8, name="ReduceMean", noop_with_empty_axes=True)
    for reverse in (False, True):
        yield result([X, n(1)], 4, 8, name="Cumsum", reverse=reverse, exclusive=False)
        yield result([X, n(0)], 4, 8, name="Cumprod", reverse=reverse)
    yield result([X, n(-1)], 4, dtype="int32", name="ArgMaxV2")
    yield old("TopK", [X, n(2)], [out(4, 2), out(4, 2, dtype="int32")], sorted=True)
    yield old("Sort", [X], [out(4, 8), out(4, 8, dtype="int32")], axis=0, descending=True)
    yield result([f(2, 3, 4), n(2, 0, 1)], 4, 2, 3, name="Transpose")
    yield result([n(1), n(9), n(2)], 4, dtype="int64", name="Range")
    yield result([np.float32(0) * f(), f() * 0 + 1, n(5)], 5, name="LinSpace")
    yield result([n(2, 3), f()], 2, 3, name="Fill")
    yield result([f(3)], 3, 3, name="Diag")
    yield result([X, n(0, 7), n(4, 0), n(2, -3)], 2, 3, name="StridedSlice")
    yield result([X, n(2, 1), n(3, 5), n(1, 2)], 4, name="StridedSlice", shrink_axis_mask=1, end_mask=2)
    yield result([n(4, 8), n(0, 1), n(4, 8), n(2, 3), f(2, 3)], 4, 8, name="StridedSliceGrad")
    yield result([X, Y], 4, 2, 8, name="Pack", N=2, axis=1)
    yield result([X, n(1, 0, 2, 3), f()], 5, 13, name="PadV3", mode="constant", paddings_contiguous=True)
    yield result([X, n(1, 2, 0, 3), f()], 5, 13, name="PadV3", mode="constant", paddings_contiguous=False)
    yield result([X, n([[1, 0], [2, 3]])], 5, 13, name="Pad")
    yield result([n(1, 2), n(5), f(), f()], 2, 5, name="OneHot", axis=-1)
    yield result([n(1, 2), n(5), f(), f()], 5, 2, name="OneHot", axis=0)
    yield result([X, n([[1, -3], [0, 7]]), n(1)], 4, 2, 2, name="GatherV2", batch_dims=0)
    rows, points = n([[1], [3]]), n([[1, 2], [3, 0]])
    yield result([X, rows], 2, 8, name="GatherNd")
    yield result([X, points], 2, name="GatherNd")
    yield result([X, points, f(2)], 4, 8, name="TensorScatterUpdate")
    yield result([X, rows, f(2, 8)], 4, 8, name="ScatterNdUpdate")
    yield result([n([[1], [1]]), f(2, 8), n(4, 8)], 4, 8, name="ScatterNd")
    yield result([X, n([[1] * 8]), f(1, 8)], 4, 8, name="ScatterElements", axis=0, reduction="none")
    yield result([X, n([[1, 1]] * 4), f(4, 2)], 4, 8, name="ScatterElements", axis=1, reduction="add")
    yield result([X, n(0, 1, 0, 1, dtype="int32"), n(2)], 2, 8, name="UnsortedSegmentSum")
    for adjoint in (False, True):
        yield result([S], 3, 3, name="MatrixInverse", adjoint=adjoint)
        yield result([S, f(3, 2)], 3, 2, name="MatrixSolve", adjoint=adjoint)
    yield result([S], name="MatrixDeterminant")
    yield old("LogMatrixDeterminant", [S], [out(), out()])
    yield result([S], 3, 3, name="CustCholeskyInverse", upper=False)
    yield old("Svd", [np.diag(n(3, 2, 1, dtype="float32"))], [out(3), out(3, 3), out(3, 3)], compute_uv=True, full_matrices=False)
    yield old("Svd", [f(4, 3)], [out(3)], compute_uv=False)
    yield old("SoftmaxCrossEntropyWithLogits", [X, p(4, 8)], [out(4), out(4, 8)])
    logits = f(5, 2, 8)
    words = logits - np.log(np.exp(logits).sum(-1, keepdims=True)), n([[1, 2, 2], [3, 4, 0]]).astype("int32"), n(5, 4, dtype="int32"), n(3, 2, dtype="int32")
    yield old("CTCLossV2", list(words), [out(2), out(2, 5, 8)], blank=0, reduction="none", zero_infinity=False)
    yield old("CTCLossV2Grad", [f(2), *words, f(2), f(2, 5, 8)], [out(5, 2, 8)], blank=0, zero_infinity=False)
    targets = n([[1, 2, -1, 5, 0, 0, 0, 0], [0, -1, 0, 0, 0, 0, 0, 0], [-1] * 8, list(range(8))]).astype("int32")
    yield old("MultilabelMarginLoss", [X, targets], [out(), out(4, 8, dtype="int32")], reduction="mean")
    yield result([X, n(1, 2, 7, 0), p(8)], 4, name="CustMultiMarginLoss", p=2, margin=.5, reduction="none")
    yield result([X, n(1, 2, 7, 0), None], name="CustMultiMarginLoss", p=1, margin=1, reduction="mean")
    lr, beta, gamma, eps = (np.array(v, "float32") for v in (.1, .9, .99, 1e-3))
    for nesterov in (False, True):
        yield old("ApplyMomentum", [X, Y, lr, f(4, 8), beta], [out(4, 8)], use_nesterov=nesterov)
        yield old("ApplyAdamD", [X, Y, p(4, 8), beta, gamma, lr, beta, gamma, eps, f(4, 8)], [out(4, 8), out(4, 8), out(4, 8)], use_nesterov=nesterov)
    yield old("ApplyAdagradD", [X, p(4, 8), lr, f(4, 8)], [out(4, 8), out(4, 8)])
    yield old("ApplyRMSProp", [X, p(4, 8), Y, lr, beta, gamma, eps, f(4, 8)], [out(4, 8)])
    # T 5, batch 2, input 8, state 16
    steps = [p(5, 2, 16) * np.float32(.6) for _ in range(8)]
    lstm = [f(5, 2, 8), f(24, 64), f(64)]
    state = [f(1, 2, 16), f(1, 2, 16)]
    yield old("DynamicRNN", [*lstm, None, *state], [out(5, 2, 16) for _ in range(8)], forget_bias=.5, direction="UNIDIRECTIONAL", activation="")
    yield old("DynamicRNNGrad", [*lstm, steps[0], *state, steps[0], steps[1], f(5, 2, 16), f(2, 16), f(2, 16), *steps[3:]],
              [out(24, 64), out(64), out(5, 2, 8), out(1, 2, 16), out(1, 2, 16)], forget_bias=.5)
    yield old("DynamicGRUV2", [f(5, 2, 8), f(8, 48), f(16, 48), f(48), f(48), None, f(2, 16)], [out(5, 2, 16) for _ in range(6)], gate_order="rzh", reset_after=True)
    yield old("DynamicGRUV2Grad", [f(5, 2, 8), f(8, 48), f(16, 48) * np.float32(.3), steps[0], f(2, 16), steps[0], f(5, 2, 16), f(2, 16), *steps[1:5], None, None],
              [out(8, 48), out(16, 48), out(48), out(48), out(5, 2, 8), out(2, 16)], gate_order="rzh")


def test_old_ops_compute_the_same_on_both_engines():
    outcome = Outcome(list(cases()), "old_ops", "recurrent_ops", rtol=1e-4, atol=1e-5)
    assert not outcome.differences
    assert not outcome.without_case


THROUGH_MINDSPORE = """
import mindspore as ms
import json

import numpy as np
import pytest
ms.set_device("Ascend")
import mindspore.ops.operations as P
from mindspore import Tensor, mint
x = Tensor(np.arange(6, dtype="float32").reshape(2, 3))
found = [P.ReduceSum()(x, 1), P.OneHot()(Tensor([2, 0]), 3, Tensor(1.0), Tensor(-1.0)), P.Gather()(x, Tensor([2, 0]), 1),
         P.StridedSlice(shrink_axis_mask=1)(x, (1, 0), (2, 3), (1, 2)), P.ScatterNd()(Tensor([[1], [1]], ms.int32), x, (3, 3))]
found += [mint.nonzero(Tensor(m)) for m in ([0, 1, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0])]
print("SAID", [t.asnumpy().tolist() for t in found])
"""


@pytest.mark.ascend
def test_constants_and_data_dependent_shapes(standin):
    """Constants (axes, depths, shapes) are in host memory; an output buffer has its maximum size at
    each launch, whatever size the previous launch returned."""
    out = standin.run("-c", THROUGH_MINDSPORE, hook=False)
    assert json.loads(out.said("SAID")) == [
        [3.0, 12.0], [[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]], [[2.0, 0.0], [5.0, 3.0]], [3.0, 5.0], [[0.0] * 3, [3.0, 5.0, 7.0], [0.0] * 3],
        [[1]], [[0], [1]], [[0], [1], [2]], []]
    assert {"ReduceSum", "OneHot", "GatherV2", "ScatterNd"} <= set(out.found.aclop)
