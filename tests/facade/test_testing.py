"""torch.testing.assert_close against PyTorch's: the same verdict, and for common failures the same
message."""
import pytest
import torch

import mindtorch.torch as mt

CASES = {
    "equal": lambda t: (t.ones(3), t.ones(3), {}),
    "close": lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 2.000001]), {}),
    "far": lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 2.5]), {}),
    "shape": lambda t: (t.ones(3), t.ones(4), {}),
    "dtype": lambda t: (t.ones(3), t.ones(3, dtype=t.float64), {}),
    "dtype allowed": lambda t: (t.ones(3), t.ones(3, dtype=t.float64), {"check_dtype": False}),
    "nan": lambda t: (t.tensor([float("nan")]), t.tensor([float("nan")]), {}),
    "equal nan": lambda t: (t.tensor([float("nan")]), t.tensor([float("nan")]), {"equal_nan": True}),
    "ints": lambda t: (t.tensor([1, 2]), t.tensor([1, 3]), {}),
    "scalar": lambda t: (1.0, 1.1, {}),
    "int scalar": lambda t: (1, 2, {}),
    "0-dim": lambda t: (t.tensor(1.0), t.tensor(3.0), {}),
    "tolerances": lambda t: (t.tensor([1.0]), t.tensor([1.05]), {"rtol": 0.1, "atol": 0.0}),
    "one tolerance": lambda t: (t.tensor([1.0]), t.tensor([1.05]), {"rtol": 0.1}),
    "list": lambda t: ([t.ones(2), 1], [t.ones(2), 1], {}),
    "list item": lambda t: ([t.ones(2), t.zeros(1)], [t.ones(2), t.ones(1)], {}),
    "list length": lambda t: ([1], [1, 2], {}),
    "mapping": lambda t: ({"a": t.ones(2)}, {"a": t.zeros(2)}, {}),
    "keys": lambda t: ({"a": 1}, {"b": 1}, {}),
    "inf": lambda t: (t.tensor([float("inf")]), t.tensor([float("inf")]), {}),
    "half": lambda t: (t.tensor([1.0], dtype=t.float16), t.tensor([1.001], dtype=t.float16), {}),
}


def verdict(module, case):
    a, b, kwargs = CASES[case](module)
    try:
        module.testing.assert_close(a, b, **kwargs)
    except (AssertionError, ValueError) as err:
        return type(err).__name__, str(err).splitlines()[0]
    return None


@pytest.mark.parametrize("case", CASES)
def test_assert_close_has_torchs_verdict(case):
    assert verdict(mt, case) == verdict(torch, case)


def test_make_tensor():
    t = mt.testing.make_tensor(3, 4, dtype=mt.float32, low=0, high=1, noncontiguous=True, requires_grad=True)
    assert t.shape == (3, 4) and not t.is_contiguous() and t.requires_grad and 0 <= t.min().item() and t.max().item() <= 1
