"""torch._dynamo: the part of torch.compile that captures calls (docs/compile.md)."""
from mindtorch.torch._dynamo import config, exc, utils  # noqa: F401
from mindtorch.torch._dynamo import _capture, _parts, eval_frame  # noqa: F401
from mindtorch.torch._dynamo._explain import ExplainOutput, explain  # noqa: F401
from mindtorch.torch._dynamo.eval_frame import OptimizedModule, disable, innermost_fn, reset, set_stance  # noqa: F401
from mindtorch.torch._dynamo.backends.registry import list_backends, lookup_backend, register_backend  # noqa: F401
from mindtorch.torch._refusing import refuse
from mindtorch.torch.compiler import (allow_in_graph, assume_constant_result, is_compiling, substitute_in_graph)  # noqa: F401


def is_dynamo_supported():
    """Always True."""
    return True


def graph_break(msg=""):
    """Ends the capture of the running call, which continues eagerly."""
    rec = _capture._active(None)
    if isinstance(rec, _capture.Recorder):
        rec.fail(msg or "torch._dynamo.graph_break() is called")


def disallow_in_graph(fn):
    """Marks a function: a call of it is a graph break."""
    return disable(fn, reason="disallow_in_graph")


forbid_in_graph = disallow_in_graph


def _mark(t, index, name):
    """Marks dimensions of a tensor on the npu device, where graphs can have dynamic sizes."""
    h = getattr(t, "_handle", None)
    if h is not None:
        dims = range(t.dim()) if index is None else [d % t.dim() for d in (index if isinstance(index, (list, tuple, set)) else (index,))]
        h.__dict__[name] = frozenset(dims) | h.__dict__.get(name, frozenset())


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Accepted: any size may change.

    npu: one graph serves all sizes from the second size on. cpu: every size has its own variant.
    """
    _mark(t, index, "_dynamic")


def maybe_mark_dynamic(t, index):
    """Like `mark_dynamic`."""
    _mark(t, index, "_dynamic")


def mark_static(t, index=None):
    """Gives every size of these dimensions (None: all) its own graph on the npu device.

    Accepted on cpu, where every size is static.
    """
    _mark(t, index, "_static")


def mark_static_address(t, guard=True):
    """Accepted: parameters and buffers are identified by identity."""


mark_unbacked = maybe_mark_dynamic


def run(fn=None):
    """Not supported: use torch.compiler.set_stance("eager_on_recompile")."""
    raise NotImplementedError("torch._dynamo.run is not supported: use torch.compiler.set_stance('eager_on_recompile')")


def optimize(backend="inductor", *, nopython=False, disable=False, dynamic=None, **kwargs):
    """Decorator: torch.compile with the given backend."""
    from mindtorch.torch._compile import compile
    return compile(backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


refuse(globals(), "captured calls can only be replayed under their guards", "export replay nonstrict_trace")


def optimize_assert(backend="inductor", **kwargs):
    """Decorator: torch.compile with fullgraph=True."""
    return optimize(backend, nopython=True)
