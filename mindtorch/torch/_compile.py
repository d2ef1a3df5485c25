"""torch.compile."""

__all__ = ["compile"]

BACKENDS = ("inductor", "eager", "aot_eager", "mindspore")
#: backends of torch._dynamo.register_backend: name -> (compiler, tags)
REGISTERED: dict = {}
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """Compiles a module or function: calls are captured once per variant and replayed
    (docs/compile.md).

        fullgraph  raise torch._dynamo.exc.Unsupported if a call cannot be captured as one graph,
                   instead of running it eagerly
        dynamic    npu: False compiles one graph per shape, otherwise shapes share graphs
                   (docs/graphs.md). cpu: accepted; every shape gets its own variant, up to
                   torch._dynamo.config.recompile_limit
        backend    "inductor" generates C code if a C compiler is available; "eager" and "aot_eager"
                   replay the ops unchanged; "mindspore" runs MindSpore graphs (docs/graphs.md),
                   which tensors on the npu device use in any case. A callable, or its name in
                   torch._dynamo.register_backend, receives (torch.fx.GraphModule, example inputs)
                   and returns the callable to run instead
        mode       PyTorch's modes; all of them compile the same way here
        options    settings of torch._inductor.config for this function
        disable    True returns the model itself
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        def decorator(m):
            if m is None:
                raise RuntimeError("Model can't be None")
            return compile(m, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
        return decorator
    if not callable(model):
        raise AssertionError(f"torch.compile() expects a callable, got {type(model).__name__}")
    if disable:
        return model
    backend = resolved(backend)
    _check(backend, mode, options)
    from mindtorch.torch._dynamo.eval_frame import compile_callable
    return compile_callable(model, {"fullgraph": bool(fullgraph), "dynamic": dynamic, "backend": backend, "mode": mode,
                                    "options": dict(options or {})})


def resolved(backend):
    """Returns the name of a built-in backend, or the callable registered under another name.

    InvalidBackend if the name is unknown.
    """
    if not isinstance(backend, str) or backend in BACKENDS:
        return backend
    if backend not in REGISTERED:
        from mindtorch.torch._dynamo.exc import InvalidBackend
        raise InvalidBackend(f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends.")
    return REGISTERED[backend][0]


def _check(backend, mode, options):
    if not isinstance(backend, str):
        return  # passed on to the callable
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if options:
        from mindtorch.torch._inductor import config
        known = [k for k in vars(config) if k[:1] != "_"]
        for k in options:
            if k == "jit_level" and options[k] in ("O0", "O1"):
                continue
            if k.replace("-", "_").partition(".")[0] not in known:
                raise RuntimeError(f"Unexpected optimization option {k}, known options are {known}")
