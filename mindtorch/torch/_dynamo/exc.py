"""torch._dynamo.exc: exceptions of torch.compile."""
from mindtorch.backend.errors import CompileError


class TorchDynamoException(CompileError, RuntimeError):
    """Base class of the errors of torch.compile."""


class Unsupported(TorchDynamoException):
    """The code cannot be captured as one graph, which fullgraph=True requires."""

    def __init__(self, msg, **kwargs):
        super().__init__(msg)
        self.msg = msg


class InvalidBackend(TorchDynamoException):
    """There is no backend of that name."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend raised during compilation: `backend_name`, `inner_exception`."""

    def __init__(self, backend_fn, inner_exception=None, inner_user_stack_trace=None):
        self.backend_name = getattr(backend_fn, "__name__", None) or (backend_fn if isinstance(backend_fn, str) else repr(backend_fn))
        self.inner_exception = inner_exception
        text = f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}" if inner_exception is not None else \
            str(backend_fn)
        super().__init__(text)


class UserError(Unsupported):
    """The code uses something that cannot be compiled."""


class RecompileError(TorchDynamoException):
    """A recompilation that torch._dynamo.config.error_on_recompile forbids."""


class RecompileLimitExceeded(Unsupported):
    """There are more variants than torch._dynamo.config.recompile_limit."""


class FailOnRecompileLimitHit(TorchDynamoException):
    """Like `RecompileLimitExceeded`, under fullgraph=True."""


class Break(CompileError):
    """Internal to the capture: the reason why a call cannot be replayed.

    `final`: another attempt would not help.
    """

    def __init__(self, reason, final=True):
        super().__init__(reason)
        self.reason, self.final = reason, final
