"""torch.compiler: code runs eagerly; the markers are accepted."""
from mindtorch.torch._compile import compile  # noqa: F401

__all__ = ["compile", "disable", "allow_in_graph", "is_compiling", "is_dynamo_compiling", "reset", "cudagraph_mark_step_begin"]


def disable(fn=None, recursive=True, *, reason=None):
    """Marks a function that is not to be compiled."""
    return fn if fn is not None else (lambda f: f)


def allow_in_graph(fn):
    return fn


substitute_in_graph = assume_constant_result = allow_in_graph


def is_compiling():
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset():
    """Nothing is cached."""


def cudagraph_mark_step_begin():
    """No graphs are captured."""


def list_backends(exclude_tags=()):
    return ["eager"]


def set_stance(*args, **kwargs):
    import contextlib
    return contextlib.nullcontext()
