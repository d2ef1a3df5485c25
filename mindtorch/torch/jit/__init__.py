"""torch.jit: scripted and traced code runs eagerly with the same results; traced code is saved as
MindIR.

The TorchScript format itself is not supported (docs/export.md).
"""
import builtins
import contextlib
import types
import typing

__all__ = ["script", "trace", "ignore", "unused", "export", "is_scripting", "is_tracing", "save", "load", "ScriptModule",
           "Final", "annotate", "script_if_tracing", "interface", "freeze", "isinstance", "fork", "wait"]

from typing import Final  # noqa: F401

from mindtorch.torch.jit import annotations  # noqa: F401
from mindtorch.core.compile.tracing import is_tracing as _is_tracing
from mindtorch.torch._refusing import refuse
from mindtorch.torch.jit._traced import (Error, RecursiveScriptModule, ScriptFunction, ScriptModule, TopLevelTracedModule,  # noqa: F401
                                         TracerWarning, TracingCheckError, _deprecated, example_of, load, save, script, trace, trace_module)


def _marker(fn=None, *args, **kwargs):
    if callable(fn):
        return fn
    return lambda f: f


class FunctionModifiers:
    """Values of a function's `_torchscript_modifier` mark."""

    UNUSED, IGNORE, EXPORT, DEFAULT, COPY_TO_SCRIPT_WRAPPER, _DROP = "unused", "ignore", "export", "default", "copied", "drop"


def _mark(fn, modifier):
    fn._torchscript_modifier = modifier
    return fn


def ignore(drop=False, **kwargs):
    """Marks a method that TorchScript leaves to Python. It runs unchanged here."""
    if callable(drop):
        return _mark(drop, FunctionModifiers.IGNORE)
    return lambda fn: _mark(fn, FunctionModifiers.UNUSED if drop else FunctionModifiers.IGNORE)


def unused(fn):
    """Marks a method that TorchScript replaces with an error. It runs unchanged here. A property is
    returned as is."""
    return fn if builtins.isinstance(fn, property) else _mark(fn, FunctionModifiers.UNUSED)


def export(fn):
    """Marks a method that scripting compiles. It runs unchanged here."""
    return _mark(fn, FunctionModifiers.EXPORT)


def interface(obj):
    """Marks a class as an interface of TorchScript modules. Returns the class."""
    _deprecated("interface", "use `torch.compile` instead")
    if not builtins.isinstance(obj, type):
        raise RuntimeError("interface must be applied to a class")
    return obj


def script_method(fn):
    """Marks a method of a ScriptModule; it runs as Python."""
    _deprecated("script_method")
    return fn

_overload = _overload_method = _marker


def script_if_tracing(fn):
    return fn


_script_if_tracing = script_if_tracing


def annotate(the_type, the_value):
    return the_value


def is_scripting():
    return False


def is_tracing():
    """True while a trace for an export is running."""
    return _is_tracing()


def isinstance(obj, target_type):
    """isinstance that also checks the contents of containers.

    Supports List[int], Dict[str, Tensor], Tuple[int, str], Optional[...] and Union[...].
    RuntimeError for a container type without element types.
    """
    if builtins.isinstance(target_type, tuple):
        return any([isinstance(obj, t) for t in target_type])
    origin, args = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is typing.Union or origin is types.UnionType:
        return any([isinstance(obj, t) for t in args])
    bare = {list: "list[int]", dict: "dict[str, int]", tuple: "tuple[int, str]"}.get(origin or target_type)
    if bare and not args:
        raise RuntimeError(f"torch.jit.isinstance: {target_type} lacks element types; use for example {bare}")
    if origin is list:
        return builtins.isinstance(obj, list) and all([isinstance(x, args[0]) for x in obj])
    if origin is dict:
        return builtins.isinstance(obj, dict) and all([isinstance(k, args[0]) and isinstance(v, args[1]) for k, v in obj.items()])
    if origin is tuple:
        return builtins.isinstance(obj, tuple) and len(obj) == len(args) and all([isinstance(x, t) for x, t in zip(obj, args)])
    return builtins.isinstance(obj, target_type)


def export_opnames(m):
    """Returns the names of the ops in a traced module's graph."""
    return sorted({n.op for n in m.graph.nodes})


def fork(func, *args, **kwargs):
    """Runs func(*args, **kwargs) immediately and returns its result as a torch.futures.Future."""
    _deprecated("fork", "use `torch.compile` instead")
    from mindtorch.torch.futures import Future
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future):
    """Returns the result of a future."""
    _deprecated("wait", "use `torch.compile` instead")
    return future.wait()


_fork, _wait = fork, wait
TracedModule = TopLevelTracedModule


def __getattr__(name):
    if name == "Future":
        from mindtorch.torch.futures import Future
        return Future
    if name in ("_script", "_trace", "_state"):
        import importlib
        return importlib.import_module(f"mindtorch.torch.jit.{name}")
    raise AttributeError(f"module 'torch.jit' has no attribute '{name}'")


def _scripted(name, mod):
    if not builtins.isinstance(mod, ScriptModule):
        raise RuntimeError(f"torch.jit.{name} requires a ScriptModule: script or trace the module first")


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """Returns the module unchanged; it runs eagerly. RuntimeError unless it is scripted or traced
    and in evaluation mode."""
    _deprecated("freeze", "use `torch.compile` instead")
    _scripted("freeze", mod)
    if mod.training:
        raise RuntimeError("torch.jit.freeze requires a module in evaluation mode: call .eval() first")
    return mod


def run_frozen_optimizations(mod, optimize_numerics=True, preserved_methods=None):
    """Does nothing: the module runs eagerly."""


def optimized_execution(should_optimize):
    return contextlib.nullcontext()


class Attribute(typing.NamedTuple):
    """Typed attribute marker for ScriptModules."""

    value: typing.Any
    type: typing.Any


class CompilationUnit:
    """Python source of TorchScript functions."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError("torch.jit.CompilationUnit is not supported: TorchScript source is not compiled")


JITException = Error


def enable_onednn_fusion(enabled):
    """Does nothing: no ops are fused."""


def onednn_fusion_enabled():
    return False


def set_fusion_strategy(strategy):
    """Does nothing: no ops are fused."""
    return []


@contextlib.contextmanager
def fuser(name):
    """Does nothing: no ops are fused."""
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
    """Returns the module unchanged; it runs eagerly. RuntimeError unless it is scripted or traced.
    """
    _deprecated("optimize_for_inference", "use `torch.compile` instead")
    _scripted("optimize_for_inference", mod)
    return mod
