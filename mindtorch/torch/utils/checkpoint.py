"""torch.utils.checkpoint: activation checkpointing (recompute instead of save)."""
import contextlib
import os
import traceback
import warnings
import weakref

from mindtorch.core.autograd import engine
from mindtorch.core.device import rng
from mindtorch.core.dispatch import primitives
from mindtorch.core.device.device import get_default as get_default_device
from mindtorch.core.autograd.grad_mode import enable_grad, mode, no_grad
from mindtorch.core.dispatch.primitives import Node, new_node
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.amp import autocast_mode
from mindtorch.torch.autograd import backward
from mindtorch.torch.autograd.function import Function
from mindtorch.torch.autograd.graph import saved_tensors_hooks
from mindtorch.torch.nn.modules.container import Sequential

__all__ = ["checkpoint", "checkpoint_sequential", "CheckpointFunction", "CheckpointError", "set_checkpoint_debug_enabled",
           "noop_context_fn", "check_backward_validity", "detach_variable", "set_checkpoint_early_stop", "DefaultDeviceType", "CheckpointPolicy",
           "SelectiveCheckpointContext", "create_selective_checkpoint_contexts", "SAC_IGNORED_OPS"]

_SELECTIVE = frozenset((*__all__[-4:], "_CachingTorchDispatchMode", "_CachedTorchDispatchMode"))


def __getattr__(name):
    if name in _SELECTIVE:
        from mindtorch.torch.utils import _selective
        return getattr(_selective, name)
    raise AttributeError(f"module 'torch.utils.checkpoint' has no attribute '{name}'")


class CheckpointError(RuntimeError):
    """Error raised when the recomputation does not produce the tensors that forward saved."""


def get_device_states(*args):
    """Returns (devices, RNG states) of the arguments on an accelerator; both lists are empty
    without an accelerator."""
    indices = sorted({a.get_device() for a in args if is_tensor(a) and a.device.type not in ("cpu", "meta")})
    if indices:
        raise NotImplementedError(f"get_device_states is not supported for tensors on devices {indices}")
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Restores the RNG states returned by `get_device_states`."""
    if devices or states:
        raise NotImplementedError(f"set_device_states is not supported for devices {devices}")


class DefaultDeviceType:
    """Device type whose RNG state `checkpoint` saves."""

    _type = "cpu"

    @staticmethod
    def set_device_type(device="cpu"):
        DefaultDeviceType._type = device

    @staticmethod
    def get_device_type():
        return DefaultDeviceType._type


def noop_context_fn():
    return contextlib.nullcontext(), contextlib.nullcontext()


_early_stop = _debug = None  # override the arguments of the same names


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Context manager that overrides the argument `early_stop` of all checkpoint calls."""
    global _early_stop
    old, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = old


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Context manager that overrides the argument `debug` of all checkpoint calls (None: no
    override)."""
    global _debug
    old, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = old


def detach_variable(inputs):
    """Returns the inputs as new leaves with the same requires_grad."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: ", type(inputs).__name__)
    out = []
    for x in inputs:
        if is_tensor(x):
            rg = x.requires_grad
            x = x.detach()
            x.requires_grad = rg
        out.append(x)
    return tuple(out)


def check_backward_validity(inputs):
    if not any(x.requires_grad for x in inputs if is_tensor(x)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class _Surroundings:
    """State to restore for the recomputation: autocast of every device type, the default device,
    the RNG states.

    The default dtype and the grad mode are not restored, as in PyTorch: the recomputation runs with
    gradients enabled and the current default dtype.
    """

    def __init__(self, preserve_rng_state):
        from mindtorch.torch.random import get_rng_state
        self.rng = (get_rng_state(), rng.device_states()) if preserve_rng_state else None
        self.autocast, self.device = autocast_mode.snapshot(), get_default_device()

    @contextlib.contextmanager
    def again(self):
        from mindtorch.torch.random import get_rng_state, set_rng_state
        now = None
        if self.rng is not None:
            now = get_rng_state(), rng.device_states()
            set_rng_state(self.rng[0])
            rng.set_device_states(self.rng[1])
        try:
            with autocast_mode.restored(self.autocast), contextlib.nullcontext() if get_default_device() == self.device else self.device:
                yield
        finally:
            if now is not None:
                set_rng_state(now[0])
                rng.set_device_states(now[1])


class CheckpointFunction(Function):
    """Reentrant variant: forward without gradients, then a second forward with gradients inside
    backward."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        check_backward_validity(args)
        ctx.run_function, ctx.around = run_function, _Surroundings(preserve_rng_state)
        ctx.args = [None if is_tensor(a) else a for a in args]
        ctx.where = [i for i, a in enumerate(args) if is_tensor(a)]
        ctx.save_for_backward(*[a for a in args if is_tensor(a)])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *gs):
        if engine.current_graph_task().exec_info is not None:
            raise RuntimeError("torch.utils.checkpoint is incompatible with .grad() or `inputs`: with use_reentrant=True, call .backward() without `inputs` "
                               "instead of autograd.grad(), or pass use_reentrant=False.")
        args = list(ctx.args)
        for i, t in zip(ctx.where, ctx.saved_tensors):
            args[i] = t
        fresh = detach_variable(tuple(args))
        with ctx.around.again(), enable_grad():
            outs = ctx.run_function(*fresh)
        outs = (outs,) if is_tensor(outs) else outs
        pairs = [(o, g) for o, g in zip(outs, gs) if is_tensor(o) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None) + tuple(x.grad if is_tensor(x) else None for x in fresh)


# ------------------------------------------------------------------ non-reentrant variant
class _Enough(Exception):
    """Exception that stops a recomputation when all required tensors are available."""


class _Place:
    """Placeholder for a saved tensor.

    The recomputation does not store tensors whose placeholder is no longer referenced.
    """

    __slots__ = ("__weakref__",)


def _default_check(t):
    return tuple(t.shape), t.dtype, t.device


#: determinism_check -> function that returns the metadata of a saved tensor that must not change.
_CHECKS = {"default": _default_check, "none": lambda t: None}


class _Inputs(Node):
    """Node that saves the inputs of a checkpointed region like an op does.

    It uses the enclosing saved-tensor hooks, which may belong to an outer checkpoint, and detects
    in-place modification of the inputs.
    """

    __slots__ = ()


_Inputs.__name__ = "CheckpointBackward"


class _Frame:
    """A checkpointed region: its inputs and the metadata of its saved tensors.

    The recomputed values are stored with the backward pass that requested them.
    """

    def __init__(self, function, args, kwargs, around, context, check, early_stop, debug):
        self.function, self.kwargs, self.around, self.context = function, kwargs, around, context
        self.check, self.early_stop, self.debug = check, early_stop, debug
        self.places, self.seen = [], []
        # True once forward has ended; gradients may be requested before, when not all tensors are
        # saved yet
        self.over = False
        self.lines = ([], []) if debug else None
        self.args = [None if is_tensor(a) else a for a in args]
        self.node = new_node(_Inputs)
        self.node._prim, self.node._next_edges, self.node._input_metadata = None, [], ()
        self.node._saved = kept = {}
        for i, a in enumerate(args):
            if is_tensor(a):
                primitives._save(str(i), a, kept)

    def pack(self, t):
        place = _Place()
        self.places.append(weakref.ref(place))
        self.seen.append(self.check(t))
        if self.debug:
            self.lines[0].append(_line())
        return place

    def unpack(self, place):
        this = engine.current_graph_task()
        if this is None:
            # a node's saved tensors are read outside of a backward pass
            return self.recompute()[place]
        if this.notes is None:
            this.notes = {}
        values = this.notes.get(self)
        if values is None:
            values = this.notes[self] = self.recompute()
        # A value lives as long as a node references its placeholder: until the node has run, or, if
        # the graph is retained, until the end of the backward pass.
        return values[place]

    def recompute(self):
        args = list(self.args)
        for name, kept in self.node._saved.items():
            args[int(name)] = primitives._unpack(self.node, kept, name)
        values, count, most = weakref.WeakKeyDictionary(), 0, len(self.places)

        def pack(t):
            nonlocal count
            i, count = count, count + 1
            if i < most:
                if self.debug:
                    self.lines[1].append(_line())
                now = self.check(t)
                if now != self.seen[i]:
                    wrong.append((i, now))
                place = self.places[i]()
                if place is not None:
                    values[place] = t.detach() if t.requires_grad else t
            if self.early_stop and count == most:
                raise _Enough
            return t.detach() if t.requires_grad else t

        wrong = []
        if self.debug:
            self.lines[1].clear()
        try:
            with self.around.again(), self.context, enable_grad(), saved_tensors_hooks(pack, lambda t: t):
                self.function(*args, **self.kwargs)
        except _Enough:
            pass
        if count != most and (self.over or count < most):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                                  f"recomputation.\nNumber of tensors saved during forward: {most}\nNumber of tensors saved during "
                                  f"recomputation: {count}{self._told()}")
        if wrong:
            told = "".join(f"\ntensor at position {i}:\nsaved metadata: {self.seen[i]}\nrecomputed metadata: {now}" for i, now in wrong)
            raise CheckpointError("torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                                  f"during the forward pass.{told}{self._told()}")
        return values

    def _told(self):
        if not self.debug:
            return ""
        return "".join(f"\nSaved in the {which}:\n" + "".join(f"  {i}: {x}\n" for i, x in enumerate(lines))
                       for which, lines in zip(("forward", "recomputation"), self.lines))


def _line():
    """Returns the line of the user's code where a tensor was saved."""
    for f in reversed(traceback.extract_stack()[:-2]):
        if f"{os.sep}mindtorch{os.sep}" not in f.filename:
            return f"{f.filename}:{f.lineno} {f.line}"
    return "?"


def _without_reentrance(function, preserve, context_fn, determinism_check, debug, early_stop, args, kwargs):
    debug = debug if _debug is None else _debug
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    forward_context, context = context_fn()
    if not mode.on:
        return function(*args, **kwargs)
    early_stop = early_stop if _early_stop is None else _early_stop
    frame = _Frame(function, args, kwargs, _Surroundings(preserve), context, _CHECKS[determinism_check], early_stop, debug)
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        out = function(*args, **kwargs)
        frame.over = True
        return out
    raise RuntimeError("torch.utils.checkpoint: the forward context provided by context_fn suppressed an exception raised during the "
                       "checkpointed forward, which then has no result.")


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default", debug=False,
               early_stop=True, **kwargs):
    """Calls function(*args) and recomputes it in backward instead of saving its intermediate
    tensors.

    https://pytorch.org/docs/stable/checkpoint.html
    """
    try:
        if use_reentrant is None:
            warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
                          "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended.",
                          stacklevel=2)
            use_reentrant = True
        preserve = kwargs.pop("preserve_rng_state", True)
        if use_reentrant:
            if kwargs:
                raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
            if context_fn is not noop_context_fn or debug is not False:
                raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
            return CheckpointFunction.apply(function, preserve, *args)
        return _without_reentrance(function, preserve, context_fn, determinism_check, debug, early_stop, args, kwargs)
    except Exception as e:
        hide_internal_frames(e)
        raise


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Runs a Sequential (or list of functions) in `segments` checkpointed parts; the last part is
    not checkpointed."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly (False is "
                      "recommended); the default is True now, and a later release of PyTorch raises an error.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    fns = list(functions.children()) if isinstance(functions, Sequential) else functions

    def run(start, end):
        def forward(x):
            for i in range(start, end):
                x = fns[i](x)
            return x
        return forward

    size, done = len(fns) // segments, 0
    for start in range(0, size * (segments - 1), size):
        done = start + size
        input = checkpoint(run(start, done), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(done, len(fns))(input)
