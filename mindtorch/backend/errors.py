"""Errors that depend on values, which kernels of every device raise: linear algebra's, from LAPACK's codes (`info`, on the host)."""
from __future__ import annotations

from mindtorch.backend.interface import Array, Sizes


class OutOfMemoryError(RuntimeError):
    """Memory is used up."""


class HostMemoryError(MemoryError, OutOfMemoryError):
    """The host's memory, or its address space, is used up.  Shown as RuntimeError, which it is in torch."""

    def __str__(self):
        return self.args[0] if self.args else ""


HostMemoryError.__name__ = "RuntimeError"
HostMemoryError.__module__ = __name__


def host_memory_error(e: MemoryError, where: str) -> MemoryError:
    """What is raised in the place of a MemoryError that came up in an op."""
    if e.__class__ is HostMemoryError:
        return e
    text = str(e)
    if "can't allocate memory" not in text:
        text = f"DefaultCPUAllocator: can't allocate memory: out of memory in {where}" + (f" ({text})" if text else "")
    return HostMemoryError(text).with_traceback(e.__traceback__)



class AcceleratorError(RuntimeError):
    """An error of a device's driver, which may come from what was asked for before; error_code: the driver's number, or None."""

    error_code: int | None = None


AcceleratorError.__module__ = "torch"


class _LinAlgError(RuntimeError):
    """Raised by torch.linalg where the matrix is to blame: singular, not positive-definite, an iteration that fails."""


_LinAlgError.__module__ = "torch._C"
LinAlgError = _LinAlgError


def batch_element(shape: Sizes, i: int) -> str:
    """How an error names one matrix of a batch."""
    return f"(Batch element {i}): " if len(shape) > 2 else ""


def first(info: Array) -> tuple[int, int]:
    """(index, value) of the first non-zero code."""
    return next((i, k) for i, k in enumerate(info.reshape(-1).tolist()) if k)


def singular_inverse(name: str, shape: Sizes, info: Array) -> _LinAlgError:
    """The error for inverting a singular matrix."""
    i, k = first(info)
    return LinAlgError(f"{name}: {batch_element(shape, i)}The diagonal element {k} is zero, the inversion could not be "
                       "completed because the input matrix is singular.")


def singular_system(name: str, shape: Sizes, info: Array) -> _LinAlgError:
    """The error for solving a system with a singular matrix."""
    return LinAlgError(f"{name}: {batch_element(shape, first(info)[0])}The solver failed because the input matrix is "
                       "singular.")


def not_definite(name: str, shape: Sizes, info: Array) -> _LinAlgError:
    """The error for the Cholesky factor of a matrix that has none."""
    i, k = first(info)
    return LinAlgError(f"{name}: {batch_element(shape, i)}The factorization could not be completed because the input "
                       f"is not positive-definite (the leading minor of order {k} is not positive-definite).")
