"""Files of exported programs: a zip with the graph as JSON and the tensors in the format of
torch.save.

A file refers to functions by name. Only operators, functions and tensor methods that a recording
can contain are looked up, so that loading executes no code from the file.
"""
import io
import json
import operator
import os
import zipfile

import numpy as np

from mindtorch.backend.graph import dtype_name
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes
from mindtorch.core.dispatch.dispatcher import DISPATCH_ENTRIES
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.torch import _C, _ops
from mindtorch.torch.amp import autocast_mode
from mindtorch.torch.export.dynamic_shapes import Range
from mindtorch.torch.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from mindtorch.torch.export.graph_signature import (ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec,
                                                    TensorArgument)
from mindtorch.torch.fx import _recorded
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.node import Node, qualified_name
from mindtorch.torch.fx.passes.shape_prop import TensorMetadata
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.utils import _pytree as pytree

_FORMAT, _VERSION = "mindtorch exported program", 1
_SETTINGS = ("layout", "memory_format")
_PLAIN = {f"operator.{n}": getattr(operator, n) for n in [*(f"i{x}" for x in _recorded._BINARY if x not in ("and", "or")), "iand", "ior", "add", "sub", "mul",
          "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos",
          "invert", "getitem", "setitem"]}
_PLAIN.update({"grad": _C._set_grad_enabled, "autocast": autocast_mode._enter_autocast, "end autocast": autocast_mode._exit_autocast,
               "inference": _recorded._enter_inference_mode, "end inference": _recorded._exit_inference_mode, "getattr": getattr})
_NAMES = {f: n for n, f in _PLAIN.items()}
_PROPERTIES = frozenset("T mT H mH real imag data shape".split())


# ------------------------------------------------------------------ values
def _encoded(x):
    if x is None or x.__class__ in (bool, int, str):
        return x
    if isinstance(x, Node):
        return {"node": x.name}
    if x.__class__ is float:
        return {"float": repr(x)}
    if x.__class__ is complex:
        return {"complex": [repr(x.real), repr(x.imag)]}
    if isinstance(x, dtypes.dtype):
        return {"dtype": str(x).rpartition(".")[2]}
    if isinstance(x, np.dtype):
        return {"element": dtype_name(x)}
    if isinstance(x, _device.device):
        return {"device": str(x)}
    if type(x).__name__ in _SETTINGS:
        return {"setting": str(x).rpartition(".")[2]}
    if x is Ellipsis:
        return {"ellipsis": True}
    if isinstance(x, slice):
        return {"slice": [_encoded(x.start), _encoded(x.stop), _encoded(x.step)]}
    if isinstance(x, (list, tuple)):
        return {"list" if isinstance(x, list) else "tuple": [_encoded(v) for v in x]}
    if isinstance(x, dict):
        return {"dict": [[_encoded(k), _encoded(v)] for k, v in x.items()]}
    raise NotImplementedError(f"torch.export.save: an argument of type {type(x).__name__} in the program is not supported")


def _decoded(x, nodes):
    if not isinstance(x, dict):
        return x
    (kind, v), = x.items()
    if kind == "node":
        return nodes[v]
    if kind == "float":
        return float(v)
    if kind == "complex":
        return complex(float(v[0]), float(v[1]))
    if kind == "dtype":
        return dtypes.NAMES[v]
    if kind == "element":
        return dtypes.NAMES[v].np
    if kind == "device":
        return _device.device(v)
    if kind == "setting":
        from mindtorch.torch import _types
        found = vars(_types).get(v)
        if type(found).__name__ not in _SETTINGS:
            raise RuntimeError(f"torch.export.load: the file has an unknown dtype, layout or other setting {v!r}")
        return found
    if kind == "ellipsis":
        return Ellipsis
    if kind == "dict":
        return {_decoded(k, nodes): _decoded(i, nodes) for k, i in v}
    items = [_decoded(i, nodes) for i in v]
    return items if kind == "list" else tuple(items) if kind == "tuple" else slice(*items)


def _target(node):
    """Returns a node's target as it is stored in a file."""
    f = node.target
    if node.op != "call_function":
        return f
    if f in _NAMES:
        return {"plain": _NAMES[f]}
    if isinstance(f, _ops.OpOverload):
        return {"operator": f"{f.namespace}::{f._opname}.{f._overloadname}"}
    if PRIMITIVES.get(getattr(f, "__name__", None)) is f:
        return {"primitive": f.__name__}
    name = qualified_name(f)
    if DISPATCH_ENTRIES.get(f) is None or not name.startswith("torch."):
        raise NotImplementedError(f"torch.export.save: the program calls {name}, which is not an operator (register it with torch.library.custom_op)")
    return {"function": name}


def _called(op, target, args):
    """Returns the function for a name in a file. RuntimeError for anything that a recording cannot
    contain."""
    if op == "call_method":
        if target.startswith("_") and not target.startswith("__") or DISPATCH_ENTRIES.get(getattr(Tensor, target, None)) is None:
            raise RuntimeError(f"torch.export.load: the file calls a method {target!r} that is not an operator")
        return target
    if op != "call_function":
        return target
    (kind, name), = target.items()
    found = None
    if kind == "plain":
        found = _PLAIN.get(name)
        if found is getattr and args[1] not in _PROPERTIES:
            found = None
    elif kind == "primitive":
        found = PRIMITIVES.get(name)
    elif kind == "operator":
        found = _ops.find_overload(name)
    elif kind == "function":
        from mindtorch import torch
        found = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        found = found if DISPATCH_ENTRIES.get(found) is not None else None
    if found is None:
        raise RuntimeError(f"torch.export.load: the file calls {name!r}, which is not an operator here (custom operators have to be registered first)")
    return found


# ------------------------------------------------------------------ writing
def save(ep, f, extra_files=None):
    """Writes a program to a file."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    from mindtorch.torch import serialization
    nodes = []
    for n in ep.graph.nodes:
        about = n.meta.get("tensor_meta")
        nodes.append({"op": n.op, "name": n.name, "target": _target(n), "args": _encoded(n.args), "kwargs": _encoded(n.kwargs),
                      "like": None if about is None else [list(about.shape), str(about.dtype).rpartition(".")[2], about.requires_grad]})
    call = ep.call_spec
    first = ep.module_call_graph[0].signature
    leaves, spec = pytree.tree_flatten(ep.example_inputs)
    description = {
        "format": _FORMAT, "version": _VERSION, "nodes": nodes,
        "inputs": [[s.kind.name, s.arg.name, s.target, s.persistent, isinstance(s.arg, ConstantArgument), _encoded(getattr(s.arg, "value", None))]
                   for s in ep.graph_signature.input_specs],
        "outputs": [[s.kind.name, s.arg.name, s.target, isinstance(s.arg, ConstantArgument), _encoded(getattr(s.arg, "value", None))]
                    for s in ep.graph_signature.output_specs],
        "in_spec": pytree.treespec_dumps(call.in_spec), "out_spec": pytree.treespec_dumps(call.out_spec), "arguments": first.forward_arg_names,
        "ranges": {k: [r.lower, r.upper] for k, r in ep.range_constraints.items()},
        "checks": [[path, _encoded(w)] for path, w in ep._checks], "modules": [e.fqn for e in ep.module_call_graph[1:]],
        "example": [pytree.treespec_dumps(spec), [{"tensor": i} if is_tensor(x) else {"value": _encoded(x)} for i, x in enumerate(leaves)]],
    }
    tensors = {"state": dict(ep.state_dict), "constants": dict(ep.constants), "example": {str(i): x.detach() for i, x in enumerate(leaves) if is_tensor(x)}}
    blob = io.BytesIO()
    serialization.save(tensors, blob)
    with zipfile.ZipFile(f if hasattr(f, "write") else os.fspath(f), "w") as z:
        z.writestr("mindtorch.json", json.dumps(description, indent=1))
        z.writestr("tensors.pt", blob.getvalue())
        for name, text in (extra_files or {}).items():
            z.writestr("extra/" + name, text)


# ------------------------------------------------------------------ reading
def load(f, extra_files=None):
    """Reads a program from a file."""
    from mindtorch.torch import serialization
    source = io.BytesIO(f.read()) if hasattr(f, "read") else os.fspath(f)
    if not zipfile.is_zipfile(source):
        raise RuntimeError("torch.export.load: this file was not written by torch.export.save")
    with zipfile.ZipFile(source) as z:
        names = z.namelist()
        if "mindtorch.json" not in names:
            raise NotImplementedError("torch.export.load: torch's own archives (.pt2) are not supported; save the program with mindtorch")
        d = json.loads(z.read("mindtorch.json"))
        if d.get("format") != _FORMAT or d.get("version") != _VERSION:
            raise RuntimeError(f"torch.export.load: a file of format {d.get('format')!r}, version {d.get('version')}; this mindtorch reads {_FORMAT!r}, "
                               f"version {_VERSION}")
        tensors = serialization.load(io.BytesIO(z.read("tensors.pt")), weights_only=True)
        for name in extra_files or ():
            if "extra/" + name in names:
                extra_files[name] = z.read("extra/" + name).decode()
    graph, nodes = Graph(), {}
    for n in d["nodes"]:
        args, kwargs = _decoded(n["args"], nodes), _decoded(n["kwargs"], nodes)
        node = graph.create_node(n["op"], _called(n["op"], n["target"], args), args, kwargs, n["name"] if n["op"] != "output" else None)
        nodes[n["name"]] = node
        if n["like"] is not None:
            shape, dtype, rg = n["like"]
            v = node.meta["val"] = _recorded.example_tensor(tuple(shape), dtypes.NAMES[dtype], rg)
            node.meta["tensor_meta"] = TensorMetadata(v.shape, v.dtype, rg, v.stride(), None, False, {})

    def argument(name, constant, value):
        return ConstantArgument(name, _decoded(value, nodes)) if constant else TensorArgument(name)
    signature = ExportGraphSignature(
        [InputSpec(InputKind[k], argument(name, c, v), target, p) for k, name, target, p, c, v in d["inputs"]],
        [OutputSpec(OutputKind[k], argument(name, c, v), target) for k, name, target, c, v in d["outputs"]])
    for s, n in zip(signature.input_specs, graph.nodes):
        if isinstance(s.arg, ConstantArgument):
            n.meta["val"] = s.arg.value
    entries = [ModuleCallEntry("", ModuleCallSignature([], [], pytree.treespec_loads(d["in_spec"]), pytree.treespec_loads(d["out_spec"]), d["arguments"]))]
    spec, leaves = d["example"]
    example = pytree.tree_unflatten([tensors["example"][str(x["tensor"])] if "tensor" in x else _decoded(x["value"], nodes) for x in leaves],
                                    pytree.treespec_loads(spec))
    graph.lint()
    return ExportedProgram(Module(), graph, signature, tensors["state"], {k: Range(*r) for k, r in d["ranges"].items()},
                           [*entries, *map(ModuleCallEntry, d["modules"])], example, tensors["constants"],
                           checks=[(path, _decoded(w, nodes)) for path, w in d["checks"]])
