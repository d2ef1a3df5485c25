"""torch.functional: functions of the torch namespace that PyTorch implements in Python."""
from mindtorch.core.dispatch.op_registry import OPS

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "align_tensors", "broadcast_shapes", "broadcast_tensors", "cartesian_prod",
           "block_diag", "cdist", "chain_matmul", "einsum", "istft", "lu", "norm", "meshgrid", "pca_lowrank", "split", "stft",
           "svd_lowrank", "tensordot", "unique", "unique_consecutive", "unravel_index"]
__all__ = [n for n in __all__ if n in OPS]
globals().update({n: OPS[n].public for n in __all__})
