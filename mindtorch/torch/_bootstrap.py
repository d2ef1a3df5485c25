"""Assigns the hooks of core and backend that are needed from the start and that the facade provides."""
from mindtorch.backend.hooks import hooks as backend_hooks
from mindtorch.core.hooks import hooks
from mindtorch.core.mindspore import autograd as mindspore_autograd
from mindtorch.torch import _function_protocol, _graph, _untyped_storage, storage

hooks.attach_native_history = mindspore_autograd.wrap_native
hooks.subclass_made = _function_protocol.subclass_made
hooks.storage_on = _untyped_storage._on
hooks.storage_moved = _untyped_storage._moved
hooks.tensor_of_storage = storage.set_source

backend_hooks.export_cell = _graph.export_cell
