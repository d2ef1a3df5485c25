"""Graphs of modules and functions, the basis of ms.export, torch.onnx.export and torch.jit.save.

    graph = capture(model, (x,))     # runs the model once under no_grad
    graph.run(x)                     # same result, with the facade's ops and current parameters
    cell = graph_cell(graph)         # a MindSpore Cell of native ops (for ms.jit, ms.export)

docs/export.md describes the components.
"""
import contextlib
import copy
import importlib.util
import inspect

import numpy as np

from mindtorch.backend.errors import SpecializationError, TraceError
from mindtorch.backend.mindspore import checkpoint as _checkpoint
from mindtorch.backend.graph import flat_tensors, leaves, rebuilt, unify_traces
from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.core.tensor.tensor import adopt, wrap_array, is_tensor
from mindtorch.core.compile.tracing import is_tracing, trace
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.random import fork_rng

__all__ = ["capture", "graph_cell", "is_tracing", "SpecializationError", "TraceError"]


# ------------------------------------------------------------------ inputs
def _leaves(x, path):
    """Returns [(name, tensor)] of nested arguments."""
    if is_tensor(x):
        return [(path, x)]
    if isinstance(x, (tuple, list)):
        return [p for i, v in enumerate(x) for p in _leaves(v, f"{path}_{i}")]
    if isinstance(x, dict):
        return [p for k, v in x.items() for p in _leaves(v, f"{path}_{k}")]
    return []


def _refill(x, tensors):
    """Returns nested arguments with the tensors replaced in order."""
    return rebuilt(x, lambda v: next(tensors) if is_tensor(v) else v)


def _named(fn, args, kwargs):
    """Returns [(name, tensor)] of the arguments, named after fn's parameters."""
    target = fn.forward if isinstance(fn, Module) else getattr(fn, "construct", fn)
    try:
        given = inspect.signature(target).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {**{f"input_{i}": a for i, a in enumerate(args)}, **kwargs}
    found = []
    for name, v in given.items():
        found += _leaves(v, name)
    return [(n, t) for n, t in found]


def _names(fn):
    """Returns {id(tensor): dotted name} of a module's parameters and buffers."""
    if isinstance(fn, Module):
        return {id(t): n for n, t in [*fn.named_buffers(), *fn.named_parameters()]}
    found = {}
    if hasattr(fn, "cells_and_names"):
        for path, c in fn.cells_and_names():
            if isinstance(c, Module):
                for n, t in [*c.named_buffers(), *c.named_parameters()]:
                    found.setdefault(id(t), f"{path}.{n}" if path else n)
    return found


@contextlib.contextmanager
def _unchanged(fn):
    """Context manager that restores buffers and the random generators' state: a trace has no side
    effects."""
    saved = [(b, b._array.copy()) for b in fn.buffers()] if isinstance(fn, Module) else []
    try:
        with fork_rng():
            yield
    finally:
        for b, a in saved:
            if b._sizes == a.shape and b._array.tobytes() != a.tobytes():
                b._array[...] = a


@contextlib.contextmanager
def evaluating(fn):
    """Context manager that puts every module of `fn` into evaluation mode and restores the modes on
    exit."""
    modules = list(fn.modules()) if isinstance(fn, Module) else [c for _, c in fn.cells_and_names() if isinstance(c, Module)] if hasattr(
        fn, "cells_and_names") else []
    before = [(m, m.training) for m in modules]
    for m in modules:
        m.training = False
    try:
        yield
    finally:
        for m, was in before:
            m.training = was


# ------------------------------------------------------------------ capture
def recordable(name):
    """True if an op is recorded as one node: the ops with an ONNX lowering, and all primitives."""
    from mindtorch.backend.export.lowering import has_lowering
    return has_lowering(name) or name.startswith("prim.")


def capture(fn, args=(), kwargs=None, *, leaf=recordable, dynamic=None, check=True, grad=False, escaped=None):
    """Returns the Graph of fn(*args, **kwargs). `fn` is a Module, a function, or a Cell around
    Modules.

        leaf      predicate of the ops that are recorded as one node (default: ops with an ONNX
                  lowering, and primitives)
        dynamic   {index of the input: {axis: name}}: the dynamic sizes. fn is run two more times
                  for each
        check     also runs the graph on other input values and compares with fn, so that nothing
                  that depends on values (a branch, item(), random numbers) has become a constant
        grad      record with gradients enabled (default: under no_grad)

    The inputs are the tensors among the arguments, in order. graph.result has the structure of fn's
    return value. Raises TraceError (a NotImplementedError) if an in-place write cannot be tracked,
    SpecializationError (likewise) if a dynamic size changes the computation, and
    RuntimeError if the graph does not hold for other values.
    """
    fn, args, kwargs = on_host(fn, args, kwargs)
    named = _named(fn, args, kwargs)
    inputs = [t for _, t in named]
    if len({id(t) for t in inputs}) != len(inputs):
        # A tensor that is passed twice is one input of fn, but two inputs of the graph.
        args, kwargs = _refill((tuple(args), kwargs), iter([wrap_array(t._array) for t in inputs]))
        inputs = [t for _, t in _named(fn, args, kwargs)]
    order = {id(t): i for i, t in enumerate(inputs)}

    def run(tensors):
        fill = iter(_in_order((tuple(args), kwargs), order, tensors))
        a, k = _refill((tuple(args), kwargs), fill)
        return fn(*a, **k)

    def once(tensors):
        return trace(fn, tensors, leaf=leaf, names=_names(fn), input_names=[n for n, _ in named], call=lambda _, xs: run(xs),
                     escaped=escaped)
    mode = contextlib.nullcontext() if grad else no_grad()
    with mode, _unchanged(fn):
        graph, _ = once(inputs)
        for i, axes in (dynamic or {}).items():
            for axis, name in (axes.items() if isinstance(axes, dict) else ((a, f"{named[i][0]}_{a}") for a in axes)):
                other, _ = once(_longer(inputs, dynamic, name, i, axis, 1))
                third, _ = once(_longer(inputs, dynamic, name, i, axis, inputs[i]._sizes[axis] + 5))
                for j, more in dynamic.items():
                    for b, other_name in (more.items() if isinstance(more, dict) else ()):
                        if (j, b) != (i, axis) and other_name == name and graph.inputs[j].shape[b] != graph.inputs[i].shape[axis]:
                            raise SpecializationError(f"the free size {name!r} is {graph.inputs[i].shape[axis]} in one input and "
                                                      f"{graph.inputs[j].shape[b]} in another")
                unify_traces(graph, other, i, axis, name)
                unify_traces(graph, third, i, axis, name, verify=True)
        graph.prune()
        if check:
            _hold(graph, run, inputs)
    return graph


def _in_order(nest, order, tensors):
    return [tensors[order[id(t)]] for t in tensors_in(nest)]


def tensors_in(x):
    """Returns the tensors of nested arguments, in order."""
    return [t for t in leaves(x) if is_tensor(t)]


def _longer(inputs, dynamic, name, i, axis, more):
    """Returns the inputs with the size called `name` enlarged by `more`, by repeating values."""
    out = []
    for j, t in enumerate(inputs):
        a = t._array
        axes = dynamic.get(j, {})
        for b in axes:
            if (axes[b] == name if isinstance(axes, dict) else (j, b) == (i, axis)):
                a = np.take(a, np.arange(a.shape[b] + more) % max(a.shape[b], 1), axis=b)
        out.append(wrap_array(np.ascontiguousarray(a)) if a is not t._array else t)
    return out


def _hold(graph, run, inputs):
    """Raises RuntimeError unless the graph matches `run` on the inputs with their elements
    reordered."""
    for n in graph.nodes:
        if n.opaque:
            return  # it cannot be run, and no lowering accepts it
    if any(not a.flags.c_contiguous and a.size > 1 for a in (t._array for t in inputs)):
        inputs = [wrap_array(np.ascontiguousarray(t._array)) for t in inputs]
    flipped = [np.ascontiguousarray(t._array.reshape(-1)[::-1].reshape(t._sizes)) for t in inputs]
    # Smaller values stay in their valid range. If values became Python scalars, the other sign is
    # tried too, because of branches.
    trials = [[a * a.dtype.type(0.75) if a.dtype.kind in "fc" else a for a in flipped]]
    if graph.escapes:
        trials.append([-a if a.dtype.kind in "fc" else a for a in flipped])
    for trial in trials:
        try:
            want = flat_tensors(_plain(run([wrap_array(a.copy()) for a in trial])))
        except Exception:
            continue  # the function does not accept such values
        got = flat_tensors(_plain(graph.run(*map(wrap_array, trial))))
        for i, (a, b) in enumerate(zip(got, want)):
            try:
                if a._sizes != b._sizes:
                    raise AssertionError(f"shape {list(a._sizes)}, not {list(b._sizes)}")
                x = to_host(a)
                _close(x.astype(np.float32) if a._np_dtype.kind == "V" else x, to_host(b), "the graph")
            except AssertionError as e:
                why = f"values became Python numbers ({', '.join(sorted(set(graph.escapes)))})" if graph.escapes else \
                    "it draws random numbers, branches on values, or computes outside of torch's ops"
                raise RuntimeError(f"the graph of this function does not hold for other inputs: output {i} differs ({e}). Probably "
                                   f"{why}") from None


def _plain(x):
    """Converts mapping types and dataclasses of a result to dicts."""
    if isinstance(x, dict):
        return dict(x)
    return x


def on_host(fn, args, kwargs=None):
    """Returns (fn, args, kwargs) with everything in host memory, where the constants of an exported
    graph must be. A Module on a device is copied."""
    if isinstance(fn, Module) and any([t._handle is not None for t in (*fn.parameters(), *fn.buffers())]):
        fn = copy.deepcopy(fn).cpu()
    nest = (tuple(args), kwargs or {})
    found = tensors_in(nest)
    if any([t._handle is not None for t in found]):
        nest = _refill(nest, iter([t.resolve_conj().resolve_neg().cpu() for t in found]))
    return fn, *nest


def graph_cell(graph, class_name="Traced", old=False):
    """Returns a MindSpore Cell that computes a graph; see torch/_mindir.py. (The export modules are
    imported on first use.)"""
    from mindtorch.torch import _mindir
    return _mindir.graph_cell(graph, class_name, old)


def _close(*values):
    from mindtorch.backend.export.lowering import close
    close(*values)


# ------------------------------------------------------------------ mindspore.export
def export_cell(net, inputs, file_format):
    """Returns what mindspore.export writes for a Module (or a Cell around Modules) in evaluation
    mode, for these inputs.

    This is a Cell of MindSpore primitives. For "ONNX" it is the content of the file, if the package
    onnx is installed to write it.
    """
    xs = []
    dynamic = {}
    for i, x in enumerate(inputs):
        shape = tuple(x.shape)
        if any(n is None or n < 0 for n in shape):
            dynamic[i] = {a: f"axis {a} of input {i}" for a, n in enumerate(shape) if n is None or n < 0}
            example = wrap_array(np.zeros([2 if n is None or n < 0 else n for n in shape], _checkpoint.numpy_dtype(x)))
            if example._np_dtype.kind == "f":
                example._array[...] = np.linspace(-1, 1, example._numel).reshape(example._sizes)
            xs.append(example)
        else:
            xs.append(x if is_tensor(x) else adopt(x.copy()) if hasattr(x, "asnumpy") else x)
    with evaluating(net):
        graph = capture(net, tuple(xs), dynamic=dynamic)
    if file_format == "ONNX" and importlib.util.find_spec("onnx") is not None:
        from mindtorch.backend.export.lowering import to_model
        return to_model(graph, 17).SerializeToString()
    return graph_cell(graph, type(net).__name__, file_format == "ONNX")


