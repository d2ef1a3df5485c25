"""Covariances, segment reductions, Vandermonde matrices and names that are not ops, against
PyTorch."""
import math
import warnings

import numpy as np
import pytest
import torch as real
from _expressions import compare
from _parity import In, check, mine, values

X = In([[1.0, 2, 4], [3, 1, 0]], "float64", grad=True)
COUNTS, WEIGHTS = In([1, 2, 1]), In([0.5, 1, 2], grad=True)


@pytest.mark.parametrize("fn", [
    lambda T, x: T.cov(x), lambda T, x: x.cov(correction=0), lambda T, x: x[0].cov(), lambda T, x: T.cov(x[:1]),
    lambda T, x: T.cov(x > 1), lambda T, x: T.cov(x.expand(2, 2, 3)), lambda T, x: T.cov(x.long()), lambda T, x: T.cov(x.half()),
    lambda T, x: T.corrcoef(x), lambda T, x: x[0].corrcoef(), lambda T, x: T.corrcoef(x.long()), lambda T, x: T.corrcoef(x.expand(2, 2, 3)),
    lambda T, x: T.cov(T.complex(x, x.flip(1) * 2)), lambda T, x: T.corrcoef(T.complex(x, x.flip(1) * 2)), lambda T, x: T.cov(x[:0])])
def test_cov(fn):
    check(fn, X)


@pytest.mark.parametrize("fn", [
    lambda T, x, i, w: T.cov(x, fweights=i), lambda T, x, i, w: T.cov(x, fweights=i, aweights=w),
    lambda T, x, i, w: T.cov(x, aweights=w, correction=0), lambda T, x, i, w: T.cov(x, fweights=w), lambda T, x, i, w: T.cov(x, aweights=i),
    lambda T, x, i, w: T.cov(x, fweights=-i), lambda T, x, i, w: T.cov(x, fweights=i * 0), lambda T, x, i, w: T.cov(x, aweights=-w),
    lambda T, x, i, w: T.cov(x, fweights=i[:2]), lambda T, x, i, w: T.cov(x, fweights=i[None]),
    lambda T, x, i, w: T.cov(x.long(), aweights=w), lambda T, x, i, w: T.cov(x, aweights=w.float())])
def test_cov_of_weighted_observations(fn):
    check(fn, X, COUNTS, WEIGHTS, rtol=1e-6)


def test_cov_without_degrees_of_freedom_warns():
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert mine.cov(mine.ones(2, 3), correction=3).isnan().all()


LENGTHS = In([2, 0, 3, 1])


@pytest.mark.parametrize("initial", [None, 3, 1])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod", "amax"])
def test_segment_reduce(reduce, initial):
    x = In([1.0, 2, 2, 0, 4, 5], "float64", grad=True)
    check(lambda T, a, n: T.segment_reduce(a, reduce, lengths=n, initial=initial), x, LENGTHS)
    check(lambda T, a, n: T.segment_reduce(a, reduce, offsets=n, initial=initial), x, In([0, 2, 2, 6]))
    wide = In(values(1, (2, 6), "float64"), grad=True)
    check(lambda T, a, n: T.segment_reduce(a, reduce, lengths=n, axis=1, initial=initial), wide, In([[2, 4], [1, 5]]))
    check(lambda T, a, n: T.segment_reduce(a, reduce, lengths=n, initial=initial), wide, In([1, 1]))
    check(lambda T, a, n: T.segment_reduce(a.reshape(2, 3, 2), reduce, lengths=n, axis=1, initial=initial), wide, In([[1, 2], [3, 0]]))


@pytest.mark.parametrize("fn", [
    lambda T, a, n: T.segment_reduce(a, "sum", lengths=n[:2]), lambda T, a, n: T.segment_reduce(a, "sum"),
    lambda T, a, n: T.segment_reduce(a, "sum", indices=n), lambda T, a, n: T.segment_reduce(a, "sum", lengths=n.float()),
    lambda T, a, n: T.segment_reduce(a.long(), "sum", lengths=n), lambda T, a, n: T.segment_reduce(a, "sum", lengths=-n),
    lambda T, a, n: T.segment_reduce(a.reshape(2, 3), "sum", lengths=n, axis=1),
    lambda T, a, n: T.segment_reduce(a, "nothing", lengths=n)])
def test_segment_reduce_rejects_invalid_arguments(fn):
    check(fn, In([1.0, 2, 2, 0, 4, 5]), LENGTHS)


@pytest.mark.parametrize("fn", [
    lambda T, x, i: T.vander(i), lambda T, x, i: T.vander(x[0], 2), lambda T, x, i: T.vander(x[0], N=4, increasing=True),
    lambda T, x, i: T.vander(x), lambda T, x, i: T.vander(x[0], -1), lambda T, x, i: T.vander(x[0], 0), lambda T, x, i: T.vander(i > 1, 3),
    lambda T, x, i: T.slice_copy(x, 1, 0, 3, 2), lambda T, x, i: T.slice_copy(x), lambda T, x, i: T.slice_copy(x, 0, 0, 1, 0),
    lambda T, x, i: T.norm_except_dim(x), lambda T, x, i: T.norm_except_dim(x, 1, 1), lambda T, x, i: T.norm_except_dim(x, 2, -1),
    lambda T, x, i: T.norm_except_dim(x[None], 2, 1), lambda T, x, i: T.detach_copy(x).detach(), lambda T, x, i: T.detach(x),
    lambda T, x, i: x.slice_inverse(x[:, :2]).detach() if T is mine else x[:, :2].detach()])
def test_small_ops(fn):
    check(fn, X, COUNTS, no_gradient=True)  # vander overwrites a tensor that its own backward needs


# ------------------------------------------------------------------ names that are not ops
def test_symbolic_helpers_on_numbers():
    for T in (mine, real):
        assert [T.sym_int(2.7), T.sym_float(2), T.sym_max(1, 2.0), T.sym_min(3, 1.5), T.sym_not(True), T.sym_ite(True, 1, 2),
                T.sym_sum([1, 2]), T.sym_sqrt(4)] == [2, 2.0, 2.0, 1.5, False, 1, 3, 2.0]
        assert type(T.sym_max(3, 2.0)) is float and not isinstance(3, T.SymInt)
    with pytest.raises(NotImplementedError):
        mine.SymInt(3)


@pytest.mark.host_only("get_device of a host tensor")
def test_predicates():
    for T in (mine, real):
        x = T.ones(2)
        assert T.is_signed(x) and not T.is_signed(x.to(T.uint8)) and T.get_device(x) == -1 and not T.is_distributed(x)


@pytest.mark.host_only("DLPack has no name for an NPU's memory")
def test_dlpack_shares_memory():
    a = np.arange(4.0)
    for source in (a, real.arange(4.0), mine.arange(4.0), real.to_dlpack(real.arange(4.0)), mine.to_dlpack(mine.arange(4.0))):
        t = mine.from_dlpack(source)
        assert t.tolist() == [0.0, 1.0, 2.0, 3.0]
        t += 1
        if hasattr(source, "tolist"):
            assert source.tolist() == [1.0, 2.0, 3.0, 4.0]
    there = real.from_dlpack(mine.arange(3))
    assert there.tolist() == [0, 1, 2]
    b = np.arange(3)
    mine.from_dlpack(b, copy=True).add_(1)
    assert b.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="invalid capsule"):
        mine.from_dlpack(3)
    assert mine.from_dlpack(np.zeros((0, 3))).shape == (0, 3)


def test_unsupported_names_raise():
    for name in ("quantize_per_tensor", "cudnn_convolution", "fork"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(mine, name)(mine.ones(2))


def test_from_file(tmp_path):
    path = str(tmp_path / "numbers")
    for T in (real, mine):
        T.from_file(path, shared=True, size=4, dtype=T.float32).copy_(T.tensor([1.0, 2.0, 3.0, 4.0]))
        t = T.from_file(path, shared=False, size=3)
        t[0] = 9.0
        assert t.tolist() == [9.0, 2.0, 3.0] and T.from_file(path, size=4).tolist() == [1.0, 2.0, 3.0, 4.0]
        (tmp_path / "numbers").unlink()


def test_deprecated_methods():
    with pytest.warns(UserWarning, match="deprecated"):
        assert mine.arange(6).resize(2, 3).shape == (2, 3)
    with pytest.warns(UserWarning, match="deprecated"):
        assert mine.arange(6).resize_as(mine.ones(3, 2)).shape == (3, 2)
    with pytest.raises(RuntimeError, match="reinforce"):
        mine.ones(1).reinforce(1)
    assert mine.torch is mine and issubclass(mine.OutOfMemoryError, RuntimeError)
    before = mine.is_anomaly_enabled()
    mine.set_anomaly_enabled(True)
    assert mine.is_anomaly_enabled() and mine.is_anomaly_check_nan_enabled()
    mine.set_anomaly_enabled(before)


@pytest.mark.parametrize("of", [lambda x: x, lambda x: x.t(), lambda x: x[:, ::2], lambda x: x.t()[1:], lambda x: x[0].expand(2, 3), lambda x: x[:0]])
@pytest.mark.parametrize("sizes", [(6,), (3, 2), ((2, 3),), (-1,), (2, -1), (0,), (5,), (), (-2, -3)])
def test_resize_out_of_place(of, sizes):
    """resize copies the elements in logical order, whatever the memory layout, and is
    differentiable."""
    def outcome(T):
        x = T.arange(6.0).reshape(2, 3).requires_grad_()
        with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
            try:
                y = of(x).resize(*sizes)
            except RuntimeError:
                return "refused"
        (y * T.arange(1.0, y.numel() + 1).view(y.shape)).sum().backward()
        return y.tolist(), x.grad.tolist()
    assert outcome(mine) == outcome(real)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name, args, shapes", [
    *[(n, ("x", 3, "y"), [(2, 3), (2, 3)]) for n in ("add", "sub")], *[(n, ("x", 0.5, "y", "z"), [(2, 3), (2, 3), (2, 3)]) for n in ("addcmul", "addcdiv")],
    *[(n, form, s) for n, s in (("addmm", [(2, 2), (2, 3), (3, 2)]), ("addmv", [(2,), (2, 3), (3,)]), ("addr", [(2, 3), (2,), (3,)]),
                                ("addbmm", [(2, 2), (4, 2, 3), (4, 3, 2)]), ("baddbmm", [(4, 2, 2), (4, 2, 3), (4, 3, 2)]))
      for form in ((2, "x", 3, "y", "z"), (2, "x", "y", "z"))]])
def test_deprecated_argument_orders(name, args, shapes, in_place):
    """Deprecated overloads with scalars before the tensors that they scale: as a function, as a
    method and in place."""
    def outcome(T):
        given = dict(zip("xyz", (T.arange(1.0, math.prod(s) + 1).view(s) for s in shapes)))
        values = [given[a] if isinstance(a, str) else a for a in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns once per op that they are deprecated
            function = getattr(T, name)(*values) if not in_place else None
            rest = [v for v, a in zip(values, args) if a != "x"]
            method = getattr(given["x"], name + "_" * in_place)(*rest)
        return None if in_place else function.tolist(), method.tolist(), given["x"].tolist()
    assert outcome(mine) == outcome(real)


def test_invalid_arguments_raise():
    compare(["torch.roll(L(1.), 0, 0)", "torch.roll(L(1.), 1)", "torch.remainder(2, 3)", "torch.remainder(2, L(3))", "torch.normal(torch.ones(2), 0., (2,))", "torch.normal(L(1.), 0., (2,))",
            "torch.normal(L(1.), -1, (2,))",
            "torch.narrow(torch.ones(3), 0, L(1.), 1)", "torch.narrow(torch.ones(3), 0, L([1]), 1)", "torch.narrow(torch.ones(3), 0, L(1), 1)",
            *[f"torch.nn.functional.{loss}(torch.ones(5, 4), torch.ones({n}))" for n in ("5", "2, 5, 3") for loss in (
                "l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")],
            *[f"torch.nn.functional.multi_margin_loss(torch.ones(5, 4), L([0, 1, 2, 3, 0]), weight=torch.ones({n}))" for n in ("4", "5", "5, 4", "()")]])
