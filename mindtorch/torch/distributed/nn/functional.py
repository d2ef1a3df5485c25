"""torch.distributed.nn.functional: differentiable collectives.

Each backward is the collective that sends gradients in the opposite direction. All ranks must
therefore run backward, in the same order.
"""
import mindtorch.torch as torch
from mindtorch.torch.autograd import Function
from mindtorch.torch.distributed import _collectives as c
from mindtorch.torch.distributed import distributed_c10d as dist
from mindtorch.torch.distributed._process_group import of
from mindtorch.torch.distributed._reduce_op import ReduceOp

__all__ = ["broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_single",
           "all_reduce"]


def broadcast(tensor, src, group=None):
    """Returns rank `src`'s tensor on every rank. The gradient at `src` is the sum over all ranks.
    """
    return _Broadcast.apply(src, group, tensor)


def gather(tensor, dst=0, group=None):
    """Returns the tuple of all ranks' tensors at rank `dst`, zeros elsewhere. Gradients return to
    their ranks."""
    return _Gather.apply(dst, group, tensor)


def scatter(tensors, src=0, group=None):
    """Returns this rank's entry of rank `src`'s tensors. Gradients are gathered at `src`."""
    return _Scatter.apply(src, group, *tensors)


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    """Returns the reduction at rank `dst`. Its gradient is broadcast to all ranks."""
    return _Reduce.apply(dst, op, group, tensor)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """Returns this rank's part of the reduction of all ranks' lists. Its gradient is gathered from
    all ranks."""
    return _ReduceScatter.apply(op, group, output, *input_list)


def all_gather(tensor, group=None):
    """Returns the tuple of all ranks' tensors. The gradient is the sum of all ranks' gradients for
    this rank's tensor."""
    return _AllGather.apply(group, tensor)


def all_gather_into_tensor(output, input, group=None):
    """Returns all ranks' tensors concatenated along dimension 0."""
    return _AllGatherSingle.apply(group, output, input)


_all_gather_base = all_gather_into_tensor


def all_to_all(output_tensor_list, input_tensor_list, group=None):
    """Returns the tuple of the tensors that all ranks send to this rank. Gradients return to the
    senders."""
    return _AllToAll.apply(group, tuple(output_tensor_list), *input_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    """Like `all_to_all`, for slices of one tensor along dimension 0."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """Returns the reduction on every rank. The gradient is the same reduction of all ranks'
    gradients."""
    return _AllReduce.apply(op, group, tensor)


def _dense(t):
    return t.detach().clone(memory_format=torch.contiguous_format)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        out = _dense(tensor)
        c.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        g = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grad)
        if of(ctx.group).ranks[of(ctx.group).rank()] != ctx.src:
            g = torch.zeros_like(g)
        return None, None, g


class _Gather(Function):
    @staticmethod
    def forward(ctx, dst, group, tensor):
        ctx.dst, ctx.group = dst, group
        pg = of(group)
        outs = [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for _ in range(pg.size())]
        mine = pg.ranks[pg.rank()] == dst
        c.gather(_dense(tensor), outs if mine else None, dst, group)
        return tuple(outs)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx, src, group, *tensors):
        ctx.src, ctx.group = src, group
        if any(t.shape != tensors[0].shape for t in tensors):
            raise AssertionError("scatter expects tensors of equal size")
        pg = of(group)
        out = torch.zeros_like(tensors[0], memory_format=torch.contiguous_format)
        mine = pg.ranks[pg.rank()] == src
        c.scatter(out, [_dense(t) for t in tensors] if mine else None, src, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return (None, None, *_Gather.apply(ctx.src, ctx.group, grad))


class _Reduce(Function):
    @staticmethod
    def forward(ctx, dst, op, group, tensor):
        ctx.dst, ctx.group = dst, group
        out = _dense(tensor)
        c.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, op, group, output, *inputs):
        ctx.group = group
        out = _dense(output)
        c.reduce_scatter(out, [_dense(t) for t in inputs], op, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return (None, None, None, *_AllGather.apply(ctx.group, grad))


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        outs = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(of(group).size())]
        c.all_gather(outs, _dense(tensor), group)
        return tuple(outs)

    @staticmethod
    def backward(ctx, *grads):
        pg = of(ctx.group)
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, torch.empty_like(grads[pg.rank()]), *grads)


class _AllGatherSingle(Function):
    @staticmethod
    def forward(ctx, group, output, input):
        ctx.group = group
        out = _dense(output)
        c.all_gather_into_tensor(out, _dense(input), group)
        return out

    @staticmethod
    def backward(ctx, grad):
        pg = of(ctx.group)
        parts = grad.chunk(pg.size()) if grad.shape[0] % pg.size() == 0 else None
        if parts is None:
            raise RuntimeError(f"the gradient of all_gather_into_tensor needs a first dimension divisible by the group size {pg.size()}, got {grad.shape[0]}")
        return None, None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, torch.empty_like(parts[0]), *parts)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, group, outs, *ins):
        ctx.group = group
        ctx.shapes = [tuple(t.shape) for t in ins]
        filled = [_dense(t) for t in outs]
        c.all_to_all(filled, [_dense(t) for t in ins], group)
        return tuple(filled)

    @staticmethod
    def backward(ctx, *grads):
        homes = tuple(torch.empty(s, dtype=grads[0].dtype, device=grads[0].device) for s in ctx.shapes)
        return (None, None, *_AllToAll.apply(ctx.group, homes, *grads))


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx, group, output, out_sizes, in_sizes, input):
        ctx.group, ctx.shape, ctx.out_sizes, ctx.in_sizes = group, tuple(input.shape), out_sizes, in_sizes
        out = _dense(output)
        c.all_to_all_single(out, _dense(input), out_sizes, in_sizes, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        home = torch.empty(ctx.shape, dtype=grad.dtype, device=grad.device)
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, home, ctx.in_sizes, ctx.out_sizes, grad)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        out = _dense(tensor)
        dist.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)
