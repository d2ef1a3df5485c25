"""torch.fx: splitting programs by tags and by accelerator support, and queries of tools about
nodes, compared with PyTorch."""
import importlib
import operator
import typing

import pytest
import torch
from hypothesis import given, settings, strategies as st

import mindtorch.torch as mt

BOTH = [(torch, "torch"), (mt, "mindtorch.torch")]


def load(base, name):
    return importlib.import_module(f"{base}.fx.{name}")


def trace(base, f):
    return load(base, "_symbolic_trace").symbolic_trace(f)


def both(fn):
    return [fn(T, base) for T, base in BOTH]


def texts(gm):
    return gm.code, {n: m.code for n, m in gm.named_children() if hasattr(m, "graph")}


def model(T):
    class M(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2, self.l3, self.l4 = (T.nn.Linear(*s) for s in ((2, 3), (2, 3), (2, 3), (3, 6)))
            self.p = T.nn.Parameter(T.ones(3))

        def forward(self, a, b, c):
            v1 = self.l1(a)
            v4 = T.cat([v1, self.l2(b), self.l3(c)]) + self.p
            return self.l4(v4), v1
    return M()


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize("tags", ["abcc", "aabb", "aaab", "abbc", "aaaa"])
def test_tags(tags, as_tuple):
    def run(T, base):
        m = model(T)
        g = trace(base, m)
        for n in g.graph.nodes:
            n.tag = tags[["l1", "l2", "l3"].index(n.name)] if n.name in ("l1", "l2", "l3") else tags[3]
        s, names = load(base, "passes.split_utils").split_by_tags(g, sorted(set(tags)), return_fqn_mapping=True, return_tuple=as_tuple)
        x = T.ones(1, 2)
        assert T.equal(s(x, x, x)[0], m(x, x, x)[0])
        return texts(s), names, sorted(n for n, _ in s.named_parameters())
    theirs, mine = both(run)
    assert mine == theirs


def program(T):
    def f(a, b, c):
        x = a + b
        y = T.relu(x)
        w = T.cat([T.sin(y), x])
        return w * w + 1, T.relu(c), y
    return f


NAMES = ["add", "relu", "sin", "cat", "mul", "relu_1", "add_1"]


@settings(max_examples=25, deadline=None)
@given(st.sets(st.sampled_from(NAMES)), st.booleans())
def test_partitioner_selects_supported_nodes(supported, single):
    def run(T, base):
        support = load(base, "passes.operator_support").create_op_support(lambda modules, n: n.name in supported)
        p = load(base, "passes.infra.partitioner").CapabilityBasedPartitioner(trace(base, program(T)), support, allows_single_node_partition=single)
        parts = p.propose_partitions()
        found = [sorted(n.name for n in q.nodes) for q in parts]
        fused = p.fuse_partitions(parts)
        x = T.arange(3.0) - 1
        assert all(T.equal(a, b) for a, b in zip(fused(x, x, x), program(T)(x, x, x)))
        return sorted(found)
    theirs, mine = both(run)
    # The choice among several ways to merge nodes may differ, if no two parts could be merged into
    # one.
    assert sorted(n for p in mine for n in p) == sorted(n for p in theirs for n in p) or not single
    assert len(mine) == len(theirs)


def test_fusing_nodes():
    def run(T, base):
        u = load(base, "passes.utils.fuser_utils")
        g = trace(base, program(T))
        ns = {n.name: n for n in g.graph.nodes}
        valid = [u.validate_partition([ns[a], ns[b]]) for a, b in (("add", "cat"), ("add", "relu"), ("relu", "relu_1"), ("sin", "mul"))]
        sub, i, o = u.fuse_as_graphmodule(g, [ns["add"], ns["relu"], ns["sin"]], "fused")
        order = [n.name for n in u.topo_sort([ns["relu"], ns["add"], ns["mul"]])]
        fused = u.fuse_by_partitions(g, [dict.fromkeys([ns["sin"], ns["cat"]]), dict.fromkeys([ns["mul"], ns["add_1"]])])
        return valid, sub.code, str(i), str(o), order, texts(fused)
    theirs, mine = both(run)
    assert mine == theirs


def test_node_queries_of_tools():
    def run(T, base):
        tools, support = load(base, "passes.tools_common"), load(base, "passes.operator_support")
        g = trace(base, model(T))
        out = [tools.get_node_target(dict(g.named_modules()), n) for n in g.graph.nodes if n.op[:4] == "call"]
        g = trace(base, lambda x, y: T.sin(x).relu() + T.cos(y))
        out += [tools.get_node_target({}, n) for n in g.graph.nodes if n.op[:4] == "call"]
        ns = list(g.graph.nodes)
        ns[2].prepend(ns[5])
        with pytest.raises(RuntimeError):
            g.graph.lint()
        out.append(str(tools.legalize_graph(g).graph))
        load(base, "passes.shape_prop").ShapeProp(g).propagate(T.ones(2), T.ones(2))
        s = support.OperatorSupport({"torch.sin": (([T.float32],), {}), "torch.cos": (([T.int64],), {}), "_operator.add": None})
        named = support.create_op_support(lambda modules, n: "s" in n.name)
        for c in (s, support.chain(s, named), support.any_chain(named, support.create_op_support(lambda modules, n: n.op == "placeholder")),
                  support.OpSupports.decline_if_input_dtype(T.float32), support.OpSupports.decline_if_node_in_names({"sin"})):
            out.append([c.is_node_supported({}, n) for n in g.graph.nodes])
        manip = load(base, "passes.graph_manipulation")
        g = trace(base, model(T))
        manip.get_size_of_all_nodes(g, [T.ones(1, 2)] * 3)
        out.append([tuple(n.size_bytes) for n in g.graph.nodes if n.op != "output"])
        return out
    theirs, mine = both(run)
    assert mine == theirs


def test_annotated_getitem_types():
    def run(T, base):
        g = load(base, "graph").Graph()
        x, y, z = g.placeholder("x", typing.Tuple[int, str]), g.placeholder("y", typing.List[T.Tensor]), g.placeholder("z")  # noqa: UP006
        made = [g.call_function(operator.getitem, a) for a in ((x, 0), (x, 1), (y, 5), (z, 0))]
        g.output(tuple(made))
        load(base, "passes.annotate_getitem_nodes").annotate_getitem_nodes(g)
        return [n.type.__name__ if n.type else None for n in made]
    theirs, mine = both(run)
    assert mine == theirs


def test_norms_are_fused():
    def run(T, base):
        opt = load(base, "experimental.optimization")

        class R(T.nn.Module):
            def __init__(self):
                super().__init__()
                self.c, self.b, self.r, self.d = T.nn.Conv2d(3, 4, 3), T.nn.BatchNorm2d(4), T.nn.ReLU(), T.nn.Dropout()
                self.lin, self.bn = T.nn.Linear(2, 2), T.nn.BatchNorm1d(2)

            def forward(self, x, y):
                return self.d(self.r(self.b(self.c(x)))), self.bn(self.lin(y))
        r = R().eval()
        x, y = T.rand(1, 3, 5, 5), T.rand(3, 2)
        f = opt.fuse(r)
        assert all(T.allclose(a, b, atol=1e-5) for a, b in zip(f(x, y), r(x, y)))
        return opt.remove_dropout(r).code, [n.op for n in f.graph.nodes]
    theirs, mine = both(run)
    assert mine[0] == theirs[0]
    # mindtorch also fuses a linear layer with its norm
    assert mine[1].count("call_module") <= theirs[1].count("call_module")


def test_matching_nodes_by_source():
    def run(T, base):
        g = trace(base, program(T)).graph
        for n, name in zip(list(g.nodes)[3:7], "aabb"):
            n.meta["source_fn_stack"] = [(name, "f" if name == "a" else "g")]
        u = load(base, "passes.utils.source_matcher_utils")
        found = u.get_source_partitions(g, ["f", "g"])
        a, b = found["f"][0], found["g"][0]
        words = [(k, [str(n) for n in p.nodes], sorted(map(str, p.input_nodes)), sorted(map(str, p.output_nodes))) for k, v in found.items() for p in v]
        return words, u.check_subgraphs_connected(a, b), u.check_subgraphs_connected(b, a), list(u.get_source_partitions(g, ["f"], lambda n: False))
    theirs, mine = both(run)
    assert mine == theirs
