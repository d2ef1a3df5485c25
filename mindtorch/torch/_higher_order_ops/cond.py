"""torch.cond."""
from mindtorch.torch import _control_flow
from mindtorch.torch._control_flow import cond
from mindtorch.torch._higher_order_ops._operators import operator

__all__ = ["cond", "cond_op"]


@operator("cond")
def cond_op(pred, true_fn, false_fn, operands=()):
    """Returns true_fn(*operands) if pred, else false_fn(*operands)."""
    return _control_flow.run_branch(pred, true_fn, false_fn, operands)
