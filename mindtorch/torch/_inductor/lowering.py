"""The "inductor" backend of torch.compile: replaces the ops of a captured call by fewer and faster
ones.

An op is replaced by a C kernel if _plans.py has one for its shapes. Batch norm is fused with the
addition and the relu that follow it, and max pooling with the preceding relu, if the intermediate
values are not used elsewhere.
"""
import numpy as np

from mindtorch.backend.graph import Node, Value, uses, values_in
from mindtorch.torch._inductor import _plans as c_plans

#: names of op records, by what they compute
_NAMES = {"conv": {"conv2d"}, "transposed": {"conv_transpose2d"}, "norm": {"nn.functional.batch_norm"},
          "pool": {"max_pool2d", "nn.functional.max_pool2d"}, "lstm": {"lstm"}, "linear": {"nn.functional.linear"},
          "relu": {"relu", "nn.functional.relu"}, "relu_": {"relu_", "Tensor.relu_"}, "leaky": {"nn.functional.leaky_relu"},
          "add": {"add", "Tensor.__add__"}, "add_": {"Tensor.add_"}}
_ACTIVATIONS = _NAMES["relu"] | _NAMES["relu_"] | _NAMES["leaky"]


class Lowering:
    """One pass over a captured graph.

    tensors: {Value: tensor of the captured call}.
    """

    def __init__(self, graph, tensors):
        self.graph, self.tensors, self.kinds = graph, tensors, {}
        self.nodes = list(graph.nodes)
        self.fused = 0
        self.uses = uses(self.nodes)
        self.results = set(graph.outputs)
        self.drop = set()

    def run(self):
        """Returns the new graph."""
        handlers = {name: (handle, kind) for kind, handle in (
            ("norm", self._norm), ("conv", self._conv), ("transposed", self._conv), ("pool", self._pool), ("lstm", self._lstm),
            ("linear", self._linear)) for name in _NAMES[kind]}
        modes = self.nodes[0].modes if self.nodes else None
        for j, n in enumerate(self.nodes):
            if j in self.drop or n.modes != modes or n.modes[2] is not None:
                continue
            found = handlers.get(n.op)
            if found is not None:
                handle, kind = found
                handle(j, n, kind)
        return self.graph.with_nodes([n for j, n in enumerate(self.nodes) if j not in self.drop])

    def _put(self, at, kernel, args, facts):
        """Replaces node `at` by a kernel with these arguments and the node's results."""
        n = self.nodes[at]
        self.fused += 1
        self.nodes[at] = Node(f"compiled.{kernel.__name__}", kernel, tuple(args), {}, n.outputs, n.paths, n.modes, facts)

    # -- one op
    def _conv(self, j, node, kind):
        a = node.arguments()
        if a is None or not all(isinstance(a[k], Value) or k == "bias" and a[k] is None for k in ("input", "weight", "bias")):
            return
        infos = [node.facts.get(a[k]) for k in ("input", "weight", "bias")]
        if kind == "conv":
            f = c_plans.plan_conv(*infos, a["stride"], a["padding"], a["dilation"], a["groups"])
        else:
            f = c_plans.plan_conv_transpose(*infos, a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"])
        if f is not None:
            self._put(j, f, (a["input"], a["weight"], a["bias"]), node.facts)

    def _lstm(self, j, node, kind):
        if len(node.args) != 9 or node.kwargs or not isinstance(node.args[1], (tuple, list)) or len(node.args[1]) != 2:
            return
        tensors = [node.args[0], *node.args[1], *node.args[2]]
        if not all(isinstance(t, Value) for t in tensors):
            return
        x, h, c, *weights = (node.facts[t] for t in tensors)
        f = c_plans.plan_lstm(x, h, c, weights)
        if f is not None:
            self._put(j, f, node.args, node.facts)

    # -- chains
    def _next(self, value, after):
        """Returns the index of the next op that uses a value, or None."""
        return next((i for i in self.uses.get(value, ()) if i > after and i not in self.drop), None)

    def _only_use(self, value, at, after):
        """True if op `at` is the only use of a value that op `after` computed."""
        return value not in self.results and [i for i in self.uses.get(value, ()) if i > after] == [at]

    def _activation(self, value, at):
        """Returns (1 for relu or 2 for leaky relu, slope, True if in place) if op `at` is an
        activation of the value, else None."""
        node = self.nodes[at]
        if node.op not in _ACTIVATIONS or not node.args or node.args[0] is not value:
            return None
        a = node.arguments()
        if a is None:
            return None
        if node.op in _NAMES["relu"]:
            return 1, 0.0, bool(a.get("inplace", False))
        if node.op in _NAMES["relu_"] and len(node.args) == 1:
            return 1, 0.0, True
        if node.op in _NAMES["leaky"] and 0 < a["negative_slope"] < 1e6:
            return 2, float(a["negative_slope"]), bool(a["inplace"])
        return None

    def _quiet_between(self, first, last, values):
        """True if no op between two ops writes to one of the values (or to a view of any value)."""
        for i in range(first + 1, last):
            if i in self.drop:
                continue
            node = self.nodes[i]
            written = node.written
            if node.kwargs.get("out") is not None or not node.outputs:
                return False
            if node.op in _NAMES["norm"]:
                written |= {*values_in((node.args[1:3], [node.kwargs.get(k) for k in ("running_mean", "running_var")]))}
            if any(self._alias(w, v) for w in written for v in values):
                return False
        return True

    def _alias(self, a, b):
        """True if two values may share memory, in this call or in another call with similar
        arguments."""
        if a == b or np.may_share_memory(self.tensors[a]._array, self.tensors[b]._array):
            return True
        kinds = self._kind(a), self._kind(b)
        # next time, arguments may be views of each other or of what the code reads
        return "input" in kinds and "node" not in kinds

    def _aliases(self, value):
        """Returns the other values that share memory with a value."""
        return {v for v, t in self.tensors.items() if v is not value and np.may_share_memory(t._array, self.tensors[value]._array)}

    def _seen_later(self, value, after):
        """True if the memory of a value is read, written or returned through another value after op
        `after`."""
        return any(v in self.results or any(i > after for i in self.uses.get(v, ())) for v in self._aliases(value))

    def _stays(self, value, at):
        """True if the result of op `at` is not modified in place.

        Kernels with a leaky relu need their own result in the backward pass, where eager code needs
        the activation's input.
        """
        values = self._aliases(value) | {value}
        if values & self.results:
            return False
        for node in self.nodes[at + 1:]:
            if values.isdisjoint(node.values):
                continue
            if not node.outputs or isinstance(node.kwargs.get("out"), Value) or values & node.written:
                return False
        return True

    def _kind(self, value):
        """Returns the origin of a value's memory: an argument ("input"), a parameter, buffer or
        similar ("parameter"), or newly allocated ("node")."""
        if value.kind == "node" and value not in self.kinds:
            x = self.tensors[value]._array
            over = {v.kind for v, t in self.tensors.items() if v.kind != "node" and np.may_share_memory(x, t._array)}
            self.kinds[value] = "input" if "input" in over else "parameter" if over else "node"
        return self.kinds.get(value, value.kind)

    def _norm(self, j, node, kind):
        a = node.arguments()
        keys = ("input", "running_mean", "running_var", "weight", "bias")
        if a is None or not all(a[k] is None or isinstance(a[k], Value) for k in keys) or a["input"] is None:
            return
        infos = [node.facts.get(a[k]) for k in keys]
        values = [a[k] for k in keys]
        rest = (a["training"], a["momentum"], a["eps"])
        if a["momentum"] is None or c_plans.plan_batch_norm(*infos, *rest) is None:
            return
        y, last, dropped, res = node.outputs[0], j, [], None
        reads = {v for v in values if v is not None}
        i = self._next(y, j)
        # followed by an addition
        if i is not None and self.nodes[i].modes == node.modes:
            add = self.nodes[i]
            inplace = add.op in _NAMES["add_"]
            if (inplace or add.op in _NAMES["add"]) and len(add.args) == 2 and not add.kwargs and all(
                    isinstance(x, Value) for x in add.args):
                first, second = add.args
                other = None if first is second else second if first is y else first if second is y and not inplace else None
                if other is not None and (inplace or self._only_use(y, i, j)):
                    z = add.outputs[0]
                    k = self._next(z, i)
                    act = k is not None and self.nodes[k].modes == node.modes and self._activation(z, k)
                    ok = act and act[0] == 1 and (act[2] or self._only_use(z, k, i))
                    if ok and self._quiet_between(j, i, reads | {other, y}) and self._quiet_between(
                            i, k, reads | {other, z}) and c_plans.plan_batch_norm(
                            *infos, *rest, add.facts[other], act[0], act[1]) is not None:
                        res, last, dropped = other, k, [j, i]
                        f = c_plans.plan_batch_norm(*infos, *rest, add.facts[other], act[0], act[1])
        if res is None:
            act = i is not None and self.nodes[i].modes == node.modes and self._activation(y, i)
            if act and act[0] == 2 and not act[2] and not self._stays(self.nodes[i].outputs[0], i):
                act = None
            if act and (act[2] or self._only_use(y, i, j)) and self._quiet_between(j, i, reads | {y}):
                f = c_plans.plan_batch_norm(*infos, *rest, None, act[0], act[1])
                last, dropped = i, [j]
            else:
                f = c_plans.plan_batch_norm(*infos, *rest)
        facts = {**node.facts, **self.nodes[last].facts}
        if res is not None:
            values.append(res)
            facts[res] = self.nodes[dropped[1]].facts[res]
        self._put(last, f, values, facts)
        self.drop.update(dropped)

    def _linear(self, j, node, kind):
        a = node.arguments()
        keys = ("input", "weight", "bias")
        if a is None or not all(isinstance(a[k], Value) or k == "bias" and a[k] is None for k in keys):
            return
        infos = [node.facts.get(a[k]) for k in keys]
        f, fused = c_plans.plan_linear(*infos), c_plans.plan_linear(*infos, True)
        if fused is None:
            return
        y = node.outputs[0]
        i = self._next(y, j)
        act = i is not None and self.nodes[i].modes == node.modes and self._activation(y, i)
        args = [a[k] for k in keys]
        reads = {v for v in args if v is not None}
        if act and act[0] == 1 and (act[2] or self._only_use(y, i, j)) and self._quiet_between(j, i, reads | {y}):
            self._put(i, fused, args, {**node.facts, **self.nodes[i].facts})
            self.drop.add(j)
        elif f is not None:
            self._put(j, f, args, node.facts)

    def _pool(self, j, node, kind):
        a = node.arguments()
        if a is None or not isinstance(a["input"], Value):
            return
        x = a["input"]
        rest = [a[k] for k in ("kernel_size", "stride", "padding", "dilation", "ceil_mode")] + [bool(a.get("return_indices", False))]
        if any(values_in(rest)):
            return
        # preceded by a relu whose result is not used elsewhere
        for i in range(j - 1, -1, -1):
            o = self.nodes[i]
            if i not in self.drop and x in o.outputs:
                break
        else:
            i = None
        source = x
        relu = False
        if i is not None and self.nodes[i].modes == node.modes:
            o = self.nodes[i]
            given = o.args[0] if o.args and isinstance(o.args[0], Value) else None
            act = given is not None and self._activation(given, i)
            if act and act[0] == 1 and self._only_use(x, j, i) and self._quiet_between(i, j, {given}):
                if not act[2] or (given.kind == "node" and not o.facts[given][4] and not self._seen_later(given, i)):
                    source, relu = given, True
        info = (self.nodes[i] if relu else node).facts[source]
        f = c_plans.plan_max_pool(info, relu, *rest)
        if f is None and relu:
            return
        if f is not None:
            if relu:
                self.drop.add(i)
            self._put(j, f, (source,), {source: info})


def lower(graph, tensors):
    """Returns (graph for the replay, number of its nodes that are C kernels).

    tensors: {Value: tensor of the captured call}.
    """
    if not c_plans.available():
        return graph, 0
    low = Lowering(graph, tensors)
    return low.run(), low.fused
