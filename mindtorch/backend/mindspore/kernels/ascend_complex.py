"""Ascend: complex numbers as pairs of real ones.

MindSpore's primitives Complex and Conj have no aclnn kernel (they use aclop, which compiles
online). The pairs have the same memory layout.
"""
from typing import Any

import numpy as np

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import COMPLEX, G, broadcast, dtype_of, ms, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import table
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy

_PARTS = {ms.complex64: ms.float32, ms.complex128: ms.float64}
_COMPLEX = {v: k for k, v in _PARTS.items()}
_signs: dict[Any, Any] = {}


def pairs(x):
    """Returns a copy of the real and imaginary parts as (n, 2).

    (ViewDtype of a view of a 0-d tensor ends the process, so it is applied to a copy with one
    dimension.)
    """
    return reshape(op(G.ViewDtype)(copy(reshape(x, (-1,))), _PARTS[dtype_of(x)]), (-1, 2))


def of_pairs(p, shape):
    """Returns complex numbers on the memory of their parts, which are in C order."""
    return reshape(op(G.ViewDtype)(reshape(p, (-1,)), _COMPLEX[dtype_of(p)]), shape)


@ascend("complex", only="float32 float64")
def _complex(re, im):
    """Stacks both parts in one launch."""
    shape = np.broadcast_shapes(shape_of(re), shape_of(im))
    return of_pairs(op(G.StackExt, -1)((reshape(broadcast(re, shape), (-1,)), reshape(broadcast(im, shape), (-1,)))), shape)


ascend("polar", lambda abs, angle: _complex(o.mul(abs, o.cos(angle)), o.mul(abs, o.sin(angle))), only="float32 float64")


@ascend("conj conj_physical")
def _conj(a):
    """Multiplies the parts by (1, -1), after one copy."""
    d = dtype_of(a)
    if d not in COMPLEX:
        return copy(a)
    sign = _signs.get(d)
    if sign is None:
        sign = _signs[d] = table(np.array([1, -1], np.float32 if d is ms.complex64 else np.float64))
    return of_pairs(op(G.Mul)(pairs(a), sign), shape_of(a))
