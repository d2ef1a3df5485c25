"""torch.utils.flop_counter."""
from mindtorch.torch._refusing import refuse


def register_flop_formula(targets, get_raw=False):
    """Decorator; gives the formula back."""
    return lambda fn: fn


refuse(globals(), "operations are not counted", "sdpa_flop_count conv_flop_count", "FlopCounterMode")
