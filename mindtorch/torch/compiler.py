"""torch.compiler (https://pytorch.org/docs/stable/torch.compiler_api.html)."""
from mindtorch.torch._compile import compile  # noqa: F401

__all__ = ["compile", "disable", "allow_in_graph", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset", "list_backends",
           "cudagraph_mark_step_begin", "substitute_in_graph", "assume_constant_result", "set_stance", "wrap_numpy"]


def disable(fn=None, recursive=True, *, reason=None):
    """Marks a function that must not be compiled: it runs eagerly, and so does a call of compiled
    code that reaches it."""
    from mindtorch.torch._dynamo import eval_frame
    return eval_frame.disable(fn, recursive, reason=reason)


def allow_in_graph(fn):
    """Marks a function to be recorded as a single op, which every replay calls again."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    import types

    from mindtorch.torch._dynamo import _capture
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    if isinstance(fn, type):
        return fn  # calls of classes are never traced into
    if not isinstance(fn, types.FunctionType):
        raise NotImplementedError(f"torch.compiler.allow_in_graph of a {type(fn).__name__}: only Python functions can be marked")
    if fn not in _capture.allowed:
        _capture.allowed.append(fn)
    return fn


def substitute_in_graph(original_fn, *, can_constant_fold_through=False, skip_signature_check=False, is_embedded_type=False):
    """Decorator for a Python replacement of a C function. It has no effect: the C function itself
    runs, with the same result."""
    return lambda fn: fn


def assume_constant_result(fn):
    """Returns the function unchanged. Its result may be assumed constant, but recomputing it is
    always correct."""
    return fn


def wrap_numpy(fn):
    """Unsupported: NumPy code is not captured."""
    raise NotImplementedError("torch.compiler.wrap_numpy is not supported: NumPy code is not captured")


def is_compiling():
    """True inside a function that torch.compile is capturing."""
    from mindtorch.torch import _function_protocol
    modes = _function_protocol.state.modes
    return bool(modes) and type(modes[-1]).__name__ == "Recorder" and modes[-1].reason is None


def is_dynamo_compiling():
    """Like `is_compiling`."""
    return is_compiling()


def is_exporting():
    """Returns False: export does not use capture."""
    return False


def reset():
    """Drops everything that torch.compile captured."""
    from mindtorch.torch._dynamo import eval_frame
    eval_frame.reset()


def cudagraph_mark_step_begin():
    """Does nothing: there are no CUDA graphs."""


def list_backends(exclude_tags=("debug", "experimental")):
    """Returns the names that torch.compile accepts as `backend`, without those that have one of
    these tags."""
    from mindtorch.torch._dynamo.backends import registry
    return registry.list_backends(exclude_tags)


def __getattr__(name):
    if name == "set_stance":
        from mindtorch.torch._dynamo.eval_frame import set_stance
        return set_stance
    if name == "config":
        from mindtorch.torch._dynamo import config
        return config
    raise AttributeError(f"module 'torch.compiler' has no attribute {name!r}")
