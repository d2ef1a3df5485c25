"""Errors of tracing and compiling, on the host and for MindSpore.

    CompileError
      GraphBreak            a call cannot be part of a graph
      FullGraphError        fullgraph=True, and one graph is not enough
      GuardFailed           values or sizes differ from the recorded ones
        ShapeMismatch         sizes that depend on values
        RuntimeGuardFailed    values that a kernel rejects
      BackendCompileError   MindSpore's compiler rejects a graph
      TraceError            an operation cannot be traced
      SpecializationError   a free size would have to be a constant
      LoweringError         an op cannot be lowered to an exported graph

The errors of `torch._dynamo.exc`, which users catch, are CompileErrors as well. Those that reach
users from a trace or an export are also NotImplementedErrors.
"""
from __future__ import annotations


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


__all__ = ["BackendCompileError", "CompileError", "FullGraphError", "GraphBreak", "GuardFailed", "LoweringError", "RuntimeGuardFailed", "ShapeMismatch",
           "SpecializationError", "TraceError"]
