"""Conversion of a gradient to the shape and dtype of its tensor."""
from __future__ import annotations

from typing import Any

from mindtorch.backend.interface import Sizes, NpDtype
from mindtorch.backend.strides import broadcasts_to
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.dtypes import of_np
from mindtorch.core.tensor.sparse import SparseUse, dispatch
from mindtorch.core.tensor.tensor import Tensor


def validate_grad(g: Tensor, meta: tuple[Sizes, NpDtype], name: str) -> Tensor:
    """Returns a gradient reduced and cast to the shape and dtype in `meta`.

    Raises RuntimeError if the shapes are incompatible. `name` is the autograd node reported in the
    error.
    """
    shape, dtype = meta
    try:
        a = g._array
    except SparseUse:
        return _fit_sparse(g, shape, dtype, name)
    if a.shape != shape:
        if not broadcasts_to(shape, a.shape):
            raise RuntimeError(f"Function {name} returned an invalid gradient at index 0 - got {list(a.shape)} but expected "
                               f"shape compatible with {list(shape)}")
        g = hooks.sum_to(g, size=shape)
        a = g._array
    if a.dtype != dtype:
        g = hooks.cast_grad(g, dtype)
    return g


def _fit_sparse(g: Any, shape: Sizes, dtype: NpDtype, name: str) -> Tensor:
    if tuple(g.shape) != shape:
        raise RuntimeError(f"Function {name} returned an invalid gradient at index 0 - got {list(g.shape)} but expected shape compatible "
                           f"with {list(shape)}")
    return g if g._sp_values._array.dtype == dtype else dispatch["to"](g, of_np(dtype))
