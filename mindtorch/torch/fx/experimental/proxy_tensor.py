"""torch.fx.experimental.proxy_tensor."""
from mindtorch.torch._refusing import refuse


def get_proxy_mode():
    """None: nothing is traced."""
    return None


def make_fx(f, decomposition_table=None, tracing_mode="real", _allow_non_fake_inputs=False, *, pre_dispatch=False, record_module_stack=False,
            _allow_fake_constant=False, _error_on_data_dependent_ops=True, **options):
    """make_fx(f)(*args) runs f and gives the GraphModule of the operators it called, under the names torch.ops.aten has for them.

    f runs twice more, on copies, to see that the graph gives what it gives.  Operators stay whole (as with pre_dispatch=True); sizes are those of the inputs.  NotImplementedError for tracing_mode="symbolic", for a
    decomposition table that names an operator in the graph, and for functions that ask for derivatives; RuntimeError where a value is taken
    out of a tensor.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"Expected tracing_mode to be one of 'real', 'fake', 'symbolic', got {tracing_mode!r}")
    if tracing_mode == "symbolic":
        raise NotImplementedError("torch.fx.experimental.proxy_tensor.make_fx(tracing_mode='symbolic') is not supported: sizes are plain numbers here; "
                                  "torch.export.export has free sizes")

    def wrapped(*args):
        from mindtorch.torch.fx.experimental._make_fx import make_fx as make
        return make(f, args, decomposition_table or {})
    return wrapped


refuse(globals(), "modules are not captured as graphs; they run eagerly", "maybe_disable_fake_tensor_mode", "ProxyTorchDispatchMode")
