"""Assigns the hooks of core and backend that are needed from the start and that the facade provides,
and what lower modules of the facade get from higher ones."""
from mindtorch.backend.hooks import hooks as backend_hooks
from mindtorch.core.hooks import hooks
from mindtorch.core.mindspore import autograd as mindspore_autograd
from mindtorch.torch import _function_protocol, _graph, _untyped_storage, storage
from mindtorch.torch._hooks import hooks as facade_hooks

CAPTURE = "followed"

hooks.attach_native_history = mindspore_autograd.wrap_native
hooks.subclass_made = _function_protocol.subclass_made
hooks.storage_on = _untyped_storage._on
hooks.storage_moved = _untyped_storage._moved
hooks.tensor_of_storage = storage.set_source

backend_hooks.export_cell = _graph.export_cell


# ------------------------------------------------------------------ within the facade
# These modules are imported on first use.
def _takes_part_class(cls: type) -> bool:
    from mindtorch.torch import _dispatch_protocol
    return _dispatch_protocol.takes_part_class(cls)


def _enrol(t):
    from mindtorch.torch import _dispatch_protocol
    _dispatch_protocol.enrol(t)


def _layer_operator(name):
    from mindtorch.torch import _aten_layer_ops
    return getattr(_aten_layer_ops, name)


def _higher_order(name):
    from mindtorch.torch._higher_order_ops import _operators  # the package registers them
    return _operators.OPERATORS.get(name)


def _higher_order_class():
    from mindtorch.torch._higher_order import HigherOrderOperator
    return HigherOrderOperator


facade_hooks.takes_part_class = _takes_part_class
facade_hooks.enrol = _enrol
facade_hooks.layer_operator = _layer_operator
facade_hooks.higher_order = _higher_order
facade_hooks.higher_order_class = _higher_order_class
facade_hooks.op_modules.update({n: f"mindtorch.torch.{m}" for n, m in (("torchvision", "_vision_ops"), ("image", "_image_ops"), ("profiler", "_profiler_ops"))})
