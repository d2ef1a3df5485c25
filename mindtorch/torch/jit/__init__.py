"""torch.jit: scripted and traced code runs eagerly here, with the same results; traced code is saved as MindIR.

The TorchScript format itself is refused (docs/export.md).
"""
import contextlib

__all__ = ["script", "trace", "ignore", "unused", "export", "is_scripting", "is_tracing", "save", "load", "ScriptModule",
           "Final", "annotate", "script_if_tracing", "interface", "freeze", "isinstance", "fork", "wait"]

from typing import Final  # noqa: F401

from mindtorch.torch.jit import annotations  # noqa: F401
from mindtorch.core.tracing import is_tracing as _is_tracing
from mindtorch.torch._refusing import refuse
from mindtorch.torch.jit._traced import (Error, RecursiveScriptModule, ScriptFunction, ScriptModule, TopLevelTracedModule,  # noqa: F401
                                         TracerWarning, TracingCheckError, example_of, load, save, script, trace, trace_module)


def _marker(fn=None, *args, **kwargs):
    if callable(fn):
        return fn
    return lambda f: f


def ignore(drop=False, **kwargs):
    """Marks a method that TorchScript leaves to Python; a no-op."""
    return _marker(drop)


unused = export = interface = _marker
script_method = _marker
_overload = _overload_method = _marker


def script_if_tracing(fn):
    return fn


_script_if_tracing = script_if_tracing


def annotate(the_type, the_value):
    return the_value


def is_scripting():
    return False


def is_tracing():
    """Whether a trace for an export is going on."""
    return _is_tracing()


def isinstance(obj, target_type):
    import builtins
    return builtins.isinstance(obj, target_type)


def fork(func, *args, **kwargs):
    """Runs at once; `wait` gives the result."""
    return func(*args, **kwargs)


def wait(future):
    return future


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    return mod


def optimized_execution(should_optimize):
    return contextlib.nullcontext()


class Attribute:
    """Typed attribute marker of ScriptModules."""

    def __init__(self, value, type):
        self.value, self.type = value, type


class CompilationUnit:
    """Python source of TorchScript functions."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError("torch.jit.CompilationUnit is not supported: TorchScript source is not compiled")


JITException = Error


def enable_onednn_fusion(enabled):
    """Accepted: nothing is fused."""


def onednn_fusion_enabled():
    return False


def set_fusion_strategy(strategy):
    """Accepted: nothing is fused."""
    return []


@contextlib.contextmanager
def fuser(name):
    """Accepted: nothing is fused."""
    yield


def strict_fusion():
    return contextlib.nullcontext()


class _IgnoreContextManager(contextlib.AbstractContextManager):
    """A block that TorchScript leaves to Python."""

    def __init__(self, **kwargs):
        pass

    def __exit__(self, *exc):
        return False


refuse(globals(), "functions run eagerly, there is no graph of them",
       "_get_trace_graph get_trace_graph save_jit_module_to_flatbuffer last_executed_optimized_graph")


def optimize_for_inference(mod, other_methods=None):
    """The module itself: it runs eagerly."""
    return mod
