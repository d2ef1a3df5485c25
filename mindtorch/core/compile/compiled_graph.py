"""Compiled calls for torch.compile: a program of host kernels, and one autograd node.

The program covers forward and backward. `JointGraphCapture` runs a function once on tensors of a
device that records its kernels (backend/host_inductor/). It also runs the backward pass, with the
usual autograd graph and engine, as AOTAutograd does for its joint forward-backward graph. The
recorded events become two functions over arrays. `CompiledFunction.run` calls the first one, the
backward of its node the second. The kernels and their order are the same as before, but no tensors,
autograd or dispatcher run between them.

A program must not drop effects that it cannot contain. Hooks inside it, user-defined Functions,
reads of values, and results that share memory with inputs raise `GraphBreak`. Saved tensors are
checked by their version counters. The call is re-executed on the autograd graph (`again`) if the
backward pass is itself recorded, or if the results with gradients are not the expected ones.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.errors import GraphBreak, ShapeMismatch
from mindtorch.backend.cpython import module_lock
from mindtorch.backend.host_inductor.codegen import CodeWriter, check_writes
from mindtorch.backend.host_inductor.fusion import Fusion, recomputed, sums
from mindtorch.backend.host_inductor.recording_device import Event, RecordingDevice, Value
from mindtorch.backend.interface import Array
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import STRIDED
from mindtorch.core.dispatch import autocast, deterministic, dispatcher
from mindtorch.core.device import device as _device, device_dispatch, device_state
from mindtorch.core.tensor import dtypes
from mindtorch.core.autograd import engine, graph as autograd_graph
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.device.rng import default_generator
from mindtorch.core.dispatch.primitives import HOST, PRIMITIVES, Primitive
from mindtorch.core.tensor.sparse import SparseTensor, sparse_of
from mindtorch.core.tensor.tensor import Tensor, attributes, bump_version, on_device, version_counter, wrap_array

RECORDED = _device.recorded
#: Maximum size in bytes of inputs and results for which a program is validated once against the
#: recording.
MOST = 1 << 26
_one_at_a_time = module_lock(globals(), "_one_at_a_time", threading.RLock)


# ------------------------------------------------------------------ context
class _Surroundings:
    """The context that ops depend on: autocast, default dtype and default device.

    A program is valid for one context and does not contain it.
    """

    __slots__ = ("regions", "dtype", "device")

    def __init__(self) -> None:
        self.regions = autocast.state.to, autocast.state.there
        self.dtype, self.device = dtypes.get_default_dtype(), _device.get_default()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        now = _Surroundings()
        self._set(now)
        try:
            yield
        finally:
            now._set(self)

    def _set(self, before):
        autocast.switch(self.regions)
        if self.dtype is not before.dtype:
            dtypes.set_default_dtype(self.dtype)
        if self.device != before.device:
            _device.set_default(self.device)


# ------------------------------------------------------------------ recording
def _way(name):
    found = PRIMITIVES.get(name)
    return (None, True, True) if found is None else (found.prim.compute, found.prim.raw or found.prim.view, found.prim.elementwise or name in TABLES["meta"])


@contextlib.contextmanager
def _recording() -> Iterator[RecordingDevice]:
    device, kind = RecordingDevice(_way, _device.cpu), RECORDED.type
    within, before = device_dispatch.WITHIN, (device_dispatch.WITHIN.on, device_dispatch.WITHIN.there)
    with _one_at_a_time, device_state.DEVICE_LOCK:
        TABLES[kind] = {name: device.kernel(name, fn) for name, fn in HOST.items() if name != "to_device"}
        device_dispatch.KERNEL_CACHE[kind] = {}
        _device.registered[kind] = device
        dispatcher.enable_layer("primitives", "device")
        within.on, within.there = True, RECORDED
        try:
            yield device
        finally:
            within.on, within.there = before
            dispatcher.disable_layer("primitives", "device")
            del _device.registered[kind], device_dispatch.KERNEL_CACHE[kind], TABLES[kind]


def _plain_nodes(outs):
    """Raises GraphBreak unless every node above the results is a primitive's and has no hooks."""
    seen, stack = set(), [t._grad_fn_ for t in outs if t._grad_fn_ is not None]
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if not isinstance(n._prim, Primitive):
            raise GraphBreak(f"the backward pass runs {n.name()}, which is not a primitive op")
        if n._tensor_hooks or n._pre_hooks or n._post_hooks or n._retains_grad:
            raise GraphBreak("it contains hooks on gradients")
        for e in n._next_edges:
            if e.__class__ is tuple:
                stack.append(e[0])


def is_unobserved() -> bool:
    """True if nothing active observes or changes single ops."""
    return dispatcher.is_unobserved() and not deterministic.MODE.on


def is_supported(t: Any) -> bool:
    """True if a tensor can be represented on the recording device."""
    return t._handle is None and t._device.type == "cpu" and t._array.__class__ is np.ndarray and t._fw_grad is None and type(t).__name__ in ("Tensor",
                                                                                                                                              "Parameter")


class JointGraphCapture:
    """One recorded run of a function: events, input and result arrays, results with gradients."""

    def __init__(self, run: Callable[..., Sequence[Any]], tensors: Sequence[Tensor], copied: Sequence[int], present: tuple[bool, ...] | None) -> None:
        #: The input arrays as they were, and the state of the generator at that time.
        self.before: list[Array] = []
        self.state = state = default_generator._dump_state()
        self.surroundings = _Surroundings()
        on = mode.on
        try:
            with _recording() as device:
                self._run(device, run, tensors, set(copied), present, on)
        finally:
            mode.on = on
            self.drew = not np.array_equal(state, default_generator._dump_state())
            default_generator._load_state(state)
        check_writes(self.events)

    def _run(self, device, run, tensors, copied, present, on):
        proxies: list[Tensor] = []
        known: dict[int, Tensor] = {}
        for i, t in enumerate(tensors):
            s = known.get(id(t))
            if s is None:
                a = t._array.copy("K") if i in copied else t._array
                self.before.append(a.copy("K") if i in copied else a)
                if a.strides != t._array.strides:
                    raise GraphBreak("it writes to a tensor whose memory is not dense")
                h = device.give(a)
                s = known[id(t)] = on_device(RECORDED, h, device.meta_array(h))
                s._requires_grad_ = t._requires_grad_
            proxies.append(s)
        self.given: list[Value] = [s._handle.value for s in known.values()]
        #: For each tensor, the index of its input array.
        self.input_indices = [list(known).index(id(t)) for t in tensors]
        outs = run(*proxies)
        self.split = len(device.events)
        self.written = [i for i, s in enumerate(proxies) if s._version]
        if any([s._grad_fn_ is not None or s._requires_grad_ is not t._requires_grad_ for s, t in zip(proxies, tensors)]):
            raise GraphBreak("it changes the autograd history of an argument")
        # ---- results
        self.outs: list[Any] = []  # index of the tensor if it is an input, else the Value
        homes = {v.home for v in self.given} | {e.outs[0].home for e in device.events if e.kind == "constant"}
        #: Arrays of the results, followed by those of the gradients.
        self.values: list[Any] = []
        for o in outs:
            if o._handle is None or o._device is not RECORDED:
                raise GraphBreak("a result was not computed by recorded kernels")
            i = next((i for i, s in enumerate(proxies) if s is o), None)
            if i is None:
                home = o._handle.value.home
                if home in homes:
                    raise GraphBreak("a result shares memory with an input or another result")
                homes.add(home)
                self.values.append(o._handle.array)
            self.outs.append(o._handle.value if i is None else i)
        # ---- gradients
        wanting = [k for k, o in enumerate(outs) if self.outs[k].__class__ is Value and o._requires_grad_]
        #: Indices of the tensors that get gradients.
        self.leaves = [i for i, s in enumerate(proxies) if s._requires_grad_ and self.input_indices.index(self.input_indices[i]) == i] if wanting else []
        self.wanting = wanting if self.leaves else []
        self.present = present if present is not None else (True,) * len(self.wanting)
        self.grads: list[Value] = []
        self.given_gradients: list[Array] = []
        self.results: list[Value | None] = []
        #: For a sparse gradient, which takes two results (indices and values): (size, True if the
        #: indices are unique, True if it is the gradient of a lookup). Else None.
        self.sparse: list[tuple[Any, bool, bool] | None] = []
        versions = [s._version for s in proxies]
        if self.wanting:
            _plain_nodes(outs)
            rng, roots, gs = np.random.RandomState(0), [], []
            for k, there in zip(self.wanting, self.present):
                if there:
                    a = outs[k]._handle.array
                    g = np.empty(a.shape, a.dtype) if a.dtype.kind == "V" else None
                    if g is None:
                        g = rng.standard_normal(a.shape).astype(a.dtype)
                    else:
                        g[...] = rng.standard_normal(a.shape).astype(np.float32)
                    h = device.give(g)
                    self.grads.append(h.value)
                    self.given_gradients.append(g)
                    roots.append(outs[k])
                    gs.append(on_device(RECORDED, h, device.meta_array(h)))
            found = engine.run_backward(roots, gs, False, False, [proxies[i] for i in self.leaves], True)
            for g in found or ():
                sparse = isinstance(g, SparseTensor)
                self.sparse.append((g._sp_size, g._coo_unique, g._lookup) if sparse else None)
                for part in (g._coo_idx, g._sp_values) if sparse else (g,):
                    if part is not None and (getattr(part, "_handle", None) is None or part._device is not RECORDED):
                        raise GraphBreak("a gradient was not computed by recorded kernels")
                    self.results.append(None if part is None else part._handle.value)
                    self.values.append(None if part is None else part._handle.array)
            if [s._version for s in proxies] != versions:
                raise GraphBreak("its backward pass modifies an input")
        self.events: list[Event] = device.events
        self.count = device.places


# ------------------------------------------------------------------ running
class CompiledFunctionBackward(autograd_graph.Node):
    """Backward pass of a compiled call."""

    __slots__ = ("joint",)
    joint: CompiledFunction

    def _apply(self, gs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return self.joint.backward_of(self, gs)


CompiledFunctionBackward.__module__ = "torch.autograd.functions"


class CompiledFunction:
    """Program of a recording.

        run      the recorded function: computes the results on the autograd graph
        again    again(run, inputs, gs): gradients of run(*inputs), themselves differentiable
    """

    def __init__(self, recording: JointGraphCapture, run: Callable[..., Sequence[Any]], differentiate: Callable[..., Sequence[Tensor | None]]) -> None:
        r = recording
        self.run_plainly, self.differentiate, self.input_indices, self.surroundings = run, differentiate, recording.input_indices, recording.surroundings
        self.given = [r.input_indices.index(j) for j in range(len(r.given))]
        self.outs: list[Any] = [o if o.__class__ is int else None for o in r.outs]
        self.written, self.drew = r.written, r.drew
        self.leaves, self.wanting, self.present = r.leaves, r.wanting, r.present
        self.unusual_strides, self.sparse, self.broken = STRIDED.unusual_strides, r.sparse, False
        self.unsure = not all([e.sure for e in r.events[:r.split]])
        #: Which results had a gradient in the last backward pass that differed from the recorded
        #: one.
        self.other: tuple[bool, ...] | None = None
        made = [o for o in r.outs if o.__class__ is not int]
        self.made = len(made)
        before, after = r.events[:r.split], r.events[r.split:]
        before, after, saved, results, self.fused = _fused(r, before, after, made)
        writer = CodeWriter()
        self.forward, self.source = writer.function("forward", before, r.given, [*made, *saved])
        self.backward: Callable[..., Any] | None = None
        homes = {v.home for v in saved}
        #: Input tensors, and results, whose memory the backward pass reads.
        self.reads = [i for i in self.given if r.given[r.input_indices[i]].home in homes]
        self.keeps = [k for k, o in enumerate(r.outs) if o.__class__ is not int and o.home in homes]
        if r.wanting:
            self.backward, text = writer.function("backward", after, [*saved, *r.grads], results, row=True)
            self.source += "\n" + text
            self.shapes = [(v.strides, v.plain) for v in r.grads]
            fresh = [v.home for v in results if v is not None]
            others = {v.home for v in (*saved, *r.grads)}
            #: Gradients whose memory may be shared.
            self.passed = [v is not None and (v.home in others or fresh.count(v.home) > 1) for v in results]
        self._try(r)
        self.meta = tuple([None if k not in r.wanting else (o.shape, o.dtype) for k, o in enumerate(r.outs)])

    def _try(self, r):
        """Runs the program once on the recorded inputs; raises GraphBreak if the results differ."""
        if sum([a.nbytes for a in (*r.before, *r.values) if a is not None]) > MOST:
            return
        now = default_generator._dump_state()
        default_generator._load_state(r.state)
        try:
            row = self.forward(*r.before)
            found = list(row[:self.made])
            if self.backward is not None:
                found += self.backward([*row[self.made:], *r.given_gradients])
        finally:
            default_generator._load_state(now)
        for a, b in zip(found, r.values, strict=True):
            if (a is None) is not (b is None) or a is not None and not _same(a, b, self.fused):
                raise GraphBreak("the program's results differ from the recorded ones")

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """True if the program can be run on these tensors (of the recorded geometry) now."""
        if STRIDED.unusual_strides is not self.unusual_strides or not is_unobserved():
            return False
        for i in self.written:
            t = tensors[i]
            if not t._array.flags.writeable or t._base is not None or t._views:
                return False
        return True

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns the results for these tensors."""
        state: dict[str, Any] | None = None
        records = self.backward is not None and mode.on
        if records or self.unsure:
            # Needed to re-execute the call: the generator state, and the old values of the modified
            # inputs.
            state = {"state": default_generator._dump_state() if self.drew else None, "before": [(i, tensors[i]._array.copy("K")) for i in self.written]}
        try:
            row = self.forward(*[tensors[i]._array for i in self.given])
        except ShapeMismatch:
            assert state is not None
            for i, a in state["before"]:
                tensors[i]._array[...] = a
            if self.drew:
                default_generator._load_state(state["state"])
            raise
        for i in self.written:
            bump_version(tensors[i])
        outs: list[Tensor] = []
        k = 0
        for o in self.outs:
            if o is None:
                outs.append(wrap_array(row[k]))
                k += 1
            else:
                outs.append(tensors[o])
        if records:
            self._record(tensors, outs, list(row[self.made:]), state)
        return outs

    def _record(self, tensors, outs, saved, state):
        node: Any = autograd_graph.new_node(CompiledFunctionBackward)
        node._prim, node.joint, node._input_metadata = None, self, self.meta
        node._next_edges = [autograd_graph.edge_to(tensors[i]) for i in self.leaves]
        for k in self.wanting:
            t = outs[k]
            t._grad_fn_, t._output_nr, t._requires_grad_ = node, k, True
        state["saved"], state["inputs"] = saved, [(t, version_counter(t), version_counter(t).v) for t in tensors]
        state["outputs"] = [autograd_graph._Out(outs[k], k) for k in self.keeps]
        node._saved = state

    def backward_of(self, node: Any, gs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """Returns the gradients of `leaves`."""
        if node._saved is None:
            _ = node.saved  # raises the error about freed saved tensors
        wanted = [gs[k] for k in self.wanting]
        present = tuple([g is not None for g in wanted])
        inputs = node._saved["inputs"]
        for i in self.reads:
            _check(node, inputs[i])
        for s in node._saved["outputs"]:
            if s.ver.v != s.at:
                raise autograd_graph._stale(s, node, s.ver.v, s.at)
        if present != self.present and any(present):
            self.other = present
        if mode.on or present != self.present or any([g is not None and g._handle is not None for g in wanted]) or not is_unobserved():
            return self._over(node, gs)
        saved = node._saved["saved"]
        this = engine.current_graph_task()
        if this is not None and not this.keeps:
            node._saved["saved"] = None  # so that the program can free them one by one
        else:
            saved = list(saved)
        for g, (strides, plain) in zip([g for g in wanted if g is not None], self.shapes):
            a = g._array
            saved.append(a if a.strides == strides else np.ascontiguousarray(a) if plain else _laid(a, strides))
        assert self.backward is not None
        found: list[Tensor | None] = []
        try:
            row = zip(self.backward(saved), self.passed)
        except ShapeMismatch:
            self.broken = True
            return self._over(node, gs)
        for sparse in self.sparse:
            a, passed = next(row)
            t = None if a is None else wrap_array(a)
            if sparse is not None:
                t = sparse_of(t, wrap_array(next(row)[0]), *sparse[:2])           # type: ignore[arg-type]
                attributes(t)["_lookup"] = sparse[2]
            elif passed and t is not None:
                t._grad_may_alias = True
            found.append(t)
        return found

    def _plainly(self, *given):
        """Runs the call on the autograd graph, in the recorded context.

        Each distinct tensor is passed once.
        """
        with self.surroundings.restored():
            return self.run_plainly(*[given[j] for j in self.input_indices])

    def _over(self, node, gs):
        """Re-executes the call and its backward pass on the autograd graph."""
        if not any([g is not None for g in gs]):
            return [None] * len(self.leaves)
        saved = node._saved
        for x in saved["inputs"]:
            if x[0]._version_counter.v != x[2] and not any([x[0] is saved["inputs"][i][0] for i in self.written]):
                _check(node, x)
        inputs = [saved["inputs"][i][0] for i in self.given]
        for i, a in saved["before"]:
            inputs[self.input_indices[i]] = wrap_array(a.copy("K"))
        leaf_indices = [self.input_indices[i] for i in self.leaves]
        state = default_generator._dump_state() if saved["state"] is not None else None
        create = mode.on
        try:
            if state is not None:
                default_generator._load_state(saved["state"])
            if create:
                found = self.differentiate(self._plainly, inputs, gs)
                return [found[j] for j in leaf_indices]
            for j in leaf_indices:
                inputs[j] = _leaf(inputs[j])
            mode.on = True
            outs = self._plainly(*inputs)
            roots = [k for k, g in enumerate(gs) if g is not None]
            return engine.run_backward([outs[k] for k in roots], [gs[k] for k in roots], False, False, [inputs[j] for j in leaf_indices], True) or ()
        finally:
            mode.on = create
            if state is not None:
                default_generator._load_state(state)


def _same(a, b, nearly):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not nearly or a.dtype.kind != "f":
        return a.tobytes() == b.tobytes()
    most = np.abs(b).max(initial=0.0, where=np.isfinite(b))
    return np.allclose(a, b, 1e-3, 1e-4 * most, equal_nan=True)


def _saved(r, after, results):
    """Returns the values that backward events and their results read but do not compute."""
    computed = {v.place for e in after for v in e.outs if v is not None} | {v.place for v in r.grads}
    used = [v for e in after for v in e.ins if v is not None] + [v for v in results if v is not None]
    return list({v.place: v for v in used if v.place not in computed}.values())


def _fused(r, before, after, made):
    """Fuses elementwise events into loops.

    Returns (forward events, backward events, values saved for the backward pass, gradients, True if
    some events are fused loops).
    """
    constants = [e for e in before if e.kind == "constant"]
    after = [*constants, *after] if after else after
    fusion = Fusion()
    forward, (backward, places, sum_of) = before, sums(after, r.count, HOST["gradient_sum"])
    results = [v if v is None else sum_of.get(v.place, v) for v in r.results]
    written = {r.given[r.input_indices[i]].home for i in r.written}
    for e in (*forward, *backward):
        if e.writes and e.ins and e.ins[0] is not None:
            written.add(e.ins[0].home)
    scalar_constants = {e.outs[0].place: float(e.kw["array"]) for e in (*forward, *backward)
                        if e.kind == "constant" and e.kw["array"].size == 1 and e.kw["array"].dtype.kind == "f"}
    if after:
        forward, backward = recomputed(forward, backward, {v.home for v in r.given}, written, places)
    saved = _saved(r, backward, results)
    forward = fusion.events(forward, {v.place for v in (*made, *saved)}, written, scalar_constants)
    backward = fusion.events(backward, {v.place for v in results if v is not None}, written, scalar_constants)
    if fusion.loops and fusion.compiled():
        return forward, backward, saved, results, True
    return before, after, _saved(r, after, r.results), r.results, False


def _check(node, saved):
    t, ver, at = saved
    if ver.v != at:
        raise autograd_graph._stale(t, node, ver.v, at)


def _leaf(t):
    t = autograd_graph.detached(t)
    t._requires_grad_ = True
    return t


def _laid(a: Array, strides: tuple[int, ...]) -> Array:
    """Returns a copy of an array with the given strides."""
    order = sorted(range(a.ndim), key=lambda i: -strides[i])
    r = np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))
    if r.strides != strides:
        raise RuntimeError("internal error: a gradient with non-dense strides")
    return r


__all__ = ["CompiledFunction", "JointGraphCapture", "is_supported", "is_unobserved"]
