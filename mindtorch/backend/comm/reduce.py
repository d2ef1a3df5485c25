"""Reductions of collectives: how one rank's values are combined with another's."""
import numpy as np

from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.mindspore.private import bfloat16_np

#: Names of the reductions; a collective's signature carries the index.
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")

#: Names of the dtypes; signatures and messages carry the index.
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
          "complex64", "complex128", "bfloat16")
_INDEX = {np.dtype(name): i for i, name in enumerate(DTYPES[:-1])}
_INDEX[bfloat16_np] = len(DTYPES) - 1


def dtype_index(dtype):
    """Returns the index of a dtype in signatures and messages; NotImplementedError for dtypes that
    cannot be sent."""
    try:
        return _INDEX[dtype]
    except KeyError:
        raise NotImplementedError(f"tensors of dtype {dtype} cannot be sent between processes (device cpu)") from None


_UFUNCS = {"SUM": np.add, "AVG": np.add, "PREMUL_SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
           "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
_OF_BOOL = {"SUM": np.logical_or, "PRODUCT": np.logical_and, "MIN": np.logical_and, "MAX": np.logical_or,
            "BAND": np.logical_and, "BOR": np.logical_or, "BXOR": np.logical_xor}
_PIECE = 1 << 14


def check(op, dtype, name, what="all_reduce"):
    """Raises RuntimeError or ValueError, like PyTorch, for reductions that the dtype does not
    support."""
    if dtype.kind == "c" and op not in ("SUM", "AVG", "PREMUL_SUM"):
        raise ValueError(f"{what} does not support ReduceOp.{op} on complex tensors")
    inexact = dtype.kind in "fc" or dtype == bfloat16_np
    if op in ("BAND", "BOR", "BXOR") and inexact:
        raise RuntimeError(f"Cannot use ReduceOp.{op} with non-integral dtype")
    if op in ("AVG", "PREMUL_SUM") and not inexact:
        raise RuntimeError(f"ReduceOp.{op} needs a floating point or complex dtype: result type Float can't be cast to the "
                           f"desired output type {name}")


def folder(op, dtype):
    """Returns fold(total, piece), which reduces `piece` into `total` in place."""
    if dtype == bfloat16_np:
        return _fold_bfloat16(_UFUNCS[op])
    ufunc = (_OF_BOOL if dtype.kind == "b" else _UFUNCS)[op]

    @quiet
    def fold(total, block):
        ufunc(total, block, out=total)
    return fold


def _fold_bfloat16(ufunc):
    @quiet
    def fold(total, block):
        for i in range(0, len(total), _PIECE):
            part = total[i:i + _PIECE]
            part[...] = ufunc(part.astype(np.float32), block[i:i + _PIECE].astype(np.float32)).astype(bfloat16_np)
    return fold


@quiet
def scale(a, factor):
    """Multiplies an array of a floating point or complex dtype in place."""
    if a.dtype == bfloat16_np:
        a[...] = (a.astype(np.float32) * np.float32(factor)).astype(bfloat16_np)
    else:
        np.multiply(a, factor, out=a, casting="unsafe")


@quiet
def divide(a, n):
    """Divides in place by the number of ranks, for averages."""
    if a.dtype == bfloat16_np:
        a[...] = (a.astype(np.float32) / np.float32(n)).astype(bfloat16_np)
    else:
        np.divide(a, n, out=a, casting="unsafe")
