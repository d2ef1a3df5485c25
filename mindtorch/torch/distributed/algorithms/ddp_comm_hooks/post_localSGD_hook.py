"""Post-local SGD: gradients are averaged within a subgroup after a number of steps."""
import mindtorch.torch.distributed as dist
from mindtorch.torch.distributed.algorithms.ddp_comm_hooks import default_hooks

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """State of the hook: gradients are averaged over `process_group` until `start_localSGD_iter`,
    then over `subgroup` (or not at all)."""

    def __init__(self, process_group, subgroup, start_localSGD_iter, post_local_gradient_allreduce=True):
        if post_local_gradient_allreduce and subgroup is None:
            subgroup, _ = dist.new_subgroups()
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter, self.post_local_gradient_allreduce = start_localSGD_iter, post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket):
        """Increments the step count at the last bucket of a step."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state, bucket):
    """Communication hook with a PostLocalSGDState."""
    local = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if not local:
        return default_hooks.allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        from mindtorch.torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
        return noop_hook(None, bucket)
    return default_hooks.allreduce_hook(state.subgroup, bucket)
