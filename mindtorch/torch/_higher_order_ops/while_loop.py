"""torch.while_loop."""
from mindtorch.torch._control_flow import while_loop
from mindtorch.torch._higher_order_ops._operators import operator

__all__ = ["while_loop", "while_loop_op"]


@operator("while_loop")
def while_loop_op(cond_fn, body_fn, carried_inputs, additional_inputs=()):
    """Applies body_fn to the carried inputs while cond_fn is true, and returns them."""
    more = tuple(additional_inputs)
    return while_loop(lambda *carried: cond_fn(*carried, *more), lambda *carried: body_fn(*carried, *more), carried_inputs)
