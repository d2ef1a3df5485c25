"""torch.distributed._functional_collectives: collectives that return new tensors.

A group is a ProcessGroup, a list of global ranks, a 1-D DeviceMesh, a pair (DeviceMesh, dimension)
or a group's name. Results are complete when they are returned, so `wait_tensor` returns its
argument.
"""
import mindtorch.torch as torch
from mindtorch.torch.autograd import Function
from mindtorch.torch.distributed import _collectives as c
from mindtorch.torch.distributed import distributed_c10d as dist
from mindtorch.torch.distributed._reduce_op import ReduceOp

AsyncCollectiveTensor = type("AsyncCollectiveTensor", (), {
    "__doc__": "PyTorch's class of pending results. It has no instances: results here are always complete.", "__module__": __name__})


def _group(group, tag=""):
    if isinstance(group, str):
        return dist._resolve_process_group(group)
    if isinstance(group, (list, tuple)) and group and all(isinstance(r, int) for r in group):
        return dist._find_or_create_pg_by_ranks_and_tag(tag, list(group), len(group))
    if isinstance(group, tuple) and len(group) == 2:
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        return group.get_group()
    return dist._group_or_default_group(group)


def _op(name):
    if isinstance(name, ReduceOp):
        return name
    names = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN, "max": ReduceOp.MAX,
             "band": ReduceOp.BAND, "bor": ReduceOp.BOR, "bxor": ReduceOp.BXOR}
    if name.lower() not in names:
        raise ValueError(f"unknown reduction {name!r}; one of {', '.join(names)}")
    return names[name.lower()]


def _dense(t):
    return t.detach().clone(memory_format=torch.contiguous_format)


def wait_tensor(tensor):
    """Returns the tensor, which is already complete."""
    return tensor


def broadcast(self, src, group, tag=""):
    """Returns rank `src`'s tensor."""
    out = _dense(self)
    c.broadcast(out, src, _group(group, tag))
    return out


def all_reduce(self, reduceOp, group, tag=""):
    """Returns the reduction of all ranks' tensors."""
    out = _dense(self)
    c.all_reduce(out, _op(reduceOp), _group(group, tag))
    return out


def all_gather_tensor(self, gather_dim, group, tag=""):
    """Returns all ranks' tensors, concatenated along `gather_dim`."""
    pg = _group(group, tag)
    out = torch.empty((pg.size(), *self.shape), dtype=self.dtype, device=self.device)
    c.all_gather_into_tensor(out, _dense(self), pg)
    return torch.cat(list(out.unbind(0)), gather_dim)


def reduce_scatter_tensor(self, reduceOp, scatter_dim, group, tag=""):
    """Returns this rank's part, along `scatter_dim`, of the reduction."""
    pg = _group(group, tag)
    n = pg.size()
    if self.shape[scatter_dim] % n:
        raise AssertionError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {n}")
    parts = torch.cat(list(self.detach().chunk(n, scatter_dim)), 0) if scatter_dim else _dense(self)
    shape = list(self.shape)
    shape[scatter_dim] //= n
    out = torch.empty(shape, dtype=self.dtype, device=self.device)
    c.reduce_scatter_tensor(out, parts.contiguous(), _op(reduceOp), pg)
    return out


def all_reduce_coalesced(self, reduceOp, group, tag=""):
    """Runs all_reduce on each tensor of a list."""
    return [all_reduce(t, reduceOp, group, tag) for t in self]


def all_gather_into_tensor_coalesced(self, group, tag=""):
    """Runs all_gather_tensor along dimension 0 on each tensor of a list."""
    return [all_gather_tensor(t, 0, group, tag) for t in self]


def reduce_scatter_tensor_coalesced(inputs, reduceOp, scatter_dim, group, tag=""):
    """Runs reduce_scatter_tensor on each tensor of a list."""
    return [reduce_scatter_tensor(t, reduceOp, d, group, tag) for t, d in zip(inputs, scatter_dim)]


def all_to_all_single(self, output_split_sizes, input_split_sizes, group, tag=""):
    """Returns the parts that all ranks send to this rank, concatenated along dimension 0."""
    pg = _group(group, tag)
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = torch.empty((rows, *self.shape[1:]), dtype=self.dtype, device=self.device)
    c.all_to_all_single(out, _dense(self), output_split_sizes, input_split_sizes, pg)
    return out


def permute_tensor(self, src_dst, group, tag=""):
    """Sends this tensor to rank `src_dst[own rank]` and returns the tensor whose destination in
    `src_dst` is this rank."""
    pg = _group(group, tag)
    me, n = pg.rank(), pg.size()
    rows = self.shape[0] if self.ndim else 1
    flat = _dense(self).reshape(rows, -1)
    sends = [rows if i == src_dst[me] else 0 for i in range(n)]
    gets = [rows if src_dst[i] == me else 0 for i in range(n)]
    out = torch.empty((sum(gets), flat.shape[1]), dtype=self.dtype, device=self.device)
    c.all_to_all_single(out, flat, gets, sends, pg)
    return out.reshape(self.shape)


# ---- differentiable collectives
class _AllGatherTensor(Function):
    @staticmethod
    def forward(ctx, t, dim, group):
        ctx.dim, ctx.group = dim, group
        return all_gather_tensor(t, dim, group)

    @staticmethod
    def backward(ctx, g):
        return _ReduceScatterTensor.apply(g, "sum", ctx.dim, ctx.group), None, None


class _ReduceScatterTensor(Function):
    @staticmethod
    def forward(ctx, t, op, dim, group):
        if _op(op) not in (ReduceOp.SUM, ReduceOp.AVG):
            raise NotImplementedError(f"the gradient of reduce_scatter_tensor with reduction {op!r} is not implemented "
                                      f"(dtype {t.dtype}, device {t.device})")
        ctx.mean, ctx.dim, ctx.group = _op(op) is ReduceOp.AVG, dim, group
        return reduce_scatter_tensor(t, op, dim, group)

    @staticmethod
    def backward(ctx, g):
        g = _AllGatherTensor.apply(g, ctx.dim, ctx.group)
        return g / ctx.group.size() if ctx.mean else g, None, None, None


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx, t, gets, sends, group):
        ctx.gets, ctx.sends, ctx.group = gets, sends, group
        return all_to_all_single(t, gets, sends, group)

    @staticmethod
    def backward(ctx, g):
        return _AllToAllSingle.apply(g, ctx.sends, ctx.gets, ctx.group), None, None, None


def all_gather_tensor_autograd(self, gather_dim, group, tag=""):
    """Differentiable all_gather_tensor. Its gradient is the sum over all ranks of their gradients
    for this rank's tensor."""
    return _AllGatherTensor.apply(self, gather_dim, _group(group, tag))


def reduce_scatter_tensor_autograd(self, reduceOp, scatter_dim, group, tag=""):
    """Differentiable reduce_scatter_tensor, for sum and avg."""
    return _ReduceScatterTensor.apply(self, reduceOp, scatter_dim, _group(group, tag))


def all_to_all_single_autograd(self, output_split_sizes, input_split_sizes, group, tag=""):
    """Differentiable all_to_all_single."""
    return _AllToAllSingle.apply(self, output_split_sizes, input_split_sizes, _group(group, tag))
