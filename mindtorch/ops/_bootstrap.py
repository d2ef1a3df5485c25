"""Assigns the hooks of core that the ops provide. Imported by the package after the ops."""
from mindtorch.core.hooks import hooks
from mindtorch.ops import basic
from mindtorch.ops.creation import create, random

hooks.cast = basic.cast
hooks.add = basic.add_
hooks.clone = basic.clone
hooks.new_full = basic.new_full
hooks.sum_to = basic.sum_to
hooks.cast_grad = basic.cast_grad
hooks.legacy_constructor = create._legacy
hooks.device_generator = random._default_generator
