"""Errors of the backends: value-dependent ones, which kernels of every device raise (those of linear
algebra come from LAPACK's codes, `info`, on the host), and those of tracing and compiling."""
from __future__ import annotations

from mindtorch.backend.interface import Array, Sizes


class OutOfMemoryError(RuntimeError):
    """Memory is exhausted."""


class HostMemoryError(MemoryError, OutOfMemoryError):
    """The host's memory, or its address space, is exhausted. Printed as RuntimeError, which it is
    in PyTorch."""

    def __str__(self):
        return self.args[0] if self.args else ""


HostMemoryError.__name__ = "RuntimeError"
HostMemoryError.__module__ = __name__


def host_memory_error(e: MemoryError, where: str) -> MemoryError:
    """Returns the error to raise instead of a MemoryError from an op."""
    if e.__class__ is HostMemoryError:
        return e
    text = str(e)
    if "can't allocate memory" not in text:
        text = f"DefaultCPUAllocator: can't allocate memory: out of memory in {where}" + (f" ({text})" if text else "")
    return HostMemoryError(text).with_traceback(e.__traceback__)



class AcceleratorError(RuntimeError):
    """An error of a device's driver, possibly caused by earlier asynchronous work. error_code: the
    driver's code, or None."""

    error_code: int | None = None


AcceleratorError.__module__ = "torch"


class _LinAlgError(RuntimeError):
    """Raised by torch.linalg if the matrix is at fault: singular, not positive-definite, no
    convergence."""


_LinAlgError.__module__ = "torch._C"
LinAlgError = _LinAlgError


def batch_element(shape: Sizes, i: int) -> str:
    """Returns the prefix of an error message that names one matrix of a batch."""
    return f"(Batch element {i}): " if len(shape) > 2 else ""


def first(info: Array) -> tuple[int, int]:
    """Returns (index, value) of the first non-zero code."""
    return next((i, k) for i, k in enumerate(info.reshape(-1).tolist()) if k)


def singular_inverse(name: str, shape: Sizes, info: Array) -> _LinAlgError:
    """Returns the error for inverting a singular matrix."""
    i, k = first(info)
    return LinAlgError(f"{name}: {batch_element(shape, i)}The diagonal element {k} is zero, the inversion could not be "
                       "completed because the input matrix is singular.")


def singular_system(name: str, shape: Sizes, info: Array) -> _LinAlgError:
    """Returns the error for solving a system with a singular matrix."""
    return LinAlgError(f"{name}: {batch_element(shape, first(info)[0])}The solver failed because the input matrix is "
                       "singular.")


def not_definite(name: str, shape: Sizes, info: Array) -> _LinAlgError:
    """Returns the error for the Cholesky factorization of a matrix that is not positive-definite.
    """
    i, k = first(info)
    return LinAlgError(f"{name}: {batch_element(shape, i)}The factorization could not be completed because the input "
                       f"is not positive-definite (the leading minor of order {k} is not positive-definite).")


# ------------------------------------------------------------------ tracing and compiling
#
#     CompileError
#       GraphBreak            a call cannot be part of a graph
#       FullGraphError        fullgraph=True, and one graph is not enough
#       GuardFailed           values or sizes differ from the recorded ones
#         ShapeMismatch         sizes that depend on values
#         RuntimeGuardFailed    values that a kernel rejects
#       BackendCompileError   MindSpore's compiler rejects a graph
#       TraceError            an operation cannot be traced
#       SpecializationError   a free size would have to be a constant
#       LoweringError         an op cannot be lowered to an exported graph
#
# The errors of `torch._dynamo.exc`, which users catch, are CompileErrors as well. Those that reach
# users from a trace or an export are also NotImplementedErrors.


class CompileError(Exception):
    """Base class of the errors of tracing and compiling."""


class GraphBreak(CompileError):
    """A call cannot be part of a graph, for example because it reads values. The message is the
    reason."""


class FullGraphError(CompileError):
    """torch.compile(fullgraph=True) would need more than one graph. The message is the reason of
    the first graph break."""


class GuardFailed(CompileError):
    """Values or sizes differ from those that were recorded."""


class ShapeMismatch(GuardFailed):
    """Sizes that depend on values differ from the recorded ones, in a program of host kernels."""


class RuntimeGuardFailed(GuardFailed):
    """A kernel rejects input values of a MindSpore graph. Nothing has been computed."""


class BackendCompileError(CompileError):
    """MindSpore's compiler rejects a graph."""


class TraceError(CompileError, NotImplementedError):
    """An operation cannot be traced."""


class SpecializationError(CompileError, NotImplementedError):
    """Traces or recordings for different sizes do not form one graph: a free size would have to be
    specialized to a constant."""


class LoweringError(CompileError, NotImplementedError):
    """The lowering of an op does not support these arguments."""
