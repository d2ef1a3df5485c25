"""torch.fx.node."""
from typing import Any, Callable, Union

from mindtorch.torch._refusing import refuse

Target = Union[Callable[..., Any], str]
Argument = Any


def has_side_effect(fn):
    """Marks a function that graphs must keep; gives it back."""
    return fn


refuse(globals(), "modules are not captured as graphs; they run eagerly", "map_arg map_aggregate", "Node")
