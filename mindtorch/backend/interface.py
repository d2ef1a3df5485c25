"""The words in which the interfaces of backend and core are annotated.  They say what is meant, and cost nothing."""
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

#: host memory: what a kernel on `cpu` takes and gives
Array: TypeAlias = np.ndarray
#: element type of an array or tensor (core/dtypes.py)
Stype: TypeAlias = np.dtype
Sizes: TypeAlias = tuple[int, ...]
#: in elements, where nothing else is said
Strides: TypeAlias = tuple[int, ...]
#: what stands for memory of a device's own; nobody but the device looks into it
Handle: TypeAlias = object
#: a function over arrays or handles, and constants by keyword: one result or a tuple of them
Kernel: TypeAlias = Callable[..., Any]
#: rule of a result's strides: (result, operands, constants) -> the result laid out
Layout: TypeAlias = Callable[[Array, Any, dict[str, Any]], Array]
Number: TypeAlias = bool | int | float | complex
