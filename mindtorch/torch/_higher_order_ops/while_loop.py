"""torch.while_loop."""
from mindtorch.torch._control_flow import while_loop
from mindtorch.torch._higher_order_ops._operators import operator

__all__ = ["while_loop", "while_loop_op"]


@operator("while_loop")
def while_loop_op(cond_fn, body_fn, carried_inputs, additional_inputs=()):
    """The carried inputs after body_fn has been applied while cond_fn says so."""
    more = tuple(additional_inputs)
    return while_loop(lambda *carried: cond_fn(*carried, *more), lambda *carried: body_fn(*carried, *more), carried_inputs)
