"""torch.fx.experimental.proxy_tensor."""
from mindtorch.torch._refusing import refuse


def get_proxy_mode():
    """Returns None: there is no proxy mode."""
    return None


def make_fx(f, decomposition_table=None, tracing_mode="real", _allow_non_fake_inputs=False, *, pre_dispatch=False, record_module_stack=False,
            _allow_fake_constant=False, _error_on_data_dependent_ops=True, **options):
    """`make_fx(f)(*args)` runs f and returns the GraphModule of the operators that it called, under
    their torch.ops.aten names.

    To verify the graph, f runs twice more, on copies of the inputs. Operators are not decomposed
    (as with pre_dispatch=True), and sizes are those of the inputs. NotImplementedError for
    tracing_mode="symbolic", for a decomposition table with an operator of the graph, and for
    functions that compute derivatives. RuntimeError if a value is read from a tensor.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"Expected tracing_mode to be one of 'real', 'fake', 'symbolic', got {tracing_mode!r}")
    if tracing_mode == "symbolic":
        raise NotImplementedError("torch.fx.experimental.proxy_tensor.make_fx(tracing_mode='symbolic') is not supported: sizes are plain ints here; "
                                  "use torch.export.export for dynamic sizes")

    def wrapped(*args):
        from mindtorch.torch.fx.experimental._make_fx import make_fx as make
        return make(f, args, decomposition_table or {})
    return wrapped


refuse(globals(), "there are no fake-tensor or proxy dispatch modes; use make_fx", "maybe_disable_fake_tensor_mode", "ProxyTorchDispatchMode")
