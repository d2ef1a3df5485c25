"""Scripted modules compared with PyTorch: a single node for torch.fx, and exceptions that are also
torch.jit.Errors."""
import pickle

import pytest
import torch

import mindtorch.torch as mt


def parts(T):
    class Branches(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = T.nn.Linear(3, 3)

        def forward(self, x):
            if bool(x.sum() > 0):
                return self.linear(x)
            return x * 2

    class Holder(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = T.nn.ModuleList([T.jit.script(Branches())])

        def forward(self, x):
            return self.inner[0](x + 1).relu()
    T.manual_seed(0)
    return Holder()


def test_fx_records_a_scripted_module_as_one_node():
    """Its code branches on values, which tracing cannot follow."""
    def run(T, fx):
        h = parts(T)
        g = fx.symbolic_trace(h)
        found = [[n.op, str(n.target).removesuffix("._c")] for n in g.graph.nodes if n.op in ("call_method", "get_attr")]
        for v in (1., -3.):
            x = T.full((2, 3), v)
            assert T.equal(g(x), h(x))
        return found
    real, ours = run(torch, torch.fx), run(mt, mt.fx)
    assert ours == real == [["get_attr", "inner.0"], ["call_method", "forward"], ["call_method", "relu"]]


class Checks:
    def forward(self, x):
        assert x.shape[1] > 4, "too narrow"
        if x.shape[0] > 2:
            raise ValueError("too long")
        return x.reshape(2, 5)


def test_exceptions_of_scripted_modules():
    def run(T):
        m, seen = T.jit.script(type("Checks", (T.nn.Module,), {"forward": Checks.forward, "__module__": __name__})()), []
        for shape in ((2, 3), (3, 5), (2, 5), (1, 5)):
            try:
                seen.append(tuple(m(T.ones(shape)).shape))
            except T.jit.Error as e:
                # PyTorch's last line has the message, and the source is in between
                lines = str(e).strip().splitlines()
                seen.append(["Error", next(w for w in ("too narrow", "too long") if w in lines[0] + lines[-1])])
            except RuntimeError:
                seen.append("RuntimeError")
        return seen
    assert run(torch) == run(mt) == [["Error", "too narrow"], ["Error", "too long"], (2, 5), "RuntimeError"]


def test_scripted_exceptions_keep_their_original_type():
    class Odd(Exception):
        def __init__(self, place, text):
            super().__init__(text)
            self.place = place

    class M(mt.nn.Module):
        def forward(self, x):
            raise Odd(3, "odd") from KeyError("cause")
    with pytest.raises(Odd, match="odd") as info:
        mt.jit.script(M())(mt.ones(1))
    e = info.value
    assert isinstance(e, mt.jit.Error) and e.place == 3 and isinstance(e.__cause__, KeyError) and "forward" in [f.name for f in info.traceback]

    class N(mt.nn.Module):
        def forward(self, x):
            raise pickle.UnpicklingError("plain")
    with pytest.raises(pickle.UnpicklingError, match="plain"):
        mt.jit.script(N())(mt.ones(1))
