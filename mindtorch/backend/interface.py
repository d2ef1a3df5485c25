"""Type aliases for the interfaces of backend and core. They document intent and cost nothing at run
time."""
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

#: host memory: operand and result of kernels on `cpu`
Array: TypeAlias = np.ndarray
#: element type of an array or tensor (core/tensor/dtypes.py)
NpDtype: TypeAlias = np.dtype
Sizes: TypeAlias = tuple[int, ...]
#: in elements, unless stated otherwise
Strides: TypeAlias = tuple[int, ...]
#: reference to a device's own memory; only the device inspects it
Handle: TypeAlias = object
#: a function over arrays or handles, with constants as keywords; returns one result or a tuple
Kernel: TypeAlias = Callable[..., Any]
#: stride rule of a result: (result, operands, constants) -> the result with the right strides
Layout: TypeAlias = Callable[[Array, Any, dict[str, Any]], Array]
Number: TypeAlias = bool | int | float | complex
