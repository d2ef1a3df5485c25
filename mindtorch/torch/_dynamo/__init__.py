"""torch._dynamo: switches of a compiler that is not there; code runs eagerly and gives the same results."""
from mindtorch.torch._dynamo import config, eval_frame, utils  # noqa: F401
from mindtorch.torch._dynamo.eval_frame import OptimizedModule  # noqa: F401
from mindtorch.torch._refusing import refuse
from mindtorch.torch.compiler import (allow_in_graph, assume_constant_result, disable, is_compiling, reset,  # noqa: F401
                                      substitute_in_graph)


def is_dynamo_supported():
    """False: there is no compiler."""
    return False


def graph_break(msg=""):
    """Nothing to break: no graph is captured."""


def disallow_in_graph(fn):
    """Marks a function; it runs eagerly anyway."""
    return fn


forbid_in_graph = nonstrict_trace = disallow_in_graph


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Accepted: every size may change here."""


def maybe_mark_dynamic(t, index):
    """Accepted: every size may change here."""


def mark_static(t, index=None):
    """Accepted: every size may change here."""


mark_static_address = mark_unbacked = maybe_mark_dynamic


def list_backends(exclude_tags=()):
    """Names of the compilers: "eager" only."""
    return ["eager"]


def run(fn=None):
    """The function itself."""
    return fn if fn is not None else (lambda f: f)


def optimize(backend="inductor", *args, **kwargs):
    """Decorator that leaves a function as it is: it runs eagerly."""
    return lambda f: f


refuse(globals(), "code runs eagerly, no graph is captured", "explain export optimize_assert register_backend lookup_backend replay")
