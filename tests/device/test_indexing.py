"""Indexing, embedding, concatenation, shapes and regions on the npu device: values, dtypes, shapes
and gradients match the CPU device, without host fallbacks."""
import pytest

import mindtorch.torch as mt
from _device_pairs import ALL, ELSEWHERE, F16, F32, F64, I64, NUMBERS, both

MOVES = {
    "repeat none": (lambda d, x: x.repeat(2, 0), [(3, 4)]),
    "cat": (lambda d, x, y: mt.cat([x, y, x[:1]]), [(3, 4), (2, 4)]),
    "cat last": (lambda d, x, y: mt.cat([x, y], -1), [(3, 4), (3, 1)]),
    "cat of empty": (lambda d, x: mt.cat([x.new_empty(0), x, x[:0]]), [(3, 4)]),
    "cat transposed": (lambda d, x, y: mt.cat([x.t(), y]), [(4, 3), (2, 4)]),
    "stack": (lambda d, x, y: mt.stack([x, y], 1), [(3, 4), (3, 4)]),
    "stack scalars": (lambda d, x, y: mt.stack([x, y]), [(), ()]),
    "repeat_interleave flat": (lambda d, x: mt.repeat_interleave(x, 2), [(3, 4)]),
    "repeat_interleave counts": (lambda d, x: mt.repeat_interleave(x, d(mt.tensor([1, 0, 3])), 0), [(3, 4)]),
    "roll": (lambda d, x: mt.roll(x, (1, -2), (0, 1)), [(3, 4)]),
    "roll flat": (lambda d, x: mt.roll(x, 5), [(3, 4)]),
    "flip": (lambda d, x: mt.flip(x, (0, 2)), [(3, 4, 2)]),
    "tril": (lambda d, x: mt.tril(x, 1), [(2, 3, 4)]),
    "triu": (lambda d, x: mt.triu(x, -1), [(2, 3, 4)]),
    "diag_embed": (lambda d, x: mt.diag_embed(x, 1, 0, 2), [(2, 3)]),
    "diagonal": (lambda d, x: mt.diagonal(x, 1, 0, 2), [(3, 2, 4)]),
    "slice": (lambda d, x: x[1:, ::2], [(3, 4)]),
    "select": (lambda d, x: x[:, 1], [(3, 4)]),
    "split": (lambda d, x: mt.split(x, 2, 1), [(3, 5)]),
    "unfold apart": (lambda d, x: x.unfold(1, 2, 2), [(3, 5)]),
    "as_strided": (lambda d, x: mt.as_strided(x, (2, 2), (4, 2), 1), [(3, 4)]),
    "slice_scatter": (lambda d, x, y: mt.slice_scatter(x, y, 1, 1, 3), [(3, 4), (3, 2)]),
    "select_scatter": (lambda d, x, y: mt.select_scatter(x, y, 1, 2), [(3, 4), (3,)]),
    "diagonal_scatter": (lambda d, x, y: mt.diagonal_scatter(x, y, -1), [(3, 4), (2,)]),
    "gather": (lambda d, x: mt.gather(x, 1, d(mt.tensor([[0, 3], [2, 1]]))), [(3, 4)]),
    "gather first": (lambda d, x: mt.gather(x, 0, d(mt.tensor([[0, 2, 1], [1, 0, 2]]))), [(3, 4)]),
    "gather one": (lambda d, x: mt.gather(x, 0, d(mt.tensor([2, 0]))), [(3,)]),
    "gather scalar": (lambda d, x: mt.gather(x, 0, d(mt.tensor(0))), [()]),
    "scatter": (lambda d, x, y: mt.scatter(x, 1, d(mt.tensor([[0, 3], [2, 1]])), y), [(3, 4), (2, 2)]),
    "scatter number": (lambda d, x: mt.scatter(x, 0, d(mt.tensor([2, 0])), 1), [(3,)]),
    "index_select": (lambda d, x: mt.index_select(x, 1, d(mt.tensor([3, 0, 1]))), [(3, 4)]),
    "index_copy": (lambda d, x, y: mt.index_copy(x, 1, d(mt.tensor([3, 0])), y), [(3, 4), (3, 2)]),
    "index_fill": (lambda d, x: mt.index_fill(x, 1, d(mt.tensor([-1, 0])), 1), [(3, 4)]),
    "take": (lambda d, x: mt.take(x, d(mt.tensor([[11, -1], [0, 5]])[:, :1])), [(3, 4)]),
    "take_along_dim": (lambda d, x: mt.take_along_dim(x, d(mt.tensor([[0], [2], [1]])), 1), [(3, 4)]),
    "index": (lambda d, x: x[d(mt.tensor([2, 0]))], [(3, 4)]),
    "index middle": (lambda d, x: x[:, d(mt.tensor([[-2], [0]]))], [(3, 4, 2)]),
    "index two": (lambda d, x: x[d(mt.tensor([2, -3])), d(mt.tensor([[1], [-1]]))], [(3, 4, 2)]),
    "index two behind": (lambda d, x: x[:, d(mt.tensor([2, 0])), d(mt.tensor([[1], [-1]]))], [(2, 3, 4)]),
    "index two apart": (lambda d, x: x[d(mt.tensor([2, 0])), :, d(mt.tensor([1, -1]))], [(3, 2, 4)]),
    "mask": (lambda d, x: x[d(mt.tensor([True, False, True]))], [(3, 4)]),
    "setitem": (lambda d, x, y: _set(x, d(mt.tensor([2, 0])), y), [(3, 4), (4,)]),
    "setitem two": (lambda d, x, y: _set(x, (slice(None), d(mt.tensor([2, 0])), d(mt.tensor([[1], [-1]]))), y), [(2, 3, 4), (2, 1)]),
    "setitem slice": (lambda d, x, y: _set(x, (slice(None), slice(1, 3)), y), [(3, 4), (3, 2)]),
    "embedding": (lambda d, x: mt.nn.functional.embedding(d(mt.tensor([[0, 2], [1, 0]])[:, :1]), x), [(3, 4)]),
    "tri_indices": (lambda d, x: mt.tril_indices(3, 4, device=x.device), [(1,)]),
    "combinations": (lambda d, x: mt.combinations(x.detach(), 2), [(4,)]),
    "meshgrid": (lambda d, x, y: mt.meshgrid(x, y, indexing="ij"), [(2,), (3,)]),
    "column_stack": (lambda d, x, y: mt.column_stack((x, y)), [(3,), (3, 2)]),
}


def _set(x, key, value):
    x = x.clone()
    x[key] = value
    return x


@pytest.mark.parametrize("name", MOVES)
def test_moves(npu, name):
    f, shapes = MOVES[name]
    for dtype in ALL:
        both(npu, f, shapes, dtype, allowed=ELSEWHERE)


SUMS = {
    "repeat": (lambda d, x: x.repeat(2, 3, 1), [(3, 4)]),
    "scatter_add": (lambda d, x, y: mt.scatter_add(x, 1, d(mt.tensor([[0, 0], [2, 1]])), y), [(3, 4), (2, 2)]),
    "scatter_add first": (lambda d, x, y: mt.scatter_add(x, 0, d(mt.tensor([[0, 0], [2, 1], [0, 0], [0, 2]])), y), [(3, 4), (4, 2)]),
    "scatter multiply": (lambda d, x, y: mt.scatter(x.detach(), 1, d(mt.tensor([[0, 0], [2, 1]])), y.detach(), reduce="multiply"), [(3, 4), (2, 2)]),
    "gather repeated": (lambda d, x: mt.gather(x, 1, d(mt.tensor([[0, 0, 0, 0, 0], [2, 1, 1, 1, 1]]))), [(3, 4)]),
    "index_add": (lambda d, x, y: mt.index_add(x, 1, d(mt.tensor([3, 0, 3])), y, alpha=2), [(3, 4), (3, 3)]),
    "index repeated": (lambda d, x: x[d(mt.tensor([2, 0, 2]))], [(3, 4)]),
    "index two repeated": (lambda d, x: x[:, d(mt.tensor([1, 1, -2])), d(mt.tensor([[1], [-3]]))], [(2, 3, 4)]),
    "index_put add": (lambda d, x, y: mt.index_put(x, (d(mt.tensor([2, 0, 2])),), y, accumulate=True), [(3, 4), (4,)]),
    "take repeated": (lambda d, x: mt.take(x, d(mt.tensor([[11, -1], [0, 5]]))), [(3, 4)]),
    "unfold": (lambda d, x: x.unfold(1, 3, 1), [(3, 5)]),
    "as_strided over": (lambda d, x: mt.as_strided(x, (3, 3), (1, 1), 1), [(3, 4)]),
    "embedding repeated": (lambda d, x: mt.nn.functional.embedding(d(mt.tensor([[0, 2], [2, 0]])), x, padding_idx=0), [(3, 4)]),
    "repeat_interleave": (lambda d, x: mt.repeat_interleave(x, 3, 1), [(3, 4)]),
    "embedding_bag": (lambda d, x: mt.nn.functional.embedding_bag(d(mt.tensor([0, 2, 2, 1])), x, d(mt.tensor([0, 1, 1])), mode="mean"), [(3, 4)]),
    "embedding_bag padded": (lambda d, x: mt.nn.functional.embedding_bag(d(mt.tensor([[0, 2], [2, 0]])), x, mode="sum", padding_idx=0), [(3, 4)]),
}


@pytest.mark.parametrize("name", SUMS)
def test_indexed_sums(npu, name):
    f, shapes = SUMS[name]
    for dtype in NUMBERS if "bag" not in name else (F32, F64):
        both(npu, f, shapes, dtype, exact=False, allowed=ELSEWHERE)


@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(npu, how, include_self):
    for dtype in (F32, F64, F16) + ((I64,) if how != "mean" else ()):
        both(npu, lambda d, x, y: mt.scatter_reduce(x.detach(), 0, d(mt.tensor([[0, 1, 0], [1, 1, 2]])), y.detach(), how, include_self=include_self),
             [(3, 4), (2, 3)], dtype, exact=False)


def test_nonzero(npu):
    for dtype in ALL:
        both(npu, lambda d, x: (mt.nonzero(x > 0), *mt.nonzero(x > 0, as_tuple=True), x.detach()[x > 0]), [(3, 4)], dtype, allowed=ELSEWHERE | {"gt", "greater"})
    assert mt.nonzero(mt.zeros(2, 2, device=npu)).shape == (0, 2)
    assert mt.nonzero(mt.ones((), device=npu)).shape == (1, 0)


def test_one_hot(npu):
    i = mt.tensor([[0, 2], [1, 1]])
    for n in (-1, 3, 5):
        r = mt.nn.functional.one_hot(i.to(npu), n)
        assert r.dtype == I64 and r.cpu().tolist() == mt.nn.functional.one_hot(i, n).tolist()


OUTSIDE = {
    "index": (IndexError, lambda x, i: x[i]),
    "index two": (IndexError, lambda x, i: x[i, i]),
    "setitem": (IndexError, lambda x, i: x.__setitem__(i, 1.0)),
    "index_select": (IndexError, lambda x, i: mt.index_select(x, 0, i)),
    "gather": (RuntimeError, lambda x, i: mt.gather(x, 0, i[:, None])),
    "scatter": (RuntimeError, lambda x, i: mt.scatter(x, 0, i[:, None], x)),
    "scatter_add": (RuntimeError, lambda x, i: mt.scatter_add(x, 0, i[:, None], x)),
    "index_add": (RuntimeError, lambda x, i: mt.index_add(x, 0, i, x[:2])),
    "index_copy": (IndexError, lambda x, i: mt.index_copy(x, 0, i, x[:2])),
    "index_fill": (IndexError, lambda x, i: mt.index_fill(x, 0, i, 1)),
    "take": (IndexError, lambda x, i: mt.take(x, i * 10)),
    "embedding": (IndexError, lambda x, i: mt.nn.functional.embedding(i, x)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_places_outside(npu, name):
    kind, f = OUTSIDE[name]
    for i in ([0, 3], [0, -4], [1 << 40, 0]):
        with pytest.raises(kind):
            f(mt.ones(3, 4, device=npu), mt.tensor(i, device=npu))


def test_view_as_another_dtype(npu):
    x = mt.zeros(2, 3, device=npu)
    x.view(mt.int32)[0, 1] = 0x3f800000
    assert x.cpu().tolist() == [[0, 1, 0], [0, 0, 0]]


def test_embedding_max_norm_updates_the_weight(npu):
    both_weights = []
    for where in ("cpu", npu):
        w = mt.arange(12.).reshape(3, 4).to(where)
        r = mt.nn.functional.embedding(mt.tensor([0, 2]).to(where), w, max_norm=1.0)
        assert r.cpu().tolist() == w.cpu()[[0, 2]].tolist()
        both_weights.append(w.cpu().tolist())
    assert both_weights[0] == both_weights[1]


@pytest.mark.parametrize("shape,dim", [((300, 600), 0), ((3001, 3), 0), ((9, 400, 5), 1), ((40000,), 0)])
def test_scatter_add_to_few_indices_is_exact(npu, shape, dim):
    """Threads that add to one index concurrently used to lose some of the terms occasionally."""
    few = tuple(3 if d == dim else n for d, n in enumerate(shape))
    index, ones = mt.randint(0, 3, shape), mt.ones(shape)
    want = mt.zeros(few).scatter_add(dim, index, ones)
    index, ones = index.to(npu), ones.to(npu)
    x = mt.zeros(few, device=npu, requires_grad=True)
    for _ in range(20):
        assert mt.equal(mt.zeros(few, device=npu).scatter_add(dim, index, ones).cpu(), want)
        assert mt.equal(mt.autograd.grad(x.gather(dim, index).sum(), x)[0].cpu(), want)
