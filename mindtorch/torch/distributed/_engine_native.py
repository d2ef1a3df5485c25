"""Collectives of a process group over MindSpore's communication (HCCL on Ascend; mccl on the CPU on
request).

It transfers tensors that are on its target: the accelerator's on Ascend, the host's on the CPU.
Other tensors use mindtorch's own connections.
"""
import numpy as np

from mindtorch.backend.comm import mindspore as comm_native
from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.core.device import device_dispatch, device_state
from mindtorch.core.tensor.inplace import offset_of
from mindtorch.core.tensor.tensor import wrap_array
from mindtorch.core.tensor.storage_impl import host_memory
from mindtorch.torch.distributed._engine_sockets import SocketEngine
from mindtorch.torch.distributed._work import Work


class NativeEngine(SocketEngine):
    """Transfers data by MindSpore's communication. Barriers and the order of asynchronous calls use
    mindtorch's own connections.

    An error of MindSpore's communication ends the group on all ranks, because later collectives
    could be mismatched.
    """

    def __init__(self, fabric, key, ranks, timeout, label):
        super().__init__(fabric, key, ranks, timeout, label)
        self.native = comm_native.NativeGroup(ranks, key)

    def _ours(self, t, op=None):
        """True if MindSpore's communication can transfer this tensor (and do this reduction).
        Otherwise it is transferred via the host."""
        if (t._handle is None) != self.native.on_cpu:
            return False
        if self.native.carries(t, op):
            return True
        if t._handle is not None:
            device_dispatch.cpu_fallback(f"collective {op}" if op else "collective", [t], t._device)
        return False

    def _do(self, name, tensors, async_op, fn):
        group = self.group

        def launch():
            group.alive()
            with device_state.DEVICE_LOCK:
                fn()

        def run(*steps):
            try:
                for step in steps:
                    step()
            except RuntimeError as e:
                if isinstance(e, NotImplementedError):
                    raise
                why = f"MindSpore's communication failed in {name}: {_reason(str(e))}"
                group.fail(why)
                raise DistBackendError(group._text(f"{name} failed", why)) from e
        if group.failed is not None:
            raise DistBackendError(group._text(f"{name} cannot run", f"the group has failed: {group.failed}"))
        if not async_op:
            group.call(lambda: run(launch, comm_native.wait))
            return None
        if self.native.on_cpu:
            work = Work(name, tensors)
            group.submit(lambda: run(launch), work._finish)
            return work
        # A device runs asynchronously. The launch happens in this thread, because MindSpore's calls
        # from several threads exclude each other.
        group.call(lambda: run(launch))
        return _Launched(name, tensors, lambda: run(comm_native.wait))

    def all_reduce(self, tensors, op, async_op):
        if not self._ours(tensors[0], op.name):
            return super().all_reduce(tensors, op, async_op)
        return self._do("all_reduce", tensors, async_op, lambda: [self.native.all_reduce(t, op.name) for t in tensors])

    def broadcast(self, t, src, async_op):
        if not self._ours(t):
            return super().broadcast(t, src, async_op)
        return self._do("broadcast", [t], async_op, lambda: self.native.broadcast(t, src))

    def reduce(self, t, dst, op, async_op):
        if not self._ours(t, op.name):
            return super().reduce(t, dst, op, async_op)
        return self._do("reduce", [t], async_op, lambda: self.native.reduce(t, dst, op.name))

    def all_gather(self, outs, t, async_op):
        if not self._ours(t):
            return super().all_gather(outs, t, async_op)
        return self._do("all_gather", outs, async_op, lambda: self.native.all_gather(outs, t))

    def all_gather_single(self, out, t, async_op):
        if not self._ours(t):
            return super().all_gather_single(out, t, async_op)
        return self._do("all_gather_into_tensor", [out], async_op, lambda: self.native.all_gather_single(out, t))

    def reduce_scatter(self, out, ins, op, async_op):
        if not self._ours(out, op.name):
            return super().reduce_scatter(out, ins, op, async_op)
        return self._do("reduce_scatter", [out], async_op, lambda: self.native.reduce_scatter(out, ins, op.name))

    def reduce_scatter_single(self, out, t, op, async_op):
        if not self._ours(out, op.name):
            return super().reduce_scatter_single(out, t, op, async_op)
        return self._do("reduce_scatter_tensor", [out], async_op, lambda: self.native.reduce_scatter_single(out, t, op.name))

    def gather(self, t, outs, dst, async_op):
        if not self._ours(t):
            return super().gather(t, outs, dst, async_op)
        return self._do("gather", outs, async_op, lambda: self.native.gather(t, outs, dst))

    def scatter(self, t, ins, src, async_op):
        if not self._ours(t):
            return super().scatter(t, ins, src, async_op)
        return self._do("scatter", [t], async_op, lambda: self.native.scatter(t, ins, src))

    def all_to_all(self, outs, ins, async_op):
        if not self._ours(outs[0]):
            return super().all_to_all(outs, ins, async_op)
        return self._do("all_to_all", outs, async_op, lambda: self.native.all_to_all(outs, ins))

    def all_to_all_single(self, out, t, out_rows, in_rows, async_op):
        if not self._ours(out):
            return super().all_to_all_single(out, t, out_rows, in_rows, async_op)

        def run():
            if t._handle is not None and t._handle.is_contiguous() and out._handle.is_contiguous():
                self.native.all_to_all_single(out, t, out_rows, in_rows)
                return
            if t._handle is not None:
                ins, outs = [_rows(x, n) for x, n in ((t, in_rows), (out, out_rows))]
                self.native.all_to_all(outs, ins)
                return
            source = np.array(host_memory(t))
            ins = [wrap_array(np.ascontiguousarray(p)) for p in np.split(source, np.cumsum(in_rows)[:-1])]
            outs = [wrap_array(np.empty((r, *out._sizes[1:]), out._np_dtype)) for r in out_rows]
            self.native.all_to_all(outs, ins)
            host_memory(out)[...] = np.concatenate([host_memory(o) for o in outs]) if outs else host_memory(out)
        return self._do("all_to_all_single", [out], async_op, run)

    def send(self, t, dst, tag):
        if not self._ours(t):
            return super().send(t, dst, tag)
        return self._do("send", [t], True, lambda: self.native.send(t, dst, tag))

    def recv(self, t, src, tag):
        if not self._ours(t):
            return super().recv(t, src, tag)
        if src is None:
            raise NotImplementedError("recv from any rank is not implemented over MindSpore's communication")
        work = self._do("recv", [t], True, lambda: self.native.recv(t, src, tag))
        work._item = _Source(self.group.ranks[src])
        return work


    def batch(self, steps):
        """Starts [(True to send, tensor, rank in the group, tag)] together: sends between two ranks
        do not wait for their receives."""
        if self.native.on_cpu or any(tag for *_, tag in steps) or not all([t._handle is not None and self.native.carries(t) for _, t, _, _ in steps]):
            return super().batch(steps)
        work = self._do("batch_isend_irecv", [t for _, t, _, _ in steps], True, lambda: self.native.batch([step[:3] for step in steps]))
        return [work]


class _Launched(Work):
    """Work launched on a device; `wait` queries the device."""

    def __init__(self, what, result, settle):
        super().__init__(what, result)
        self._settle_device, self._at = settle, comm_native.mark()

    def _end(self):
        if not self._event.is_set():
            try:
                self._settle_device()
            except Exception as e:
                self._finish(e)
            else:
                self._finish()

    def wait(self, timeout=None):
        self._end()
        return super().wait(timeout)

    def is_completed(self):
        if not self._event.is_set() and comm_native.reached(self._at):
            self._end()
        return super().is_completed()

    def is_success(self):
        return self.is_completed() and super().is_success()

    def exception(self):
        self._end()
        return super().exception()

    def get_future(self):
        self._end()
        return super().get_future()


def _reason(text):
    """Returns the most informative line of MindSpore's message: the HCCL error, else the first
    line."""
    lines = [x for x in text.strip().splitlines() if x.strip() and not x.startswith(("---", "- "))]
    return next((x for x in lines if "Hccl" in x or "HCCL" in x), lines[0] if lines else text)


def _rows(t, counts):
    """Splits a device's tensor along dimension 0 into views on its memory."""
    a = t._array
    at, parts = offset_of(a), []
    for n in counts:
        parts.append(device_dispatch.strided_view(t, (n, *t._sizes[1:]), a.strides, at))
        at += n * a.strides[0]
    return parts


class _Source:
    def __init__(self, source):
        self.source = source
