"""The common format of recorded computations (backend/graph.py): what both recordings share, and
what its passes rely on."""
import dataclasses
from collections import OrderedDict

import pytest

import mindtorch.torch as mt
from mindtorch.backend.graph import ResultBuilder, Graph, Node, Value, last_uses, leaves, mapped, rebuilt, uses, values_in
from mindtorch.torch._graph import capture

F = mt.nn.functional


def captured(fn, *args):
    """Returns the graph that torch.compile captures for a call."""
    g = mt.compile(fn, backend="eager")
    g(*args)
    return g._torchdynamo_compiled.entries[0].graph


def test_both_recordings_name_ops_by_their_records():
    w = mt.randn(4, 3)

    def fn(x):
        return F.relu(F.linear(x, w)).sum(1).sqrt()
    traced, kept = capture(fn, (mt.randn(2, 3),)), captured(fn, mt.randn(2, 3))
    names = ["nn.functional.linear", "nn.functional.relu", "sum", "sqrt"]
    assert [n.op for n in traced.nodes] == names == [n.op for n in kept.nodes]
    assert traced.functional and not kept.functional
    for g in traced, kept:
        x, = g.inputs
        assert (x.kind, x.shape, x.dtype) == ("input", (2, 3), "float32")
        first = g.nodes[0].arguments()
        assert first["input"] is x and first["weight"].tensor is w and first["bias"] is None
        assert g.outputs == g.nodes[-1].outputs


def _sets_an_item(x):
    y = x * 2
    y[0] = x[1]
    return y


def test_capture_keeps_writes_and_trace_functionalizes_them():
    def fn(x):
        y = x * 2
        y.add_(1)
        return y
    kept, traced = captured(fn, mt.ones(3)), capture(fn, (mt.ones(3),))
    add = kept.nodes[1]
    assert add.op == "Tensor.add_" and add.written == set(add.outputs) == set(kept.nodes[0].outputs)
    assert all(not n.written for n in traced.nodes)
    put, = (n for n in captured(_sets_an_item, mt.ones(3)).nodes if not n.outputs)
    assert put.op == "Tensor.__setitem__" and not put.outputs and put.written == {put.args[0]}
    assert traced.run(mt.ones(3)).tolist() == [3, 3, 3]
    with pytest.raises(NotImplementedError, match="replayed"):
        kept.run(mt.ones(3))


def test_a_capture_keeps_no_tensor_of_the_call_alive():
    w = mt.ones(3)
    g = captured(lambda x: (x + w).exp(), mt.ones(3))
    values = {*g.inputs, *g.parameters, *(v for n in g.nodes for v in (*n.values, *n.outputs))}
    assert [v.tensor for v in values if v.tensor is not None] == [w] and all(v.array is None for v in values)


def test_grad_modes_are_recorded():
    def fn(x):
        with mt.no_grad():
            y = x + 1
        return y * 2
    assert [n.modes[0] for n in captured(fn, mt.ones(2)).nodes] == [False, True]


@dataclasses.dataclass
class Out:
    first: object
    second: object = None


def test_replay_rebuilds_result_containers():
    def fn(x):
        return Out(x + 1, OrderedDict(a=x * 2, b=[mt.max(x, 0)])), {None: x, 2: (x,)}
    g = mt.compile(fn, backend="eager")
    x = mt.tensor([1.0, 2.0])
    for _ in range(3):
        out, d = g(x)
        assert type(out) is Out and out.first.tolist() == [2, 3] and type(out.second) is OrderedDict
        assert out.second["a"].tolist() == [2, 4] and out.second["b"][0].indices.item() == 1
        assert d[None] is x and d[2][0] is x and list(d) == [None, 2]
    assert g._torchdynamo_compiled.replayed_calls == 2


def test_nested_value_traversal():
    a, b, c = (Value("node", (1,), "float32", name=n) for n in "abc")
    nest = [a, (b, {"k": slice(a, None)}), ResultBuilder(dict, "dict", {1: c}), ResultBuilder(list, "object", [c]), 3]
    assert list(values_in(nest)) == [a, b, a, c]
    assert mapped(nest, lambda v: v.name) == ["a", ("b", {"k": slice("a", None)}), {1: "c"}, nest[3].parts, 3]
    assert rebuilt({"x": (1, [2])}, lambda v: v + 1) == {"x": (2, [3])} and list(leaves({"x": (1, [2])})) == [1, 2]
    nodes = [Node("f", None, (a, a), {}, [b]), Node("g", None, (b,), {"k": [a]}, [c])]
    assert uses(nodes) == {a: [0, 0, 1], b: [1]}
    assert last_uses(nodes, (b,)) == {a: 1, b: 2, c: 1} and last_uses(nodes) == {a: 1, b: 1, c: 1}


def test_prune_drops_what_no_output_needs():
    a, b, c = (Value(k, (1,), "float32") for k in ("input", "node", "node"))
    g = Graph([a], [], [Node("f", None, (a,), {}, [b]), Node("g", None, (a,), {}, [c])], b)
    assert [n.op for n in g.prune().nodes] == ["f"]
