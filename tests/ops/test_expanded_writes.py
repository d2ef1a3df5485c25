"""In-place ops on expanded tensors, whose elements share memory: as in PyTorch, some warn and
others raise."""
import warnings

import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mine
from tests._parity import few


def result(T, size, dims, write, grad=False):
    """Returns the expanded tensor and its base after a write, the warnings and the gradient of the
    base's source; or the class of the error."""
    source = T.arange(1.0, 1 + np.prod(size)).reshape(size)
    if grad:
        source.requires_grad_()
    base = source * 1
    x = base.expand([4 if d in dims else n for d, n in enumerate(size)])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            write(T, x)
        except (RuntimeError, IndexError) as e:
            return type(e).__name__
    told = [w.message.args[0].split(" is ")[0] for w in seen if "expanded" in str(w.message)]
    return x.detach().cpu().tolist(), base.detach().cpu().tolist(), told


WRITES = {
    "one number by a mask": lambda T, x, r: x.__setitem__(T.tensor(r.rand(*x.shape) < 0.5), -5.0),
    "tensors by a mask": lambda T, x, r: (lambda m: x.__setitem__(T.tensor(m), T.arange(100.0, 100 + m.sum())))(r.rand(*x.shape) < 0.5),
    "a number by a mask of the first dimension": lambda T, x, r: x.__setitem__(T.tensor(r.rand(x.shape[0]) < 0.5), T.tensor(7.0)),
    "numbers by places": lambda T, x, r: x.__setitem__(T.tensor(r.randint(0, x.shape[0], 3)), 2.0),
    "rows by places": lambda T, x, r: x.__setitem__((slice(None), T.tensor(r.randint(-x.shape[1], x.shape[1], 2))),
                                                    T.tensor(r.rand(*x.shape[:1], 2, *x.shape[2:]).astype("f"))),
    "places of two dimensions": lambda T, x, r: x.__setitem__((T.tensor(r.randint(0, x.shape[0], (2, 1))), T.tensor(r.randint(0, x.shape[1], 3))),
                                                              T.tensor(r.rand(2, 3, *x.shape[2:]).astype("f"))),
    "places apart": lambda T, x, r: x[None].__setitem__((0, T.tensor(r.randint(0, x.shape[0], 3)), ..., T.tensor(r.randint(0, x.shape[-1], 3))), 9.0),
    "index_put_": lambda T, x, r: x.index_put_((T.tensor(r.randint(0, x.shape[0], 3)),), T.tensor(r.rand(*x.shape[1:]).astype("f"))),
    "index_put_ of a mask": lambda T, x, r: x.index_put_((T.tensor(r.rand(*x.shape[:2]) < 0.5),), T.tensor(3.0)),
    "index_put_ that adds": lambda T, x, r: x.index_put_((T.tensor(r.randint(0, x.shape[0], 3)), T.tensor(r.randint(0, x.shape[1], 3))),
                                                         T.tensor(r.randint(0, 9, (3, *x.shape[2:])).astype("f")), accumulate=True),
    "masked_fill_": lambda T, x, r: x.masked_fill_(T.tensor(r.rand(*x.shape[1:]) < 0.5), 7.0),
    "masked_fill_ by a tensor": lambda T, x, r: x.masked_fill_(T.tensor(r.rand(*x.shape) < 0.3), T.tensor(7.0)),
    "masked_fill_ by no mask": lambda T, x, r: x.masked_fill_(T.ones(7).bool(), 7.0),
    "index_fill_": lambda T, x, r: x.index_fill_(-1, T.tensor(r.randint(0, x.shape[-1], 2)), 7.0),
    "index_fill_ of the first dimension": lambda T, x, r: x.index_fill_(0, T.tensor(r.randint(0, x.shape[0], r.randint(0, 3))), T.tensor(7.0)),
    "index_fill_ outside": lambda T, x, r: x.index_fill_(0, T.tensor([9]), 7.0),
    "a slice": lambda T, x, r: x.__setitem__(slice(0, 2), 2.0), "everything": lambda T, x, r: x.__setitem__(..., 2.0),
    "one row": lambda T, x, r: x.__setitem__(0, 2.0), "fill_": lambda T, x, r: x.fill_(3.0), "zero_": lambda T, x, r: x.zero_(),
    "copy_": lambda T, x, r: x.copy_(T.ones(1)), "add_": lambda T, x, r: x.add_(1), "index_add_": lambda T, x, r: x.index_add_(0, T.tensor([0]), x[:1] * 1),
    "index_copy_": lambda T, x, r: x.index_copy_(0, T.tensor([0]), x[:1] * 1), "scatter_": lambda T, x, r: x.scatter_(0, T.zeros(x.shape).long(), 1.0),
    "put_": lambda T, x, r: x.put_(T.tensor([0]), T.tensor([1.0])), "masked_scatter_": lambda T, x, r: x.masked_scatter_(T.ones(x.shape).bool(), x * 1),
}


@pytest.mark.parametrize("name", WRITES)
@few
@given(st.sampled_from([((1, 3), {0}), ((3, 1), {1}), ((1, 1), {0, 1}), ((1, 2, 3), {0}), ((2, 1, 3), {1}), ((1, 2, 1), {0, 2}), ((2, 3), set())]),
       st.integers(0, 10**6))
def test_writes_to_expanded_tensors(name, geometry, seed):
    def run(T):
        return result(T, *geometry, lambda T, x: WRITES[name](T, x, np.random.RandomState(seed)))
    assert run(mine) == run(real)


@pytest.mark.parametrize("how", ["masked_fill_", "index_fill_", "index_put_"])
def test_gradients_of_writes_to_expanded_tensors(how):
    """Overwritten elements of the base get no gradient; every other one gets the sum over all
    expanded elements that alias it."""
    source = mine.arange(1.0, 4.0).requires_grad_()
    base = source * 1
    x = base.expand(2, 3)
    value = mine.tensor(5.0, requires_grad=True)
    with pytest.warns(UserWarning, match=how):
        if how == "masked_fill_":
            x.masked_fill_(mine.tensor([[True, False, False], [False, True, False]]), value)
        elif how == "index_fill_":
            x.index_fill_(1, mine.tensor([0, 1]), value)
        else:
            x[:, mine.tensor([0, 1])] = value
    (x * x).sum().backward()
    assert x.tolist() == [[5, 5, 3], [5, 5, 3]]
    assert source.grad.tolist() == [0, 0, 12] and value.grad.item() == 40
