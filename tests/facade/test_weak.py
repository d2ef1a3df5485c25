"""torch.utils.weak compared with PyTorch's."""
import copy
import gc

import pytest
import torch
from torch.utils import weak as real

import mindtorch.torch as mt
from mindtorch.torch.utils import weak as mine

SIDES = [(torch, real), (mt, mine)]


def test_names():
    assert set(real.__all__) <= set(dir(mine))


@pytest.mark.parametrize("lib, weak", SIDES, ids=["torch", "mindtorch"])
def test_weak_keys_die_with_their_tensors(lib, weak):
    d = weak.WeakTensorKeyDictionary()
    a, b, c = lib.ones(2), lib.ones(2), lib.zeros(3)
    d[a], d[b] = 1, 2
    assert d[a] == 1 and d[b] == 2 and c not in d and "text" not in d and len(d) == 2
    with pytest.raises(KeyError):
        d[c]
    assert [k is x for k, x in zip(d, (a, b))] == [True, True] and list(d.values()) == [1, 2]
    other = copy.copy(d)
    assert other == d and d.pop(b) == 2 and b not in d and b in other
    assert d.setdefault(c, 5) == 5 and d.get(c) == 5 and d.get(b) is None
    del a
    gc.collect()
    assert len(d) == 1 and len(other) == 1
    deep = copy.deepcopy(weak.WeakIdKeyDictionary({c: [1]}))
    assert deep[c] == [1]


@pytest.mark.parametrize("lib, weak", SIDES, ids=["torch", "mindtorch"])
def test_weak_references(lib, weak):
    t = lib.ones(2)
    r, again = weak.TensorWeakRef(t), weak.WeakIdRef(t)
    assert r() is t and again() is t and again == weak.WeakIdRef(t) and not again == weak.WeakIdRef(lib.ones(2))
    del t
    gc.collect()
    assert r() is None and again() is None and again == again
    with pytest.raises(AssertionError):
        weak.TensorWeakRef(3)


@pytest.mark.parametrize("lib", [torch, mt], ids=["torch", "mindtorch"])
def test_context_managers_that_decorate(lib):
    import importlib
    contexts = importlib.import_module(f"{lib.__name__}.utils._contextlib")
    log = []

    class Depth(contexts._DecoratorContextManager):
        def __init__(self, n):
            self.n = n

        def __enter__(self):
            log.append(("in", self.n))

        def __exit__(self, *exc):
            log.append(("out", self.n))

        def clone(self):
            return type(self)(self.n + 1)

    @Depth(0)
    def add(a, b):
        return a + b

    @Depth(5)
    def count():
        got = yield 1
        yield got

    assert add(1, b=2) == 3 and log == [("in", 1), ("out", 1)]
    walk = count()
    assert next(walk) == 1 and walk.send(7) == 7 and log[2:] == [("in", 6), ("out", 6)] * 2
    with pytest.warns(FutureWarning):
        number = Depth(8)(int)
    assert number("3") == 3 and log[6:] == [("in", 9), ("out", 9)]


@pytest.mark.parametrize("lib", [torch, mt], ids=["torch", "mindtorch"])
def test_named_member_accessor(lib):
    import importlib
    N = importlib.import_module(f"{lib.__name__}.nn.utils._named_member_accessor").NamedMemberAccessor
    net = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3))
    a = N(net)
    zero = lib.zeros(3, 2)
    old = a.swap_tensor("0.weight", zero)
    assert isinstance(old, lib.nn.Parameter) and net[0].weight is zero and a.get_tensor("0.weight") is zero
    assert a.swap_tensor("0.weight", old) is zero and [n for n, _ in net.named_parameters()][0] == "0.weight"
    assert a.check_keys(["0.weight", "0.bias", "1.weight", "1.bias", "x"]) == (
        ["1.num_batches_tracked", "1.running_mean", "1.running_var"], ["x"])
    former, missing = a.swap_tensors_dict({"1.running_mean": lib.ones(3), "0.extra": lib.ones(1)}, allow_missing=True)
    assert missing == ["0.extra"] and net[0].extra.item() == 1 and former["1.running_mean"].sum() == 0
    a.swap_tensors_dict(former, allow_missing=True)
    assert not hasattr(net[0], "extra") and net[1].running_mean.sum() == 0
    with pytest.raises(RuntimeError, match="Missing key"):
        a.swap_tensors_dict({"1.running_mean": lib.ones(3), "0.absent": lib.ones(1)})
    assert net[1].running_mean.sum() == 0
    relu = lib.nn.ReLU()
    assert isinstance(a.swap_submodule("1", relu), lib.nn.BatchNorm1d) and net[1] is relu
    a.del_tensor("0.bias")
    assert "bias" not in net[0]._parameters
    with pytest.raises(TypeError):
        a.swap_tensor("0.weight", 3)
