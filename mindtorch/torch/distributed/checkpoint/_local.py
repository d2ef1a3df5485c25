"""This rank's part of a tensor, which for a DTensor is its local shard."""
import mindtorch.torch as torch


def local_chunk(value):
    """(offsets, the tensor) of this rank's part; None if it has none.  A tensor that is no DTensor is its own whole."""
    from mindtorch.torch.distributed.tensor import DTensor

    if not isinstance(value, DTensor):
        return torch.Size([0] * value.dim()), value
    from mindtorch.torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if value.device_mesh.get_coordinate() is None:
        return None
    if any(p.is_partial() for p in value.placements):
        raise NotImplementedError(f"a DTensor with placements {value.placements} holds sums that are not done yet: "
                                  "redistribute it before it is saved or loaded")
    shape, offsets = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    part = local_part(value)
    if tuple(part.shape) != tuple(shape):
        raise NotImplementedError(f"this rank's part has shape {tuple(part.shape)}, an even split gives {tuple(shape)}: "
                                  "DTensors with shards of other sizes are not supported in checkpoints")
    return None if part.numel() == 0 and value.numel() != 0 else (torch.Size(offsets), part)


def local_part(value):
    """A DTensor's local tensor; any other value itself."""
    from mindtorch.torch.distributed.tensor import DTensor

    return value._local_tensor if isinstance(value, DTensor) else value
