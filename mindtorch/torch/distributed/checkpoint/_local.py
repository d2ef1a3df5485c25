"""This rank's part of a tensor; for a DTensor this is its local shard."""
import mindtorch.torch as torch


def local_chunk(value):
    """Returns (offsets, tensor) of this rank's part, or None if it has none. For a tensor that is
    not a DTensor: the complete tensor."""
    from mindtorch.torch.distributed.tensor import DTensor

    if not isinstance(value, DTensor):
        return torch.Size([0] * value.dim()), value
    from mindtorch.torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if value.device_mesh.get_coordinate() is None:
        return None
    if any(p.is_partial() for p in value.placements):
        raise NotImplementedError(f"a DTensor with placements {value.placements} has unreduced partial sums: "
                                  "redistribute it before it is saved or loaded")
    shape, offsets = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    part = local_part(value)
    if tuple(part.shape) != tuple(shape):
        raise NotImplementedError(f"this rank's part has shape {tuple(part.shape)}, an even split gives {tuple(shape)}: "
                                  "DTensors with shards of other sizes are not supported in checkpoints")
    return None if part.numel() == 0 and value.numel() != 0 else (torch.Size(offsets), part)


def local_part(value):
    """Returns a DTensor's local tensor. Returns any other value unchanged."""
    from mindtorch.torch.distributed.tensor import DTensor

    return value._local_tensor if isinstance(value, DTensor) else value
