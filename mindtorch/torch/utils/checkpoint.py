"""torch.utils.checkpoint: recompute instead of keep."""
import contextlib
import warnings

from mindtorch.core.grad_mode import enable_grad, mode, no_grad
from mindtorch.core.tensor import Tensor
from mindtorch.torch.autograd import backward
from mindtorch.torch.autograd.function import Function
from mindtorch.torch.autograd.graph import saved_tensors_hooks

__all__ = ["checkpoint", "checkpoint_sequential", "CheckpointFunction", "CheckpointError", "set_checkpoint_debug_enabled",
           "noop_context_fn", "check_backward_validity", "detach_variable", "set_checkpoint_early_stop", "DefaultDeviceType"]


class CheckpointError(RuntimeError):
    """Recomputation did not give the tensors that forward saved."""


def get_device_states(*args):
    """(devices, RNG states) of the accelerator's tensors among the arguments: none without an accelerator."""
    indices = sorted({a.get_device() for a in args if isinstance(a, Tensor) and a.device.type not in ("cpu", "meta")})
    if indices:
        raise NotImplementedError(f"get_device_states is not supported for tensors on devices {indices}")
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Restores what `get_device_states` gave."""
    if devices or states:
        raise NotImplementedError(f"set_device_states is not supported for devices {devices}")


class DefaultDeviceType:
    """Device type whose RNG state checkpoint keeps."""

    _type = "cpu"

    @staticmethod
    def set_device_type(device="cpu"):
        DefaultDeviceType._type = device

    @staticmethod
    def get_device_type():
        return DefaultDeviceType._type


def noop_context_fn():
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Accepted; recomputation always runs to the end."""
    yield


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Accepted."""
    yield


def detach_variable(inputs):
    """Inputs as new leaves with the same requires_grad."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: ", type(inputs).__name__)
    out = []
    for x in inputs:
        if isinstance(x, Tensor):
            rg = x.requires_grad
            x = x.detach()
            x.requires_grad = rg
        out.append(x)
    return tuple(out)


def check_backward_validity(inputs):
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


@contextlib.contextmanager
def _rng(state):
    from mindtorch.torch.random import get_rng_state, set_rng_state
    if state is None:
        yield
        return
    now = get_rng_state()
    set_rng_state(state)
    try:
        yield
    finally:
        set_rng_state(now)


class CheckpointFunction(Function):
    """The reentrant variant: forward without grad, a second forward with grad inside backward."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        from mindtorch.torch.random import get_rng_state
        check_backward_validity(args)
        ctx.run_function, ctx.state = run_function, get_rng_state() if preserve_rng_state else None
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.where = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *gs):
        args = list(ctx.args)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t
        fresh = detach_variable(tuple(args))
        with _rng(ctx.state), enable_grad():
            outs = ctx.run_function(*fresh)
        outs = (outs,) if isinstance(outs, Tensor) else outs
        pairs = [(o, g) for o, g in zip(outs, gs) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None) + tuple(x.grad if isinstance(x, Tensor) else None for x in fresh)


class _Frame:
    """One checkpointed region: how many tensors it saved, and their recomputed values."""

    def __init__(self, recompute):
        self.recompute, self.meta, self.values = recompute, [], None
        self.left = 0


class _Holder:
    __slots__ = ("frame", "index")

    def __init__(self, frame, index):
        self.frame, self.index = frame, index


def _checkpoint_no_reentrant(function, preserve, context_fn, determinism_check, args, kwargs):
    from mindtorch.torch.random import get_rng_state
    state = get_rng_state() if preserve else None
    forward_ctx, recompute_ctx = context_fn()

    def recompute(frame):
        frame.values = []

        def pack(t):
            frame.values.append(t.detach() if t.requires_grad else t)
            return t

        with _rng(state), enable_grad(), recompute_ctx, saved_tensors_hooks(pack, lambda x: x):
            function(*args, **kwargs)
        if len(frame.values) != len(frame.meta):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                                  f"recomputation.\nNumber of tensors saved during forward: {len(frame.meta)}\nNumber of tensors "
                                  f"saved during recomputation: {len(frame.values)}")
        if determinism_check == "default":
            for i, (t, m) in enumerate(zip(frame.values, frame.meta)):
                if (tuple(t.shape), t.dtype) != m:
                    raise CheckpointError("torch.utils.checkpoint: Recomputed values for the following tensors have different "
                                          f"metadata than during the forward pass.\ntensor at position {i}:\nsaved metadata: {m}\n"
                                          f"recomputed metadata: {(tuple(t.shape), t.dtype)}")

    frame = _Frame(recompute)

    def pack(t):
        frame.meta.append((tuple(t.shape), t.dtype))
        frame.left += 1
        # A saved input of the region keeps its place in the graph for double backward.
        h = _Holder(frame, len(frame.meta) - 1)
        return h, (t if t.is_leaf and t.requires_grad else None)

    def unpack(packed):
        h, leaf = packed
        if leaf is not None:
            return leaf
        f = h.frame
        if f.values is None:
            f.recompute(f)
        value = f.values[h.index]
        f.left -= 1
        if not f.left:
            f.values, f.left = None, len(f.meta)
        return value

    with forward_ctx, saved_tensors_hooks(pack, unpack):
        return function(*args, **kwargs)


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default", debug=False,
               early_stop=True, **kwargs):
    """function(*args), recomputed in backward instead of keeping its intermediate tensors.

    https://pytorch.org/docs/stable/checkpoint.html
    """
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
                      "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended.",
                      stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if not mode.on:
        return function(*args, **kwargs)
    return _checkpoint_no_reentrant(function, preserve, context_fn, determinism_check, args, kwargs)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """A Sequential in `segments` checkpointed pieces (the last one is run plainly)."""
    fns = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(start, end):
        def forward(x):
            for f in fns[start:end + 1]:
                x = f(x)
            return x
        return forward

    size, end = len(fns) // segments, -1
    for start in range(0, size * (segments - 1), size):
        end = start + size - 1
        input = checkpoint(run(start, end), input, use_reentrant=use_reentrant, **kwargs)
    return run(end + 1, len(fns) - 1)(input)
