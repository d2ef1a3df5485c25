"""torch.compile."""

__all__ = ["compile"]

BACKENDS = ("inductor", "eager", "aot_eager")
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """A compiled form of a module or function: calls are captured once a variant and replayed (docs/compile.md).

    fullgraph  raise torch._dynamo.exc.Unsupported where a call cannot be captured whole, instead of running it eagerly
    dynamic    accepted; every shape gets a variant of its own, up to torch._dynamo.config.recompile_limit
    backend    "inductor" generates C code where a compiler is found; "eager" and "aot_eager" replay the ops as they are
    mode       torch's modes; all compile alike here
    options    settings of torch._inductor.config for this function
    disable    True: the model itself
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
    _check(backend, mode, options)
    from mindtorch.torch._dynamo.eval_frame import compile_callable
    return compile_callable(model, {"fullgraph": bool(fullgraph), "dynamic": dynamic, "backend": backend, "mode": mode,
                                    "options": dict(options or {})})


def _check(backend, mode, options):
    if isinstance(backend, str):
        if backend not in BACKENDS:
            from mindtorch.torch._dynamo.exc import InvalidBackend
            raise InvalidBackend(f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends.")
    else:
        raise NotImplementedError("torch.compile(backend=<callable>) is not supported: captured calls are no fx graphs here; use "
                                  "'inductor', 'eager' or 'aot_eager'")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if options:
        from mindtorch.torch._inductor import config
        known = [k for k in vars(config) if k[:1] != "_"]
        for k in options:
            if k.replace("-", "_").partition(".")[0] not in known:
                raise RuntimeError(f"Unexpected optimization option {k}, known options are {known}")
