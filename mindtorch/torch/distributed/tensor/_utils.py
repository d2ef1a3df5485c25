"""Which part of a tensor a rank holds, and the communication when placements change."""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.torch.distributed.tensor.placement_types import Placement, Replicate, Shard


def chunk(size, parts, index):
    """Returns (start, length) of chunk `index` when a dimension of this size is split into `parts`
    chunks."""
    step = -(-size // parts)
    start = min(index * step, size)
    return start, min(step, size - start)


def compute_local_shape_and_global_offset(global_shape, mesh, placements, skip_offset=False):
    """Returns (shape of this rank's part, its offset in the full tensor)."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,) * len(global_shape), (0,) * len(global_shape)
    shape, offset = list(global_shape), [0] * len(global_shape)
    for d, p in enumerate(placements):
        if p.is_shard():
            start, length = chunk(shape[p.dim], mesh.size(d), coordinate[d])
            shape[p.dim] = length
            offset[p.dim] += start
    return tuple(shape), tuple(offset)


def compute_local_shape(global_shape, mesh, placements):
    """Returns the shape of this rank's part."""
    return compute_local_shape_and_global_offset(global_shape, mesh, placements)[0]


def compute_global_tensor_info(tensor, mesh, placements):
    """Returns (shape, stride) of the full tensor, assuming that all ranks' parts have this size."""
    shape = list(tensor.shape)
    for d, p in enumerate(placements):
        if p.is_shard():
            shape[p.dim] *= mesh.size(d)
    stride, n = [], 1
    for s in reversed(shape):
        stride.insert(0, n)
        n *= s
    return shape, stride


def normalised(placements, mesh, ndim):
    """Returns placements as a tuple, one per dimension of the mesh, with non-negative dimensions.
    """
    if placements is None:
        return (Replicate(),) * mesh.ndim
    placements = (placements,) if isinstance(placements, Placement) else tuple(placements)
    if len(placements) != mesh.ndim:
        raise ValueError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
                         f"{len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
    out = []
    for p in placements:
        if not isinstance(p, Placement):
            raise TypeError(f"a placement must be Shard, Replicate or Partial, not {type(p).__name__}")
        if p.is_shard():
            dim = p.dim + ndim if p.dim < 0 else p.dim
            if not 0 <= dim < ndim:
                raise RuntimeError(f"Sharding dim {p.dim} greater than tensor ndim {ndim}")
            p = Shard(dim)
        out.append(p)
    return tuple(out)


def _level_shape(shape, mesh, placements, upto):
    """Returns the shape of this rank's part when only the first `upto` dimensions of the mesh split
    it."""
    return list(compute_local_shape(shape, mesh, [*placements[:upto], *[Replicate()] * (len(placements) - upto)]))


_OPS = {"sum": "SUM", "max": "MAX", "min": "MIN", "product": "PRODUCT", "avg": "AVG"}


def _reduced(local, mesh, d, partial):
    if partial.reduce_op not in _OPS:
        raise NotImplementedError(f"Partial({partial.reduce_op!r}) is not supported")
    out = local.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(out, op=getattr(dist.ReduceOp, _OPS[partial.reduce_op]), group=mesh.get_group(d))
    return out


def _gathered(local, mesh, d, dim, size):
    """Gathers the parts of all ranks along a dimension of the mesh, to a size of `size`."""
    n = mesh.size(d)
    step = -(-size // n)
    piece = local.detach()
    if piece.size(dim) < step:
        shape = list(piece.shape)
        shape[dim] = step - piece.size(dim)
        piece = torch.cat([piece, piece.new_zeros(shape)], dim)
    piece = piece.contiguous()
    pieces = [torch.empty_like(piece) for _ in range(n)]
    dist.all_gather(pieces, piece, group=mesh.get_group(d))
    return torch.cat(pieces, dim).narrow(dim, 0, size)


def transformed(local, mesh, shape, source, target):
    """Returns this rank's part of the same tensor under other placements. All ranks of the mesh
    must take part."""
    if source == target:
        return local
    n = mesh.ndim
    changed = {d for d in range(n) if source[d] != target[d]}
    for d in range(n):
        # A split nested in another split of the same dimension must be undone before the outer one
        # can change, and redone after.
        if d not in changed and source[d].is_shard() and any(
                e < d and (source[e].is_shard(source[d].dim) or target[e].is_shard(source[d].dim)) for e in changed):
            changed.add(d)
    for d in sorted(changed):
        if target[d].is_partial():
            raise RuntimeError("redistribute from " + f"{source[d]} to {target[d]} is not supported: Partial is not a valid target")
    now = list(source)
    for d in sorted(changed, reverse=True):
        p = now[d]
        if p.is_shard():
            local = _gathered(local, mesh, d, p.dim, _level_shape(shape, mesh, now, d)[p.dim])
        elif p.is_partial():
            local = _reduced(local, mesh, d, p)
        now[d] = Replicate()
    coordinate = mesh.get_coordinate()
    for d in sorted(changed):
        p = target[d]
        if p.is_shard():
            start, length = chunk(local.size(p.dim), mesh.size(d), coordinate[d])
            local = local.narrow(p.dim, start, length)
        now[d] = p
    return local.detach().contiguous()
