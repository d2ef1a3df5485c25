"""Hooks of the facade: functions that its lower modules call and its higher modules provide.

`mindtorch/torch/_bootstrap.py` assigns all of them. See `mindtorch/core/hooks.py`.
"""
import dataclasses
from collections.abc import Callable
from typing import Any

from mindtorch.backend.hooks import unset


@dataclasses.dataclass(slots=True, eq=False)
class Hooks:
    """The hooks of the facade. Each field is followed by its purpose and its provider."""

    takes_part_class: Callable[[type], bool] = unset("takes_part_class")
    """Returns True if a class has a `__torch_dispatch__`. From _dispatch_protocol.py."""
    enrol: Callable[[Any], None] = unset("enrol")
    """Records an instance of such a class. From _dispatch_protocol.py."""
    layer_operator: Callable[[str], Callable[..., Any]] = unset("layer_operator")
    """Returns the function of an operator of _aten_layer_names.py. From _aten_layer_ops.py."""
    higher_order: Callable[[str], Any] = unset("higher_order")
    """Returns the operator of torch.ops.higher_order with a name, or None. From _higher_order_ops."""
    higher_order_class: Callable[[], type] = unset("higher_order_class")
    """Returns the class HigherOrderOperator. From _higher_order.py."""
    op_modules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Namespace of torch.ops -> module that defines its operators in Python."""


hooks = Hooks()
