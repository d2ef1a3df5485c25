"""Assigns the hooks of core and backend that core provides. Imported by `mindtorch.ops` before the ops."""
import functools

from mindtorch.backend.hooks import hooks as backend_hooks
from mindtorch.core.autograd import engine
from mindtorch.core.dispatch import autocast, lazy_conj, meta, op_registry
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import scalars, sparse, storage_impl, tensor
from mindtorch.core.transforms import functorch_levels, vmap

hooks.unlock_memory = storage_impl.on_write
hooks.register_meta_tensor = meta._enrol
hooks.meta_wanted = meta.wake
hooks.meta_like = meta.of
hooks.made_in_transform = functorch_levels.made
hooks.resize_host = op_registry.resize

hooks.bits_shallow_copy = lazy_conj._shallow_copy
hooks.bits_write = lazy_conj._write
hooks.bits_values = lazy_conj._values
hooks.bits_resolved = lazy_conj.resolved
hooks.bits_set_memory = lazy_conj._set_memory
hooks.bits_flipped = lazy_conj._turned
hooks.bits_related = lazy_conj._related
hooks.bits_turning = lazy_conj._turning

hooks.batched_write = vmap._write
hooks.batched_values = vmap._values
hooks.batched_write_by = vmap._write_by

hooks.sparse_answer = sparse.answer
hooks.read_number = scalars.read
hooks.accumulate = engine._accumulate

backend_hooks.autocast_call_in = autocast.call_in
backend_hooks.to_float32 = functools.partial(autocast._to, d=autocast._F32)
backend_hooks.parameter_class = tensor.Parameter
backend_hooks.rebase_parameter = tensor._follow
