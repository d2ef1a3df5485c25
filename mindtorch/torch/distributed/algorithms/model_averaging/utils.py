"""Averaging of parameters over ranks."""
from mindtorch.core.tensor.tensor import is_tensor
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist

__all__ = ["average_parameters", "get_params_to_average", "average_parameters_or_parameter_groups"]


@torch.no_grad()
def average_parameters(params, process_group=None):
    """Replaces parameters by their mean over the ranks of a group."""
    group = dist.group.WORLD if process_group is None else process_group
    if dist.get_rank(group) < 0:
        return
    lots = {}
    for p in params:
        lots.setdefault(p.dtype, []).append(p)
    for lot in lots.values():
        flat = torch.cat([p.detach().reshape(-1) for p in lot]).div_(dist.get_world_size(group))
        dist.all_reduce(flat, group=group)
        at = 0
        for p in lot:
            p.copy_(flat[at:at + p.numel()].view(p.shape))
            at += p.numel()


def get_params_to_average(params):
    """Returns the parameters (of a list or of parameter groups) that have a gradient."""
    found = []
    for p in params:
        if isinstance(p, dict):
            found += [q for q in p["params"] if q.grad is not None]
        elif is_tensor(p):
            if p.grad is not None:
                found.append(p)
        else:
            raise NotImplementedError(f"Parameter input of type {type(p)} is not supported")
    return found


def average_parameters_or_parameter_groups(params, process_group):
    """Averages the parameters that have a gradient."""
    average_parameters(iter(get_params_to_average(params)), process_group)
