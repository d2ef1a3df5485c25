"""Records a call of a module as a graph, as it ran (`core/compile/tracing.py`). Dynamic sizes are found by
comparing traces, and side effects are undone."""
import contextlib

import numpy as np

from mindtorch.backend.graph import Node, leaves
from mindtorch.core.device import rng
from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.core.tensor.tensor import Tensor, is_tensor, wrap_array
from mindtorch.core.compile.tracing import AsRan, active, trace
from mindtorch.torch._dynamo._capture import _has_mask, _size_from_values
from mindtorch.torch._dynamo.exc import Unsupported, UserError
from mindtorch.torch.autograd.function import Function, recording
from mindtorch.torch.export._sizes import Free, assignments, mark
from mindtorch.torch.export.dynamic_shapes import Dim
from mindtorch.torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from mindtorch.torch.random import fork_rng

#: functions that PyTorch composes from others in Python: the tracer records their inner calls
COMPOSED = frozenset(["nn.functional.multi_head_attention_forward"])
_MAKERS = frozenset("tensor as_tensor asarray from_numpy".split())
_BRANCHES = frozenset("__bool__ is_nonzero __contains__ equal allclose".split())


class Recorder(AsRan):
    """Records calls as they are made. Raises NotImplementedError for ops whose result size depends
    on values."""

    def call(self, e, args, kwargs):
        if e.name not in _MAKERS or self.dynamic((args, kwargs)):
            return super().call(e, args, kwargs)
        # A tensor made from Python values in the code is a constant of the program, cloned at each
        # run.
        self.paused += 1
        try:
            out = e.original(*args, **kwargs)
            saved = out.detach().clone()
        finally:
            self.paused -= 1
        value = self.bind(saved, self.new(saved, "constant", dynamic=False, tensor=saved))
        self.finish(self.node("clone", Tensor.clone, (value,)), out)
        return out

    @staticmethod
    def refused(name, entry, args, kwargs):
        op = getattr(entry, "op", None)
        setting = None if op is None else op.capture
        index = len(args) > 1 and name.endswith(("getitem", "__getitem__")) and _has_mask(args[1])
        if index or setting is not None and _size_from_values(setting, args, kwargs):
            raise NotImplementedError(f"torch.export: the size of the result of {name} depends on values (an unbacked size in PyTorch), which exported "
                                      "programs do not support")


def equal_values(a, b):
    """True if all elements of two tensors are equal; NaN equals NaN."""
    same = a == b
    if a.is_floating_point() or a.is_complex():
        same = same | (a != a) & (b != b)
    return bool(same.all())


@contextlib.contextmanager
def undone(tensors):
    """Context manager: afterwards, restores the tensors that were modified in place and the state
    of the default generators."""
    with no_grad():
        saved = [(t, t._version, t.detach().clone()) for t in tensors]
    there = rng.device_states()
    try:
        with fork_rng():
            yield
    finally:
        rng.set_device_states(there)
        with no_grad():
            for t, version, was in saved:
                if t._version != version:
                    t.detach().copy_(was)


@contextlib.contextmanager
def _complete_functions():
    """Context manager: `autograd.Function.apply` is recorded as one call of the graph, with its own
    gradient."""
    apply = Function.__dict__["apply"].__func__

    def record(cls, args, kwargs):
        t = active.tracer
        if t is None or t.paused:
            return NotImplemented
        node = Node("function.apply", apply, (cls, *t.encode(args)), t.encode(kwargs), [])
        t.paused += 1
        try:
            out = apply(cls, *args, **kwargs)
        finally:
            t.paused -= 1
        t.finish(node, out)
        return out
    before, recording.record = recording.record, record
    try:
        yield
    finally:
        recording.record = before


def _escape(strict):
    def escaped(name):
        if strict and name in _BRANCHES:
            raise Unsupported(f"Data-dependent branching\n  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`): {name}() "
                              "of a tensor. Rewrite it with torch.where or torch.cond.")
        raise GuardOnDataDependentSymNode(
            f"Could not guard on data-dependent expression: {name}() converts a tensor to a Python value, which would be a constant of the "
            "program. Keep it a tensor (torch.where for branches).")
    return escaped


def record(call, inputs, names, wanted, strict):
    """Traces call(tensors). Returns (Graph, its result, {(input, axis): (name, Dim or hint)} of the
    dynamic dimensions, the `Free`s that its `Size`s refer to).

      inputs   tensors, each once
      names    {id of a tensor: name} of parameters and buffers
      wanted   {index of an input: {axis: Dim or hint}}: requested dynamic dimensions
    """
    def once(tensors):
        with _complete_functions():
            return trace(call, tensors, leaf=lambda name: name not in COMPOSED, names=names, call=lambda fn, xs: fn(xs), escaped=_escape(strict),
                         kind=Recorder)
    made = {}

    def sized(free, sizes):
        """Returns the trace for these sizes of the free dimensions. The base is traced again each
        time, because `mark` modifies it."""
        key = frozenset((p, n) for i, n in sizes.items() for p in free[i].places)
        if key not in made or not key:
            tensors = inputs
            for i, n in sizes.items():
                tensors = resized(tensors, free[i].places, n)
            made[key] = once(tensors)
        return made[key]
    graph, out = once(inputs)
    free, ends = [], {}
    for d, one in _dimensions(inputs, wanted):
        try:
            sizes = assignments([*free, one])
            found = [sized([*free, one], s) for s in sizes]
            if one.others:
                mark([g for g, _ in found], [*free, one], sizes)
        except (Unsupported, GuardOnDataDependentSymNode):
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as e:
            if getattr(d, "name", None) == "AUTO":
                continue
            raise UserError(f"Constraints violated ({one.name})!\n  - You marked {one.name} as dynamic but your code specialized it to be a constant "
                            f"({one.base}). ({e})\nSuggested fixes:\n  {one.name} = {one.base}") from e
        graph, out = found[0]
        if one.others:
            free.append(one)
        ends.update(dict.fromkeys(one.places, (one.name, d)))
    if ends and wanted:
        sizes = assignments(free)  # the last attempt may have failed
        found = [sized(free, s) for s in sizes]
        mark([g for g, _ in found], free, sizes)
        graph, out = found[0]
    return graph, out, ends, free


def _dimensions(inputs, wanted):
    """Yields (Dim or hint, `Free`) of the requested dynamic dimensions."""
    done = set()
    for i, axes in wanted.items():
        for axis, d in axes.items():
            named = isinstance(d, Dim)
            name = d.__name__ if named else f"s{i}_{axis}"
            if name in done:
                continue
            done.add(name)
            places = [(j, b) for j, more in wanted.items() for b, e in more.items() if isinstance(e, Dim) and e.__name__ == name] if named else [(i, axis)]
            n = inputs[i].shape[axis]
            if any(inputs[j].shape[b] != n for j, b in places):
                raise UserError(f"Constraints violated ({name})! The size is not the same in all inputs: {[inputs[j].shape[b] for j, b in places]}")
            others = _others(n, d)
            yield d, Free(name, places, n, others if len(others) == 2 else [])


def _others(n, d):
    """Returns up to two other sizes that the dimension may have."""
    low, high = d.min or 1, d.max
    found = [m for m in (n + 1, n + 6, n + 2, n - 1, n - 2, n + 3) if m >= max(low, 1) and (high is None or m <= high) and m != n]
    return found[:2]


def resized(inputs, axes, size):
    """Returns the inputs with another size at these (input, axis) pairs. Values are repeated
    cyclically."""
    out = list(inputs)
    for j, axis in axes:
        t = out[j]
        index = wrap_array(np.arange(size) % max(t.shape[axis], 1))
        with no_grad():
            r = t.detach().index_select(axis, index if t._handle is None else index.to(t.device))
        out[j] = r.requires_grad_(t.requires_grad) if r.is_floating_point() else r
    return out


def tensors_in(x):
    """Returns the tensors in nested values."""
    return [t for t in leaves(x) if is_tensor(t)]

