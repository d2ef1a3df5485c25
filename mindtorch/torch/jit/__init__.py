"""torch.jit: scripted and traced code runs eagerly here, with the same results; the TorchScript format is refused."""
import contextlib

__all__ = ["script", "trace", "ignore", "unused", "export", "is_scripting", "is_tracing", "save", "load", "ScriptModule",
           "Final", "annotate", "script_if_tracing", "interface", "freeze", "isinstance", "fork", "wait"]

from typing import Final  # noqa: F401

from mindtorch.torch.jit import annotations  # noqa: F401
from mindtorch.torch._refusing import refuse


def script(obj, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The function, class or module itself: it runs eagerly."""
    return obj


def trace(func, example_inputs=None, optimize=None, check_trace=True, check_inputs=None, check_tolerance=1e-5, strict=True,
          **kwargs):
    """The function or module itself: it runs eagerly (and so also follows data-dependent branches)."""
    return func


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
    return False


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


def save(m, f, _extra_files=None):
    raise NotImplementedError("torch.jit.save: the TorchScript format is not supported; save the state_dict, or export with MindSpore")


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    raise NotImplementedError("torch.jit.load: the TorchScript format is not supported")


class ScriptModule:
    """Never made here: `script` returns the module itself."""


class ScriptFunction:
    """Never made here: `script` returns the function itself."""


RecursiveScriptModule = TopLevelTracedModule = ScriptModule


class Attribute:
    """Typed attribute marker of ScriptModules."""

    def __init__(self, value, type):
        self.value, self.type = value, type


class TracerWarning(Warning):
    """A trace may not hold for other inputs; nothing is traced here."""


class CompilationUnit:
    """Python source of TorchScript functions."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError("torch.jit.CompilationUnit is not supported: TorchScript source is not compiled")


class Error(RuntimeError):
    """An error inside TorchScript."""


JITException = Error


def trace_module(mod, inputs, *args, **kwargs):
    """The module itself: it runs eagerly."""
    return mod


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
