"""torch.fx.operator_schemas: arguments under the names of a function's signature."""
from typing import Any, NamedTuple


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
