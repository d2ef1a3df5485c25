"""The chip's documented dtype limits: format of the tables, known facts, and that the launches of
the benchmark models are within them."""
import importlib
import pkgutil

import pytest
from mindtorch.tools.standin import kernels, limits

#: The launches of the nine models of benchmarks/ascend_launches.py, with the dtypes of tensors and
#: lists (-: not a tensor).
LAUNCHES = """
AdaptiveAvgPool2d f32 - f32
AdaptiveAvgPool2dBackward f32 f32 f32
Add f32 f32 - f32
Addmm f32 f32 f32 - - f32
Adds f32 - - f32
ApplyAdamWV2 f32 f32 f32 - f32 f32
Arange - - - i64
AvgPool2d f32 - - - - - - - f32
AvgPool2dBackward f32 f32 - - - - - - - f32
BatchNorm f32 f32 f32 f32 f32 - f32 f32 f32
BatchNormBackward f32 f32 f32 - - f32 f32 - - f32 f32 f32
Cat f32 - f32
Clamp f32 - - f32
Convolution f32 f32 - - - - - - - f32
Convolution f32 f32 f32 - - - - - - f32
ConvolutionBackward f32 f32 f32 - - - - - - - - - f32 f32 f32
Div f32 f32 f32
Embedding f32 i64 f32
EmbeddingDenseBackward f32 i64 - - - f32
EqTensor i64 i64 bool
GeluBackwardV2 f32 f32 - f32
GeluV2 f32 - f32
GroupNorm f32 f32 f32 - - - - f32 f32 f32
GroupNormBackward f32 f32 f32 f32 f32 - - - - - f32 f32 f32
InplaceAdd f32 f32
InplaceAdds i64
InplaceCopy f32 f32
InplaceFillScalar f32
InplaceMul f32 f32
InplaceMuls f32
InplaceOne f32
InplaceSub f32 f32
InplaceZero f32
InplaceZero i64
LayerNorm f32 - f32 f32 f32 f32 f32
LayerNormBackward f32 f32 - f32 f32 f32 f32 - f32 f32 f32
LeakyRelu f32 - f32
LeakyReluBackward f32 f32 - - f32
LinalgVectorNorm f32 - - - - f32
LogSoftmax f32 - f32
LogSoftmaxBackward f32 f32 - f32
Matmul f32 f32 f32
MaxPool2dWithMask f32 - - - - - f32 i8
MaxPool2dWithMaskBackward f32 f32 i8 - - - - - f32
MseLoss f32 f32 - f32
MseLossBackward f32 f32 f32 - f32
Muls f32 - f32
NLLLoss f32 i64 f32 - - f32 f32
NLLLossBackward f32 f32 i64 f32 - - f32 f32
NeTensor f32 f32 bool
ReduceSum f32 - - - f32
Relu f32 f32
SWhere bool f32 f32 f32
Silu f32 f32
SiluBackward f32 f32 f32
SmoothL1Loss f32 f32 - f32
SmoothL1LossBackward f32 f32 f32 - f32
Softmax f32 - f32
SoftmaxBackward f32 f32 - f32
Stack f32 - f32
Tanh f32 f32
TanhBackward f32 f32 f32
ThresholdBackward f32 f32 - f32
"""


def _recorded():
    for line in LAUNCHES.strip().splitlines():
        kernel, *words = line.split()
        yield kernel, {i: w.split(",") for i, w in enumerate(words) if w != "-"}


def test_limits_tables_are_well_formed():
    chips, count = limits.CHIPS, 0
    for kernel, by in limits.limits().items():
        assert by and not kernel.startswith("aclnn")
        for position, limit in by.items():
            assert limit.position == position and limit.argument.isidentifier() and set(limit.dtypes) == set(chips)
            assert all(limit.dtypes[c] and limit.dtypes[c] <= limits.DTYPES for c in chips), limit
            assert limits.link(limit.source).startswith("https://")
            assert kernel in limits.MOVES or not any("bf16" in limit.dtypes[c] for c in ("910A", "310P")), limit
        count += len(by)
    assert len(limits.limits()) > 380 and count > 1100


def test_limit_lines_for_the_simulator():
    for chip in ("Ascend910A", "Ascend910B2", "Ascend310P3"):
        lines = limits.lines(chip)
        for line in lines:
            kernel, position, dtypes = line.split(" ")
            assert limits.limits()[kernel][int(position)].dtypes[limits.chip_of(chip)] == set(dtypes.split(","))
        assert "Matmul 0 bf16,f16,f32" in lines if chip == "Ascend910B2" else "Matmul 0 f16,f32" in lines


def test_names_of_chips():
    assert [limits.chip_of(n) for n in ("Ascend910", "Ascend910A", "910ProB", "Ascend910B1", "Ascend910_9391", "310P")] == [*3 * ["910A"], *2 * ["910B"], "310P"]
    with pytest.raises(ValueError, match="no limits are known for the chip 'Ascend310'"):
        limits.chip_of("Ascend310")


@pytest.mark.parametrize("kernel, dtypes, refusing", [
    ("Matmul", {"self": "i64", "mat2": "i64", "out": "i64"}, "910A 910B 310P"),
    ("Convolution", {"input": "f64", "weight": "f64"}, "910A 910B 310P"),
    ("Add", {"self": "f32", "other": "f32", "out": "f32"}, ""),
    ("aclnnAdd", {0: "i64", 1: "i64", 3: "i64"}, ""),
    ("Add", {0: "bf16"}, "910A 310P"),
    ("Embedding", {"weight": "f32", "indices": "f32"}, "910A 910B 310P"),
    ("Erfinv", {"self": "i64"}, "910A"),
    ("UpsampleNearest2d", {"self": "f32"}, "910A 310P"),
    ("Cat", {"tensors": ["f32", "c128"]}, "910A 910B 310P"),
    ("LayerNorm", {"weightOptional": None}, ""),
    ("InplaceCopy", {0: "bf16", 1: "f32"}, ""),
    ("NoSuchKernel", {0: "c128"}, ""),
])
def test_known_facts(kernel, dtypes, refusing):
    assert [c for c in limits.CHIPS if limits.check(kernel, dtypes, c)] == refusing.split()


def test_message_of_a_violated_limit():
    said = limits.check("Matmul", {"self": "f32", "mat2": "i64"}, "Ascend910A")
    assert said == ("aclnnMatmul does not accept i64 as argument 1 (mat2) on Ascend910A; documented dtypes: f16 f32 "
                    "(https://gitcode.com/cann/ops-nn/tree/master/matmul/mat_mul_v3/docs/aclnnMatmul.md)")


def test_dtypes_of_a_logged_launch():
    got = limits.launched("T[2,3]f32 strides[1,2], L(T[2]i8,T[3,1]i8 strides[1,9]), S(f32)0.5, I[1,2], 0, \"a, (b\", T[]bool")
    assert got == {0: "f32", 1: ["i8", "i8"], 6: "bool"}


@pytest.mark.parametrize("chip", limits.CHIPS)
def test_benchmark_launches_are_within_the_limits(chip):
    refused = [limits.check(kernel, dtypes, chip) for kernel, dtypes in _recorded()]
    assert len(refused) > 60 and not any(refused), refused


def test_limit_positions_match_the_kernel_table():
    """The position of every limit is a tensor or a list of tensors in the simulator's table too.
    (The argument names are CANN's; the table may shorten them.)"""
    from mindtorch.tools.standin.kernels._table import KERNELS
    for m in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"{kernels.__name__}.{m.name}")
    for kernel, by in limits.limits().items():
        if kernel in KERNELS:
            arguments = [a for a in KERNELS[kernel].arguments if a.kind not in ("double", "float")]
            for position, limit in by.items():
                assert position < len(arguments) and arguments[position].kind in ("tensor", "tensors"), (kernel, limit.argument)
