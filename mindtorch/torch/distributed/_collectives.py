"""The collectives and point-to-point operations of torch.distributed."""
import contextlib

from mindtorch.backend.comm import reduce as comm_reduce
from mindtorch.backend.comm.store import seconds
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.distributed._process_group import (ProcessGroup, get_group_rank, is_member, of, warn_outside, world)
from mindtorch.torch.distributed._reduce_op import ReduceOp
from mindtorch.torch.distributed._work import Work

SUM = ReduceOp.SUM


# ---------------------------------------------------------------- checks
def _check_tensor(t, name):
    if not is_tensor(t):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             "
                        f"but got {type(t)} instead.")
    if t.is_sparse:
        raise NotImplementedError(f"torch.distributed collectives do not support sparse tensors (parameter {name!r}, "
                                  f"dtype {t.dtype}, device {t.device})")


def _check_list(ts, name):
    if not isinstance(ts, (list, tuple)) or not all(is_tensor(t) for t in ts):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             "
                        f"but got {type(ts)} with elements of type {[type(t) for t in ts] if isinstance(ts, (list, tuple)) else ''}.")
    for t in ts:
        _check_tensor(t, name)


def _same_dtype(*parts):
    dtype = None
    for ts in parts:
        for t in ts if isinstance(ts, (list, tuple)) else [ts]:
            if dtype is None:
                dtype = t.dtype
            elif t.dtype is not dtype:
                raise ValueError("Invalid usage of tensors with different dtypes"
                                 f"Found {dtype} and  {t.dtype}")


def _same_sizes(ts, shape, name):
    for t in ts:
        if t.shape != shape:
            raise ValueError(f"{name}: tensor list must consist of tensors of the same size: {list(t.shape)} and {list(shape)}")


def _check_op(op, t, name):
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}(): op must be a torch.distributed.ReduceOp, not {op!r}")
    if op is ReduceOp.PREMUL_SUM:
        raise ValueError(f"{name}: ReduceOp.PREMUL_SUM needs its factor: torch.distributed._make_nccl_premul_sum(factor)")
    comm_reduce.check(op.name, t._np_dtype, str(t.dtype), name)


def _root(pg, rank, group_rank, name):
    """Returns the rank in the group for a global rank or a group rank, exactly one of which is
    passed."""
    if group_rank is not None:
        if rank is not None:
            raise ValueError(f"Can't specify both group_{name} and {name}")
        if not 0 <= group_rank < pg.size():
            raise ValueError(f"group_{name}={group_rank} is not a rank of a group of {pg.size()}")
        return group_rank
    if rank is None:
        raise ValueError(f"Must specify {name} or group_{name}")
    return get_group_rank(pg, rank) if pg is not world.default_pg else _of_world(pg, rank)


def _of_world(pg, rank):
    if not 0 <= rank < pg.size():
        raise ValueError(f"Global rank {rank} is not part of group {pg}")
    return rank


# ---------------------------------------------------------------- collectives
def all_reduce(tensor, op=SUM, group=None, async_op=False):
    """Replaces every rank's tensor by the reduction of all ranks' tensors. Returns a Work if
    `async_op`."""
    _check_tensor(tensor, "tensor")
    if not is_member(group):
        return warn_outside("all_reduce")
    pg = of(group)
    _check_op(op, tensor, "all_reduce")
    if _coalescing is not None and _coalescing.pg is pg:
        return _coalescing.add("all_reduce", op, tensor)
    return pg._engine.all_reduce([tensor], op, async_op)


def all_reduce_coalesced(tensors, op=SUM, group=None, async_op=False):
    """Runs all_reduce on several tensors of one dtype at once."""
    tensors = [tensors] if is_tensor(tensors) else tensors
    _check_list(tensors, "tensor")
    _same_dtype(tensors)
    if not is_member(group):
        return warn_outside("all_reduce_coalesced")
    for t in tensors:
        _check_op(op, t, "all_reduce_coalesced")
    return of(group)._engine.all_reduce(list(tensors), op, async_op)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Replaces every rank's tensor by the tensor of rank `src`."""
    _check_tensor(tensor, "tensor")
    if not is_member(group):
        return warn_outside("broadcast")
    pg = of(group)
    return pg._engine.broadcast(tensor, _root(pg, src, group_src, "src"), async_op)


def reduce(tensor, dst=None, op=SUM, group=None, async_op=False, group_dst=None):
    """Replaces rank `dst`'s tensor by the reduction of all ranks' tensors. The other ranks' tensors
    are unchanged."""
    _check_tensor(tensor, "tensor")
    if not is_member(group):
        return warn_outside("reduce")
    pg = of(group)
    _check_op(op, tensor, "reduce")
    return pg._engine.reduce(tensor, _root(pg, dst, group_dst, "dst"), op, async_op)


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Writes rank i's tensor to tensor_list[i]."""
    _check_list(tensor_list, "tensor_list")
    _check_tensor(tensor, "tensor")
    _same_dtype(tensor_list, tensor)
    if not is_member(group):
        return warn_outside("all_gather")
    pg = of(group)
    if len(tensor_list) != pg.size():
        raise ValueError(f"all_gather: tensor_list has {len(tensor_list)} tensors, the group {pg.size()} ranks")
    _same_sizes(tensor_list, tensor.shape, "all_gather")
    return pg._engine.all_gather(list(tensor_list), tensor, async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Writes all ranks' input tensors to output_tensor, concatenated along dimension 0 (or
    stacked)."""
    _check_tensor(input_tensor, "input_tensor")
    _check_tensor(output_tensor, "output_tensor")
    _same_dtype(output_tensor, input_tensor)
    if not is_member(group):
        return warn_outside("all_gather_into_tensor")
    pg = of(group)
    if output_tensor.numel() != input_tensor.numel() * pg.size():
        raise ValueError("output tensor size must be equal to world_size times input tensor size")
    if _coalescing is not None and _coalescing.pg is pg:
        return _coalescing.each(lambda: pg._engine.all_gather_single(output_tensor, input_tensor, True))
    return pg._engine.all_gather_single(output_tensor, input_tensor, async_op)


_all_gather_base = all_gather_single = all_gather_into_tensor


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """Runs all_gather on several tensors: output_tensor_lists[i] receives rank i's tensors."""
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for outs in output_tensor_lists:
        _check_list(outs, "output_tensor_lists")
    _check_list(input_tensor_list, "tensor_list")
    _same_dtype(input_tensor_list)
    if not is_member(group):
        return warn_outside("all_gather_coalesced")
    pg = of(group)
    if len(output_tensor_lists) != pg.size():
        raise ValueError(f"all_gather_coalesced: {len(output_tensor_lists)} lists for a group of {pg.size()} ranks")
    works = [pg._engine.all_gather([outs[k] for outs in output_tensor_lists], t, True) for k, t in enumerate(input_tensor_list)]
    return _together(works, async_op)


def reduce_scatter(output, input_list, op=SUM, group=None, async_op=False):
    """Writes the reduction of all ranks' input_list[own rank] to `output`."""
    _check_tensor(output, "output")
    _check_list(input_list, "input_list")
    _same_dtype(output, input_list)
    if not is_member(group):
        return warn_outside("reduce_scatter")
    pg = of(group)
    _check_op(op, output, "reduce_scatter")
    if len(input_list) != pg.size():
        raise ValueError(f"reduce_scatter: input_list has {len(input_list)} tensors, the group {pg.size()} ranks")
    if input_list[pg.rank()].shape != output.shape:
        raise ValueError(f"reduce_scatter: output of size {list(output.shape)} for inputs of size "
                         f"{list(input_list[pg.rank()].shape)}")
    return pg._engine.reduce_scatter(output, list(input_list), op, async_op)


def reduce_scatter_tensor(output, input, op=SUM, group=None, async_op=False):
    """Writes this rank's part of the reduction of all ranks' inputs to `output`."""
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    _same_dtype(output, input)
    if not is_member(group):
        return warn_outside("reduce_scatter_tensor")
    pg = of(group)
    _check_op(op, output, "reduce_scatter_tensor")
    if input.numel() != output.numel() * pg.size():
        raise ValueError("input tensor must be the same size as output size times world size")
    if _coalescing is not None and _coalescing.pg is pg:
        return _coalescing.each(lambda: pg._engine.reduce_scatter_single(output, input, op, True))
    return pg._engine.reduce_scatter_single(output, input, op, async_op)


_reduce_scatter_base = reduce_scatter_single = reduce_scatter_tensor


def _root_and_list(name, tensor, tensors, pg, rank, group_rank, which, where):
    """Returns (root's rank in the group, list) of a gather or scatter after checking that only the
    root (`where`) has a list."""
    root = 0 if rank is None and group_rank is None else _root(pg, rank, group_rank, which)
    if pg.rank() == root:
        if not tensors:
            raise ValueError(f"Argument ``{name}_list`` must be specified on {where} rank.")
        if len(tensors) != pg.size():
            raise ValueError(f"{name}: {name}_list has {len(tensors)} tensors, the group {pg.size()} ranks")
        _same_sizes(tensors, tensor.shape, name)
    elif tensors:
        raise ValueError(f"Argument ``{name}_list`` must NOT be specified on non-{where} ranks.")
    return root, list(tensors)


def _check_rooted(name, tensor, tensors):
    """Checks the arguments of a gather or scatter and returns the list ([] if there is none)."""
    _check_tensor(tensor, "tensor")
    if tensors:
        _check_list(tensors, f"{name}_list")
    else:
        tensors = []
    _same_dtype(tensor, tensors)
    return tensors


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Writes rank i's tensor to gather_list[i] on rank `dst` (default 0)."""
    gather_list = _check_rooted("gather", tensor, gather_list)
    if not is_member(group):
        return warn_outside("gather")
    pg = of(group)
    root, gather_list = _root_and_list("gather", tensor, gather_list, pg, dst, group_dst, "dst", "destination")
    return pg._engine.gather(tensor, gather_list, root, async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Writes scatter_list[own rank] of rank `src` (default 0) to `tensor`."""
    scatter_list = _check_rooted("scatter", tensor, scatter_list)
    if not is_member(group):
        return warn_outside("scatter")
    pg = of(group)
    root, scatter_list = _root_and_list("scatter", tensor, scatter_list, pg, src, group_src, "src", "source")
    return pg._engine.scatter(tensor, scatter_list, root, async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Writes rank i's input_tensor_list[own rank] to output_tensor_list[i]."""
    _check_list(output_tensor_list, "output_tensor_list")
    _check_list(input_tensor_list, "input_tensor_list")
    _same_dtype(output_tensor_list, input_tensor_list)
    if not is_member(group):
        return warn_outside("all_to_all")
    pg = of(group)
    for ts, name in ((output_tensor_list, "output_tensor_list"), (input_tensor_list, "input_tensor_list")):
        if len(ts) != pg.size():
            raise ValueError(f"all_to_all: {name} has {len(ts)} tensors, the group {pg.size()} ranks")
    return pg._engine.all_to_all(list(output_tensor_list), list(input_tensor_list), async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Sends a part of `input` (rows of dimension 0) to each rank and concatenates the parts
    received from all ranks in `output`."""
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    _same_dtype(output, input)
    if not is_member(group):
        return warn_outside("all_to_all_single")
    pg = of(group)
    rows = []
    for t, sizes, name in ((output, output_split_sizes, "output"), (input, input_split_sizes, "input")):
        if t.ndim == 0:
            raise RuntimeError(f"all_to_all_single: {name} needs at least one dimension")
        n = t.shape[0]
        if sizes is None or not len(sizes):
            if n % pg.size():
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            sizes = [n // pg.size()] * pg.size()
        if len(sizes) != pg.size():
            raise RuntimeError("Number of tensor splits not equal to group size")
        if sum(sizes) != n:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        rows.append([int(s) for s in sizes])
    return pg._engine.all_to_all_single(output, input, rows[0], rows[1], async_op)


def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Waits until all ranks of the group have called it."""
    if not is_member(group):
        return warn_outside("barrier")
    return of(group)._engine.barrier(async_op, None if timeout is None else seconds(timeout))


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Barrier whose error on rank 0 names the rank that did not arrive (all of them with
    `wait_all_ranks`)."""
    if not is_member(group):
        return warn_outside("monitored_barrier")
    pg = of(group)
    pg._engine.monitored_barrier(seconds(pg.timeout if timeout is None else timeout), wait_all_ranks)
    return None


# ---------------------------------------------------------------- point to point
def _peer(pg, rank, group_rank, name):
    peer = _root(pg, rank, group_rank, name)
    if peer == pg.rank():
        side = "destination" if name == "dst" else "source"
        raise ValueError(f"Invalid {side} rank: {side} rank should not be the same as the rank of the current process.")
    return peer


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends a tensor to rank `dst`. The tensor must not be modified until the returned Work is
    complete."""
    _check_tensor(tensor, "tensor")
    if not is_member(group):
        return warn_outside("isend")
    pg = of(group)
    return pg._engine.send(tensor, _peer(pg, dst, group_dst, "dst"), tag)


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives a tensor from rank `src`, or from any rank. Returns a Work."""
    _check_tensor(tensor, "tensor")
    if not is_member(group):
        return warn_outside("irecv")
    pg = of(group)
    anybody = src is None and group_src is None
    work = pg._engine.recv(tensor, None if anybody else _peer(pg, src, group_src, "src"), tag)
    return work


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends a tensor to rank `dst` and returns when the tensor may be modified again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives a tensor from rank `src`, or from any rank. Returns the sender's global rank (-1
    outside the group)."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One operation for batch_isend_irecv: isend or irecv, a tensor and a peer."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                             "``torch.distributed.irecv``.")
        _check_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = of(group) if is_member(group) else group
        if isinstance(self.group, ProcessGroup):
            self.group_peer = _root(self.group, peer, group_peer, "peer")
            self.peer = self.group.ranks[self.group_peer]
        else:
            self.group_peer, self.peer = group_peer, peer

    def __repr__(self):
        return f"P2POp({self.op.__name__} pg={self.group}, peer={self.peer}, {tuple(self.tensor.shape)}, {self.tensor.dtype})"


def batch_isend_irecv(p2p_op_list):
    """Starts all operations and returns their Works."""
    if not isinstance(p2p_op_list, list) or not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(p.group is not p2p_op_list[0].group for p in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    pg = p2p_op_list[0].group
    if not isinstance(pg, ProcessGroup):
        for p in p2p_op_list:
            warn_outside(p.op.__name__)
        return []
    return pg._engine.batch([(p.op is isend, p.tensor, _peer(pg, None, p.group_peer, "dst" if p.op is isend else "src"), p.tag) for p in p2p_op_list])


# ---------------------------------------------------------------- coalescing
class _Joined(Work):
    """Combines several works into one."""

    def __init__(self, works):
        super().__init__("coalesced operations", [t for w in works for t in w.result()])
        self._left, self._works = len(works), works
        if not works:
            self._finish()
        for w in works:
            w.get_future().add_done_callback(self._one)

    def _one(self, future):
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._finish(next((w.exception() for w in self._works if w.exception() is not None), None))


def _together(works, async_op):
    joined = _Joined(works)
    if async_op:
        return joined
    joined.wait()
    return None


class _Coalescing:
    """Operations issued inside `with _coalescing_manager()`."""

    def __init__(self, pg):
        self.pg, self.reductions, self.works = pg, [], []

    def add(self, kind, op, tensor):
        self.reductions.append((op, tensor))

    def each(self, start):
        self.works.append(start())

    def flush(self):
        groups = {}
        for op, t in self.reductions:
            groups.setdefault((op, t.dtype), []).append(t)
        for (op, _), ts in groups.items():
            self.works.append(self.pg._engine.all_reduce(ts, op, True))
        self.reductions = []


_coalescing = None


class _CoalescingManager:
    """Result of `with _coalescing_manager(async_ops=True) as cm`; cm.wait() waits for all
    operations."""

    def __init__(self):
        self.works = []

    def append(self, work=None):
        if work is not None:
            self.works.append(work)

    def wait(self):
        for w in self.works:
            w.wait()


@contextlib.contextmanager
def _coalescing_manager(group=None, device=None, async_ops=False):
    """Context manager that combines the reductions inside the block into joint transfers."""
    global _coalescing
    pg = of(group)
    if _coalescing is not None:
        raise AssertionError("ProcessGroup has non-empty op list at the start of coalescing")
    _coalescing, manager = _Coalescing(pg), _CoalescingManager()
    try:
        yield manager
        _coalescing.flush()
        for w in _coalescing.works:
            manager.append(w)
    finally:
        _coalescing = None
    if not async_ops:
        manager.wait()
