"""MindSpore's own communication: HCCL on Ascend, mccl on CPU, set up without a scheduler process.

It carries the collectives on an accelerator. On CPU it is set up in addition to mindtorch's own
connections when the backend is named mccl, for code that calls MindSpore's communication itself.
MINDTORCH_CPU_COMM=mccl makes it carry the facade's collectives as well; this is how the module is
tested without an Ascend.

Limits and defects of mccl are worked around here. It silently writes nothing to non-contiguous
tensors, so those go through a contiguous copy. It lacks float64, uint8, bool and complex, so
collectives that only move data send bytes. reduce_scatter, all_to_all, all_gather_into_tensor and
reduce are composed of other calls. Reductions that it has no kernel for raise an error.
"""
import datetime
import random
import socket
import time

import numpy as np

from mindtorch.backend.mindspore.patches import put
from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.backend.mindspore import errors
from mindtorch.backend.mindspore.private import MSTensor, from_contiguous
from mindtorch.backend.mindspore.runtime import ms, target

_REDUCTIONS = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "AVG": "avg"}
_REDUCED_ON_CPU = frozenset("bilqef")    # dtypes that mccl reduces
#: dtypes that mint.distributed reduces on Ascend. Its sum of bools writes the byte 2 into a bool,
#: so bools are reduced by max and min.
_REDUCED = frozenset("bool int8 int16 int32 int64 float16 float32 bfloat16".split())
_OF_BOOLS = {"SUM": "max", "PRODUCT": "min", "MAX": "max", "MIN": "min"}

_world: dict[str, object] = {}  # what this process has set up; MindSpore allows it once


def backend_name():
    """Returns MindSpore's name of the device's communication backend."""
    return {"Ascend": "hccl", "GPU": "nccl"}.get(target(), "mccl")


def start(store, rank, size, timeout, host="127.0.0.1"):
    """Sets up MindSpore's communication, once per process; the address of its store is passed
    through `store`."""
    if _world:
        if (_world["rank"], _world["size"]) != (rank, size):
            raise DistBackendError(f"MindSpore's communication was set up for rank {_world['rank']} of {_world['size']} and "
                                   f"cannot be set up again in one process, now for rank {rank} of {size}")
        return
    from mindspore.communication import management
    from mindspore.mint import distributed as native

    if rank == 0:
        store.set("mindspore", f"{host}:{_free_port()}")
    host, _, port = store.get("mindspore").decode().rpartition(":")
    # MindSpore's store holds the GIL while it waits for the other ranks. If rank 0's process serves
    # our store in a thread, every rank must have its answer before that.
    end = time.monotonic() + timeout
    have = store.add("mindspore/have", 1)
    while rank == 0 and have < size:
        if time.monotonic() > end:
            raise DistBackendError(f"timed out after {timeout:g} s waiting for ranks to initialize MindSpore's communication ({have} of {size} joined)")
        time.sleep(0.005)
        have = store.add("mindspore/have", 0)
    limit = datetime.timedelta(seconds=timeout)
    meeting = native.TCPStore(host, int(port), size, rank == 0, limit)
    name = backend_name()
    management._init_with_store(backend=name, timeout=limit, world_size=size, rank=rank, store=meeting)
    # mint.distributed stored the name of the default group as default arguments at import, when
    # there was none.
    for fn in ("get_cache_group_rank", "get_cache_group_size"):
        put(f"mindspore.mint.distributed.distributed:{fn}.__defaults__", (f"{name}_world_group",))
    _world.update(rank=rank, size=size, store=meeting, group=f"{name}_world_group", native=native, groups={})


def _free_port():
    """Returns a port that is free now, below the ephemeral range, so that no outgoing connection
    takes it."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("", port))
            except OSError:
                continue
            return port


def started():
    """True if `start` has run."""
    return bool(_world)


class NativeGroup:
    """A group of MindSpore's communication; `ranks` are global ranks."""

    def __init__(self, ranks, name):
        self.ranks = list(ranks)
        self.size, self.me = len(self.ranks), self.ranks.index(_world["rank"])
        self.native = _world["native"]
        self.on_cpu = target() == "CPU"
        if self.size == _world["size"]:
            self.group = _world["group"]
        else:
            from mindspore.communication import create_group

            key = tuple(self.ranks)
            if key not in _world["groups"]:
                create_group(f"mindtorch_{name}", self.ranks)
                _world["groups"][key] = f"mindtorch_{name}"
            self.group = _world["groups"][key]

    # ---- tensors
    def carries(self, t, op=None):
        """True if MindSpore can send a tensor of t's dtype and, if `op` is given, reduce it."""
        dtype = t._array.dtype
        if self.on_cpu:
            return True
        if op is None:
            return dtype.name != "complex128"
        return dtype.name in _REDUCED and op in (_OF_BOOLS if dtype.kind == "b" else _REDUCTIONS)

    def _check(self, t, what):
        if self.on_cpu and t._array.dtype.char not in _REDUCED_ON_CPU:
            raise NotImplementedError(f"{what!r} over MindSpore's mccl is not implemented for dtype {t.dtype} on device cpu; "
                                      "unset MINDTORCH_CPU_COMM to use mindtorch's own collectives")

    def _native(self, t, move=False):
        """Returns a contiguous native tensor of t's elements: its handle on an accelerator; on CPU
        its memory (as bytes with `move`), or a copy."""
        if not self.on_cpu:
            x = t._handle
            return x if x.is_contiguous() else x.contiguous()
        a = np.ascontiguousarray(t._array)
        return from_contiguous(a.reshape(-1).view(np.int8) if move else a)

    def _back(self, t, native):
        """Copies the result of an operation from the native tensor back to t."""
        if self.on_cpu:
            if not t._array.flags.c_contiguous:
                t._array[...] = MSTensor.asnumpy(native).reshape(-1).view(t._array.dtype).reshape(t._array.shape)
        elif native is not t._handle:
            t._handle.copy_(native)

    def _nothing(self, *ts):
        """True if there is nothing to move; mccl does not accept empty tensors."""
        return self.on_cpu and all(t._array.size == 0 for t in ts)

    @staticmethod
    def _name(op, t=None):
        if t is not None and t._handle is not None and t._array.dtype.kind == "b":
            return _OF_BOOLS[op]
        if op not in _REDUCTIONS:
            raise NotImplementedError(f"ReduceOp.{op} is not implemented over MindSpore's communication on device {target()}")
        return _REDUCTIONS[op]

    # ---- collectives; each blocks until it is complete
    def all_reduce(self, t, op):
        if self._nothing(t):
            return
        self._check(t, "all_reduce")
        x = self._native(t)
        self.native.all_reduce(x, self._name(op, t), self.group)
        self._back(t, x)

    def broadcast(self, t, root):
        if self._nothing(t):
            return
        x = self._native(t, move=True)
        self.native.broadcast(x, self.ranks[root], self.group)
        self._back(t, x)

    def reduce(self, t, root, op):
        self._check(t, "reduce")
        if not self.on_cpu:
            x = self._native(t)
            self.native.reduce(x, self.ranks[root], self._name(op, t), self.group)
        else:
            x = from_contiguous(t._array.copy())
            self.native.all_reduce(x, self._name(op, t), self.group)
        if self.me == root:
            if self.on_cpu:
                t._array[...] = MSTensor.asnumpy(x)
            else:
                self._back(t, x)

    def all_gather(self, outs, t):
        if self._nothing(t):
            return
        xs = [self._native(o, move=True) for o in outs]
        self.native.all_gather(xs, self._native(t, move=True), self.group)
        for o, x in zip(outs, xs):
            self._back(o, x)

    def all_gather_single(self, out, t):
        if self._nothing(t):
            return
        if not self.on_cpu:
            x = self._native(out)
            self.native.all_gather_into_tensor(_line(x), _line(self._native(t)), self.group)
            self._back(out, x)
            return
        rows = [from_contiguous(np.empty(t._array.nbytes, np.int8)) for _ in self.ranks]
        self.native.all_gather(rows, self._native(t, move=True), self.group)
        out._array[...] = np.concatenate([MSTensor.asnumpy(r) for r in rows]).view(out._array.dtype).reshape(out._array.shape)

    def reduce_scatter(self, out, ins, op):
        self._check(out, "reduce_scatter")
        if not self.on_cpu:
            x = self._native(out)
            self.native.reduce_scatter(x, [self._native(i) for i in ins], self._name(op, out), self.group)
            self._back(out, x)
            return
        joined = np.concatenate([i._array.reshape(-1) for i in ins])
        x = from_contiguous(joined)
        self.native.all_reduce(x, self._name(op, out), self.group)
        at = sum(i._array.size for i in ins[:self.me])
        out._array[...] = MSTensor.asnumpy(x)[at:at + out._array.size].reshape(out._array.shape)

    def reduce_scatter_single(self, out, t, op):
        self._check(out, "reduce_scatter_tensor")
        if not self.on_cpu:
            x = self._native(out)
            self.native.reduce_scatter_tensor(_line(x), _line(self._native(t)), self._name(op, out), self.group)
            self._back(out, x)
            return
        x = from_contiguous(t._array.reshape(-1).copy())
        self.native.all_reduce(x, self._name(op, out), self.group)
        out._array[...] = MSTensor.asnumpy(x).reshape(self.size, -1)[self.me].reshape(out._array.shape)

    def gather(self, t, outs, root):
        if self._nothing(t):
            return
        xs = [self._native(o, move=True) for o in outs]
        if self.me != root and self.on_cpu:
            xs = [from_contiguous(np.empty(t._array.nbytes, np.int8)) for _ in self.ranks]
        self.native.gather(self._native(t, move=True), xs, self.ranks[root], self.group)
        for o, x in zip(outs, xs):
            self._back(o, x)

    def scatter(self, t, ins, root):
        if self._nothing(t):
            return
        x = self._native(t, move=True)
        xs = [self._native(i, move=True) for i in ins]
        if self.me != root and self.on_cpu:
            xs = [from_contiguous(np.empty(t._array.nbytes, np.int8)) for _ in self.ranks]
        self.native.scatter(x, xs, self.ranks[root], self.group)
        self._back(t, x)

    def all_to_all(self, outs, ins):
        if not self.on_cpu:
            xs = [self._native(o) for o in outs]
            self.native.all_to_all(xs, [self._native(i) for i in ins], self.group)
            for o, x in zip(outs, xs):
                self._back(o, x)
            return
        # One message per pair and direction; the lower rank of a pair sends first, which prevents a
        # deadlock.
        outs[self.me]._array[...] = ins[self.me]._array
        for other in range(self.size):
            steps = [self.send, self.recv] if self.me < other else [self.recv, self.send]
            if other != self.me:
                for step in steps:
                    t = ins[other] if step == self.send else outs[other]
                    if t._array.size:
                        step(t, other, 0)

    def all_to_all_single(self, out, t, out_rows, in_rows):
        """Sends rows of a contiguous tensor to each rank; on accelerators only."""
        self.native.all_to_all_single(out._handle, t._handle, list(out_rows), list(in_rows), self.group)

    def send(self, t, to, tag):
        if not self._nothing(t):
            self.native.send(self._native(t, move=True), self.ranks[to], self.group, tag)

    def recv(self, t, source, tag):
        if not self._nothing(t):
            x = self._native(t, move=True)
            self.native.recv(x, self.ranks[source], self.group, tag)
            self._back(t, x)

    def batch(self, steps):
        """Runs [(True to send, tensor, rank in the group)] as one batch; on accelerators only."""
        kind = self.native.P2POp
        xs = [self._native(t) for _, t, _ in steps]
        for handle in self.native.batch_isend_irecv([kind("isend" if sends else "irecv", x, self.ranks[peer], self.group)
                                                     for (sends, _, peer), x in zip(steps, xs)]):
            handle.wait()
        for (sends, t, _), x in zip(steps, xs):
            if not sends:
                self._back(t, x)


def _line(x):
    """Returns a contiguous tensor as one dimension. Whether results are concatenated or stacked is
    up to the caller."""
    return x if x.ndim == 1 else x.view((-1,))


def mark():
    """Records an event after all work submitted to the device so far."""
    event = ms.runtime.Event()
    event.record()
    return event


def reached(event):
    """True if the device has reached an event."""
    return event.query()


def wait():
    """Blocks until the device has finished all submitted work; RuntimeError if that failed."""
    if target() != "CPU":
        errors.wait()
