"""Gradient buckets, each averaged over the processes as soon as all its gradients are ready.

Full buckets are communicated in another thread while the backward pass continues. All ranks start
their buckets in the same order, so that the collectives match in whatever order the gradients
arrive.
"""
import numpy as np

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.backend.comm import reduce as comm_reduce
from mindtorch.backend.cpu.host import address
from mindtorch.backend.device import storage_array
from mindtorch.backend.strides import contiguous_strides
from mindtorch.core.device import device_dispatch
from mindtorch.core.tensor.inplace import copy, offset_of, zero
from mindtorch.core.tensor.sparse import SparseTensor
from mindtorch.core.autograd.engine import queue_callback
from mindtorch.core.tensor.tensor import bump_version, wrap_array, is_tensor
from mindtorch.core.tensor.storage_impl import host_memory
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch.distributed._grad_bucket import GradBucket
from mindtorch.torch.distributed.algorithms.join import AVERAGES

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

FIRST_BUCKET = 1 << 20  # bytes: small, so that communication starts early


class _Bucket:
    """Parameters with the same dtype and device, and the flat tensor in which their gradients are
    communicated."""

    def __init__(self, indices, params):
        self.indices, self.params = indices, params
        self.sizes = [p.numel() for p in params]
        self.starts = np.cumsum([0, *self.sizes]).tolist()
        self.flat = None
        self.pending = 0
        self.future = None

    def allocate(self):
        if self.flat is None:
            self.flat = _on_device_of(self.params[0], np.zeros(self.starts[-1], self.params[0]._np_dtype))
        return self.flat

    def part(self, k, flat=None):
        """Returns the k-th gradient in the flat tensor, as a view without autograd history."""
        flat = self.flat if flat is None else flat
        p = self.params[k]
        if flat._handle is not None:
            width = flat._np_dtype.itemsize
            return device_dispatch.strided_view(flat, p._sizes, tuple([s * width for s in contiguous_strides(p._sizes)]), offset_of(flat._array) + self.starts[k] * width)
        part = wrap_array(host_memory(flat)[self.starts[k]:self.starts[k + 1]].reshape(p._sizes))
        part._device = p._device
        return part

    def views(self, flat):
        return [flat[s:e].view(p.shape) for s, e, p in zip(self.starts, self.starts[1:], self.params)]


class Reducer:
    """Averages the gradients of `params` (list of (name, parameter)) over a group at the end of
    each backward pass."""

    def __init__(self, params, group, cap, first_cap=FIRST_BUCKET, caps=None, find_unused=False, bucket_views=False, static=False,
                 sparse=()):
        self.names = [n for n, _ in params]
        self.params = [p for _, p in params]
        self.group, self.world = group, dist.get_world_size(group)
        self.find_unused, self.static = find_unused, static
        self.bucket_views = bucket_views
        self.sparse = set(sparse)
        self.caps = list(caps) if caps else [first_cap, cap]
        self.hook = None                    # (state, function)
        # uneven inputs: a Work whose result is the number of processes that still have inputs
        self.divide_by = None
        self.expecting = False  # a forward has run whose gradients must be averaged
        self.begun = False  # gradients have arrived since that forward
        self.rebuild = not find_unused  # rebuild the buckets in the order in which gradients arrive
        self.arrived = []
        self.counts = None  # static graph: how often each gradient arrives per backward pass
        self.learning = static
        # False: wait for each bucket immediately (to measure the effect of overlapping)
        self.overlap = True
        # parameters that received gradients since the last reduction, including under no_sync()
        self.used = set()
        # number of processes with a gradient for each parameter, in the last reduction
        self.used_by = np.zeros(len(self.params), np.int32)
        self.place = {}
        self.buckets = []
        self._cut(range(len(self.params) - 1, -1, -1))
        for i, p in enumerate(self.params):
            p.register_post_accumulate_grad_hook(self._hook_of(i))

    def _hook_of(self, i):
        def hook(param):
            self._arrived(i)
        return hook

    def _cut(self, order):
        """Partitions parameters into buckets in this order: one dtype and device each, up to the
        caps in bytes."""
        open_, done, used = {}, [], {}
        for i in order:
            p = self.params[i]
            if i in self.sparse:
                done.append([i])
                continue
            key = p._np_dtype, p._device
            cap = self.caps[min(used.get(key, 0), len(self.caps) - 1)]
            lot, size = open_.get(key, ([], 0))
            lot.append(i)
            size += p._nbytes
            if size >= cap:
                done.append(lot)
                used[key] = used.get(key, 0) + 1
                lot, size = [], 0
            open_[key] = (lot, size)
        done += [lot for lot, _ in open_.values() if lot]
        self.buckets = [_Bucket(lot, [self.params[i] for i in lot]) for lot in done]
        self.place = {i: (b, k) for b in self.buckets for k, i in enumerate(b.indices)}

    # ---- one iteration
    def check_finished(self):
        """Raises RuntimeError if gradients of an earlier iteration never arrived."""
        if not self.begun:
            return
        missing = [i for i in range(len(self.params)) if i not in self.ready]
        names = [self.names[i] for i in missing]
        self.begun = self.expecting = False
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
            "your module has parameters that were not used in producing loss. You can enable unused parameter detection by "
            "passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by "
            "making sure that all outputs of `forward` take part in the loss.\nParameter indices which did not receive grad for "
            f"rank {dist.get_rank(self.group)}: {' '.join(map(str, missing))} ({', '.join(names)})")

    def prepare(self, outputs, divide_by=None):
        """Starts the reduction for a forward that has just run.

        `outputs` holds its output tensors, from which unused parameters are found.
        """
        self.check_finished()
        self.expecting, self.begun = True, False
        self.ready, self.next = set(), 0
        self.seen = [0] * len(self.params)
        self.arrived, self.queued = [], False
        self.divide_by = divide_by
        self.divisor = None
        self.works = []
        for b in self.buckets:
            b.pending, b.future = len(b.indices), None
        self.unused = ()
        if self.learning:
            return
        if self.static:
            self.unused = [i for i, n in enumerate(self.counts) if n == 0]
        elif self.find_unused:
            reached = _leaves(outputs)
            self.unused = [i for i, p in enumerate(self.params) if id(p) not in reached]

    def _divide_by(self):
        if self.divisor is None:
            if self.divide_by is None:
                self.divisor = self.world
            else:
                self.divide_by.wait()
                self.divisor = self.divide_by.result()[0].item()
        return self.divisor

    def _begin(self):
        self.begun = True
        for i in self.unused:
            self._mark(i)

    def _arrived(self, i):
        self.used.add(i)
        if not self.expecting:
            return
        if not self.queued:
            self.queued = True
            queue_callback(self._finish_learning if self.learning else self._end)
        if not self.begun:
            self._begin()
        self.seen[i] += 1
        if self.learning:
            if self.seen[i] == 1:
                self.arrived.append(i)
            return
        if self.static:
            if self.seen[i] < self.counts[i]:
                return
        elif i in self.ready:
            raise RuntimeError(
                f"Expected to mark a variable ready only once: the gradient of parameter {i} ({self.names[i]}) arrived twice. "
                "Either a module parameter is used in several reentrant backward passes (activation checkpoints with "
                "use_reentrant=True), which static_graph=True allows, or its gradient arrived although the parameter was considered "
                "unused because no output of `forward` depends on it.")
        self.arrived.append(i)
        self._mark(i)

    def _mark(self, i):
        if i in self.ready:
            return
        self.ready.add(i)
        b, k = self.place[i]
        self._fill(b, k, i)
        b.pending -= 1
        while self.next < len(self.buckets) and self.buckets[self.next].pending == 0:
            self._send(self.next)
            self.next += 1

    def _fill(self, b, k, i):
        """Copies a gradient to its bucket (zeros for a missing gradient)."""
        p = b.params[k]
        g = p._grad_
        if i in self.sparse:
            b.flat = None
            return
        b.allocate()
        target = b.part(k)
        if g is None:
            zero(target)
            return
        if isinstance(g, SparseTensor):
            raise NotImplementedError(f"DistributedDataParallel: the gradient of parameter {i} ({self.names[i]}) is sparse; this is "
                                      "supported only for weights of an Embedding or EmbeddingBag with sparse=True")
        if not _same_memory(g, target):
            copy(target, g)
        # (on a device, the full bucket is scaled at once)
        if self.hook is None and target._handle is None:
            comm_reduce.scale(host_memory(target), 1.0 / self._divide_by())

    def _send(self, n):
        b = self.buckets[n]
        if b.indices[0] in self.sparse:
            return  # sparse gradients are sent last, see `_end`
        last = n == len(self.buckets) - 1
        if self.hook is not None:
            state, fn = self.hook
            bucket = GradBucket(n, last, b.flat, b.params, b.views)
            b.future = fn(state, bucket)
            if not hasattr(b.future, "wait"):
                raise RuntimeError(f"a communication hook must return a torch.futures.Future, not {type(b.future).__name__}")
            if not self.overlap:
                b.future.wait()
            return
        if b.flat._handle is not None:
            with torch.no_grad():
                b.flat.mul_(1.0 / self._divide_by())
        b.future = dist.all_reduce(b.flat, group=self.group, async_op=self.overlap) or True

    def _end(self):
        """Runs at the end of the backward pass: if all gradients have arrived, waits for the
        buckets and stores the averages."""
        self.queued = False
        if self.next < len(self.buckets):
            # unless another backward pass completes the gradients, the next forward reports the
            # missing ones
            return
        used = None
        if self.find_unused or self.static:
            used = np.zeros(len(self.params), np.int32)
            used[list(self.used)] = 1
            dist.all_reduce(wrap_array(used), group=self.group)
            self.used_by = used
        self.used.clear()
        for b in self.buckets:
            if b.indices[0] in self.sparse:
                self._sparse(b, used)
                continue
            flat = b.flat
            if self.hook is not None:
                r = b.future.wait()
                r = r[0] if isinstance(r, (list, tuple)) else r
                if not is_tensor(r) or r.numel() != flat.numel():
                    raise RuntimeError("a communication hook must return one tensor with the bucket's number of elements")
                flat = r.reshape(-1)
                if flat._np_dtype != b.flat._np_dtype:
                    flat = flat.to(b.flat.dtype)
            elif b.future is not True:
                b.future.wait()
            self._hand_back(b, flat, used)
            b.future = None
        self.expecting = self.begun = False
        self.divide_by = None
        if self.rebuild and not self.joining:
            self._rebuild()

    joining = False

    def _hand_back(self, b, flat, used):
        if flat is not b.flat and (self.bucket_views or flat._handle is not None or b.flat._handle is not None):
            copy(b.flat, flat)
            flat = b.flat
        for k, (i, p) in enumerate(zip(b.indices, b.params)):
            if used is not None and not used[i]:
                continue  # unused on all ranks: the gradient stays unchanged
            part, g = b.part(k, flat), p._grad_
            if self.bucket_views:
                if g is None or not _same_memory(g, part):
                    p._grad_ = part
                else:
                    bump_version(g)
            elif g is None:
                p._grad_ = part.clone()
            else:
                copy(g, part)

    def _sparse(self, b, used):
        """Concatenates the sparse gradients of all ranks."""
        i, p = b.indices[0], b.params[0]
        g = p._grad_
        if g is not None and not isinstance(g, SparseTensor):
            raise NotImplementedError(f"the gradient of parameter {i} ({self.names[i]}), an embedding with sparse=True, is dense")
        mine = None if g is None else (np.array(to_host(g._indices())), np.array(to_host(g._values())))
        everybody = [None] * self.world
        dist.all_gather_object(everybody, mine, group=self.group)
        found = [x for x in everybody if x is not None]
        if not found:
            return
        indices = torch.from_numpy(np.concatenate([x[0] for x in found], axis=1))
        mean = torch.from_numpy(np.concatenate([x[1] for x in found])) / self._divide_by()
        p._grad_ = torch.sparse_coo_tensor(indices.to(p.device), mean.to(p.device), p.shape).coalesce()

    def _finish_learning(self):
        """Ends the first backward pass of a static graph, which determines which gradients arrive,
        and how often."""
        self.learning = False
        self.counts = list(self.seen)
        order = list(self.arrived)
        for i in range(len(self.params)):
            self._mark(i)
        self.arrived = order
        self._end()

    def _rebuild(self):
        """Rebuilds the buckets in the order in which rank 0's gradients arrived."""
        self.rebuild = False
        rest = [i for i in range(len(self.params) - 1, -1, -1) if i not in set(self.arrived)]
        order = wrap_array(np.array(self.arrived + rest, np.int64))
        dist.broadcast(order, src=dist.get_global_rank(self.group, 0), group=self.group)
        order = host_memory(order).tolist()
        if order != [i for b in self.buckets for i in b.indices]:
            self._cut(order)
            if self.bucket_views:
                for b in self.buckets:
                    if b.indices[0] in self.sparse:
                        continue
                    b.allocate()
                    for k, p in enumerate(b.params):
                        if p._grad_ is not None:
                            copy(b.part(k), p._grad_)
                            p._grad_ = b.part(k)

    # ---- for a process without further inputs
    def shadow(self, divide_by=None):
        """Sends buckets of zeros, and takes part in all other collectives at the end of a backward
        pass.

        The averages are stored in `AVERAGES`; gradients are unchanged.
        """
        self.prepare((), divide_by)
        # Gradients may be views of the buckets, so these are replaced for the time being.
        saved = [b.flat for b in self.buckets]
        for n, b in enumerate(self.buckets):
            b.flat = None
            if b.indices[0] not in self.sparse:
                b.allocate()
                self._send(n)
        # As in PyTorch, a process without inputs reports the parameters that were used in the last
        # reduction.
        used = self.used_by if self.find_unused or self.static else np.ones(len(self.params), np.int32)
        if used is self.used_by:
            dist.all_reduce(wrap_array(used), group=self.group)
        for b, own in zip(self.buckets, saved):
            if b.indices[0] in self.sparse:
                dist.all_gather_object([None] * self.world, None, group=self.group)
            else:
                flat = b.flat
                if b.future is not True:
                    r = b.future.wait()
                    if self.hook is not None:
                        flat = (r[0] if isinstance(r, (list, tuple)) else r).reshape(-1).to(flat.dtype)
                AVERAGES.update((id(p), b.part(k, flat)) for k, (i, p) in enumerate(zip(b.indices, b.params)) if used[i])
            b.flat, b.future = own, None
        self.expecting = self.begun = False


def _on_device_of(p, a):
    """Returns a tensor with the values of an array, on the device of `p`. On the host it shares the
    array's memory."""
    if p._handle is not None:
        return device_dispatch.host_to_device(a, p._device)
    t = wrap_array(a)
    t._device = p._device
    return t


def _same_memory(a, b):
    """True if two tensors of the same shape share memory."""
    if a._handle is not None or b._handle is not None:
        return a._handle is not None and b._handle is not None and storage_array(a._array) is storage_array(b._array) and address(a._array) == address(b._array)
    return np.may_share_memory(host_memory(a), host_memory(b))


def _leaves(outputs):
    """Returns the ids of the leaf tensors that the outputs' graphs reach."""
    found, seen = set(), set()
    stack = []
    for t in outputs:
        if t._grad_fn_ is not None:
            stack.append(t._grad_fn_)
        elif t._requires_grad_:
            found.add(id(t))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for e in node._next_edges:
            if e is None:
                continue
            if e.__class__ is tuple:
                if e[0] not in seen:
                    stack.append(e[0])
            else:
                found.add(id(e))
    return found
