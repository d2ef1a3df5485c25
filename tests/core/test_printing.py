"""mindtorch.core.tensor.printing against real PyTorch's repr, character by character."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mindtorch.core.tensor import printing

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint64, torch.bool, torch.float8_e5m2,
]  # fmt: skip
WIDER = {torch.bfloat16: torch.float32, torch.float8_e5m2: torch.float32, torch.complex32: torch.complex64}


class Sub(torch.Tensor):
    pass


class SubParameter(torch.nn.Parameter):
    pass


def text_of(t, **options):
    """Returns mindtorch's text for real PyTorch's tensor `t`."""
    meta = t.device.type == "meta"
    plain = type(t) in (torch.Tensor, torch.nn.Parameter)
    return printing.tensor_str(
        None if meta else t.detach().to(WIDER.get(t.dtype, t.dtype)).numpy(),
        str(t.dtype).removeprefix("torch."),
        shape=tuple(t.shape),
        requires_grad=t.requires_grad,
        grad_fn_name=None if t.grad_fn is None else type(t.grad_fn).__name__,
        device="meta" if meta else None,
        is_parameter=isinstance(t, torch.nn.Parameter),
        class_name=None if plain else type(t).__name__,
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        **options,
    )


def check(t):
    assert text_of(t) == repr(t)


@pytest.fixture(autouse=True)
def default_options():
    def reset():
        for module in (torch, printing):
            module.set_printoptions(profile="default")

    reset()
    yield
    reset()


shapes = st.lists(st.sampled_from((0, 1, 1, 2, 3, 4, 7, 8, 30)), max_size=4).filter(lambda s: math.prod(s) <= 3000)
options = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.sampled_from((0, 1, 2, 6, 10)),
        "threshold": st.sampled_from((0, 5, 20, 1000, math.inf)),
        "edgeitems": st.sampled_from((1, 2, 3, 5)),
        "linewidth": st.sampled_from((1, 10, 40, 60, 80, 120, 200)),
        "profile": st.sampled_from(("default", "short", "full", "none such")),
        "sci_mode": st.sampled_from((None, True, False)),
    },
)
special = st.sampled_from((math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-5, 1e-4, 1e8, 1.0001e8, 1e3, 1001.0, 0.99999))


@st.composite
def reals(draw, shape):
    """Draws a float64 tensor of fractions or integers, of similar or different magnitudes, with
    special values."""
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    x = torch.randn(shape, dtype=torch.float64, generator=g)
    match draw(st.sampled_from(("like", "small", "unlike", "whole", "zero"))):
        case "small":
            x *= 10.0 ** draw(st.integers(-9, 11))
        case "unlike":
            x *= 10.0 ** (3 * torch.randn(shape, dtype=torch.float64, generator=g))
        case "whole":
            x = (x * 10.0 ** draw(st.integers(0, 10))).round()
        case "zero":
            x *= 0
    if x.numel():
        for value in draw(st.lists(special, max_size=4)):
            x.view(-1)[draw(st.integers(0, x.numel() - 1))] = value
    return x


@st.composite
def tensors(draw):
    shape = draw(shapes)
    dtype = draw(st.sampled_from(DTYPES))
    x = draw(reals(shape))
    if dtype.is_complex:
        x = torch.complex(x, draw(reals(shape)))
    x = x.to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        match draw(st.sampled_from(("plain", "plain", "leaf", "result", "parameter"))):
            case "leaf":
                x.requires_grad_()
            case "result":
                x = x.requires_grad_().reshape(x.shape + (1,))
            case "parameter":
                x = torch.nn.Parameter(x, requires_grad=draw(st.booleans()))
    return x


@settings(derandomize=True, deadline=None, max_examples=1000)
@given(tensors())
def test_repr_matches_torch(x):
    check(x)


@settings(derandomize=True, deadline=None, max_examples=1000)
@given(tensors(), options)
def test_repr_with_print_options(x, chosen):
    for module in (torch, printing):
        module.set_printoptions(profile="default")
        module.set_printoptions(**chosen)
    check(x)


@pytest.mark.parametrize("n", [999, 1000, 1001, 7, 6, 5])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1), (1, 1, -1, 1)])
def test_summarization_threshold(n, shape):
    check(torch.arange(n).reshape(shape))
    for module in (torch, printing):
        module.set_printoptions(threshold=5)
    check(torch.arange(n).reshape(shape))


@pytest.mark.parametrize("rows", [11, 100])
def test_large_tensors(rows):
    check(torch.arange(rows * 200.0).reshape(rows, 200))
    check(torch.arange(rows * 201.0).reshape(3, rows, 67) / 7)
    check(torch.zeros(rows, 3, 50, dtype=torch.bool))


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([]),
        torch.tensor([], dtype=torch.int64),
        torch.tensor([], dtype=torch.bool),
        torch.tensor([[]]),
        torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),
        torch.zeros(2, 0, dtype=torch.int32),
        torch.tensor(3),
        torch.tensor(True),
        torch.tensor(1.0),
        torch.tensor(-0.0),
        torch.tensor(math.nan),
        torch.tensor(1 + 2j),
        torch.tensor([1 + 2j, complex(math.nan, math.nan), complex(math.inf, -0.5)]),
        torch.tensor([2**63 - 1, -1]),
        torch.tensor([1e-45, 1e38]),
        torch.tensor([5e-324, 1e308], dtype=torch.float64),
        torch.ones(2, requires_grad=True) * 2,
        torch.ones((), device="meta"),
        torch.ones(3, 2, device="meta", dtype=torch.int64),
        torch.ones(0, device="meta", requires_grad=True),
        torch.nn.Parameter(torch.ones(3, 2, device="meta")),
        torch.nn.Parameter(torch.ones(2, 50)),
        torch.nn.Parameter(torch.zeros(0)),
        torch.ones(40, 2).as_subclass(Sub),
        torch.zeros(2, 0).as_subclass(Sub),
        SubParameter(torch.ones(2, 50)),
    ],
    ids=range(26),
)
def test_repr_of_edge_cases(x):
    check(x)


@pytest.mark.parametrize("default", [torch.float64, torch.float16, torch.bfloat16])
def test_default_dtype_is_not_printed(default):
    torch.set_default_dtype(default)
    try:
        for dtype in DTYPES:
            check(torch.zeros(2, dtype=dtype))
            check(torch.zeros(2, 0, dtype=dtype))
    finally:
        torch.set_default_dtype(torch.float32)


def test_device():
    assert (
        printing.tensor_str(np.ones(2), "float64", device="npu:0")
        == "tensor([1., 1.], device='npu:0', dtype=torch.float64)"
    )
    assert printing.tensor_str(np.ones((0, 2)), "float32", device="npu:0") == "tensor([], device='npu:0', size=(0, 2))"


def test_indent_aligns_continuation_lines():
    x = torch.arange(60.0)
    lines = text_of(x, indent=4).split("\n")
    assert all(line.startswith(" " * 11) for line in lines[1:]) and max(map(len, lines[1:])) <= 80
    assert " ".join(text_of(x, indent=4).split()) == " ".join(repr(x).split())


def test_print_options_are_restored():
    assert printing.get_printoptions() == torch._tensor_str.get_printoptions()
    with printing.printoptions(precision=2, sci_mode=True), torch._tensor_str.printoptions(precision=2, sci_mode=True):
        assert printing.get_printoptions() == torch._tensor_str.get_printoptions()
        assert text_of(torch.tensor([1.5])) == "tensor([1.50e+00])"
        check(torch.tensor([1.5]))
    assert text_of(torch.tensor([1.5])) == "tensor([1.5000])"
    with pytest.raises(ZeroDivisionError), printing.printoptions(profile="full"):
        assert printing.PRINT_OPTS.threshold == math.inf
        raise ZeroDivisionError
    assert printing.PRINT_OPTS.threshold == 1000
    printing.set_printoptions(sci_mode=True)
    printing.set_printoptions(precision=3)
    assert printing.get_printoptions()["sci_mode"] is None
