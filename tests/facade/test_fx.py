"""torch.fx: graphs, their source and their execution, compared with PyTorch."""
import copy
import importlib.util
import operator
import pickle

import pytest
import torch

import mindtorch.torch as mt
from mindtorch.torch import fx

helper_calls = []


def helper(x, y):
    helper_calls.append(1)
    return x + y


fx.wrap("helper")


def module(T):
    class Inner(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = T.nn.Parameter(T.ones(2))

        def forward(self, x, scale=2.0):
            return x * self.w * scale

    class M(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = T.nn.Linear(4, 5)
            self.p = T.nn.Parameter(T.ones(5))
            self.register_buffer("b", T.arange(5.0))
            self.inner = Inner()
            self.seq = T.nn.Sequential(T.nn.ReLU(), T.nn.Linear(5, 2))

        def forward(self, x, y=None, *, k=3):
            z = T.relu(self.lin(x) + self.p)
            z = z[:, 1:] + z.shape[0] * 2 - (-z.sum(dim=-1, keepdim=True))
            a, b = z.new_zeros(z.size(0), 5), self.b
            return {"o": self.inner(self.seq(a + b)), "l": [z, z.view(z.size(0), -1)], "k": k}
    return M()


PROGRAMS = """
x * 2 + 1; T.relu(x) - T.softmax(x, dim=-1); x.view(x.size(0), -1).t(); x[..., None, 1:2]; T.cat([x, x], dim=1); T.stack((x, -x))
1 - x; 2 / x; x @ x.mT; x // 2; ~x; abs(x); x ** 2; 2 ** x; x == 1; (x > 1) & (x < 3); x % 2; x.add_(1).mul(2); x.shape[-1]; getattr(x, "T")
x + float("inf"); x.to(T.float64); x.to(device=T.device("cpu"), dtype=T.int64); x.mean(dim=(0, 1), keepdim=True); T.tanh(x)
[x, {"a": (x, 1), "b": None}]; x.chunk(2)[0]; T.max(x, 1)[0]; x.transpose(-2, -1).contiguous()
T.where(x > 0, x, 0); x.float().sum().item(); x.flatten(1).unbind(1)
T.zeros_like(x) + x.new_ones(2)
""".replace("\n", ";")


@pytest.mark.parametrize("program", sorted({p.strip() for p in PROGRAMS.split(";") if p.strip()}))
def test_source_and_graph_match_torch(program):
    made = []
    for T, F in ((torch, torch.fx), (mt, fx)):
        g = F.symbolic_trace(eval(f"lambda x: {program}", {"T": T}))
        g.graph.lint()
        made.append((g.code, str(g.graph)))
    assert made[0] == made[1]


@pytest.mark.parametrize("program", ["F.softmax(x, dim=-1)", "F.pad(x, [1, 1], value=0.5)", "F.interpolate(x[None], scale_factor=2.0)", "T.einsum('ij,kj->ik', x, x)",
                                     "T.linalg.norm(x)", "T.fft.fft(x)", "T.special.expit(x)", "F.layer_norm(x, (3,))", "F.dropout(x, 0.5, training=False)"])
def test_values(program):
    # PyTorch's Python functions record their defaults in the graph; mindtorch records calls as
    # written.
    f = eval(f"lambda x: {program}", {"T": mt, "F": mt.nn.functional})
    x = mt.rand(4, 3)
    g = fx.symbolic_trace(f)
    assert mt.equal(g(x), f(x)) and len(g.graph.nodes) in (3, 4)


def test_module():
    theirs, mine = torch.fx.symbolic_trace(module(torch)), fx.symbolic_trace(module(mt))
    assert mine.code == theirs.code and str(mine.graph) == str(theirs.graph)
    assert list(mine.state_dict()) == list(theirs.state_dict()) and type(mine).__name__ == "M"
    mine.load_state_dict({k: mt.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    x = torch.randn(3, 4)
    a, b = theirs(x), mine(mt.from_numpy(x.numpy()))
    assert torch.allclose(a["o"], torch.from_numpy(b["o"].detach().numpy())) and b["k"] == 3
    b["o"].sum().backward()
    assert mine.inner.w.grad is not None
    assert [n.name for n in mine.graph.nodes] == [n.name for n in theirs.graph.nodes]
    assert mine.print_readable(print_output=False).startswith("class M(torch.nn.Module):")


def test_untraceable_code_raises():
    def branch(x):
        return x if x.sum() > 0 else -x
    for fn, error in ((branch, fx.proxy.TraceError), (lambda x: [a for a in x], fx.proxy.TraceError), (lambda x: len(x), RuntimeError),
                      (lambda x: range(x.size(0)), TypeError)):
        with pytest.raises(error):
            fx.symbolic_trace(fn)
    assert mt.relu(mt.ones(2)).tolist() == [1, 1]
    assert not fx._symbolic_trace.is_fx_tracing()


def test_unpacking_star_and_concrete_arguments():
    def unpack(x):
        a, b = x
        return a + b
    assert fx.symbolic_trace(unpack)((mt.ones(1), mt.ones(1))).item() == 2
    g = fx.symbolic_trace(lambda *a, **k: mt.cat(a))
    assert g(mt.ones(1), mt.zeros(1)).tolist() == [1, 0]
    assert "def forward(self, *a, **k):" in g.code
    g = fx.symbolic_trace(lambda x, y: x * 2 if y is None else y, concrete_args={"y": None})
    assert g(mt.ones(1), None).item() == 2
    with pytest.raises(AssertionError, match="specialized"):
        g(mt.ones(1), 3)


def test_wrap():
    def f(x):
        return helper(x, 2)
    g = fx.symbolic_trace(f)
    assert not helper_calls and [n.op for n in g.graph.nodes] == ["placeholder", "call_function", "output"]
    assert g(mt.ones(1)).item() == 3 and helper_calls
    assert "torch.fx._symbolic_trace.wrap" in g.code


def test_changing_a_graph():
    g = fx.symbolic_trace(lambda x: mt.add(x, mt.neg(x)))
    for n in g.graph.nodes:
        if n.target is mt.add:
            with g.graph.inserting_after(n):
                m = g.graph.call_function(mt.mul, n.args)
            n.replace_all_uses_with(m)
            g.graph.erase_node(n)
    g.graph.lint()
    g.recompile()
    assert g(mt.tensor([3.0])).item() == -9
    first = next(iter(g.graph.nodes))
    with pytest.raises(RuntimeError, match="still had 2 users"):
        g.graph.erase_node(first)
    with g.graph.inserting_before(g.graph.output_node()):
        g.graph.call_method("sum", (first,))
    before = len(g.graph.nodes)
    assert g.graph.eliminate_dead_code() and len(g.graph.nodes) == before - 1
    with pytest.raises(TypeError):
        g.graph.find_nodes(op="call_function")[0].kwargs["a"] = 1
    with pytest.raises(NotImplementedError):
        fx.symbolic_trace(lambda x: x + object())


def test_building_by_hand():
    g = fx.Graph()
    x = g.placeholder("x")
    w = g.get_attr("w")
    y = g.call_module("act", (g.call_function(operator.mul, (x, w)),))
    g.output(y)
    gm = fx.GraphModule({"w": mt.nn.Parameter(mt.tensor([2.0, -1.0])), "act": mt.nn.ReLU()}, g)
    assert gm(mt.ones(2)).tolist() == [2, 0] and len(list(gm.parameters())) == 1
    assert gm.add_submodule("a.b", mt.nn.ReLU()) and gm.a.b is not None
    gm.delete_all_unused_submodules()
    assert not hasattr(gm, "a") and hasattr(gm, "act")
    with pytest.raises(RuntimeError, match="not provided"):
        fx.GraphModule({}, g)
    p = fx.Proxy(fx.Graph().placeholder("q"))
    assert isinstance(mt.relu(p) + 1, fx.Proxy)


def test_interpreter_and_transformer():
    m = module(mt)
    g = fx.symbolic_trace(m)
    x = mt.randn(2, 4)
    assert mt.equal(fx.Interpreter(g).run(x)["o"], m(x)["o"])

    class Negate(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(mt.sub if target is operator.add else target, args, kwargs)
    h = Negate(fx.symbolic_trace(lambda x: x + mt.relu(x))).transform()
    assert h(mt.tensor([2.0])).item() == 0 and "torch.sub" in h.code
    with pytest.raises(RuntimeError, match="While executing"):
        fx.Interpreter(fx.symbolic_trace(lambda x: x @ x)).run(mt.ones(2, 3))
    fx.passes.shape_prop.ShapeProp(g).propagate(x)
    assert [n.meta["tensor_meta"].shape for n in g.graph.nodes if n.name == "lin"] == [(2, 5)]


def test_replace_pattern():
    g = fx.symbolic_trace(lambda x: ((mt.relu(x) + 1).sum(), mt.relu(x * 2) + 1))
    found = fx.replace_pattern(g, lambda x: mt.relu(x) + 1, lambda x: mt.sigmoid(x) * 2)
    assert len(found) == 2 and "relu" not in g.code
    a, b = g(mt.zeros(2))
    assert a.item() == 2 and b.tolist() == [1, 1]
    assert fx.replace_pattern(g, lambda x: mt.exp(x), lambda x: x) == []


def test_copies_and_pickles():
    g = fx.symbolic_trace(mt.nn.Sequential(mt.nn.Linear(2, 3), mt.nn.ReLU()))
    x = mt.ones(1, 2)
    for h in (copy.deepcopy(g), copy.copy(g), pickle.loads(pickle.dumps(g))):
        assert h.code == g.code and mt.equal(h(x), g(x)) and isinstance(h, fx.GraphModule)
    h = copy.deepcopy(g)
    h.get_submodule("0").weight.data.zero_()
    assert g.get_submodule("0").weight.abs().sum() > 0


def test_user_defined_leaf_modules():
    class Leaf(mt.nn.Module):
        def forward(self, x):
            return x.item() if x.sum() > 0 else x

    class T(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, Leaf) or super().is_leaf_module(m, name)
    m = mt.nn.Sequential(Leaf(), mt.nn.ReLU())
    graph = T().trace(m)
    assert [n.op for n in graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert fx.GraphModule(m, graph)(mt.tensor([-1.0])).item() == 0


def test_functional_modules_of_vision_models():
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    import subprocess
    import sys
    source = """
from mindtorch.tools import mstorch_enable
import torch, torchvision
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
m = torchvision.models.resnet18(num_classes=4).eval()
f = create_feature_extractor(m, {"layer1": "a", "avgpool": "b"})
out = f(torch.randn(1, 3, 32, 32))
print({k: tuple(v.shape) for k, v in out.items()}, len(get_graph_node_names(m)[0]))
"""
    out = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split("\n")[0] == "{'a': (1, 64, 8, 8), 'b': (1, 512, 1, 1)} 70"


def test_asserts_are_recorded_and_old_tracers_work():
    def f(x):
        mt._assert(x.size(0) == 2, "two rows")
        return x + 1
    g = fx.symbolic_trace(f)
    assert "torch._assert" in g.code and g(mt.ones(2)).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="two rows"):
        g(mt.ones(3))

    class Old(fx.Tracer):
        def __init__(self):
            super().__init__(param_shapes_constant=True)

        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *_):
            return super().create_proxy(kind, target, args, kwargs, name, type_expr)
    m = module(mt)
    assert [n.target for n in Old().trace(m).nodes if n.op == "get_attr"] == ["p", "b", "inner.w"]
