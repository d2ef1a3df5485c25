"""Second derivatives in half precision of ops that run as a single kernel: rounded once, and finite
where the value is in range.

PyTorch composes many of them from ops that each round to half precision, so its results overflow to
infinity where the value is in range.
"""
import numpy as np
import pytest
import torch as real
from torch.nn.attention import SDPBackend, sdpa_kernel

import mindtorch.torch as mine

ACTIVATIONS = "gelu silu mish elu celu selu softplus logsigmoid".split()
CASES = {
    "batch norm": ("F.batch_norm(x, None, None, w, b, True)", [(6, 4, 2, 2), (4,), (4,)]),
    "batch norm in eval mode": ("F.batch_norm(x, torch.zeros_like(w), torch.full_like(w, 0.05), w, b, False)", [(6, 4, 2, 2), (4,), (4,)]),
    "instance norm": ("F.instance_norm(x, None, None, w, b, True)", [(3, 4, 4, 2), (4,), (4,)]),
    "layer norm": ("F.layer_norm(x, (8,), w, b)", [(5, 8), (8,), (8,)]),
    "group norm": ("F.group_norm(x, 2, w, b)", [(3, 4, 6), (4,), (4,)]),
    "rms norm": ("F.rms_norm(x, (8,), w)", [(5, 8), (8,)]),
    "attention": ("F.scaled_dot_product_attention(x, w, b)", [(2, 2, 4, 3)] * 3),
    "causal attention": ("F.scaled_dot_product_attention(x, w, b, is_causal=True)", [(2, 2, 4, 3)] * 3),
    "attention with a mask": ("F.scaled_dot_product_attention(x, w, b, attn_mask=torch.ones(4, 4, dtype=x.dtype, device=x.device).tril())", [(2, 2, 4, 3)] * 3),
    "softmax": ("F.softmax(x, -1)", [(5, 8)]), "log_softmax": ("F.log_softmax(x, -1)", [(5, 8)]),
    "cross entropy": ("F.cross_entropy(x, torch.arange(5, device=x.device), reduction='none')", [(5, 8)]),
    "weighted cross entropy": ("F.cross_entropy(x, torch.arange(5, device=x.device), w.detach().abs(), label_smoothing=0.1)", [(5, 8), (8,)]),
    "mse": ("F.mse_loss(x, w)", [(5, 8)] * 2), "huber": ("F.huber_loss(x, w)", [(5, 8)] * 2), "smooth l1": ("F.smooth_l1_loss(x, w)", [(5, 8)] * 2),
    "gelu of tanh": ("F.gelu(x, approximate='tanh')", [(5, 8)]),
    **{name: (f"F.{name}(x)", [(5, 8)]) for name in ACTIVATIONS},
}


def operands(shapes, seed):
    """Returns operands, a gradient of the result and gradients of the gradients, large enough that
    their products overflow float16."""
    r = np.random.RandomState(seed)
    xs = [r.randn(*s) * (0.3 if i == 0 else 0.5) for i, s in enumerate(shapes)]
    return xs, r.randn(400) * 50, [r.randn(*s) * 5 for s in shapes]


def derivatives(T, name, low, seed, wide=None, device="cpu"):
    """Returns the result, its gradients and their gradients; the operands are rounded to half
    precision, and the computation uses it or the dtype `wide`."""
    call, shapes = CASES[name]
    xs, g, hs = operands(shapes, seed)

    def tensor(a):
        return T.tensor(a.tolist(), dtype=getattr(T, low)).to(getattr(T, wide or low)).to(device)
    xs = [tensor(x).requires_grad_() for x in xs]
    names = dict(zip("xwb", xs), F=T.nn.functional, torch=T)
    y = eval(call, names)
    g = tensor(g[:y.numel()]).view(y.shape)
    plain = T.autograd.grad(y, xs, g, retain_graph=True, allow_unused=True)
    gs = T.autograd.grad(y, xs, g, create_graph=True, allow_unused=True)
    pairs = [(a, tensor(h)) for a, h in zip(gs, hs) if a is not None and a.requires_grad]
    again = T.autograd.grad([a for a, _ in pairs], xs, [h for _, h in pairs], allow_unused=True)
    for x, v in zip(xs * 3, (*plain, *gs, *again)):
        assert v is None or v.dtype == x.dtype and v.shape == x.shape
    return [[None if v is None else v.detach().cpu().double().numpy() for v in part] for part in ((y, *plain), (y, *gs), again)]


def distance(found, exact, low):
    """Returns the largest difference relative to the largest value; inf if an in-range value is not
    finite."""
    worst, most = 0.0, 6e4 if low == "float16" else 3e38
    for a, b in zip(found, exact, strict=True):
        if a is None or b is None:
            continue
        inside = np.abs(b) < most
        if not np.isfinite(a[inside]).all():
            return np.inf
        worst = max(worst, np.abs(a - b)[inside].max(initial=0) / (np.abs(b).max() + 1e-6))
    return worst


ROUNDING = {"float16": 2.0 ** -11, "bfloat16": 2.0 ** -8}


@pytest.mark.parametrize("low", ROUNDING)
@pytest.mark.parametrize("name", CASES)
def test_second_derivatives(name, low):
    """Second derivatives are within four rounding errors of the exact value, and at most one
    rounding error less accurate than PyTorch's.

    A first derivative is the same with and without create_graph.
    """
    for seed in range(4):
        with sdpa_kernel(SDPBackend.MATH):
            exact, theirs = (derivatives(real, name, low, seed, wide)[1:] for wide in ("float64", None))
        plain, *found = derivatives(mine, name, low, seed)
        assert distance(found[0], plain, low) <= 2 * ROUNDING[low]
        for e, t, f in zip(exact, theirs, found):
            assert [v is None for v in t] == [v is None for v in f]
            assert distance(f, e, low) <= min(4 * ROUNDING[low], distance(t, e, low) + ROUNDING[low])


@pytest.mark.parametrize("low", ROUNDING)
@pytest.mark.parametrize("name", ["batch norm", "layer norm", "group norm", "rms norm", "attention", "log_softmax", "gelu", "silu", "mse"])
def test_second_derivatives_on_the_npu(npu, name, low):
    with sdpa_kernel(SDPBackend.MATH):
        exact = derivatives(real, name, low, 0, "float64")[1:]
    for e, f in zip(exact, derivatives(mine, name, low, 0, device="npu")[1:]):
        assert distance(f, e, low) <= 8 * ROUNDING[low]
