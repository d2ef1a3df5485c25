"""torch.types: type aliases for annotations."""
import builtins
import os
from typing import Any, Union

from mindtorch.core.device.device import device as _device  # noqa: F401
from mindtorch.core.tensor.dtypes import dtype as _dtype  # noqa: F401
from mindtorch.core.tensor.tensor import Size, Tensor
from mindtorch.torch import _C
from mindtorch.torch._types import layout as _layout, qscheme as _qscheme  # noqa: F401

#: Capture policy of this module's functions under torch.compile (see torch/_dynamo/_capture.py).
CAPTURE = "safe"

__all__ = ["Number", "Device", "FileLike", "Storage"]

_bool, _int, _float, _complex = builtins.bool, builtins.int, builtins.float, builtins.complex
_size = Union[Size, list[int], tuple[int, ...]]
_symsize = _size
_dispatchkey = Union[str, "_C.DispatchKey"]
_TensorOrTensors = Union[Tensor, tuple[Tensor, ...]]
_TensorOrTensorsOrGradEdge = Any
_TensorOrOptionalTensors = Any
IntLikeType = FloatLikeType = BoolLikeType = py_sym_types = PySymType = Any
Number = Union[int, float, bool]
_Number = (int, float, bool)
Device = Union[_device, str, int, None]
FileLike = Union[str, os.PathLike[str], Any]


class Storage:
    """Interface of storages, for annotations."""
