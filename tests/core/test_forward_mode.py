"""Forward-mode differentiation against real PyTorch: every op of the op database, writes through
views, nested levels."""
import itertools
import types
import warnings

import numpy as np
import pytest
import torch as real

import _on_device
import mindtorch.torch as mine
from mindtorch.tools import _opinfo_runner as C

# ------------------------------------------------------------------ every op
#
# Ops where PyTorch's tangent is not the derivative (checked against finite differences), or is
# missing although the derivative exists.
OTHERWISE = {
    "triangular_solve": "torch's tangent is not the derivative",
    "nn.functional.silu.complex": "torch's tangent is not the derivative",
    "logcumsumexp-complex128": "torch's tangent is nan",
    "scatter_reduce.prod": "torch drops the tangent",
    "nn.functional.linear_cross_entropy.chunked": "torch drops the tangent",
    "nn.functional.linear_cross_entropy.chunked_none": "torch drops the tangent",
    "nn.functional.soft_margin_loss": "refused by torch only together with its backward",
}
NAMES = [(n, op, d) for n, op in C.ops() for d in ("float64", "complex128") if op.supports_dtype(getattr(real, d), "cpu")
         and n not in OTHERWISE and f"{n}-{d}" not in OTHERWISE and n != "chalf"]
DIFFER = [(n, op, d) for n, op in C.ops() for d in ("float64", "complex128") if n in ("triangular_solve", "nn.functional.silu.complex")
          and op.supports_dtype(getattr(real, d), "cpu")]


def over(T, x, f):
    """Applies f to every differentiable tensor in x."""
    if isinstance(x, T.Tensor):
        return f(x) if x.dtype.is_floating_point or x.dtype.is_complex else x
    if isinstance(x, (tuple, list)):
        items = [over(T, i, f) for i in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    return {k: over(T, v, f) for k, v in x.items()} if isinstance(x, dict) else x


def flat(T, x):
    found = []
    over(T, x, found.append)
    return found


def tangents(T, call, args, kwargs, process):
    """Returns (results, their tangents) for random input tangents, which are the same on both
    sides."""
    rs = np.random.RandomState(0)

    def dual(x):
        a = rs.uniform(-1, 1, tuple(x.shape))
        if x.dtype.is_complex:
            a = a + 1j * rs.uniform(-1, 1, tuple(x.shape))
        return T.autograd.forward_ad.make_dual(x.detach(), T.tensor(a).to(x.device, x.dtype))

    T.manual_seed(7)
    with T.autograd.forward_ad.dual_level():
        outs = flat(T, process(call(*over(T, args, dual), **over(T, kwargs, dual))))
        pairs = [T.autograd.forward_ad.unpack_dual(o) for o in outs]
        return [None if t is None else t.clone() for _, t in pairs]


def attempt(*args):
    try:
        return tangents(*args)
    except NotImplementedError as e:
        return e


class Compared:
    """Counts: `values` are results whose tangents were compared, `refusals` are samples that both
    sides reject."""

    def __init__(self):
        self.values = self.refusals = 0


def differs(name, op, dtype, samples, compared):
    """Returns the difference in the first samples of an op, or None."""
    fn, told = C.facade_op(op, real, mine), 0
    for s in itertools.islice(op.sample_inputs("cpu", getattr(real, dtype), requires_grad=False), 15 * samples):
        carry, process = C.Carrier(real, mine, _on_device.active() or "cpu"), s.output_process_fn_grad
        ours = [carry(s.input), *carry(list(s.args))], carry(s.kwargs)
        try:
            want = attempt(real, op.op, [s.input, *s.args], s.kwargs, process)
        except Exception:
            continue  # PyTorch rejects the sample even without tangents
        got = attempt(mine, fn, *ours, C.rebound(process, mine) if isinstance(process, types.FunctionType) else process)
        told += 1
        if isinstance(want, NotImplementedError) or isinstance(got, NotImplementedError):
            if type(want) is not type(got) or not str(got).startswith("Trying to use forward AD with "):
                return f"{got}, expected {want}"
            compared.refusals += 1
        else:
            assert len(want) == len(got)
            for w, g in zip(want, got):
                # No tangent and a zero tangent are equal.
                if w is None or g is None:
                    if w is not g and np.any(C._numpy(w if g is None else g)):
                        return f"{g}, expected {w}"
                elif d := C.difference(real, mine, w, g, scale=10.0):
                    return d
                else:
                    compared.values += 1
        if told == samples:
            break
    return None


def every(names, samples):
    """Compares the tangents of these ops; at least 70 % of them must have one, and both sides may
    reject only a few."""
    found, values, refused = {}, 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, op, d in names:
            compared = Compared()
            found[f"{n} {d}"] = differs(n, op, d, samples(d), compared)
            refused += not compared.values and compared.refusals > 0
            values += compared.values > 0
    assert {k: v for k, v in found.items() if v is not None} == {}
    assert values >= 0.7 * len(names) and refused <= 6


@pytest.mark.parametrize("part", range(20))
def test_tangents_of_every_op(part):
    every(NAMES[part::20], {"float64": 2, "complex128": 1}.get)


#: differences that appear only with more samples
OTHERWISE_LATER = {
    "nn.functional.scaled_dot_product_attention-float64": "refused by torch for four dimensions",
    "cholesky_inverse-float64": "too nearly singular to be compared",
}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_tangents_of_every_op_with_more_samples(part):
    every([n for n in NAMES[part::20] if f"{n[0]}-{n[2]}" not in OTHERWISE_LATER], lambda dtype: 12)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_tangents_of_variance_edge_cases(name, dtype):
    """Tests tangents and gradients where the number of elements minus the correction is zero or
    negative, and where the deviation is 0."""
    found = {}
    for shape, step, kwargs in itertools.product([(), (1,), (3,), (1, 3), (3, 1), (0,), (2, 0)], (0, 1), [
            {"unbiased": True}, {"unbiased": False}, {"correction": 5}, {"correction": 3}, {"dim": -1}, {"dim": -1, "correction": 5}]):
        if not shape and "dim" in kwargs:
            continue
        for T in (real, mine):
            n = int(np.prod(shape))
            x = T.full(shape, 2.5, dtype=getattr(T, dtype)) + step * T.arange(n).reshape(shape)
            _, t = T.func.jvp(lambda x: getattr(T, name)(x, **kwargs), (x,), (T.full_like(x, 1.5),))
            r = getattr(T, name)(x.requires_grad_(), **kwargs)
            out = [*t, *r] if isinstance(r, tuple) else [t, r]
            out += T.autograd.grad((r[0] if isinstance(r, tuple) else r).sum(), x)
            found.setdefault((shape, step, str(kwargs)), []).append([v.detach().numpy() for v in out])
    for case, (want, got) in found.items():
        for w, g in zip(want, got, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12, err_msg=str(case))


@pytest.mark.parametrize("edge_order,n", [(1, 2), (1, 5), (2, 3), (2, 4), (2, 6)])
def test_gradient_op_is_differentiable_in_its_spacing(edge_order, n):
    rs, found = np.random.RandomState(3), []
    given = [rs.rand(3, n), np.cumsum(rs.rand(n)), rs.rand(3, n), rs.rand(n)]
    for T in (real, mine):
        x, at, tx, tat = (T.tensor(a) for a in given)
        with T.autograd.forward_ad.dual_level() as _:
            dual = T.autograd.forward_ad.make_dual
            r, = T.gradient(dual(x, tx), spacing=(dual(at, tat),), dim=(-1,), edge_order=edge_order)
            found.append([t.clone() for t in T.autograd.forward_ad.unpack_dual(r)])
        r, = T.gradient(x, spacing=(at.requires_grad_(),), dim=(1,), edge_order=edge_order)
        found[-1] += T.autograd.grad((r * tx).sum(), at)
    for w, g in zip(*found):
        assert np.allclose(g.numpy(), w.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_embedding_propagates_the_weight_tangent(sparse):
    found = []
    for T in (real, mine):
        w, t, i = (T.tensor(a) for a in (np.arange(12.0).reshape(4, 3), np.arange(12.0).reshape(4, 3) ** 2, np.array([3, 0, 3])))
        _, r = T.func.jvp(lambda w: T.nn.functional.embedding(i, w, padding_idx=0, sparse=sparse), (w,), (t,))
        found.append(r.numpy())
    assert np.array_equal(*found)


@pytest.mark.parametrize("name,op,dtype", DIFFER, ids=[f"{n}-{d}" for n, _, d in DIFFER])
def test_tangent_matches_finite_differences(name, op, dtype):
    fn = C.facade_op(op, real, mine)
    s = next(iter(op.sample_inputs("cpu", getattr(real, dtype), requires_grad=False)))
    carry = C.Carrier(real, mine, _on_device.active() or "cpu")
    args = [a for a in (carry(s.input), *carry(list(s.args)))]
    got = tangents(mine, fn, args, s.kwargs, lambda r: r[0] if isinstance(r, tuple) else r)[0]
    rs, along = np.random.RandomState(0), []
    for x in flat(mine, args):
        a = rs.uniform(-1, 1, tuple(x.shape))
        along.append(mine.tensor(a + 1j * rs.uniform(-1, 1, tuple(x.shape)) if x.dtype.is_complex else a))

    def at(h):
        steps = iter(along)
        r = fn(*over(mine, args, lambda x: x + h * next(steps)), **s.kwargs)
        return r[0] if isinstance(r, tuple) else r
    assert np.allclose(got.numpy(), ((at(1e-6) - at(-1e-6)) / 2e-6).numpy(), rtol=1e-5, atol=1e-6)
