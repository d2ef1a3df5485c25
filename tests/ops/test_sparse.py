"""Sparse COO tensors against PyTorch, and errors where an op needs a dense tensor."""
import contextlib
import copy
import itertools
import warnings

import numpy as np
import pytest
import torch as real
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mine
from _parity import few

SIDES = (real, mine)


@pytest.fixture(autouse=True)
def quiet():
    """Suppresses PyTorch's one-time warnings that invariants are not checked and that CSR is in
    beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make(T, dtype="float32", grad=False, size=(3, 4), coalesced=False, dense=()):
    """Returns a sparse matrix; unless it is coalesced, one index occurs twice."""
    i = [[0, 2, 1, 2, 0], [2, 0, 3, 0, 1]] if not coalesced else [[0, 0, 1, 2], [1, 2, 3, 0]]
    n = len(i[0])
    v = np.random.RandomState(0).randn(n, *dense) if not dtype.startswith("int") else np.arange(n * int(np.prod(dense))).reshape(n, *dense) + 1
    t = T.sparse_coo_tensor(T.tensor(i), T.tensor(v).to(getattr(T, dtype)), (*size, *dense))
    t = t.coalesce() if coalesced else t
    return t.requires_grad_() if grad else t


def plain(x):
    """Converts to comparable values; sparse tensors become their size and dense elements."""
    if isinstance(x, (real.Tensor, mine.Tensor)):
        kind = "sparse" if x.is_sparse else "dense"
        d = x.detach().to_dense()
        return kind, str(d.dtype), tuple(x.shape), np.array(d.numpy())
    if isinstance(x, (list, tuple)):
        return [plain(y) for y in x]
    return x


def outcome(fn, T):
    try:
        return plain(fn(T))
    except Exception as e:
        return type(e)


def agree(a, b):
    if isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b)
        for x, y in zip(a, b):
            agree(x, y)
    elif isinstance(a, tuple) and len(a) == 4:
        assert isinstance(b, tuple), f"{b} instead of {a}"
        assert a[:3] == b[:3], f"{b[:3]} instead of {a[:3]}"
        np.testing.assert_allclose(b[3], a[3], rtol=1e-5, atol=1e-6)
    elif isinstance(a, type) and issubclass(a, Exception):
        assert isinstance(b, type) and (issubclass(b, a) or issubclass(a, b)), f"{b} instead of {a}"
    else:
        assert a == b, f"{b} instead of {a}"


def same(fn):
    agree(outcome(fn, real), outcome(fn, mine))


PROGRAMS = {
    "to_dense": lambda T: make(T).to_dense(),
    "coalesce": lambda T: [make(T).coalesce(), make(T).coalesce().indices(), make(T).coalesce().values(), make(T).coalesce().is_coalesced()],
    "parts": lambda T: [make(T)._indices(), make(T)._values(), make(T)._nnz(), make(T).sparse_dim(), make(T).dense_dim(), make(T).dim(),
                        make(T).numel(), make(T).size(1), len(make(T)), make(T).is_coalesced(), make(T).is_sparse, make(T).is_floating_point()],
    "hybrid": lambda T: [make(T, dense=(2,)), make(T, dense=(2,)).coalesce(), make(T, dense=(2,)).dense_dim()],
    "integers": lambda T: [make(T, "int64"), make(T, "int32").coalesce()],
    "size from indices": lambda T: T.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0]),
    "empty": lambda T: [T.sparse_coo_tensor((2, 3)), T.sparse_coo_tensor((2, 3), dtype=T.int64),
                        T.sparse_coo_tensor(T.zeros(2, 0, dtype=T.int64), T.zeros(0, 4), (2, 3, 4))],
    "dtype": lambda T: T.sparse_coo_tensor([[0, 1]], [3, 4], (2,), dtype=T.float64),
    "add": lambda T: make(T) + make(T, coalesced=True),
    "add alpha": lambda T: T.add(make(T), make(T), alpha=3),
    "add to dense": lambda T: [T.ones(3, 4) + make(T), T.ones(3, 4).add(make(T), alpha=-2), T.add(T.ones(3, 4), make(T))],
    "sub": lambda T: [make(T) - make(T, coalesced=True), T.ones(3, 4) - make(T)],
    "scale": lambda T: [make(T) * 2, 2 * make(T), make(T) / 4, make(T).mul(T.tensor(2.0)), -make(T), T.neg(make(T))],
    "mul": lambda T: [make(T) * make(T, coalesced=True), make(T) * T.arange(12.0).reshape(3, 4), T.mul(T.ones(3, 4), make(T))],
    "elementwise": lambda T: [make(T).abs(), make(T).sin(), make(T).pow(2), make(T) ** 2, make(T).tanh(), make(T).abs().sqrt(), make(T).relu()],
    "in place": lambda T: [make(T).mul_(3), make(T).add_(make(T)), make(T).div_(2), make(T).zero_(), make(T).copy_(make(T, coalesced=True))],
    "dense in place": lambda T: [T.ones(3, 4).add_(make(T)), T.ones(3, 4).add_(make(T), alpha=-0.5), T.ones(3, 4).sub_(make(T))],
    "mm": lambda T: [make(T) @ T.arange(8.0).reshape(4, 2), make(T).mm(T.ones(4, 2)), T.mm(make(T), T.ones(4, 2)), T.sparse.mm(make(T), T.ones(4, 2))],
    "mm dense sparse": lambda T: [T.ones(2, 3) @ make(T), T.mm(T.arange(6.0).reshape(2, 3), make(T))],
    "mm sparse sparse": lambda T: [make(T) @ make(T).t(), T.sparse.mm(make(T), make(T).t())],
    "mv": lambda T: [make(T) @ T.arange(4.0), T.matmul(make(T), T.ones(4)), make(T).mv(T.ones(4))],
    "addmm": lambda T: [T.addmm(T.ones(3, 2), make(T), T.ones(4, 2), beta=2, alpha=3), T.sparse.addmm(T.ones(3, 2), make(T), T.ones(4, 2))],
    "spmm": lambda T: [T.spmm(make(T), T.ones(4, 2)), T.dsmm(make(T), T.ones(4, 2))],
    "t": lambda T: [make(T).t(), make(T).transpose(0, 1), T.t(make(T)), T.transpose(make(T), 0, 1)],
    "sum": lambda T: [T.sparse.sum(make(T)), T.sparse.sum(make(T), 0), T.sparse.sum(make(T), (0, 1)), T.sparse.sum(make(T, dense=(2,)), 2),
                      T.sparse.sum(make(T, dense=(2,)), (0, 2)), make(T).sum(), T.sum(make(T)), T.sparse.sum(make(T), -1)],
    "sum dtype": lambda T: T.sparse.sum(make(T), 0, dtype=T.float64),
    "softmax": lambda T: [T.sparse.softmax(make(T), 1), T.sparse.log_softmax(make(T), 0), T.sparse.softmax(make(T, dense=(2,)), 2),
                          T.sparse.softmax(make(T, dense=(2,)), 0)],
    "select": lambda T: [make(T)[0], make(T)[:, 0], make(T)[2, 0], make(T).select(1, -1), make(T, dense=(2,))[0, :, 1]],
    "dtypes": lambda T: [make(T).double(), make(T).to(T.int64), make(T).to(T.float32), make(T).half().float()],
    "clone": lambda T: [make(T).clone(), make(T).detach(), copy.deepcopy(make(T))],
    "from dense": lambda T: [T.eye(3).to_sparse(), T.arange(6.0).reshape(2, 3).to_sparse(1), T.eye(3).to_sparse_coo(), T.tensor([0, 2, 0]).to_sparse()],
    "mask": lambda T: T.arange(12.0).reshape(3, 4).sparse_mask(make(T).coalesce()),
    "norm": lambda T: make(T).norm(),
    "dense answers": lambda T: [T.ones(2).sparse_dim(), T.ones(2, 3).dense_dim(), T.ones(2).is_sparse],
    "spdiags": lambda T: [T.sparse.spdiags(T.arange(9.0).reshape(3, 3), T.tensor([0, -1, 2]), (3, 3)),
                          T.sparse.spdiags(T.arange(6.0).reshape(2, 3), T.tensor([1, 0]), (2, 4))],
    "repr": lambda T: [repr(make(T)), repr(make(T, "float64", grad=True)), repr(make(T, "int64")), str(T.sparse_coo_tensor((2, 3))),
                       repr(make(T, dense=(2,)))],
    "size and values differ": lambda T: T.sparse_coo_tensor(T.zeros(2, 3, dtype=T.int64), T.ones(2)),
    "size does not fit": lambda T: T.sparse_coo_tensor(T.zeros(2, 3, dtype=T.int64), T.ones(3), (2,)),
    "not coalesced": lambda T: make(T).indices(),
    "not coalesced values": lambda T: make(T).values(),
    "not sparse": lambda T: T.ones(2).coalesce(),
    "not sparse indices": lambda T: T.ones(2).indices(),
    "not sparse nnz": lambda T: T.ones(2)._nnz(),
    "sparse + dense": lambda T: make(T) + T.ones(3, 4),
    "sparse + 1": lambda T: make(T) + 1,
    "sizes": lambda T: make(T) + make(T).t(),
    "mm sizes": lambda T: make(T) @ T.ones(3, 2),
    "exp": lambda T: T.exp(make(T)),
    "numpy": lambda T: make(T).numpy(),
    "view": lambda T: make(T).view(-1),
    "==": lambda T: make(T) == make(T),
    "mean": lambda T: make(T).mean(),
    "broadcast mul": lambda T: [make(T) * T.arange(4.0), make(T) * T.arange(3.0).reshape(3, 1), T.arange(4.0).reshape(1, 4) * make(T), make(T) * T.ones(1),
                                make(T, dense=(2,)) * T.arange(2.0), make(T, dense=(2,)) * T.arange(8.0).reshape(4, 2), make(T) * T.arange(24.0).reshape(2, 3, 4)],
    "mul of others": lambda T: make(T) * make(T, size=(4, 4)),
    "mul sizes": lambda T: make(T) * T.ones(5),
    "functions": lambda T: [T.abs(make(T)), T.sqrt(T.abs(make(T))), T.sin(make(T)), T.relu(make(T)), T.nn.functional.relu(make(T)), T.square(make(T)),
                            T.special.expm1(make(T)), T.sign(make(T)), T.isnan(make(T)), T.signbit(make(T)), T.nan_to_num(make(T)), T.erf(make(T)),
                            +make(T), make(T).conj(), make(T).real, make(T).frac(), T.round(make(T)), make(T).arctan(), make(T, "int32").isinf()],
    "powers": lambda T: [make(T) ** 3, make(T).abs() ** 0.5, make(T) ** -1, T.pow(make(T), 2)],
    "power 0": lambda T: make(T) ** 0,
    "division": lambda T: [make(T) / T.tensor(2.0), make(T) // 2, make(T).div(2, rounding_mode="trunc"), T.floor_divide(make(T), 2)],
    "division by a tensor": lambda T: make(T) / T.ones(3, 4),
    "in place, coalesced": lambda T: [make(T, coalesced=True).abs_(), make(T, coalesced=True).sin_(), T.relu_(make(T, coalesced=True)), make(T).neg_()],
    "in place, not coalesced": lambda T: make(T).sin_(),
    "cat": lambda T: [T.cat([make(T), make(T)]), T.cat([make(T), make(T, coalesced=True)], -1), T.cat([make(T, dense=(2,)), make(T, dense=(2,))], 2),
                      T.vstack([make(T), make(T)]), T.hstack([make(T), make(T)]), T.cat([make(T), make(T, "float64")]), T.stack([make(T), make(T)]),
                      T.stack([make(T), make(T)], 2), T.stack([make(T), make(T)], 1)],
    "cat with dense": lambda T: T.cat([make(T), T.ones(3, 4)]),
    "cat sizes": lambda T: T.cat([make(T), make(T, size=(3, 5))]),
    "unsqueeze": lambda T: [make(T).unsqueeze(0), make(T).unsqueeze(1), make(T).unsqueeze(-1), make(T, dense=(2,)).unsqueeze(-1), make(T, dense=(2,)).unsqueeze(2)],
    "permute": lambda T: [make(T).permute(1, 0), make(T, dense=(2,)).permute(1, 0, 2), make(T).movedim(0, 1), make(T).swapaxes(0, 1), make(T).mT, make(T).adjoint(),
                          make(T, dense=(2, 3)).permute(0, 1, 3, 2)],
    "permute sparse with dense": lambda T: make(T, dense=(2,)).permute(0, 2, 1),
    "transpose sparse with dense": lambda T: make(T, dense=(2,)).transpose(1, 2),
    "index_select": lambda T: [make(T).index_select(0, T.tensor([0, 2, 0])), make(T, coalesced=True).index_select(1, T.tensor([3, 0])),
                               make(T, dense=(2,)).index_select(2, T.tensor([1, 1])), T.index_select(make(T), 1, T.tensor([2]))],
    "index_select outside": lambda T: make(T).index_select(0, T.tensor([3])),
    "narrow_copy": lambda T: [make(T).narrow_copy(0, 1, 2), make(T).narrow_copy(1, 0, 1), make(T, dense=(3,)).narrow_copy(2, 1, 2)],
    "indices": lambda T: [make(T)[..., 0], make(T)[None], make(T)[-1], make(T, dense=(2,))[..., 1], make(T).unbind()[2], list(make(T))[0]],
    "slices": lambda T: make(T)[0:2],
    "tensors as indices": lambda T: make(T)[T.tensor([0, 1])],
    "sums": lambda T: [make(T).sum(0), make(T).sum(1, keepdim=True), make(T).sum((0, 1), keepdim=True), make(T).sum_to_size(1, 4), make(T).any(), T.norm(make(T), 1)],
    "norm over dims": lambda T: make(T).norm(dim=0),
    "likes": lambda T: [T.zeros_like(make(T)), T.empty_like(make(T)), T.zeros_like(make(T), dtype=T.int64), make(T).new_zeros(2, 3), make(T).new_tensor([1.0]),
                        T.zeros(2, 3, layout=T.sparse_coo), T.tensor(make(T)), make(T).type(T.float64)],
    "resizes": lambda T: [make(T).sparse_resize_((5, 5), 2, 0), make(T).sparse_resize_and_clear_((5, 5), 1, 1), make(T).resize_as_sparse_(make(T, coalesced=True))],
    "resize to less": lambda T: make(T).sparse_resize_((2, 2), 2, 0),
    "masks": lambda T: [T.arange(12.0).reshape(3, 4).sparse_mask(make(T)), make(T).sparse_mask(make(T, coalesced=True)),
                        T.arange(12.0).reshape(3, 4).to_sparse().sparse_mask(make(T, coalesced=True))],
    "to_sparse": lambda T: [T.eye(3).to_sparse(dense_dim=1), T.eye(3).to_sparse(layout=T.sparse_coo), make(T).to_sparse(2), T.eye(3).to_sparse(layout=T.sparse_coo, dense_dim=1)],
    "to_sparse again": lambda T: make(T).to_sparse(1),
    "batches": lambda T: [T.bmm(T.stack([make(T), make(T)]), T.arange(16.0).reshape(2, 4, 2)), T.arange(18.0).reshape(2, 3, 3) @ make(T)],
    "linear": lambda T: [T.nn.functional.linear(T.ones(2, 4), make(T)), T.nn.functional.linear(make(T), T.arange(8.0).reshape(2, 4), T.ones(2)),
                         T.linalg.matmul(make(T), T.ones(4, 2)), T.mv(make(T), T.ones(4)), T.ones(3) @ make(T)],
    "sparse products": lambda T: [T.smm(make(T), T.ones(4, 2)), T.hspmm(make(T), T.ones(4, 2)), T.sspaddmm(make(T, size=(3, 4)), make(T), T.ones(4, 4), beta=2, alpha=3)],
    "addmm of sparse": lambda T: T.addmm(make(T, size=(3, 4)), make(T), T.ones(4, 4)),
    "addmm broadcast": lambda T: [T.addmm(T.ones(2), make(T), T.ones(4, 2)), T.sparse.addmm(T.ones(1, 2), make(T), T.ones(4, 2), beta=0)],
    "mm dtypes": lambda T: [make(T, "int64") @ T.ones(4, 2, dtype=T.int64), make(T, "float64") @ T.ones(4, 2).double(), make(T, "complex64") @ T.ones(4, 2, dtype=T.complex64)],
    "mm mixed dtypes": lambda T: make(T) @ T.ones(4, 2).double(),
    "mm of bools": lambda T: make(T, "bool") @ T.ones(4, 2, dtype=T.bool),
    "mm reduce": lambda T: T.sparse.mm(make(T), T.ones(4, 2), "mean"),
    "copy dense": lambda T: make(T).copy_(T.ones(3, 4)),
}


@pytest.mark.host_only("the printed form names the device", cases=("repr",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    same(PROGRAMS[name])


def dense_there(T, s):
    """Returns the sparse tensor; for PyTorch, which lacks the op's sparse gradient, the dense one.
    """
    return s if T is mine else s.to_dense()


def dense(x):
    return x.to_dense() if x.is_sparse else x


GRADIENTS = {
    "values": lambda T, s, d: s.to_dense() * d[:3, :4],
    "coalesce": lambda T, s, d: s.coalesce().to_dense() ** 2,
    "mm": lambda T, s, d: T.sparse.mm(s, d[:4, :2]),
    "matmul": lambda T, s, d: s @ d[:4, :2],
    "mm transposed": lambda T, s, d: d[:2, :3] @ s if T is mine else (s.t() @ d[:2, :3].t()).t(),
    "sum": lambda T, s, d: T.sparse.sum(s) * d[0, 0],
    "sum dim": lambda T, s, d: T.sparse.sum(s, 0).to_dense() * d[0, :4],
    "softmax": lambda T, s, d: T.sparse.softmax(s, 1).to_dense() * d[:3, :4],
    "scale": lambda T, s, d: (s * 3).to_dense() * d[:3, :4],
    "add": lambda T, s, d: (s + s).to_dense() * d[:3, :4],
    "dense + sparse": lambda T, s, d: (d[:3, :4] + s) ** 2,
    "broadcast": lambda T, s, d: dense(dense_there(T, s) * d[0, :4]) * d[:3, :4],
    "cat": lambda T, s, d: dense(T.cat([dense_there(T, s), dense_there(T, s) * 2])) ** 2,
    "index_select": lambda T, s, d: dense(dense_there(T, s).index_select(1, T.tensor([2, 0, 2]))) * d[:3, :3],
    "unary": lambda T, s, d: dense(T.tanh(dense_there(T, s))) * d[:3, :4],
    "smm": lambda T, s, d: (mine.smm(s, d[:4, :2]).to_dense() if T is mine else s @ d[:4, :2]) * d[:3, :2],
    "hspmm": lambda T, s, d: T.sparse.mm(s, d[:4, :2]) ** 2,
    "mv": lambda T, s, d: s.mv(d[:4, 0]) * d[:3, 1],
    "twice": lambda T, s, d: T.sparse.mm(s, T.sparse.mm(s.t(), d[:3, :2])),
    "addmm": lambda T, s, d: T.sparse.addmm(d[:3, :2], s, d[:4, :2]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    grads = []
    for T in SIDES:
        v = T.tensor([1.0, 2.0, -1.0, 0.5, 3.0], dtype=T.float64, requires_grad=True)
        d = T.arange(20.0, dtype=T.float64).reshape(4, 5).requires_grad_()
        s = T.sparse_coo_tensor(T.tensor([[0, 2, 1, 2, 0], [2, 0, 3, 0, 1]]), v, (3, 4))
        GRADIENTS[name](T, s, d).sum().backward()
        grads.append([None if g is None else g.to_dense().numpy() for g in (v.grad, d.grad)])
    for a, b in zip(*grads):
        if a is None or b is None:
            assert a is None or not a.any()
            assert b is None or not b.any()
        else:
            np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-9)


def test_leaf_gradient_is_sparse():
    for T in SIDES:
        s = make(T, grad=True, coalesced=True)
        (T.sparse.mm(s, T.arange(8.0).reshape(4, 2)) ** 2).sum().backward()
        assert s.requires_grad and s.is_leaf and s.grad.is_sparse and s.grad.shape == s.shape
    x, y = (make(T, grad=True, coalesced=True) for T in SIDES)
    for T, s in zip(SIDES, (x, y)):
        T.sparse.mm(s, T.arange(8.0).reshape(4, 2)).sum().backward()
    np.testing.assert_allclose(y.grad.to_dense().numpy(), x.grad.to_dense().numpy())


@st.composite
def sparse_parts(draw):
    rows, cols, nnz = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 8))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.RandomState(seed)
    return (rows, cols), np.stack((rng.randint(0, rows, nnz), rng.randint(0, cols, nnz))).reshape(2, nnz), rng.randn(nnz), seed


def test_products_of_sparse_tensors():
    def run(T):
        a, b = T.sparse_coo_tensor([[0, 0], [0, 1]], [1.0, 1.0], (2, 2)), T.sparse_coo_tensor([[0, 1, 0], [0, 0, 1]], [1.0, -1.0, 2.0], (2, 2))
        r = T.sparse.mm(a, b)  # (one element is a sum of terms that cancel)
        return [r, r._nnz(), r._indices(), T.sparse.mm(a.double(), b.double()), T.sparse.mm(T.sparse_coo_tensor((3, 2)), a)]
    same(run)
    rng = np.random.RandomState(0)
    i, j = [mine.tensor(rng.randint(0, 4, (2, n))) for n in (7, 6)]
    for kind in (0, 1j):
        v, w = [mine.tensor(rng.randn(n) + kind * rng.randn(n)).requires_grad_() for n in (7, 6)]
        d = mine.tensor(rng.randn(4, 2) + kind).requires_grad_()

        def sparse(v, w):
            return mine.sparse.mm(mine.sparse_coo_tensor(i, v, (4, 4)), mine.sparse_coo_tensor(j, w, (4, 4))).to_dense()

        def with_dense(v, d):
            return d.t() @ mine.sparse_coo_tensor(i, v, (4, 4)) @ d
        for f, x in ((sparse, (v, w)), (with_dense, (v, d))):
            assert mine.autograd.gradcheck(f, x) and (kind or mine.autograd.gradgradcheck(f, x))


@settings(max_examples=30)
@given(sparse_parts())
def test_random_matrices(parts):
    (n, m), i, v, seed = parts
    right = np.random.RandomState(seed + 1).randn(m, 3)

    def run(T):
        s = T.sparse_coo_tensor(T.tensor(i), T.tensor(v), (n, m))
        d = T.tensor(right)
        return [s, s.coalesce(), s @ d, s.t(), s + s, s * 2, s * s, T.sparse.sum(s, 1), (s @ s.t()), s.coalesce()._nnz(), T.ones(n, m).double() + s]
    same(run)


# ---------------------------------------------------------- sparse tensors are not implicitly dense
def test_unsupported_sparse_ops_raise():
    s, d = make(mine), mine.ones(3, 4)
    uses = [lambda: s.exp(), lambda: mine.exp(s), lambda: mine.sigmoid(s), lambda: mine.cat([s, d]), lambda: s.reshape(12),
            lambda: mine.where(d > 0, s, d), lambda: s.max(), lambda: s[0:2], lambda: s @ mine.ones(2, 4, 3), lambda: s.tolist(),
            lambda: s.item(), lambda: s.data_ptr(), lambda: d.copy_(s), lambda: mine.stack([s, d]), lambda: d.masked_fill(s, 1.0),
            lambda: mine.allclose(s, s), lambda: s.storage(), lambda: mine.maximum(s, d), lambda: s.squeeze(), lambda: s.add(1)]
    for n, use in enumerate(uses):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            use()
            pytest.fail(f"use {n} gave a result")


@pytest.mark.host_only("the message names the device")
def test_sparse_error_names_op_dtype_and_device():
    with pytest.raises(NotImplementedError, match=r"'exp'.*torch\.float32.*cpu.*to_dense"):
        mine.exp(make(mine))
    with pytest.raises(NotImplementedError, match="sampled_addmm.*float32.*cpu"):
        mine.sparse.sampled_addmm(make(mine), mine.ones(3, 2), mine.ones(2, 4))
    with pytest.raises(NotImplementedError, match="'exp'.*float32.*cpu.*sparse_csr"):
        mine.exp(mine.sparse_csr_tensor(mine.tensor([0, 1]), mine.tensor([0]), mine.ones(1)))
    for name, call in (("spsolve", lambda s: mine.sparse.spsolve(s, mine.ones(3))), ("to_sparse_semi_structured", mine.sparse.to_sparse_semi_structured)):
        with pytest.raises(NotImplementedError, match=f"{name}.*float32.*cpu"):
            call(make(mine))


def test_indices_outside_the_size_are_refused():
    for i in ([[0, 5]], [[0, -1]]):
        with pytest.raises(RuntimeError, match="index"):
            mine.sparse_coo_tensor(i, [1.0, 2.0], (3,))


# ------------------------------------------------------------------ embeddings and optimizers
def embedding(T, sparse, kind="Embedding", **kw):
    m = getattr(T.nn, kind)(6, 3, sparse=sparse, **kw)
    with T.no_grad():
        m.weight.copy_(T.arange(18.0).reshape(6, 3) / 10)
    return m


def test_embedding_gradient():
    for kind, kw, args in (("Embedding", {}, lambda T: (T.tensor([[1, 4], [1, 0]]),)), ("Embedding", {"padding_idx": 1}, lambda T: (T.tensor([1, 4, 1, 0]),)),
                           ("EmbeddingBag", {"mode": "sum"}, lambda T: (T.tensor([1, 4, 1, 0]), T.tensor([0, 3]))),
                           ("EmbeddingBag", {"mode": "mean"}, lambda T: (T.tensor([[1, 4], [1, 0]]),))):
        def run(T, kind=kind, kw=kw, args=args):
            m = embedding(T, True, kind, **kw)
            for _ in range(2):  # the second gradient accumulates into the first
                (m(*args(T)) ** 2).sum().backward()
            g = m.weight.grad
            return [g, g.is_sparse, g.coalesce().indices(), g.coalesce().values()]
        same(run)


@pytest.mark.parametrize("optimizer", [
    lambda T, p: T.optim.SGD(p, lr=0.1), lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9), lambda T, p: T.optim.SparseAdam(p, lr=0.1),
    lambda T, p: T.optim.SparseAdam(p, lr=0.1, maximize=True), lambda T, p: T.optim.Adagrad(p, lr=0.1), lambda T, p: T.optim.Adagrad(p, lr=0.1, maximize=True)])
def test_optimizers_accept_sparse_gradients(optimizer):
    def run(T):
        m = embedding(T, True)
        opt = optimizer(T, list(m.parameters()))
        for idx in ([1, 4, 1], [0, 4], [2, 2, 2]):
            opt.zero_grad()
            (m(T.tensor(idx)) ** 2).sum().backward()
            opt.step()
        return m.weight
    same(run)


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD"])
def test_optimizers_rejecting_sparse_gradients_raise(name):
    for T in SIDES:
        m = embedding(T, True)
        m(T.tensor([1])).sum().backward()
        with pytest.raises(RuntimeError):
            getattr(T.optim, name)(m.parameters()).step()


def test_sparse_and_dense_gradients_accumulate():
    def run(T):
        m = embedding(T, True)
        (m(T.tensor([1, 4])).sum() + (m.weight ** 2).sum()).backward()
        first = m.weight.grad.clone()
        m(T.tensor([2])).sum().backward()
        return [first, m.weight.grad]
    same(run)


def test_zero_grad_of_a_sparse_gradient():
    m = embedding(mine, True)
    m(mine.tensor([1])).sum().backward()
    mine.optim.SGD(m.parameters(), lr=1.0).zero_grad(set_to_none=False)
    assert m.weight.grad.is_sparse and not m.weight.grad.to_dense().any()
    m.weight.grad = mine.eye(6, 3).to_sparse()
    assert m.weight.grad.is_sparse
    with pytest.raises(RuntimeError, match="size"):
        m.weight.grad = mine.eye(2).to_sparse()


@pytest.mark.host_only("real torch has no npu device to load to")
def test_files_go_both_ways(tmp_path):
    for a in SIDES:
        a.save({"x": make(a), "y": make(a, coalesced=True)}, tmp_path / "x.pt")
        for loader in SIDES:
            got = loader.load(tmp_path / "x.pt", weights_only=True)
            agree(plain([make(real), make(real, coalesced=True)]), plain([got["x"], got["y"]]))
            assert got["y"].is_coalesced() and not got["x"].is_coalesced()


# ------------------------------------------------------------------ which elements a result stores
@few
@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), max_size=6), st.booleans(), st.booleans(), st.sampled_from([1, -2]), st.booleans())
def test_sum_stores_torchs_elements(i, j, ordered, other_ordered, alpha, expanded):
    def run(T):
        a, b = [T.sparse_coo_tensor(T.tensor([k], dtype=T.int64), T.arange(float(len(k))) + n, (6,)) for k, n in ((i, 1), (j, 10))]
        a, b = a.coalesce() if ordered else a, b.coalesce() if other_ordered else b
        if expanded:
            b = T.sparse_coo_tensor(b._indices(), T.ones(1).expand(b._nnz()), (6,))
        c = a.add(b, alpha=alpha)
        a.add_(b)
        return [c._indices().tolist(), c._values().tolist(), c.is_coalesced() or not (i and j), a._indices().tolist(), a._values().tolist()]
    same(run)


def test_accumulated_lookup_gradients_stay_uncoalesced():
    def run(T):
        table = T.nn.Embedding(10, 2, sparse=True)
        seen = []
        for rows in [7, 1, 3], [7, 1, 3], [8, 8]:
            table(T.tensor(rows)).sum().backward()
            seen.append(table.weight.grad)
        table.weight.grad.coalesce()
        g = table.weight.grad
        return [sorted(g._indices()[0].tolist()), g._nnz(), g.is_coalesced(), seen[0] is seen[2], g]
    same(run)


@pytest.mark.parametrize("act", ["mul_(2)", "div_(2)", "neg_()", "zero_()", "add_(a)", "sub_(a)", "copy_(b)", "_coalesced_(True)"])
@pytest.mark.parametrize("name", ["data", "detach()"])
def test_data_of_a_sparse_tensor_shares_memory_like_torch(act, name):
    def run(T):
        a, b = T.sparse_coo_tensor([[1, 2, 4]], T.ones(3), (10,)), T.sparse_coo_tensor([[1, 2]], T.full((2,), 7.0), (10,))
        x = eval("a." + name)
        eval("x." + act)
        return [a._values().tolist(), x._values().tolist(), a._nnz(), x._nnz(), a.is_coalesced()]
    same(run)


def test_data_of_a_sparse_gradient_can_be_set():
    def run(T):
        table = T.nn.Embedding(10, 2, sparse=True)
        table(T.tensor([1, 2])).sum().backward()
        table.weight.grad.data = table.weight.grad.data * 3
        p = T.eye(3).to_sparse().requires_grad_()
        p.data = T.eye(3).mul(2).to_sparse()
        return [table.weight.grad, p.requires_grad, p.is_leaf, p.data.requires_grad, p.detach()]
    same(run)


@pytest.mark.parametrize("op", ["add_", "sub_", "mul_"])
@pytest.mark.parametrize("sides", [(False, True), (True, True)])
def test_dtypes_in_place(op, sides):
    """The result is stored in the target's dtype if its dtype category can be cast to it."""
    names = ["uint8", "int16", "int64", "float32", "float64"]
    for a, b in itertools.product(names, names):
        out = []
        for T in (real, mine):
            x, y = [T.tensor(v).to(getattr(T, n)) for v, n in (([5.0, 0, 3, 0], a), ([1.0, 0, -2, 4], b))]
            x, y = [t.to_sparse() if s else t for t, s in zip((x, y), sides)]
            try:
                getattr(x, op)(y)
                out.append((str(x.dtype), (x.to_dense() if x.is_sparse else x).tolist()))
            except RuntimeError:
                out.append("an error")
        assert out[0] == out[1], (op, a, b, out)


def test_division_of_integers():
    for T in (real, mine):
        for f in (T.div, T.true_divide):
            r = f(T.tensor([1, 0, 3]).to_sparse(), 2)
            assert str(r.dtype) == "torch.float32" and r.to_dense().tolist() == [0.5, 0, 1.5]
        with pytest.raises(RuntimeError):
            T.tensor([1, 0, 3]).to_sparse().div_(2)


def _parts(g):
    return [g._nnz(), g.is_coalesced(), g._indices().tolist(), g._values().tolist()]


@pytest.mark.parametrize("hooks", [False, True])
def test_autograd_functions_save_sparse_tensors(hooks):
    def run(T):
        class Product(T.autograd.Function):
            @staticmethod
            def forward(ctx, a, x):
                ctx.save_for_backward(a, x)
                return T.sparse.mm(a, x)

            @staticmethod
            def backward(ctx, g):
                a, x = ctx.saved_tensors
                return None, T.sparse.mm(a.t(), g) * x.sum()
        a = T.sparse_coo_tensor(T.tensor([[0, 1, 1], [2, 0, 2]]), T.tensor([3., 4., 5.]), (2, 3))
        x = T.arange(6.).reshape(3, 2).requires_grad_()
        seen = []
        with T.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.layout == T.sparse_coo) or t, lambda t: t) if hooks else contextlib.nullcontext():
            y = Product.apply(a, x)
        y.sum().backward()
        return [y.tolist(), x.grad.tolist(), seen]
    same(run)


@pytest.mark.parametrize("create", [False, True])
def test_sparse_gradients_with_equal_indices_are_merged(create):
    def run(T):
        class Given(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, g):
                ctx.save_for_backward(g)
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return ctx.saved_tensors[0], None
        a, b = [T.sparse_coo_tensor(T.tensor([rows]), T.ones(len(rows), 2), (5, 2)) for rows in ([0, 3], [0, 1])]
        w, found = T.ones(5, 2, requires_grad=True), []
        (Given.apply(w, a) + Given.apply(w, b)).sum().backward(create_graph=create)
        found.append(_parts(w.grad))
        Given.apply(w, b).sum().backward()
        found.append(_parts(w.grad))
        w.grad = None
        (Given.apply(w, a) + Given.apply(w, T.ones(5, 2))).sum().backward()
        return [*found, w.grad.tolist()]
    same(run)


def test_backward_accepts_sparse_gradients():
    def run(T):
        g = T.sparse_coo_tensor(T.tensor([[0, 2]]), T.ones(2, 2), (3, 2))
        x, y = T.ones(3, 2, requires_grad=True), T.ones(3, 2, requires_grad=True)
        x.backward(g)
        (y * 2).exp().backward(g)
        return [_parts(x.grad), y.grad.to_dense() if y.grad.is_sparse else y.grad]
    same(run)


def test_grad_of_a_sparse_tensor_can_be_assigned():
    def run(T):
        p, g = [T.sparse_coo_tensor(T.tensor([[0, 2]]), T.full((2, 2), v), (3, 2)) for v in (1., 2.)]
        p.requires_grad_()
        p.grad = g
        found = [_parts(p.grad), p.grad.requires_grad]
        p.grad = None
        found.append(p.grad is None)
        with pytest.raises(RuntimeError, match="attempting to assign a gradient"):
            p.grad = T.ones(3, 2)
        return found
    same(run)


@pytest.mark.parametrize("name", ["empty_like", "zeros_like"])
def test_sparse_tensors_have_no_memory_format(name):
    for T in SIDES:
        s = T.eye(3).to_sparse()
        with pytest.raises(RuntimeError, match="memory format option is only supported by strided tensors"):
            getattr(T, name)(s, memory_format=T.preserve_format)
        assert getattr(T, name)(s).layout == s.layout


def test_construction_from_sizes_and_is_coalesced():
    for fn in (lambda T: T.sparse_coo_tensor(size=(2, 3)), lambda T: T.sparse_coo_tensor((2, 3), dtype=T.float64), lambda T: T.sparse_coo_tensor()):
        same(fn)

    def said(T, i, check):
        with T.sparse.check_sparse_tensor_invariants(check == "inside"):
            s = T.sparse_coo_tensor(i, [1.0, 2.0], (3, 2), is_coalesced=True, check_invariants=check if check != "inside" else None)
            return [s.is_coalesced(), T.sparse.check_sparse_tensor_invariants.is_enabled()]
    for i in ([[0, 1], [1, 1]], [[0, 0], [1, 1]], [[1, 0], [1, 1]]):
        for check in (True, False, "inside"):
            same(lambda T: said(T, i, check))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(("embedding", "embedding_bag")), st.integers(2, 5), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_first_lookup_gradient_is_not_shared(kind, count, retained, hooked, seed):
    """Its indices alias the ids that were looked up, as in PyTorch. Its values are not shared with
    the gradient passed to backward, or with gradients saved by a hook or retain_grad."""
    rs = np.random.RandomState(seed)
    ids = rs.randint(0, 6, (count, 2) if kind == "embedding_bag" else (count,))
    # (integers, so that sums are exact in any order)
    given_ = rs.randint(-8, 9, (count, 3)).astype(np.float32)
    out = []
    for T in SIDES:
        w, other = (T.zeros(6, 3).requires_grad_() for _ in range(2))
        i, kept, g = T.tensor(ids), [], T.tensor(given_)
        if hooked:
            w.register_hook(lambda x: kept.append(x))
        y = getattr(T.nn.functional, kind)(i, w, sparse=True, **({"mode": "sum"} if kind == "embedding_bag" else {}))
        if retained:
            y.retain_grad()
        (y * 2 + other[:count].sum()).backward(g)
        before = w.grad.to_dense().numpy().copy()
        if T is mine:
            for x in [g, *([y.grad] if retained else []), *([kept[0]._values()] if hooked else [])]:
                x.zero_()
            assert np.array_equal(w.grad.to_dense().numpy(), before)
        if not hooked and (T is real or kind == "embedding_bag" and i.device.type == "cpu"):
            assert w.grad._indices().data_ptr() == i.data_ptr()
        assert not w.grad.requires_grad and w.grad.grad_fn is None and not w.grad.is_coalesced()
        getattr(T.nn.functional, kind)(i, w, sparse=True).backward(T.ones(count, 3))
        out.append((before, w.grad.to_dense().numpy()))
    for theirs, ours in zip(*out):
        np.testing.assert_array_equal(ours, theirs)
