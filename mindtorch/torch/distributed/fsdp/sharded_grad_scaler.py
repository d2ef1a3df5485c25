"""ShardedGradScaler: a GradScaler whose ranks agree on whether a gradient overflowed."""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.torch.amp import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """GradScaler for sharded gradients. All ranks skip a step if one rank has an inf or NaN."""

    def __init__(self, device="cpu", init_scale=2.0 ** 16, backoff_factor=0.5, growth_factor=2.0, growth_interval=2000, enabled=True,
                 process_group=None):
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group

    def _unscale(self, grads, s, *args):
        r = super()._unscale(grads, s, *args)
        found = torch.tensor([1.0 if s["found_inf"] else 0.0], device="cpu")
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self.process_group)
        s["found_inf"] = found.item() > 0
        return r
