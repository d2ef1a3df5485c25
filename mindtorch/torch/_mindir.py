"""Converts a traced graph to a Cell of MindSpore primitives: the ops run once on the kernels of the
npu device, and the kernel calls are recorded.

On machines without an NPU these are the kernels of MindSpore's CPU target. The result of every op
and the output of the Cell are compared with what the facade computed. A Cell that computes
something else is never returned.
"""
import contextlib

import numpy as np

from mindtorch.backend.errors import GraphBreak, SpecializationError
from mindtorch.backend.export.lowering import close
from mindtorch.backend.graph import Sym, flat_tensors
from mindtorch.backend.mindspore.graph.export import MindIRRecorder, RecordedGraph, eagerly, mindir_device
from mindtorch.backend.mindspore.graph.symint import SymInt, array_of, tensor_of
from mindtorch.core.device import device as _device, device_dispatch, device_state
from mindtorch.core.compile import replay
from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.core.tensor.tensor import wrap_array

#: sizes used for dynamic dimensions in recordings
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


@contextlib.contextmanager
def _device_for_recordings():
    if replay.current.session is not None:
        raise NotImplementedError("export to MindIR is not possible inside a compiled function, where the device's kernels are deferred: export outside of it")
    device = mindir_device(device_dispatch.DEVICES.get("npu"))
    device.notes, policy = None, device_dispatch.fallback.policy
    with device_state.DEVICE_LOCK, no_grad(), eagerly():
        device_dispatch.register(device)
        device_dispatch.fallback.policy = "error"
        try:
            yield device, _device.check(device.type)
        finally:
            device_dispatch.fallback.policy = policy
            device_dispatch.unregister(device)
            del device.notes  # this releases all tensors of the last recording


def graph_cell(graph, class_name="Traced", old=False):
    """Returns a MindSpore Cell that computes the graph, with the graph's inputs in order. Its
    output is a tensor or a tuple of tensors.

    Parameters have their torch names. old: use primitives that MindSpore's ONNX writer supports,
    where available. NotImplementedError with the op's name if an op cannot be expressed in
    MindSpore's primitives, SpecializationError (likewise) if that fails for some dynamic size,
    AssertionError if a result differs from the facade's.
    """
    if not graph.outputs:
        raise NotImplementedError("export to MindIR: the function returns no tensor")
    free = _free(graph)
    with _device_for_recordings() as (device, dev):
        examples = [v.array for v in graph.inputs]
        mismatch = ""
        if free:
            sheets = []
            for large in (None, *free):
                inputs = _of_sizes(graph, {name: t[1 if name == large else 0] for name, (_, _, t) in free.items()})
                sheets.append(_recorded(graph, device, dev, inputs, False, old)[1])
                sheets[-1].run(inputs)
                sheets[-1].lean(inputs)
            sheet = sheets[0]
            sheet.merged(sheets[1:], [(SymInt(f"n{k}", f"size {axis} of input {graph.inputs[i].name!r}", *t[:2]), i, axis)
                                      for k, (i, axis, t) in enumerate(free.values())])
        else:
            mismatch, sheet = _recorded(graph, device, dev, examples, True, old)
            sheet.lean(examples)
        cell = sheet.cell(class_name)
        try:
            _compare(cell, examples, [np.asarray(v.array) for v in graph.outputs])
        except AssertionError as e:
            raise AssertionError(mismatch or str(e)) from e
    for k in (2, 3) if free else ():
        _holds(graph, cell, {name: t[k] for name, (_, _, t) in free.items()})
    return cell


def _holds(graph, cell, sizes):
    """Raises SpecializationError unless the Cell matches the graph for these dynamic sizes."""
    inputs = _of_sizes(graph, sizes)
    with no_grad(), eagerly():
        try:
            want = [t._array for t in flat_tensors(graph.run(*map(wrap_array, inputs)))]
        except Exception:
            return  # the size is not valid
        try:
            _compare(cell, inputs, want)
        except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as e:
            raise SpecializationError(f"export to MindIR: the computation differs if {', '.join(f'{k} is {n}' for k, n in sizes.items())}: {e}") from e


def _free(graph):
    """Returns {name of a dynamic size: (input, axis, its sizes in the two recordings and in two
    more runs)}."""
    # Avoids sizes that occur elsewhere, because an accidental equality would be recorded as one,
    # and 1, because it broadcasts.
    others = {n for node in graph.nodes for v in (*node.outputs, *node.values) for n in v.shape if isinstance(n, int)}
    good = iter([n for n in _PRIMES if n not in others] + [n for n in _PRIMES if n in others])
    found = {}
    for i, v in enumerate(graph.inputs):
        for axis, n in enumerate(v.shape):
            if isinstance(n, Sym) and n.name not in found:
                found[n.name] = i, axis, (next(good), next(good), 3 + len(found), 1)
    return found


def _of_sizes(graph, sizes):
    """Returns inputs with these dynamic sizes, by repeating the example's values."""
    out = []
    for v in graph.inputs:
        a = np.asarray(v.array)
        for axis, n in enumerate(v.shape):
            if isinstance(n, Sym):
                a = np.take(a, np.arange(sizes[n.name]) % max(a.shape[axis], 1), axis)
        out.append(np.ascontiguousarray(a) if a.ndim else a)
    return out


def _compare(cell, inputs, outputs):
    got = cell.construct(*map(tensor_of, inputs))
    for i, (t, a) in enumerate(zip(got if isinstance(got, tuple) else (got,), outputs, strict=True)):
        if tuple(t.shape) != a.shape:
            raise AssertionError(f"output {i} of the Cell has shape {list(t.shape)}, not {list(a.shape)}")
        close(array_of(t), a, f"output {i} of the Cell")


def _recorded(graph, device, dev, inputs, check, old):
    """Records the graph for these inputs.

    check: also returns which op gave a result that differs from the graph's (singular vectors, for
    example, are not unique).
    """
    notes = device.notes = MindIRRecorder(device, old)
    env = {}

    def housed(array, put):
        h = device.arrived(array)
        put(h)
        return device_dispatch.tensor(dev, h)
    for v, a in zip(graph.inputs, inputs):
        env[v] = housed(a, notes.input)
    for v in graph.parameters:
        env[v] = housed(v.array, lambda h, v=v: notes.parameter(v.name, h))

    def get(v):
        t = env.get(v)
        if t is None:
            if v.kind != "constant":
                raise AssertionError(f"{v!r} has not been computed")
            t = env[v] = v.tensor if isinstance(v.tensor, np.ndarray) else device_dispatch.host_to_device(np.asarray(v.array), dev)
        return t

    def size(s):
        return s.scale * inputs[s.input].shape[s.axis] + s.offset
    mismatch = ""
    for n in graph.nodes:
        what = f"export to MindIR: the op {n.label} (dtype {n.outputs[0].dtype}, device cpu)"
        if n.opaque:
            raise NotImplementedError(f"{what} was not recorded")
        args, kwargs = n.call(get, size)
        if not n.values and kwargs.get("device", dev) is None:
            kwargs["device"] = dev
        try:
            with notes:
                out = n.func(*_there(args, dev), **_there(kwargs, dev))
            if notes.broken is not None:
                raise GraphBreak(notes.broken)
        except GraphBreak as e:
            raise NotImplementedError(f"{what} cannot be part of a graph: {e}") from None
        except NotImplementedError as e:
            raise NotImplementedError(f"{what} has no MindSpore kernel: {e}") from None
        for v, t in zip(n.outputs, flat_tensors(out), strict=True):
            if not mismatch and check:
                mismatch = _difference(device.seen(t._handle), np.asarray(v.array), f"what the kernels of {n.label} do")
            env[v] = t
    try:
        with notes:
            outputs = notes.ended([get(v)._handle for v in graph.outputs])
    except GraphBreak as e:
        raise NotImplementedError(f"export to MindIR: {e}") from None
    return mismatch, RecordedGraph(notes, outputs, [(v.array, bool(getattr(v.tensor, "requires_grad", False))) for v in graph.parameters])


def _difference(got, want, what):
    """Returns how a result differs from what the facade computed; "" if it does not."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{what} gives {got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
    try:
        close(got.astype(np.float32) if got.dtype.kind == "V" else got, want, what)
    except AssertionError as e:
        return str(e)
    return ""


def _there(x, dev):
    """Returns nested arguments with the recording device in place of the cpu."""
    if isinstance(x, _device.device) and x.type == "cpu" or x.__class__ is str and x == "cpu":
        return dev
    if type(x) in (tuple, list):
        return type(x)(_there(v, dev) for v in x)
    return {k: _there(v, dev) for k, v in x.items()} if type(x) is dict else x
