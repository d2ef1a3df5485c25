"""Operators that modules above `mindtorch/torch/_ops.py` define, and that torch.ops loads on first
use. `mindtorch/torch/_bootstrap.py` assigns all of it."""
from collections.abc import Callable
from typing import Any

#: namespace -> function that imports the module that defines the namespace's operators
modules: dict[str, Callable[[], object]] = {}

#: name of an operator of `mindtorch/torch/_aten_layer_names.py` -> its function
layer_operator: Callable[[str], Callable[..., Any]]

#: name -> operator of torch.ops.higher_order, or None
higher_order: Callable[[str], Any]

#: returns the class HigherOrderOperator
higher_order_class: Callable[[], type]
