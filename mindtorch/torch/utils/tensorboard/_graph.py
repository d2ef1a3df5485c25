"""Graph of a module for TensorBoard's graph page: the traced ops, each under the module that called
it."""
import contextlib

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from mindtorch.core.compile.tracing import active
from mindtorch.torch._graph import capture, evaluating


def paths(model):
    """Maps the dotted names of a model's modules to scopes: "Net/Sequential[body]/Linear[0]"."""
    found = {"": type(model).__name__}
    for name, module in model.named_modules():
        if name:
            above, _, last = name.rpartition(".")
            found[name] = f"{found[above]}/{type(module).__name__}[{last}]"
    return found


@contextlib.contextmanager
def _followed(model, scopes):
    """Context manager in which `scopes` is filled with {id(node): (scope, node)} for every traced
    node."""
    path_of = paths(model)
    handles, open_ = [], []

    def enters(*_):
        open_.append(len(active.tracer.nodes) if active.tracer is not None else 0)

    def leaves(name):
        def hook(*_):
            start = open_.pop()
            if active.tracer is not None:
                for node in active.tracer.nodes[start:]:
                    scopes.setdefault(id(node), (path_of[name], node))
        return hook
    for name, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enters), module.register_forward_hook(leaves(name), always_call=True)]
    try:
        yield
    finally:
        for h in handles:
            h.remove()


def graph(model, args, verbose=False, use_strict_trace=True):
    """Returns (GraphDef, RunMetadata) of a Module for example arguments (a tensor or a tuple),
    traced like jit.trace in evaluation mode.

    `use_strict_trace` has no effect: dict results are always accepted. Raises RuntimeError or
    NotImplementedError if the model cannot be traced.
    """
    args = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    scopes: dict = {}
    with evaluating(model), _followed(model, scopes):
        recorded = capture(model, args, leaf=lambda name: True, check=False)
    if verbose:
        print(recorded)
    return _definition(recorded, scopes, paths(model)), RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))


def _definition(recorded, scopes, path_of):
    nodes, names, counts = [], {}, {}

    def unique(name):
        n = counts[name] = counts.get(name, -1) + 1
        return f"{name}.{n}" if n else name

    def add(name, op, inputs=(), outputs=(), text=""):
        shapes = [TensorShapeProto(dim=[TensorShapeProto.Dim(size=int(n)) for n in v.shape]) for v in outputs]
        attr = {"attr": AttrValue(s=text.encode())}
        if shapes:
            attr["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=shapes))
        nodes.append(NodeDef(name=name, op=op, input=inputs, attr=attr))

    def source(value):
        """Returns the name of a value as a node input; weights and constants are added at their
        first use."""
        if value not in names:
            module, _, last = value.name.rpartition(".")
            known = value.kind == "parameter" and module in path_of
            names[value] = unique(f"{path_of[module]}/{last}" if known else f"{path_of['']}/{value.name or 'constant'}")
            add(names[value], "prim::GetAttr" if known else "prim::Constant", (), [value], f"{{ name :  {last} }}" if known else "")
        return names[value]

    for v in recorded.inputs:
        names[v] = unique(f"input/{v.name}")
        add(names[v], "IO Node", (), [v])
    for node in recorded.nodes:
        op = node.op.rpartition(".")[2]
        inputs = [source(v) for v in node.values]
        name = unique(f"{scopes[id(node)][0] if id(node) in scopes else path_of['']}/{op}")
        plain = {k: v for k, v in (node.arguments() or {}).items() if isinstance(v, (bool, int, float, str)) or v is None}
        add(name, f"aten::{op}", inputs, node.outputs, str(plain))
        for i, v in enumerate(node.outputs):
            names[v] = f"{name}:{i}" if i else name
    for i, v in enumerate(recorded.outputs):
        add(unique(f"output/output.{i + 1}"), "IO Node", [source(v)], [v])
    return GraphDef(node=nodes, versions=VersionDef(producer=22))
