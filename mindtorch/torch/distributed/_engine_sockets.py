"""Collectives of a process group over mindtorch's own connections (on the CPU); converts tensors to
arrays."""
import numpy as np

from mindtorch.backend.comm import reduce as comm_reduce
from mindtorch.backend.comm.group import SocketGroup, raw
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.storage_impl import host_memory
from mindtorch.core.tensor.tensor import wrap_array
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch.distributed._reduce_op import PremulSum
from mindtorch.torch.distributed._work import Work


class _Flat:
    """A tensor's elements as a contiguous 1-D array: its memory or a copy. A device's tensor is
    copied via the host."""

    __slots__ = ("home", "a", "of")

    def __init__(self, t, read=True):
        self.of = None
        if t._handle is not None:
            self.of, self.home = t, None
            self.a = np.array(to_host(t)).reshape(-1) if read else np.empty(t._numel, t._np_dtype)
            return
        home = host_memory(t)
        if home.flags.c_contiguous:
            self.home, self.a = None, home.reshape(-1)
        else:
            self.home = home
            self.a = np.ascontiguousarray(home).reshape(-1) if read else np.empty(home.size, home.dtype)

    def back(self):
        """Writes a copy back to the tensor's memory."""
        if self.of is not None:
            device_dispatch.write(self.of, wrap_array(self.a.reshape(self.of._sizes)))
        elif self.home is not None:
            self.home[...] = self.a.reshape(self.home.shape)


class SocketEngine:
    """Collectives of one process group. The caller checks the tensors. Ranks are ranks in the
    group."""

    def __init__(self, fabric, key, ranks, timeout, label):
        self.group = SocketGroup(fabric, key, ranks, timeout, label)

    @property
    def timeout(self):
        return self.group.timeout

    @timeout.setter
    def timeout(self, value):
        self.group.timeout = value

    def close(self):
        self.group.close()

    def _start(self, call, body, async_op, result=()):
        group = self.group
        if not async_op:
            group.call(lambda: group.run(call, body))
            return None
        work = Work(f"{call.name} (number {call.number})", result)
        group.submit(lambda: group.run(call, body), work._finish)
        return work

    def _begin(self, name, op, t, root=-1, total=0, timeout=None):
        return self.group.begin(name, 255 if op is None else comm_reduce.OPS.index(op.name),
                                255 if t is None else comm_reduce.dtype_index(t._np_dtype), root, total, timeout)

    def all_reduce(self, tensors, op, async_op):
        """Reduces several tensors of one dtype in a single transfer."""
        call = self._begin("all_reduce", op, tensors[0], total=sum(t._nbytes for t in tensors))

        def body():
            flats = [_Flat(t) for t in tensors]
            a = flats[0].a if len(flats) == 1 else np.concatenate([f.a for f in flats])
            self._premultiply(a, op)
            self.group.all_reduce(call, a, op.name)
            at = 0
            for f in flats:
                if len(flats) > 1:
                    f.a[...] = a[at:at + f.a.size]
                    at += f.a.size
                f.back()
        return self._start(call, body, async_op, tensors)

    @staticmethod
    def _premultiply(a, op):
        if isinstance(op, PremulSum):
            comm_reduce.scale(a, to_host(op.factor).item() if hasattr(op.factor, "_array") else op.factor)

    def broadcast(self, t, src, async_op):
        call = self._begin("broadcast", None, t, src, t._nbytes)

        def body():
            mine = src == self.group.me
            f = _Flat(t, read=mine)
            self.group.broadcast(call, raw(f.a), src)
            if not mine:
                f.back()
        return self._start(call, body, async_op, [t])

    def reduce(self, t, dst, op, async_op):
        call = self._begin("reduce", op, t, dst, t._nbytes)

        def body():
            f = _Flat(t)
            if isinstance(op, PremulSum):
                a = f.a.copy()
                self._premultiply(a, op)
                self.group.reduce(call, a, op.name, dst)
                if dst == self.group.me:
                    f.a[...] = a
            else:
                self.group.reduce(call, f.a, op.name, dst)
            if dst == self.group.me:
                f.back()
        return self._start(call, body, async_op, [t])

    def all_gather(self, outs, t, async_op):
        call = self._begin("all_gather", None, t, total=t._nbytes)

        def body():
            flats = [_Flat(o, read=False) for o in outs]
            flats[self.group.me].a[...] = _Flat(t).a
            self.group.all_gather(call, [raw(f.a) for f in flats])
            for f in flats:
                f.back()
        return self._start(call, body, async_op, outs)

    def all_gather_single(self, out, t, async_op):
        call = self._begin("all_gather", None, t, total=t._nbytes)

        def body():
            f = _Flat(out, read=False)
            rows = f.a.reshape(self.group.size, -1)
            rows[self.group.me] = _Flat(t).a
            self.group.all_gather(call, [raw(r) for r in rows])
            f.back()
        return self._start(call, body, async_op, [out])

    def reduce_scatter(self, out, ins, op, async_op):
        call = self._begin("reduce_scatter", op, out, total=sum(t._nbytes for t in ins))

        def body():
            # The intermediate steps overwrite the other parts, so copy them.
            parts = [np.array(_Flat(t).a) for t in ins]
            self._reduced(call, out, parts, op)
        return self._start(call, body, async_op, [out])

    def reduce_scatter_single(self, out, t, op, async_op):
        call = self._begin("reduce_scatter", op, out, total=t._nbytes)

        def body():
            parts = list(np.array(_Flat(t).a).reshape(self.group.size, -1))
            self._reduced(call, out, parts, op)
        return self._start(call, body, async_op, [out])

    def _reduced(self, call, out, parts, op):
        for p in parts:
            self._premultiply(p, op)
        self.group.reduce_scatter(call, parts, op.name)
        f = _Flat(out, read=False)
        f.a[...] = parts[self.group.me]
        f.back()

    def gather(self, t, outs, dst, async_op):
        call = self._begin("gather", None, t, dst, t._nbytes)

        def body():
            mine = _Flat(t).a
            if dst != self.group.me:
                self.group.gather(call, raw(mine), None, dst)
                return
            flats = [_Flat(o, read=False) for o in outs]
            flats[dst].a[...] = mine
            self.group.gather(call, None, [raw(f.a) for f in flats], dst)
            for f in flats:
                f.back()
        return self._start(call, body, async_op, outs if outs else [t])

    def scatter(self, t, ins, src, async_op):
        call = self._begin("scatter", None, t, src, t._nbytes)

        def body():
            f = _Flat(t, read=False)
            if src == self.group.me:
                rows = [_Flat(i).a for i in ins]
                self.group.scatter(call, None, [raw(r) for r in rows], src)
                f.a[...] = rows[src]
            else:
                self.group.scatter(call, raw(f.a), None, src)
            f.back()
        return self._start(call, body, async_op, [t])

    def all_to_all(self, outs, ins, async_op):
        call = self._begin("all_to_all", None, outs[0])

        def body():
            flats = [_Flat(o, read=False) for o in outs]
            sent = [np.array(f.a) if any(np.may_share_memory(f.a, o.a) for o in flats) else f.a for f in map(_Flat, ins)]
            flats[self.group.me].a[...] = sent[self.group.me]
            self.group.all_to_all(call, [raw(a) for a in sent], [raw(f.a) for f in flats])
            for f in flats:
                f.back()
        return self._start(call, body, async_op, outs)

    def all_to_all_single(self, out, t, out_rows, in_rows, async_op):
        """`out_rows` and `in_rows` are the numbers of rows (of dimension 0) received from and sent
        to each rank."""
        call = self._begin("all_to_all", None, out)

        def body():
            f, g = _Flat(out, read=False), _Flat(t)
            source = g.a.copy() if np.may_share_memory(g.a, f.a) else g.a
            ins, outs = _cut(f.a, out_rows, out._sizes[0]), _cut(source, in_rows, t._sizes[0])
            ins[self.group.me][...] = outs[self.group.me]
            self.group.all_to_all(call, [raw(a) for a in outs], [raw(a) for a in ins])
            f.back()
        return self._start(call, body, async_op, [out])

    def barrier(self, async_op, timeout=None):
        call = self._begin("barrier", None, None, timeout=timeout)
        return self._start(call, lambda: self.group.barrier(call), async_op)

    def monitored_barrier(self, timeout, wait_all_ranks):
        call = self._begin("monitored_barrier", None, None, timeout=timeout)
        self._start(call, lambda: self.group.monitored_barrier(call, wait_all_ranks), False)

    def send(self, t, dst, tag):
        a = _Flat(t).a
        work = Work(f"send to rank {dst}", [t])
        group = self.group
        group.mailbox.send(group.ranks[dst], tag, a, work._finish, group.timeout)
        return work

    def recv(self, t, src, tag):
        """Starts a receive. `src` None: from any rank."""
        f = _Flat(t, read=False)
        work = Work("recv", [t])
        group = self.group

        def done(error):
            if error is None:
                f.back()
            work._finish(error)
        work._item = group.mailbox.receive(None if src is None else group.ranks[src], tag, f.a, done, group.timeout)
        return work

    def batch(self, steps):
        """Returns the Works of [(True to send, tensor, rank in the group, tag)]."""
        return [self.send(t, peer, tag) if sends else self.recv(t, peer, tag) for sends, t, peer, tag in steps]


def _cut(a, rows, total):
    width = a.size // total if total else 0
    parts, at = [], 0
    for r in rows:
        parts.append(a[at:at + r * width])
        at += r * width
    return parts
