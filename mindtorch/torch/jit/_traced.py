"""Traced and scripted code: it runs eagerly, and is saved as a zip file with a MindIR graph and a
JSON description."""
import io
import json
import os
import pickle
import types
import warnings
import zipfile

import numpy as np

from mindtorch.backend.mindspore.checkpoint import load_mindir, save_mindir
from mindtorch.backend.graph import Value
from mindtorch.core.autograd.grad_mode import is_grad_enabled
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import Parameter, Tensor, wrap_array, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch import _graph
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.parameter import is_lazy

_FORMAT, _VERSION = "mindtorch traced module", 1


class TracerWarning(Warning):
    """A trace may not generalize to other inputs."""


class TracingCheckError(RuntimeError):
    """The traced graph does not compute the same results as the function."""


class Error(Exception):
    """Raised by the code of a scripted module."""


class ScriptModule(Module):
    """Base class of the modules that `trace`, `script` and `load` return."""

    _opaque = True  # torch.fx records a call of this module as one node

    def save(self, f, _extra_files=None):
        """Like `torch.jit.save(self, f)`."""
        _write(self, f, _extra_files)

    @property
    def original_name(self):
        """Class name of the traced module."""
        return type(self).__name__

    @property
    def graph(self):
        """The graph for the example inputs passed to `trace`."""
        return _graph_of(self)

    inlined_graph = graph

    @property
    def code(self):
        raise NotImplementedError("ScriptModule.code: there is no TorchScript source; `graph` has the recorded ops")


class RecursiveScriptModule(ScriptModule):
    """A scripted or loaded module. Exceptions raised by its code are also instances of
    torch.jit.Error."""

    def __call__(self, *args, **kwargs):
        try:
            return super().__call__(*args, **kwargs)
        except RuntimeError as e:
            hide_internal_frames(e)
            raise  # (RuntimeErrors, as raised by ops, keep their class)
        except Exception as e:
            hide_internal_frames(e)
            error = _as_error(e)
            if error is None:
                raise
            raise error.with_traceback(e.__traceback__) from e.__cause__


def _as_error(e):
    """Returns the exception as an instance of a class that also derives from torch.jit.Error.

    Returns None if Python cannot create such a class.
    """
    cls = type(e)
    made = _errors.get(cls)
    if made is None:
        try:
            made = _errors[cls] = type(cls.__name__, (Error, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})
        except TypeError:
            return None
    new = made.__new__(made, *e.args)
    new.args = e.args
    new.__dict__.update(e.__dict__)
    return new


_errors: dict[type, type] = {}

class TopLevelTracedModule(ScriptModule):
    """A traced module."""


class ScriptFunction:
    """A scripted or traced function; calls run eagerly.

    As in PyTorch it does not bind as a method of a class, and cannot be copied or pickled.
    """

    def __init__(self, fn, example=None):
        self.fn, self._torchdynamo_inline = fn, fn
        self.__name__, self.__doc__, self.__wrapped__ = getattr(fn, "__name__", "function"), fn.__doc__, fn
        self.__module__ = getattr(fn, "__module__", None)
        if example is not None:
            self._jit_example = example

    def __call__(self, *args, **kwargs):
        try:
            return self.fn(*args, **kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    def __reduce_ex__(self, protocol):
        raise pickle.PickleError("ScriptFunction cannot be pickled")

    def save(self, f, _extra_files=None):
        """Like `torch.jit.save(self, f)`."""
        _write(self, f, _extra_files)

    def save_to_buffer(self, _extra_files=None):
        """Returns the output of `save` as bytes."""
        b = io.BytesIO()
        _write(self, b, _extra_files)
        return b.getvalue()

    @property
    def name(self):
        """The function's name."""
        return self.__name__

    @property
    def qualified_name(self):
        """The qualified name of the function in TorchScript."""
        return f"__torch__.{self.__module__}.{self.__name__}".replace("__torch__.__main__.", "__torch__.")

    @property
    def graph(self):
        """The graph for the example inputs."""
        return _graph_of(self)

    inlined_graph = graph


def _no_source(name):
    def refuse(self):
        raise NotImplementedError(f"ScriptFunction.{name} is not supported: {self.__name__} is not compiled to TorchScript; torch.jit.trace(fn, example_inputs).graph has the recorded ops")
    return property(refuse, doc="Not supported: functions run eagerly.")


for _name in ("code", "schema", "graph_for", "get_debug_state"):
    setattr(ScriptFunction, _name, _no_source(_name))


_classes = {}


def _as(module, base):
    """Returns the module as an instance of a class that also derives from `base`.

    The new object and the module share their state.
    """
    cls = type(module)
    if issubclass(cls, ScriptModule):
        return module
    made = _classes.get((cls, base))
    if made is None:
        made = _classes[cls, base] = type(cls.__name__, (base, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    new = made.__new__(made)
    object.__setattr__(new, "__dict__", module.__dict__)
    return new


def _deprecated(name, instead="switch to `torch.compile` or `torch.export`"):
    """Issues PyTorch's deprecation warning of a torch.jit function.

    By default Python hides it; a warning filter for this module shows it.
    """
    warnings.warn(f"`torch.jit.{name}` is deprecated. Please {instead}.", DeprecationWarning, stacklevel=2)


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """Returns the function, class or module, which runs eagerly with the same results.

    A module is returned as an instance of a class that also derives from ScriptModule, and shares
    its state with the original. Its exceptions are also instances of torch.jit.Error. A function is
    returned as a ScriptFunction. TypeError if `obj` is not code.

    `example_inputs` are the arguments of calls: [(x, y)] or {module: [(x, y)]}. `save` and `graph`
    trace the first of them.
    """
    _deprecated("script")
    if not callable(obj) and not isinstance(obj, (dict, list)):
        raise TypeError(f"torch.jit.script takes a module, a function or a class, not an object of {type(obj).__name__}")
    if isinstance(obj, Module):
        for name, t in (*obj.named_parameters(), *obj.named_buffers()):
            if is_lazy(t):
                raise RuntimeError(f"{name} of {type(obj).__name__} is uninitialized, so it can not be scripted: run a forward pass first")
    example = _first_example(obj, example_inputs)
    if not isinstance(obj, Module):
        if isinstance(obj, types.FunctionType) or example is not None and not isinstance(obj, (type, ScriptFunction)):
            return ScriptFunction(obj, None if example is None else (example, {}))
        return obj
    scripted = _as(obj, RecursiveScriptModule)
    if example is not None:
        scripted.__dict__["_jit_example"] = (example, {})
    return scripted


def _first_example(obj, inputs):
    """Returns the arguments of the first example call of `obj`, or None."""
    if isinstance(inputs, dict):
        inputs = next((calls for m, calls in inputs.items() if m is obj), None)
    if not inputs:
        return None
    first = inputs[0]
    return tuple(first) if isinstance(first, (tuple, list)) else (first,)


def trace(func, example_inputs=None, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-5, strict=True,
          _force_outplace=False, _module_class=None, _compilation_unit=None, example_kwarg_inputs=None, _store_inputs=True):
    """Returns the function or module with its example inputs stored for `save` and `graph`.

    Calls run eagerly, so they also follow data-dependent branches, and train() and eval(). A module
    is returned as an instance of a class that also derives from ScriptModule, and shares its state
    with the original. `func` is called once with the example inputs.
    """
    _deprecated("trace")
    return _traced(func, example_inputs, example_kwarg_inputs)


def _traced(func, example_inputs, example_kwarg_inputs=None):
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict" if example_inputs is None else "no example inputs")
    args = () if example_inputs is None else (example_inputs,) if isinstance(example_inputs, (Tensor, dict)) else tuple(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    func(*args, **kwargs)
    if isinstance(func, Module):
        m = _as(func, TopLevelTracedModule)
        m.__dict__["_jit_example"] = (args, kwargs)
        return m
    if isinstance(func, ScriptFunction):
        return func if example_of(func) is not None else ScriptFunction(func.fn, (args, kwargs))
    return ScriptFunction(func, (args, kwargs))


def trace_module(mod, inputs, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-5, strict=True, **kwargs):
    """Like `trace`, with inputs per method. Only "forward" is supported."""
    _deprecated("trace_method")
    if set(inputs) != {"forward"}:
        raise NotImplementedError(f"torch.jit.trace_module supports only the method forward, got inputs for {sorted(inputs)}")
    return _traced(mod, inputs["forward"])


def example_of(obj):
    """Returns the example arguments of a traced object, or None."""
    found = getattr(obj, "__dict__", {}).get("_jit_example")
    return None if found is None else found[0]


def _graph_of(obj, **options):
    example = getattr(obj, "__dict__", {}).get("_jit_example")
    if example is None:
        raise NotImplementedError(f"{type(obj).__name__} was not traced: TorchScript is not compiled here, so there is no graph of it and "
                                  "torch.jit.save is not supported; use torch.jit.trace(module, example_inputs)")
    return _graph.capture(obj.fn if isinstance(obj, ScriptFunction) else obj, *example, **options)


# ------------------------------------------------------------------ files
def _plan(result, count):
    """Returns the structure of a result as JSON, with tensors replaced by output indices."""
    if isinstance(result, Value):
        return {"tensor": next(count)}
    if isinstance(result, dict):
        return {"dict": [[k, _plan(v, count)] for k, v in result.items()]}
    if isinstance(result, (tuple, list)):
        return {"list" if isinstance(result, list) else "tuple": [_plan(v, count) for v in result]}
    if result is None or isinstance(result, (bool, int, float, str)):
        return {"value": result}
    raise NotImplementedError(f"torch.jit.save: unsupported object of type {type(result).__name__} in the module's result")


def _unplan(plan, outs):
    (kind, x), = plan.items()
    if kind == "tensor":
        return outs[x]
    if kind == "dict":
        return {k: _unplan(v, outs) for k, v in x}
    if kind == "value":
        return x
    items = [_unplan(v, outs) for v in x]
    return items if kind == "list" else tuple(items)


def save(m, f, _extra_files=None):
    """Saves a traced module or function: its graph as MindIR, with its weights.

    `f` is a path or a file object. As with tracing in PyTorch, the file contains the computation
    for the example inputs: in the current training mode, with the branches that were taken. The
    batch size (axis 0 of all inputs) stays dynamic where the computation allows it; other sizes are
    fixed.

    NotImplementedError for an object that was not traced, or with the name of an op that has no
    lowering.
    """
    _deprecated("save", "switch to `torch.export`")
    _write(m, f, _extra_files)


def _write(m, f, _extra_files=None):
    graph, free, blob = _saved_graph(m)
    inputs = _inputs(graph)
    description = {
        "format": _FORMAT, "version": _VERSION, "name": getattr(m, "original_name", None) or getattr(m, "__name__", "function"),
        "inputs": [{"name": v.name, "shape": s, "dtype": d} for v, (s, d) in zip(graph.inputs, inputs)],
        "result": _plan(graph.result, iter(range(len(graph.outputs)))), "outputs": [v.dtype for v in graph.outputs],
        "parameters": [{"name": p.name, "trainable": is_tensor(p.tensor, Parameter)} for p in graph.parameters],
        "training": bool(getattr(m, "training", False)), "free": free,
    }
    with zipfile.ZipFile(f if hasattr(f, "write") else os.fspath(f), "w") as z:
        z.writestr("mindtorch.json", json.dumps(description, indent=1))
        z.writestr("model.mindir", blob)
        for name, text in (_extra_files or {}).items():
            z.writestr("extra/" + name, text)


def _inputs(graph):
    return [([None if not isinstance(n, int) else n for n in v.shape], v.dtype) for v in graph.inputs]


def _mindir(m, **options):
    """Returns (graph, MindIR bytes)."""
    graph = _graph_of(m, **options)
    if graph.mutations:
        raise NotImplementedError(f"torch.jit.save: in training mode the module modifies {', '.join(graph.mutations[:3])}, which a MindIR "
                                  "graph cannot do; call eval() first")
    return graph, save_mindir(_graph.graph_cell(graph, type(m).__name__ if isinstance(m, Module) else "Traced"), _inputs(graph))


def _saved_graph(m):
    """Returns (graph, whether the batch size is dynamic, MindIR bytes)."""
    example = getattr(m, "__dict__", {}).get("_jit_example")
    if example is not None:
        flat = _graph.tensors_in(example)
        if flat and all(t.ndim for t in flat) and len({t.shape[0] for t in flat}) == 1:
            try:
                graph, blob = _mindir(m, dynamic={i: {0: "batch"} for i in range(len(flat))})
                return graph, True, blob
            except (NotImplementedError, RuntimeError, ValueError, TypeError, AssertionError):
                # the computation depends on the batch size; any other error is raised again by the
                # next line
                pass
    graph, blob = _mindir(m)
    return graph, False, blob


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    """Loads a module from a file that `save` wrote.

    It computes without gradients and has the weights under their original names.
    NotImplementedError for TorchScript files, RuntimeError for other files.
    """
    _deprecated("load", "switch to `torch.export`")
    source = f if hasattr(f, "read") else os.fspath(f)
    if isinstance(source, str) and not os.path.exists(source):
        raise ValueError(f"The provided filename {source} does not exist")
    if hasattr(f, "read"):
        source = io.BytesIO(f.read())
    if not zipfile.is_zipfile(source):
        raise RuntimeError("torch.jit.load: not a file written by torch.jit.save")
    with zipfile.ZipFile(source) as z:
        names = z.namelist()
        if "mindtorch.json" not in names:
            raise NotImplementedError("torch.jit.load: the TorchScript format is not supported; load the model's state_dict, or save the "
                                      "traced module again with mindtorch")
        description = json.loads(z.read("mindtorch.json"))
        if description.get("format") != _FORMAT or description.get("version") != _VERSION:
            raise RuntimeError(f"torch.jit.load: unsupported file version {description.get('version')}, this mindtorch reads version {_VERSION}")
        blob = z.read("model.mindir")
        for name in _extra_files or ():
            if "extra/" + name in names:
                _extra_files[name] = z.read("extra/" + name)
    return _Loaded(description, blob)


class _Loaded(RecursiveScriptModule):
    """A module whose forward is a MindIR graph."""

    def __init__(self, description, blob):
        super().__init__()
        self.__dict__.update(_about=description, _cell=load_mindir(blob), _seen=None)
        native = {p.name: p for p in self._cell.get_parameters()}
        self.__dict__["_native"] = {}
        for p in description["parameters"]:
            if p["name"] not in native:
                continue
            value = wrap_array(native[p["name"]].asnumpy().copy())
            *path, last = p["name"].split(".")
            holder = self
            for part in path:
                if part not in holder._modules:
                    holder.add_module(part, Module())
                holder = holder._modules[part]
            if p["trainable"]:
                holder.register_parameter(last, Parameter(value, requires_grad=value._np_dtype.kind == "f"))
            else:
                holder.register_buffer(last, value)
            self._native[p["name"]] = native[p["name"]]
        self.train(description["training"])

    @property
    def original_name(self):
        return self._about["name"]

    def _current(self):
        """Copies the current weights to the graph if they have changed."""
        state = self.state_dict()
        seen = tuple(t._version for t in state.values())
        if seen != self._seen:
            if self._seen is not None:
                for name, p in self._native.items():
                    p.set_data(type(p)(np.ascontiguousarray(to_host(state[name])), name=name))
            self.__dict__["_seen"] = seen

    def forward(self, *args, **kwargs):
        about = self._about
        tensors = _graph.tensors_in((args, kwargs))
        if len(tensors) != len(about["inputs"]):
            raise RuntimeError(f"forward() takes {len(about['inputs'])} tensors ({', '.join(i['name'] for i in about['inputs'])}), got "
                               f"{len(tensors)}")
        for t, i in zip(tensors, about["inputs"]):
            if t.ndim != len(i["shape"]) or any(n is not None and n != m for n, m in zip(i["shape"], t.shape)):
                raise NotImplementedError(f"the saved graph requires {i['name']} of shape {i['shape']}, got {list(t.shape)}")
            if str(t.dtype) != f"torch.{i['dtype']}":
                raise RuntimeError(f"the saved graph requires {i['name']} of dtype torch.{i['dtype']}, got {t.dtype}")
            if t.requires_grad and is_grad_enabled():
                raise NotImplementedError("gradients through a module from torch.jit.load are not supported: its graph is MindIR, which has "
                                          "no backward; use torch.no_grad(), or build the model and load the state_dict")
        self._current()
        outs = self._cell(*tensors)
        outs = outs if isinstance(outs, (tuple, list)) else (outs,)
        return _unplan(about["result"], [wrap_array(np.array(o.asnumpy())) for o in outs])
