"""Reductions, products and linear algebra on the npu device compared with the CPU device: values,
dtypes, shapes, gradients, and no host fallback."""
import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch

F = mt.nn.functional
FLOATS = (mt.float32, mt.float64)
LOW = (mt.float16, mt.bfloat16)


def made(shape, dtype, seed=0, special=False):
    """Random values of the given shape and dtype. `special` inserts NaN and infinities."""
    a = np.random.default_rng(seed).standard_normal(shape) * 3
    if special and a.size > 5:
        a.flat[[1, a.size // 2]] = np.nan, np.inf
        a.flat[a.size // 3] = -np.inf
    return mt.from_numpy(np.asarray(a)).to(dtype) if dtype != mt.bool else mt.from_numpy(np.asarray(a > 0))


def flat(r):
    return list(r) if isinstance(r, (tuple, list)) else [r]


def close(r, e, dtype, what):
    assert r.dtype == e.dtype and r.shape == e.shape, (what, r.dtype, e.dtype, r.shape, e.shape)
    tol = 2e-2 if dtype == mt.bfloat16 else 2e-3 if dtype == mt.float16 else 1e-9 if dtype in (mt.float64, mt.complex128) else 2e-5
    r, e = r.detach().cpu(), e.detach()
    if r.dtype in LOW:
        r, e = r.float(), e.float()
    # with cancellation, errors scale with the largest value
    r, e = r.numpy(), e.numpy()
    largest = np.abs(e[np.isfinite(e)]).max(initial=1)
    np.testing.assert_allclose(r, e, rtol=tol, atol=tol * float(largest), err_msg=str(what))


def compared(npu, f, *args, grads=True, own=True):
    """Compares `f` on both devices. `own`: no host fallback is allowed."""
    before = dict(device_dispatch.FALLBACKS)
    there = [a.to(npu).requires_grad_(grads and a.is_floating_point()) for a in args]
    here = [a.clone().requires_grad_(grads and a.is_floating_point()) for a in args]
    r, e = flat(f(*there)), flat(f(*here))
    dtype = args[0].dtype
    for x, y in zip(r, e):
        assert x.device.type == npu.type
        close(x, y, dtype, f)
    if grads:
        loss = [(x, y) for x, y in zip(r, e) if y.requires_grad]
        if loss:
            gs = [made(tuple(y.shape), y.dtype, 5) for _, y in loss]
            mt.autograd.backward([x for x, _ in loss], [g.to(npu) for g in gs])
            mt.autograd.backward([y for _, y in loss], gs)
            for t, h in zip(there, here):
                if h.grad is not None:
                    close(t.grad, h.grad, dtype, (f, "gradient"))
    if own:
        over = {k[1]: n - before.get(k, 0) for k, n in device_dispatch.FALLBACKS.items() if n != before.get(k, 0) and k[1] in OWN}
        assert not over, over


OWN = set("""sum_all sum_dims mean_all mean_dims prod_all prod_dim expand_reduced column_sum expand_rows amax amin max_all min_all max_dim min_dim argmax argmin
extreme_share all any count_nonzero logsumexp var std mean_upcast linalg_vector_norm trace trace_backward mm bmm linear matmul_rows fold dot mv vm outer addmm einsum
linalg_cross without_nan prod_backward""".split())

SHAPES = [(3, 4, 5), (7,), (1,), (), (2, 1, 6), (40, 33)]
REDUCTIONS = {
    "sum": lambda x: x.sum(), "sum-1": lambda x: x.sum(-1), "sum0 keepdim": lambda x: x.sum(0, keepdim=True),
    "mean": lambda x: x.mean(), "mean-1": lambda x: x.mean(-1, keepdim=True), "prod": lambda x: (x / 3).prod(), "prod-1": lambda x: (x / 3).prod(-1),
    "amax": lambda x: x.amax(), "amin-1": lambda x: x.amin(-1, keepdim=True), "max": lambda x: x.max(), "min": lambda x: x.min(),
    "max0": lambda x: x.max(0), "min-1": lambda x: x.min(-1, keepdim=True), "argmax": lambda x: x.argmax(), "argmin0": lambda x: x.argmin(0, keepdim=True),
    "logsumexp": lambda x: x.logsumexp(-1), "logsumexp keep": lambda x: x.logsumexp(0, keepdim=True),
    "norm": lambda x: x.norm(), "norm1": lambda x: mt.linalg.vector_norm(x, 1, -1), "norm3": lambda x: mt.linalg.vector_norm(x, 3, 0, keepdim=True),
    "norminf": lambda x: mt.linalg.vector_norm(x, float("inf")), "norm0": lambda x: mt.linalg.vector_norm(x, 0),
}
MOMENTS = {"var": lambda x: x.var(-1), "std": lambda x: x.std(), "var0": lambda x: x.var(0, correction=0), "std2": lambda x: x.std(-1, correction=2, keepdim=True)}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(npu, name):
    for dtype in FLOATS + LOW:
        for shape in SHAPES if dtype in FLOATS else SHAPES[:1]:
            compared(npu, REDUCTIONS[name], made(shape, dtype), own=dtype in FLOATS)


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(npu, name):
    for dtype in FLOATS:
        for shape in ((3, 4, 5), (7,), (40, 33)):
            compared(npu, MOMENTS[name], made(shape, dtype))
    with np.errstate(all="ignore"):
        compared(npu, MOMENTS[name], made((1,), mt.float32), grads=False)


@pytest.mark.parametrize("name", ["sum", "sum-1", "amax", "amin-1", "max", "max0", "min-1", "argmax", "argmin0", "prod-1"])
def test_integers(npu, name):
    f = REDUCTIONS[name] if name != "prod-1" else lambda x: x.prod(-1)
    for dtype in (mt.int64, mt.int32, mt.int16, mt.int8, mt.uint8):
        for shape in ((3, 4, 5), (), (6,)):
            compared(npu, f, made(shape, dtype))
    if name[:3] not in ("arg", "pro"):
        compared(npu, f, made((3, 4), mt.bool), own=False)


@pytest.mark.parametrize("name", ["sum", "sum-1", "amax", "amin-1", "max", "max0", "min-1", "argmax", "argmin0", "logsumexp", "norm", "norminf", "mean-1"])
def test_nan_and_infinity(npu, name):
    for shape in ((4, 9), (3, 4, 5), (50,)):
        compared(npu, REDUCTIONS[name], made(shape, mt.float32, special=True), grads=False)
    compared(npu, REDUCTIONS[name], mt.tensor([[float("inf"), float("nan"), 1.0], [float("-inf"), float("-inf"), float("-inf")]]), grads=False)


def test_boolean_counting_and_multi_dim_reductions(npu):
    for dtype in (mt.bool, mt.float32, mt.int64, mt.uint8):
        x = made((3, 4, 5), dtype)
        for f in (mt.all, mt.any, mt.count_nonzero, lambda x: x.any(-1), lambda x: x.all(0, keepdim=True), lambda x: mt.count_nonzero(x, (0, 2))):
            compared(npu, f, x, grads=False)
    x = made((3, 4, 5), mt.float32)
    for f in (lambda x: x.sum((0, 2)), lambda x: x.mean((0, 1), keepdim=True), lambda x: x.amax((1, 2)), lambda x: x.var((0, 2)), lambda x: mt.nansum(x),
              lambda x: mt.nanmean(x, 1), lambda x: x.transpose(0, 2).sum(1), lambda x: x.transpose(0, 1).amax(-1), lambda x: mt.aminmax(x)):
        compared(npu, f, x)
    compared(npu, lambda x: x.trace(), made((4, 6), mt.float32))


def test_ties_share_the_gradient(npu):
    x = mt.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    for f in (lambda x: x.amax(-1), lambda x: x.max(), lambda x: x.amin(), lambda x: x.max(1)):
        compared(npu, f, x)


def test_products_with_zeros(npu):
    x = mt.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0], [1.0, 2.0, 4.0]])
    compared(npu, lambda x: x.prod(1), x)
    compared(npu, lambda x: x.prod(), x)


PRODUCTS = {
    "mm": (lambda a, b: a @ b, (3, 4), (4, 5)), "mm t": (lambda a, b: a.t() @ b.t(), (4, 3), (5, 4)), "mm row": (lambda a, b: a @ b, (1, 4), (4, 1)),
    "bmm": (lambda a, b: mt.bmm(a, b), (2, 3, 4), (2, 4, 5)), "bmm t": (lambda a, b: a.transpose(1, 2) @ b, (2, 4, 3), (2, 4, 5)),
    "matmul": (lambda a, b: a @ b, (2, 1, 3, 4), (3, 4, 5)), "matmul 2-3": (lambda a, b: a @ b, (3, 4), (2, 4, 5)), "rows": (lambda a, b: a @ b, (2, 3, 4), (4, 5)),
    "mv": (lambda a, b: a @ b, (3, 4), (4,)), "mv3": (lambda a, b: a @ b, (2, 3, 4), (4,)), "vm": (lambda a, b: a @ b, (4,), (4, 3)),
    "dot": (lambda a, b: a @ b, (6,), (6,)), "outer": (lambda a, b: mt.outer(a, b), (3,), (4,)), "inner": (lambda a, b: mt.inner(a, b), (2, 4), (3, 4)),
    "linear": (lambda a, b: F.linear(a, b), (2, 3, 4), (5, 4)), "linear1": (lambda a, b: F.linear(a, b), (4,), (5, 4)),
    "einsum": (lambda a, b: mt.einsum("bij,bkj->bik", a, b), (2, 3, 4), (2, 5, 4)), "einsum2": (lambda a, b: mt.einsum("ijk,kl->lij", a, b), (2, 3, 4), (4, 5)),
    "einsum3": (lambda a, b: mt.einsum("ij,ij->i", a, b), (3, 4), (3, 4)), "einsum4": (lambda a, b: mt.einsum("i,j->ji", a, b), (3,), (4,)),
    "tensordot": (lambda a, b: mt.tensordot(a, b, dims=([0, 1], [1, 0])), (3, 4, 2), (4, 3, 5)), "kron": (lambda a, b: mt.kron(a, b), (2, 3), (3, 2)),
    "cross": (lambda a, b: mt.linalg.cross(a, b), (4, 3), (1, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(npu, name):
    f, a, b = PRODUCTS[name]
    for dtype in FLOATS + LOW + (mt.int64,):
        compared(npu, f, made(a, dtype), made(b, dtype, 1), own=dtype in FLOATS)


def test_complex_products(npu):
    for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))):
        x, y = [mt.complex(made(s, mt.float32, k), made(s, mt.float32, k + 1)) for s, k in ((a, 0), (b, 2))]
        compared(npu, lambda x, y: x @ y, x, y)
        compared(npu, lambda x, y: x.transpose(-1, -2).contiguous().transpose(-1, -2) @ y, x, y)


def test_products_with_addition(npu):
    for dtype in FLOATS + (mt.bfloat16, mt.int64):
        own = dtype in FLOATS
        c, a, b = made((3, 5), dtype), made((3, 4), dtype, 1), made((4, 5), dtype, 2)
        compared(npu, lambda c, a, b: mt.addmm(c, a, b), c, a, b, own=own)
        compared(npu, lambda c, a, b: mt.addmm(c, a, b, beta=2, alpha=3), made((5,), dtype), a, b, own=own)
        compared(npu, lambda c, a, b: mt.addmm(c, a, b, beta=0), made((5,), dtype), a, b, own=own)
        compared(npu, lambda c, a, b: mt.baddbmm(c, a, b, alpha=2), made((1, 5), dtype), made((2, 3, 4), dtype, 1), made((2, 4, 5), dtype, 2), own=own)
        for x in (a, made((2, 3, 4), dtype), made((4,), dtype)):
            compared(npu, lambda x, w, b: F.linear(x, w, b), x, made((5, 4), dtype), made((5,), dtype), own=own)


OWN |= {"scaled_dot_product_attention", "scaled_dot_product_attention_backward"}


def test_attention(npu):
    f = F.scaled_dot_product_attention
    for dtype in FLOATS + LOW:
        q, k, v = made((2, 3, 5, 4), dtype), made((2, 3, 6, 4), dtype, 1), made((2, 3, 6, 7), dtype, 2)
        compared(npu, f, q, k, v)
        compared(npu, lambda q, k, v: f(q, k, v, is_causal=True), q, k, v)
        compared(npu, lambda q, k, v: f(q, k, v, scale=0.3), q[0, 0], k[0, 0], v[0, 0])
        mask = made((5, 6), mt.bool, 3)
        mask[2] = False
        bias = made((3, 5, 6), dtype if dtype != mt.float64 else mt.float64, 4)
        for m in (mask, bias):
            compared(npu, lambda q, k, v: f(q, k, v, attn_mask=m.to(q.device)), q, k, v)
        compared(npu, lambda q, k, v: f(q, k, v, enable_gqa=True), made((2, 4, 5, 4), dtype), made((2, 2, 6, 4), dtype, 1), made((2, 2, 6, 4), dtype, 2))
    x = made((2, 4, 8), mt.float32)
    layer = mt.nn.MultiheadAttention(8, 2, batch_first=True)
    there = mt.nn.MultiheadAttention(8, 2, batch_first=True).to(npu)
    there.load_state_dict(layer.state_dict())
    close(there(x.to(npu), x.to(npu), x.to(npu))[0], layer(x, x, x)[0], mt.float32, "MultiheadAttention")


def test_attention_with_dropout(npu):
    from mindtorch.core.device import rng
    q = made((2, 3, 5, 4), mt.float32)
    rng.policy.host = True
    try:
        def f(q):
            mt.manual_seed(3)
            return F.scaled_dot_product_attention(q, q, q, dropout_p=0.4)
        compared(npu, f, q)
    finally:
        rng.policy.host = False
    a = F.scaled_dot_product_attention(*[q.to(npu)] * 3, dropout_p=0.4)
    assert not a.equal(F.scaled_dot_product_attention(*[q.to(npu)] * 3, dropout_p=0.4))


def test_lstm(npu):
    for dtype in (mt.float32, mt.float64, mt.bfloat16):
        for kw in ({}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "batch_first": True}, {"proj_size": 3}):
            mt.manual_seed(1)
            layer = mt.nn.LSTM(5, 4, **kw).to(dtype)
            there = mt.nn.LSTM(5, 4, **kw).to(dtype).to(npu)
            there.load_state_dict(layer.state_dict())
            x = made((6, 3, 5), dtype)
            results = []
            for m, v in ((there, x.to(npu).requires_grad_()), (layer, x.clone().requires_grad_())):
                y, (h, c) = m(v)
                (y.float().square().sum() + h.float().sum() * 2 - c.float().sum()).backward()
                results.append([y, h, c, v.grad, *[p.grad for p in m.parameters()]])
            for r, e in zip(*results):
                close(r, e, mt.bfloat16 if dtype == mt.bfloat16 else mt.float32, kw)
    before = dict(device_dispatch.FALLBACKS)
    x = made((6, 3, 5), mt.float32).to(npu)
    layer = mt.nn.LSTM(5, 4).to(npu)
    layer(x)[0].sum().backward()
    assert not {k for k in device_dispatch.FALLBACKS if device_dispatch.FALLBACKS[k] != before.get(k, 0) and "lstm" in k[1]}
    mt.nn.LSTMCell(5, 4).to(npu)(x[0])[0].sum().backward()


OWN |= {"cdist", "cdist_backward"}


def test_distances(npu):
    for dtype in FLOATS:
        for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
            for a, b in (((4, 3), (5, 3)), ((2, 4, 3), (1, 5, 3))):
                compared(npu, lambda a, b: mt.cdist(a, b, p), made(a, dtype), made(b, dtype, 1))
    compared(npu, lambda a, b: mt.cdist(a, b), made((40, 3), mt.float64), made((30, 3), mt.float64, 1))
    compared(npu, lambda a: mt.cdist(a, a.clone(), compute_mode="donot_use_mm_for_euclid_dist"), made((6, 3), mt.float32))


OWN |= {"linalg_svd", "linalg_svdvals"}


def test_singular_values(npu):
    for dtype in FLOATS:
        for shape in ((4, 4), (5, 3), (2, 3, 5)):
            a = made(shape, dtype)
            compared(npu, lambda a: mt.linalg.svdvals(a), a)
            compared(npu, lambda a: mt.linalg.matrix_norm(a, "nuc"), a)
            for full in (False, True):
                u, s, vh = mt.linalg.svd(a.to(npu), full)
                e = mt.linalg.svd(a, full)
                assert [x.shape for x in (u, s, vh)] == [x.shape for x in e]
                k = s.shape[-1]
                close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, dtype, "svd")
                close(vh @ vh.transpose(-1, -2), mt.eye(vh.shape[-2], dtype=dtype).expand(*vh.shape[:-2], -1, -1), dtype, "vh")
    bad = mt.tensor([[1.0, float("nan")], [2.0, 3.0]], device=npu)
    assert mt.linalg.svdvals(bad).isnan().all()


def test_lstm_backward_ignores_writes_to_results(npu):
    net, x = mt.nn.LSTM(5, 7).to("npu"), mt.randn(4, 3, 5, device="npu")

    def grads(write):
        net.zero_grad()
        start = mt.ones(1, 3, 7, device="npu")
        y, (h, c) = net(x, (start, start))
        total = y.sum() + c.sum()
        if write:
            with mt.no_grad():
                for t in (y, h, c):
                    t.detach().fill_(9)
        total.backward()
        return [p.grad.cpu().clone() for p in net.parameters()]
    for a, b in zip(grads(False), grads(True)):
        assert mt.equal(a, b)
    net.bias_ih_l0.grad.zero_()
    assert net.bias_hh_l0.grad.abs().sum() > 0
