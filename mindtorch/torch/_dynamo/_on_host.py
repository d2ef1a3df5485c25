"""torch.compile(backend="mindspore") for host tensors: runs a captured call (_capture.py) as
MindSpore graphs on MindSpore's CPU target.

The captured ops run on bridge tensors (`mindtorch/core/compile/host_graph_bridge.py`) in a session
(`mindtorch/core/compile/replay.py`). Graphs are therefore built and managed as on the npu device, and
backward passes through them are graphs too. A call that cannot be computed this way is replayed on
the host, and the reason is reported.
"""
import contextlib
import logging

import numpy as np

from mindtorch.backend.errors import FullGraphError
from mindtorch.backend.device import storage_array
from mindtorch.backend.graph import mapped
from mindtorch.core.dispatch import autocast as _autocast
from mindtorch.core.device import device_dispatch
from mindtorch.core.compile import replay, host_graph_bridge
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.device.rng import Generator
from mindtorch.core.dispatch.primitives import sequence
from mindtorch.core.tensor.tensor import Parameter
from mindtorch.torch import random as _random
from mindtorch.torch._dynamo import _callable, _replay
from mindtorch.torch._dynamo._mindspore import level_of
from mindtorch.torch._dynamo.exc import Unsupported
from mindtorch.torch._dynamo.utils import counters

graph_breaks = logging.getLogger("torch._dynamo.graph_breaks")


def refusal(graph, rec):
    """Returns why a captured call cannot be computed on bridge tensors, or None if it can."""
    if any([isinstance(x, Generator) for n in graph.nodes for x in (*n.args, *n.kwargs.values())]):
        return "it uses an explicit random generator"
    for t in rec.tensors().values():
        why = host_graph_bridge.unsupported_reason(t) if t._device.type != host_graph_bridge.SHADOW.type else None
        if why is not None:
            return why
    return None


#: calls that draw as many random numbers as their first operand has elements, in its memory order
_DRAWING = frozenset("dropout alpha_dropout rand_like randn_like randint_like bernoulli rrelu".split())


def _in_order(x, order):
    """Permutes the dimensions of x and makes the result contiguous."""
    return x.permute(order).contiguous()


def _as_before(x, order):
    """Undoes the permutation of `_in_order`."""
    return x.permute([order.index(i) for i in range(len(order))])


def _order(node):
    """Returns the memory order of the dimensions of a node's host result, outermost first.

    None if the memory has gaps, or the result is unknown.
    """
    like = getattr(node, "meta", {}).get("example_value")
    if like is None:
        return None
    sizes, strides, n = tuple(like.shape), like.stride(), 1
    order = tuple(sorted(range(len(sizes)), key=lambda i: (-strides[i], -sizes[i])))
    for i in reversed(order):
        if sizes[i] != 1:
            if strides[i] != n:
                return None
            n *= sizes[i]
    return order


def _order_of_draws(gm):
    """Permutes the operands of random ops to the memory order of the host tensor, because the host
    draws random numbers in that order."""
    changed = False
    for n in list(gm.graph.nodes):
        name = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "")
        if n.op not in ("call_function", "call_method") or name not in _DRAWING or not n.args or n.kwargs.get("inplace") or True in n.args[3:]:
            continue
        order = _order(n.args[0])
        if order is None or order == tuple(range(len(order))):
            continue
        with gm.graph.inserting_after(n):
            reordered = gm.graph.call_function(_as_before, (n, order))
            reordered.meta.update(n.meta)
        n.replace_all_uses_with(reordered, delete_user_cb=lambda user, reordered=reordered: user is not reordered)
        with gm.graph.inserting_before(n):
            n.args = (gm.graph.call_function(_in_order, (n.args[0], order)), *n.args[1:])
        changed = True
    if changed:
        gm.recompile()


def _final(error):
    """Marks an error as raised by the backend: the call is not re-executed eagerly because of it.
    """
    error.of_backend = True
    return error


class Program:
    """Replay of a captured call."""

    def __init__(self, graph, rec, fn, args, kwargs, options, key, state, title):
        host_graph_bridge.start()
        self.state, self.title, self.whole = state, title, bool(options["fullgraph"])
        self.host = _replay.Program(graph, key)
        gm, inputs, self.outputs = _callable.graph_module(graph, rec, fn, args, kwargs, key)
        _order_of_draws(gm)
        self.orders = [_order(n) for n in next(n for n in gm.graph.nodes if n.op == "output").args[0]]
        self.source, self.forward = gm.code, gm.forward
        at = {v: i for i, v in enumerate(graph.inputs)}
        self.feed = [(at.get(v), v.tensor) for v in inputs]
        tensors = rec.tensors()
        self.places = host_graph_bridge.AliasTable([i is None or tensors[v].__class__ is Parameter for v, (i, _) in zip(inputs, self.feed)])
        self.given, self.result = graph.inputs, graph.result
        level = level_of(options)
        device = host_graph_bridge.start()
        # Every size has its own variant.
        self.trace = replay.Trace(title, level, self.whole, False, device)
        self.backward = replay.Trace(f"{title} (backward)", level, False, False, device)
        self.harmless = rec.harmless()
        # indices of the input tensors that the call modifies; known after the first run
        self.written = None
        self.rebased = ()  # those of them that get an autograd history from the call
        self.arrays = [None] * len(self.feed)
        self.refused = None
        self.reasons = []

    @property
    def traces(self):
        """The traces of its runs and of the backward passes through them."""
        return self.trace, self.backward

    def run(self, *tensors):
        """Returns the result of the captured call for these tensors."""
        if self.refused is not None:
            return self.host.run(*tensors)
        ts = [t if i is None else tensors[i] for i, t in self.feed]
        if self.written is None:
            return self._first(ts, tensors)
        if self.written:
            why = self._overlap(ts) or self._unreachable(ts)
            if why is not None:
                self._note(why)
                return self.host.run(*tensors)
        return self._finished(ts, tensors, *self._computed(ts))

    def _computed(self, ts):
        """Returns (bridge tensors of the inputs, bridge tensors of the results, sequence number
        before the first node)."""
        before = mode.on, mode.inference, (_autocast.state.to, _autocast.state.there)
        state = self.state
        within, state.within = state.within, None
        first = next(sequence)
        session = None
        try:
            with self._session() as session, host_graph_bridge.within():
                ins = self.places.to_graph(ts)
                outs = self.forward(*ins)
        except FullGraphError as e:
            raise _final(Unsupported(f"{self.title} cannot be compiled as one graph (fullgraph=True): {e}")) from None
        finally:
            state.within = within
            mode.on, mode.inference = before[:2]
            if (_autocast.state.to, _autocast.state.there) != before[2]:
                _autocast.switch(before[2])
        if session is not None:
            for reason in session.reasons:
                self._note(reason)
        return ins, outs if outs.__class__ is tuple else tuple(outs) if isinstance(outs, list) else (outs,), first

    def _session(self):
        return contextlib.nullcontext() if replay.current.session is not None else replay.session(self.trace)

    def _finished(self, ts, tensors, ins, outs, first):
        more = [ins[i] for i in self.rebased]
        made = host_graph_bridge.from_graph([*outs, *more], orders=[*self.orders, *[None for _ in more]])
        for i, t in zip(self.rebased, made[len(outs):]):
            ts[i]._grad_fn_, ts[i]._output_nr, ts[i]._requires_grad_ = t._grad_fn_, t._output_nr, t._requires_grad_
        if mode.on and any([t._requires_grad_ for t in made]):
            replay.backward.follows(self.backward, first, next(sequence))
        known = dict(zip(self.outputs, made))
        known.update(zip(self.given, tensors))
        return mapped(self.result, lambda v: known[v] if v in known else v.tensor)

    # ---- the first run
    def _first(self, ts, tensors):
        """First run: finds out which tensors the call modifies and whether it can run as graphs at
        all.

        If not, everything is restored and the call is replayed on the host.
        """
        versions = [t._version for t in ts]
        saved = None if self.harmless else ([t._array.copy("K") for t in ts], _random.get_rng_state())
        try:
            ins, outs, first = self._computed(ts)
            written = [i for i, t in enumerate(ts) if t._version != versions[i]]
            why = self._shared(ins, outs)
            if written and why is None:
                self.written = written
                why = self._overlap(ts) or self._unreachable(ts)
            rebased = [i for i in written if ins[i]._grad_fn_ is not None and ins[i]._grad_fn_.__class__ is not host_graph_bridge._ToGraph]
            if why is None and any([ts[i]._base is not None or ts[i]._views for i in rebased]):
                why = "it modifies a view of another tensor in place and records a gradient for it"
        except (NotImplementedError, Unsupported) as e:
            if isinstance(e, Unsupported) or device_dispatch.fallback.policy == "error":
                _final(e)
                raise
            why = f"{type(e).__name__}: {e}"
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
        if why is None:
            self.written, self.rebased = written, rebased
            return self._finished(ts, tensors, ins, outs, first)
        self.refused = why
        self._note(why)
        if self.whole:
            raise _final(Unsupported(f"{self.title} cannot be compiled for MindSpore (fullgraph=True): {why}"))
        if saved is not None:
            for t, v, a in zip(ts, versions, saved[0]):
                if t._version != v:
                    np.copyto(t._array, a)
                    t._version_counter.v = v
            _random.set_rng_state(saved[1])
        return self.host.run(*tensors)

    @staticmethod
    def _shared(ins, outs):
        """Returns a reason if results share memory with inputs or with each other, which the host
        would track as aliasing; else None."""
        seen = {id(storage_array(t._array)) for t in ins}
        for t in outs:
            if t._handle is None:
                continue
            home = id(storage_array(t._array))
            if home in seen:
                return "a result shares memory with an input or another result"
            seen.add(home)
        return None

    # ---- in-place writes
    def _overlap(self, ts):
        """Returns a reason if a modified tensor shares memory with another input; else None."""
        arrays, written = self.arrays, self.written
        changed = [i for i, t in enumerate(ts) if arrays[i] is not t._array]
        found = None
        for j in changed:
            a = ts[j]._array
            for i in range(len(ts)) if j in written else written:
                if i != j and ts[i]._array is not None and np.may_share_memory(ts[i]._array, a):
                    found = "it writes to a tensor that shares memory with another one"
        self.arrays = [None] * len(ts) if found else [t._array for t in ts]
        return found

    def _unreachable(self, ts):
        """Returns a reason if MindSpore cannot write to the memory of a modified tensor in place;
        else None."""
        for i in self.written:
            a = ts[i]._array
            if not a.flags.writeable or a.size and not a.flags.c_contiguous and min(a.strides) < 0:
                return "it writes to a tensor whose memory MindSpore cannot write to"
            if i in self.rebased and (ts[i]._base is not None or ts[i]._views):
                return "it modifies a view of another tensor in place and records a gradient for it"
        return None

    def _note(self, reason):
        counters["graph_break"][reason] += 1
        if reason not in self.reasons:
            self.reasons.append(reason)
            graph_breaks.info("%s is split: %s", self.title, reason)


__all__ = ["Program", "refusal"]
