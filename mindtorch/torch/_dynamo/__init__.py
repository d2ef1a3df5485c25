"""torch._dynamo: the part of torch.compile that captures calls (docs/compile.md)."""
from mindtorch.torch._dynamo import config, exc, utils  # noqa: F401
from mindtorch.torch._dynamo import _capture, _parts, eval_frame  # noqa: F401
from mindtorch.torch._dynamo._explain import ExplainOutput, explain  # noqa: F401
from mindtorch.torch._dynamo.eval_frame import OptimizedModule, disable, innermost_fn, reset, set_stance  # noqa: F401
from mindtorch.torch._dynamo.backends.registry import list_backends, lookup_backend, register_backend  # noqa: F401
from mindtorch.torch._refusing import refuse
from mindtorch.torch.compiler import (allow_in_graph, assume_constant_result, is_compiling, substitute_in_graph)  # noqa: F401


def is_dynamo_supported():
    """True."""
    return True


def graph_break(msg=""):
    """Ends the capture of the call that is running, which goes on eagerly."""
    rec = _capture._active(None)
    if isinstance(rec, _capture.Recorder):
        rec.fail(msg or "torch._dynamo.graph_break() is called")


def disallow_in_graph(fn):
    """Marks a function: calls of it break a capture off."""
    return disable(fn, reason="disallow_in_graph")


forbid_in_graph = disallow_in_graph


def _mark(t, index, name):
    """Notes dimensions of a tensor on the npu device, where graphs may have free sizes."""
    h = getattr(t, "_h", None)
    if h is not None:
        dims = range(t.dim()) if index is None else [d % t.dim() for d in (index if isinstance(index, (list, tuple, set)) else (index,))]
        h.__dict__[name] = frozenset(dims) | h.__dict__.get(name, frozenset())


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Accepted: every size may change. On the npu device one graph serves all from the second size on; on cpu each has a variant of its own."""
    _mark(t, index, "_dynamic")


def maybe_mark_dynamic(t, index):
    """Accepted, as mark_dynamic."""
    _mark(t, index, "_dynamic")


def mark_static(t, index=None):
    """These dimensions (None: all) have a graph of their own for each size on the npu device; accepted on cpu, where every size is static."""
    _mark(t, index, "_static")


def mark_static_address(t, guard=True):
    """Accepted: parameters and buffers are known by identity."""


mark_unbacked = maybe_mark_dynamic


def run(fn=None):
    """Not supported: use torch.compiler.set_stance("eager_on_recompile")."""
    raise NotImplementedError("torch._dynamo.run is not supported: use torch.compiler.set_stance('eager_on_recompile')")


def optimize(backend="inductor", *, nopython=False, disable=False, dynamic=None, **kwargs):
    """Decorator: torch.compile with that backend."""
    from mindtorch.torch._compile import compile
    return compile(backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


refuse(globals(), "captured calls are replayed under guards only", "export replay nonstrict_trace")


def optimize_assert(backend="inductor", **kwargs):
    """Decorator: torch.compile with fullgraph=True."""
    return optimize(backend, nopython=True)
