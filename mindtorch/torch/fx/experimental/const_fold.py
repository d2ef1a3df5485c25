"""torch.fx.experimental.const_fold: computes once the part of a program that depends only on
attributes."""
import operator

from mindtorch import torch as _torch
from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.fx._symbolic_trace import symbolic_trace
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.node import map_arg
from mindtorch.torch.nn.modules.container import ParameterList

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A GraphModule whose `const_subgraph_module` runs once, at the first call, and sets the
    attribute that the graph reads."""

    def __init__(self, root, graph, const_subgraph=None, fx_const_folded_attrs_name=None, device_for_folded_attrs="cuda"):
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name, self.device_for_folded_attrs = fx_const_folded_attrs_name, device_for_folded_attrs

    def __call__(self, *args, **kwargs):
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self):
        """Computes the constants, unless already done."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None or self.has_folding_been_run:
            return
        self.has_folding_been_run = True
        values = self.const_subgraph_module()

        def held(x):
            x = x if not is_tensor(x) or x.device.type == self.device_for_folded_attrs else x.to(self.device_for_folded_attrs)
            return Parameter(x.detach(), requires_grad=x.requires_grad) if is_tensor(x) else x
        setattr(self, self.fx_const_folded_attrs_name, ParameterList([held(v) for v in values]) if isinstance(values, (tuple, list)) else held(values))


def get_unique_attr_name_in_module(mod_traced, name):
    """Returns a name similar to `name` that is not yet an attribute of the module."""
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if name[0].isdigit():
        name = f"_{name}"
    base, number = name, 0
    head, _, tail = name.rpartition("_")
    if head and tail.isdigit():
        base, number = head, int(tail)
    while hasattr(mod_traced, name):
        number += 1
        name = f"{base}_{number}"
    return name


def _constants(gm, skip):
    """Returns the nodes that depend only on attributes and each other."""
    found = {}
    for n in gm.graph.nodes:
        if n.op == "get_attr" or n.op not in ("placeholder", "output") and found.keys() >= set(n.all_input_nodes) and not (
                skip is not None and skip(n)) and not n.is_impure():
            found[n] = None
    return found


def split_const_subgraphs(module, skip_folding_node_fn=None, device_for_folded_attrs="cpu"):
    """Returns a FoldedGraphModule of a module (or GraphModule). The part that depends only on
    attributes is computed at the first call.

      skip_folding_node_fn   node -> whether it is excluded from folding
    """
    gm = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constants(gm, skip_folding_node_fn)
    if all(n.op == "get_attr" for n in constant):
        return FoldedGraphModule(gm, gm.graph)
    ends = list(dict.fromkeys(n for user in gm.graph.nodes if user not in constant for n in user.all_input_nodes if n in constant and n.op != "get_attr"))
    needed = set(ends)
    for n in reversed(constant):
        if n in needed:
            needed.update(n.all_input_nodes)
    inner, env = Graph(), {}
    for n in constant:
        if n in needed:
            env[n] = inner.node_copy(n, lambda x: env[x])
    inner.output(env[ends[0]] if len(ends) == 1 else tuple(env[n] for n in ends))
    name = get_unique_attr_name_in_module(gm, "_FX_CONST_FOLDED_ATTRS")
    graph, env, held = Graph(), {}, None
    graph._codegen = gm.graph._codegen
    order = [n for n in gm.graph.nodes if n.op == "placeholder"]
    order += [n for n in gm.graph.nodes if n.op == "get_attr"]
    order += [n for n in gm.graph.nodes if n.op not in ("placeholder", "get_attr")]
    for n in order:
        if n.op not in ("placeholder", "get_attr") and held is None:
            held = graph.get_attr(name)
            for i, c in enumerate(ends):
                env[c] = held if len(ends) == 1 else graph.call_function(operator.getitem, (held, i))
                env[c].meta = dict(c.meta)
        if n.op == "output":
            graph.output(map_arg(n.args[0], lambda x: env[x]), n.type).meta = dict(n.meta)
        elif n not in constant or n.op == "get_attr" and any(u not in constant for u in n.users):
            env[n] = graph.node_copy(n, lambda x: env[x])
    setattr(gm, name, ParameterList() if len(ends) > 1 else Parameter(_torch.empty(1)))
    folded = FoldedGraphModule(gm, graph, inner, name, device_for_folded_attrs)
    delattr(gm, name)
    return folded
