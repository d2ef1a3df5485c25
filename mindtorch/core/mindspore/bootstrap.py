"""Assigns the hooks of core and backend that `core/mindspore/` and compiled steps in MindSpore's
style provide. Imported by `torch/_tensor.py` when Tensor's methods are complete.

From then on MindSpore's ops check their arguments for facade tensors.
"""
from mindtorch.backend.hooks import hooks as backend_hooks
from mindtorch.core.compile import graph_mode, replay
from mindtorch.core.hooks import hooks
from mindtorch.core.mindspore import autograd, cells, functional_grad

hooks.lazy_tensor_class = functional_grad.LazyTensor
hooks.materialize_native = functional_grad.materialize

backend_hooks.call_op = autograd._call
backend_hooks.refuse_bprop = autograd._refuse_bprop
backend_hooks.prepare_operands = autograd._look
backend_hooks.follow_grad_mode = autograd._follow_native
backend_hooks.part_of_parameter = autograd._part_of_parameter
backend_hooks.native_values = autograd._native_values
backend_hooks.write_subscript = autograd._write_subscript
backend_hooks.write_through = autograd._write_through
backend_hooks.note_write = autograd.wrote
backend_hooks.note_optimizer_step = autograd._prepare_steps
backend_hooks.copy_back = autograd._written_elsewhere

backend_hooks.step_session = graph_mode.step
backend_hooks.step_possible = graph_mode.possible
backend_hooks.step_active = graph_mode.active
backend_hooks.step_suspended = graph_mode.suspended
backend_hooks.step_flush = graph_mode.flush
backend_hooks.step_postpone = graph_mode.defer_until_end
backend_hooks.step_grad_forward = functional_grad.forward
backend_hooks.step_gradients = functional_grad.gradients
backend_hooks.step_layer = cells.run


def _assign_native_ops() -> None:
    """Assigns the hooks that only compiled steps need, when the first step is compiled."""
    from mindtorch.backend.mindspore import native_ops
    from mindtorch.core.mindspore import ops

    hooks.defer_native_op = ops.op
    hooks.defer_native_layer = ops.layer
    backend_hooks.step_function = ops.function
    backend_hooks.step_optimizer = ops.step
    backend_hooks.step_uses = ops.put_off
    backend_hooks.step_set_parameter = native_ops.set_in_place


replay.at_first.append(_assign_native_ops)
autograd.watch()
