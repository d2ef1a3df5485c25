"""Views, in-place writes and autograd, case by case against real PyTorch (random programs are in
test_alias_fuzz.py)."""
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine

pytestmark = pytest.mark.smoke


def _plain(x):
    if isinstance(x, (real.Tensor, mine.Tensor)):
        return np.array(x.detach().cpu().numpy()).tolist()
    return [_plain(y) for y in x] if isinstance(x, (tuple, list)) else x


def _same(fn, ours=mine):
    """Checks that fn(T) has the same values, or the same type of error, on both sides."""
    out = []
    for T in (real, ours):
        try:
            out.append(("ok", _plain(fn(T))))
        except Exception as e:
            out.append((type(e).__name__, None))
    assert out[0] == out[1]
    return out[0][0]


def _leaf(T, n=4):
    return T.arange(1.0, n + 1).requires_grad_()


def _made(T, n=4):
    x = _leaf(T, n)
    return x, x * 1


CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


# ------------------------------------------------------------------ views created under no_grad
@case
def no_grad_view_counts_as_requiring_grad(T):
    x = _leaf(T)
    with T.no_grad():
        v = x[0]
    return v.requires_grad, v._is_view(), v.grad_fn, v._base is x, v.is_leaf, (v * 2).requires_grad


@case
def no_grad_view_has_no_history(T):
    x, y = _made(T)
    with T.no_grad():
        v = y[:2]
    (v * 2 + y[2:]).sum().backward()
    return x.grad, v.grad


@case
def no_grad_view_written(T):
    x, y = _made(T)
    with T.no_grad():
        v = y[0]
    v.mul_(2)


@case
def no_grad_view_written_with_a_gradient(T):
    x = T.ones(3)
    with T.no_grad():
        v = x[0]
    v.mul_(T.ones((), requires_grad=True))


@case
def no_grad_view_of_plain_memory_written(T):
    x = T.ones(3)
    with T.no_grad():
        v = x[0]
    v.mul_(2)
    return x


@case
def no_grad_view_overtaken(T):
    x, y = _made(T)
    with T.no_grad():
        v = y[0]
    y.mul_(2)
    return v * 2


@case
def view_of_a_no_grad_view_written(T):
    x, y = _made(T)
    with T.no_grad():
        v = y[:2]
    v[0].mul_(2)


@case
def own_requires_grad_of_a_no_grad_view(T):
    x = T.ones(4)
    with T.no_grad():
        v = x.view(2, 2)
    v.requires_grad_()
    (v * 3).sum().backward()
    return v.grad, v.is_leaf


@case
def base_requires_grad_later(T):
    x = T.ones(3)
    v = x[0]
    x.requires_grad_()
    states = [v.requires_grad, v.is_leaf, v.grad_fn]
    x.requires_grad_(False)
    return states, v.requires_grad


@case
def view_of_a_later_leaf_written(T):
    x = T.ones(3)
    v = x[0]
    x.requires_grad_()
    v.mul_(2)


# ------------------------------------------------------------------ several views at once
@case
def unbound_view_written(T):
    a, b = _made(T, 2)[1].unbind()
    a.mul_(2)


@case
def unbound_view_of_plain_memory_written(T):
    x = T.ones(3)
    x.unbind()[0].mul_(2)
    return x


@case
def chunk_overtaken(T):
    x, y = _made(T)
    a, b = y.chunk(2)
    y.mul_(2)
    return a * 2


@case
def chunk_overtaken_under_no_grad(T):
    x, y = _made(T)
    a, b = y.chunk(2)
    with T.no_grad():
        y.mul_(2)
    return a * 2


@case
def chunk_overtaken_through_detach(T):
    x, y = _made(T)
    a, b = y.split(2)
    a.detach().mul_(2)
    return a * 1


@case
def chunk_written_through_data(T):
    x, y = _made(T)
    a, b = y.split(2)
    a.data.mul_(2)
    (a * a).sum().backward()
    return a, x.grad


@case
def chunk_used_before(T):
    x, y = _made(T)
    a, b = y.chunk(2)
    z = (a * b).sum()
    y.add_(1)
    return z


@case
def select_of_a_chunk_written(T):
    x, y = _made(T)
    y.chunk(2)[0][0].mul_(2)


@case
def tensor_split_written(T):
    x, y = _made(T)
    y.tensor_split(2)[1].mul_(2)
    y.sum().backward()
    return y, x.grad


# ------------------------------------------------------------------ leaves
@case
def leaf_written(T):
    _leaf(T).mul_(2)


@case
def view_of_a_leaf_written(T):
    _leaf(T)[0] = 1


@case
def leaf_written_under_no_grad(T):
    x = _leaf(T)
    with T.no_grad():
        x.mul_(2)
        x[0] = 7
    return x, x._version, x.is_leaf


@case
def plain_tensor_written_with_a_gradient(T):
    w, x = _leaf(T), T.ones(4)
    x.mul_(w)
    x.sum().backward()
    return x.requires_grad, x.is_leaf, w.grad


# ------------------------------------------------------------------ histories
@case
def chain_of_views(T):
    x, y = _made(T, 6)
    m = y.view(2, 3)
    r = m[1]
    r[::2].mul_(3)
    y[0] = 5
    t = m.t()
    t[1].add_(x[:2])
    (y * T.arange(6.0)).sum().backward()
    return y, m, r, t, x.grad


@case
def expanded_view(T):
    x, y = _made(T)
    v = y.expand(3, 4)
    v[0].mul_(2)
    (v * T.arange(12.0).view(3, 4)).sum().backward()
    return y, v, x.grad


@case
def transposed_base(T):
    x = T.arange(6.0).view(2, 3).requires_grad_()
    y = (x * 1).t().clone(memory_format=T.preserve_format)
    y[1].mul_(4)
    y.view_as(y)[:, 0] = 0
    (y * y).sum().backward()
    return y, x.grad


@case
def complex_parts(T):
    x = T.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = x * 1
    y.real.mul_(3)
    T.view_as_real(y)[0, 1] = 5
    y.imag[1:] += 1
    (y.real * y.imag).sum().backward()
    return T.view_as_real(y.detach()), T.view_as_real(x.grad)


@case
def zero_size_and_scalars(T):
    x, y = _made(T)
    y[4:].mul_(2)
    y[2:2] = 7.0
    s = y[0]
    s.mul_(5)
    s[...] = s * 2
    y.sum().backward()
    return y, s, x.grad


@case
def constants_leave_zeros(T):
    x, y = _made(T)
    y.zero_()
    (y + 1).sum().backward()
    return x.grad


@case
def copies(T):
    x, w = _leaf(T), _leaf(T, 2)
    y = x * 1
    y[1:3].copy_(w * 2)
    y[3:].copy_(w[0])
    y.copy_(y.flip(0))
    (y * T.arange(4.0)).sum().backward()
    return y, x.grad, w.grad


@case
def masks_and_indices(T):
    x, w = _leaf(T), _leaf(T, 2)
    y = x * 1
    y[y > 2] = w
    y[T.tensor([0, 1])] *= 3
    y.masked_fill_(y > 5, 0.5)
    y.index_add_(0, T.tensor([0, 0]), w)
    y.scatter_(0, T.tensor([1]), w[:1])
    (y * y).sum().backward()
    return y, x.grad, w.grad


@case
def second_order(T):
    x = _leaf(T)
    y = x * x
    y[:2].mul_(x[2:])
    g, = T.autograd.grad((y * y).sum(), x, create_graph=True)
    g.sum().backward()
    return g, x.grad


@case
def retained_gradient_moves_along(T):
    x, y = _made(T)
    y.retain_grad()
    y.mul_(3)
    (y * T.arange(4.0)).sum().backward()
    return y.grad, x.grad


@case
def hook_stays_with_the_old_value(T):
    x, y = _made(T)
    seen = []
    y.register_hook(lambda g: seen.append(_plain(g)))
    y.mul_(3)
    y.sum().backward()
    return seen, x.grad


# ------------------------------------------------------------------ saved tensors
@case
def saved_operand_overwritten(T):
    x, y = _made(T)
    z = (y * y).sum()
    y.add_(1)
    z.backward()


@case
def saved_result_overwritten(T):
    x, y = _made(T)
    v = y[:2]
    v.exp_()
    y.mul_(2)
    y.sum().backward()


@case
def own_old_value_survives(T):
    x, y = _made(T)
    w = _leaf(T)
    y.mul_(w)
    y.pow_(2)
    y.sum().backward()
    return x.grad, w.grad


@case
def written_by_itself(T):
    x, y = _made(T)
    y.mul_(y)
    y.sum().backward()


@case
def written_by_another_part(T):
    x, y = _made(T)
    y[0:2].mul_(y[2:])
    y.sum().backward()


@case
def saved_quotient_is_not_needed(T):
    x, y = _made(T)
    z = x / (y + 1)
    z.mul_(2)
    z.sum().backward()
    return x.grad


# ------------------------------------------------------------------ memory
@case
def overlapping_operand(T):
    x = T.arange(4.0)
    x[1:].copy_(x[:3])


@case
def overlapping_out(T):
    x = T.arange(4.0)
    T.add(x[1:], x[:3], out=x[1:])


@case
def same_memory_as_operand(T):
    x = T.arange(4.0)
    x.view(4).add_(x)
    T.mul(x, x.detach(), out=x)
    return x


@case
def expanded_written(T):
    T.zeros(3, 1).expand(3, 2).add_(1)


@case
def expanded_filled(T):
    return T.zeros(3, 1).expand(3, 2).fill_(2.0)


@case
def scattered_from_itself(T):
    x = T.arange(4.0)
    x.scatter_(0, T.tensor([1]), x)


@case
def versions(T):
    x = T.zeros(4)
    v, d = x[:2], x.detach()
    x.add_(1)
    v.mul_(2)
    d[0] = 3
    with T.no_grad():
        x.zero_()
    return x._version, v._version, d._version, x.data._version, x.clone()._version


@case
def detached_view(T):
    x, y = _made(T)
    d = y.detach()
    v = y[0]
    d.mul_(3)
    (v * 2).backward()
    return y, v, x.grad, d._is_view()


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    _same(CASES[name])


def test_cases_cover_both_outcomes():
    ends = [_same(fn) for fn in CASES.values()]
    assert ends.count("ok") > 25 and ends.count("RuntimeError") > 15


def test_messages():
    """Checks that the error messages state the reason."""
    y = mine.ones(4, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="Output 0 of Unbind is a view.*multiple views"):
        y.unbind()[0].add_(1)
    with mine.no_grad():
        v = y[0]
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        v.add_(1)
    with pytest.raises(NotImplementedError, match="float32.*overlap"):
        mine.zeros(4).unfold(0, 2, 1).add_(1)


def test_dead_views_are_removed_from_their_base():
    x = mine.zeros(4, requires_grad=True)
    for _ in range(1000):
        x[0]
    assert len(x._views) < 40


def test_mindspore_ops_see_writes_through_views():
    """Checks that MindSpore's ops see writes through any view."""
    import mindspore as ms

    x = mine.zeros(3, 4)
    x[1:, ::2] = 5
    x.t()[3].add_(2)
    assert np.array_equal(ms.ops.add(x, 1).asnumpy(), x.numpy() + 1)
    assert np.array_equal(ms.ops.add(x.t(), 1).asnumpy(), x.t().numpy() + 1)
    assert np.array_equal(ms.ops.add(x[:, 1::2], 1).asnumpy(), x[:, 1::2].numpy() + 1)


@pytest.mark.host_only("looks at the host's arrays")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int64", "uint8", "bool", "complex64", "complex128"])
def test_strided_views_convert_to_mindspore_tensors(dtype):
    """Checks that a view with any memory layout becomes a MindSpore tensor of the same values."""
    import mindspore as ms

    x = mine.arange(24).reshape(2, 3, 4).to(getattr(mine, dtype))
    for v in (x, x.transpose(0, 2), x[:, 1:, ::2], x[1, :, 1], x[:1].expand(3, 3, 4), x[0, 0, 0], x[2:].transpose(0, 1), x.unfold(2, 2, 1)):
        seen = np.asarray(ms.Tensor.asnumpy(v))
        seen = seen.astype(np.float32) if dtype == "bfloat16" else seen
        assert np.array_equal(seen.astype("c16"), v.to(mine.complex128).numpy())


# ------------------------------------------------------------------ what MindSpore sees of a view
_VIEWS = {"transposed": lambda t: t.t(), "columns": lambda t: t[:, 3:200], "steps": lambda t: t[::2, ::3], "diagonal": lambda t: t.diagonal(1),
          "expanded": lambda t: t[:1].expand(300, 250), "permuted": lambda t: t.view(30, 10, 250).permute(2, 0, 1)}


@pytest.mark.parametrize("name", _VIEWS)
@pytest.mark.parametrize("large", [True, False])
def test_mindspore_tensors_alias_strided_views(name, large, monkeypatch):
    """Checks that large and small views, which get their strides in different ways
    (backend/mindspore/private.py), alias the memory of their base."""
    import mindspore as ms

    from mindtorch.backend.mindspore import private
    monkeypatch.setattr(private, "_LARGE", 0 if large else 1 << 60)
    base = mine.arange(75000, dtype=mine.float32).view(300, 250)
    there = real.arange(75000, dtype=real.float32).view(300, 250)
    v, r = _VIEWS[name](base), _VIEWS[name](there)
    assert tuple(v.stride()) == r.stride() and v.storage_offset() == r.storage_offset()
    for _ in range(2):
        # a MindSpore kernel
        np.testing.assert_array_equal(ms.ops.add(v, 1).asnumpy(), (r + 1).numpy())
        np.testing.assert_array_equal(ms.Tensor(v).asnumpy(), r.numpy())
        base.mul_(-2)
        there.mul_(-2)
    grad = ms.value_and_grad(lambda a: (a.t() * 2).sum() if a.ndim == 2 else (a * 2).sum())(v.detach())[1]
    np.testing.assert_array_equal(grad.asnumpy(), np.full(r.shape, 2, np.float32))


# ------------------------------------------------------------------ views created together
@pytest.mark.parametrize("size", [1, 3, 4, 5, 12])
def test_split_views_are_tracked_and_reject_writes(size):
    """Checks that a base tracks its living views, however many at a time were created and dropped.
    """
    base, there = mine.arange(12.0), real.arange(12.0)
    kept = base.split(size)
    for _ in range(300):
        base.split(size)
        base[1:]
    assert len(base._views) <= max(64, 4 * len(kept)) and {id(r()) for r in base._views} >= {id(v) for v in kept}
    for T, x, parts in ((real, there, there.split(size)), (mine, base, kept)):
        x.requires_grad_()
        with pytest.raises(RuntimeError):
            parts[0].add_(1)
        with T.no_grad():
            later = x.split(size)
            later[-1].mul_(2)
        assert all([p.requires_grad for p in later])
    assert base.tolist() == there.tolist()
