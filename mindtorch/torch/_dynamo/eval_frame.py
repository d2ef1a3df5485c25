"""torch.compile at run time: the compiled callable, its cache, and the module that wraps a compiled
module."""
import functools
import gc
import inspect
import logging
import os
import sys
import threading
import types
import warnings
import weakref

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.c_kernels import conv_norm_lstm
from mindtorch.backend.mindspore.private import native_recording
from mindtorch.core.hooks import hooks
from mindtorch.core.dispatch import dispatcher, autocast as _autocast
from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes as _dtypes
from mindtorch.core.dispatch import primitives as _tape
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.tensor import Parameter, Tensor
from mindtorch.torch import _function_protocol as _protocol
from mindtorch.core.compile import replay as _lazy
from mindtorch.core.device.device_dispatch import USED as _USED
from mindtorch.torch._dynamo import _callable, _capture, _guards, _host_inductor, _mindspore, config
from mindtorch.torch._dynamo._replay import Program, Spec, tensors_of
from mindtorch.torch._dynamo.exc import FailOnRecompileLimitHit, RecompileError, Unsupported
from mindtorch.torch._dynamo.utils import counters
from mindtorch.torch.nn.modules import _hooks as _module_hooks  # noqa: F401
from mindtorch.torch.nn.modules import module as _module
from mindtorch.torch.nn.modules.module import Module

log = logging.getLogger("torch._dynamo")
graph_breaks = logging.getLogger("torch._dynamo.graph_breaks")
recompiles = logging.getLogger("torch._dynamo.recompiles")


def _logging_from_environment():
    """TORCH_LOGS=graph_breaks,recompiles,dynamo: logs these events to stderr."""
    wanted = {w.strip() for w in os.environ.get("TORCH_LOGS", "").split(",") if w.strip()}
    for name, logger in (("graph_breaks", graph_breaks), ("recompiles", recompiles), ("dynamo", log)):
        if wanted & {name, "+" + name, "all", "+dynamo"}:
            logger.setLevel(logging.DEBUG)
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
            logger.addHandler(handler)
            logger.propagate = False


_logging_from_environment()


class _State(threading.local):
    capturing = 0  # a call is being captured: compiled functions inside it run uncompiled
    off = 0  # inside torch.compiler.disable, or under an eager stance
    # innermost running callable with a graph break: its modules are captured one by one (_parts.py)
    within = None
    stance = "default"


state = _State()
_lock = module_lock(globals(), "_lock", threading.RLock)
everyone = weakref.WeakSet()


class Entry:
    """One captured variant."""

    __slots__ = ("spec", "guard", "program", "graph", "key", "run", "harmless")

    def __init__(self, spec, guard, program, graph, key, harmless):
        self.spec, self.guard, self.program, self.graph, self.key = spec, guard, program, graph, key
        self.run = program.run
        # it may be aborted and restarted: it neither modifies anything nor draws random numbers
        self.harmless = harmless


def _special():
    """Returns why nothing can be captured or replayed in the current state, or None."""
    if _protocol.state.modes:
        return "a TorchFunctionMode is active"
    if dispatcher.is_enabled("ops", "meta"):
        _protocol._meta_unwanted()
        if dispatcher.is_enabled("ops", "meta"):
            return "there are meta tensors"
    if _tape.saved_hooks:
        return "saved tensor hooks are active"
    if hooks.anomaly is not None:
        return "anomaly detection is on"
    if _module._g_forward or _module._g_forward_pre or _module._g_backward or _module._g_backward_pre:
        return "global module hooks are registered"
    if native_recording():
        return "MindSpore is recording"
    return None


def _key():
    # The modes as in `_capture.modes_now`, then the defaults for new tensors.
    return (mode.on, mode.inference, _autocast.state.to, _autocast.state.there, _dtypes.get_default_dtype(), _device.get_default())


class Compiled:
    """Result of torch.compile for a function: a callable with a bounded cache of captured variants.
    """

    part = False  # whether this is a module inside a callable with a graph break (_parts.py)
    # run and notice the modules of a callable with a graph break; set by _parts.py, which imports
    # this module
    run_parts = noticed = None
    lazily = None  # how it runs on the npu device (_mindspore.py); False if it does not
    parent = None

    def __init__(self, fn, options):
        self.fn, self.options = fn, options
        self.eager_calls = self.replayed_calls = 0
        if _callable.is_callable(options):
            self.lazily = False  # a user's backend receives captured graphs on every device
        self._forget()
        self._register()

    def _register(self):
        everyone.add(self)

    table = None  # parts that run separately after a graph break

    def _forget(self):
        self.entries, self.failures, self.given_up, self.known_codes, self.reasons = [], 0, None, {}, []
        self.attempts = self.captures = self.crowded = 0
        # reasons counted as graph breaks; whether one was located in a part
        self.breaks, self.passed_on = [], False
        self.table = None

    def reset(self):
        """Drops all captured variants, including those of parts."""
        if not _callable.is_callable(self.options):
            self.lazily = None
        self._forget()

    def __call__(self, args, kwargs):
        if state.capturing or state.off or config.disable or state.stance == "force_eager":
            return self.fn(*args, **kwargs)
        if _USED and self.lazily is not False:
            return _mindspore.lazily(self, args, kwargs)
        if self.given_up is not None and not self.entries:
            return self._in_parts(args, kwargs)
        special = _special()
        if special is not None:
            self._note(special)
            return self._eager(args, kwargs)
        key = _key()
        entries = self.entries
        for e in entries:
            if e.key != key:
                continue
            given = e.spec.check(args, kwargs)
            if given is None:
                continue
            if e.guard.holds() is None:
                self.replayed_calls += 1
                # a new list: other threads may be iterating over the old one
                if e is not entries[0]:
                    self.entries = [e, *(x for x in entries if x is not e)]
                try:
                    return e.run(*given)
                except Exception as error:
                    if not e.harmless or getattr(error, "of_backend", False):
                        raise
                break
        else:
            return self._miss(args, kwargs, key)
        # The replay raised: run eagerly, because the code may catch the exception itself or raise
        # another one.
        self.eager_calls += 1
        return self.fn(*args, **kwargs)

    # -- a call without a variant
    def _in_parts(self, args, kwargs):
        """Calls a function with a graph break: eagerly, except for the modules in it."""
        self.eager_calls += 1
        return Compiled.run_parts(self, args, kwargs)

    def _eager(self, args, kwargs):
        """Runs a call, and everything in it, eagerly. There is no graph break."""
        self.eager_calls += 1
        within, state.within = state.within, None
        try:
            return self.fn(*args, **kwargs)
        finally:
            state.within = within

    def _full(self):
        return len(self.entries) >= config.limit() or self._too_many()

    def _too_many(self):
        """True if the variant budget shared by all compiled callables is used up."""
        return sum([len(c.entries) for c in list(everyone)]) >= config.total_limit()

    def _miss(self, args, kwargs, key):
        if self.given_up is not None:
            return self._in_parts(args, kwargs)
        if state.stance == "eager_on_recompile" and self.entries:
            return self._eager(args, kwargs)
        if self.entries and (config.error_on_recompile or state.stance == "fail_on_recompile"):
            raise RecompileError(f"Recompiling {self.title} with error_on_recompile: {self._why(args, kwargs, key)}")
        if self._full():
            # Checking all guards is slow, so it is not done at every call of a function that keeps
            # meeting new shapes.
            self.crowded += 1
            if self.crowded < 9 or not self.crowded % 16:
                self._stale()
                if self.crowded % 16 == 1 and self._too_many():
                    gc.collect()  # unreferenced callables are cycles
        # A variant that is outdated at every call (for example by a counter) would cost a capture
        # each time.
        hardly = not self.options["fullgraph"] and self.captures >= 4 * config.limit() and self.replayed_calls < 2 * self.captures
        if hardly or self._full():
            text = (f"torch._dynamo hit config.recompile_limit ({config.limit()}): {self.title} has that many variants already; "
                    "further ones run eagerly")
            if self.options["fullgraph"] or config.fail_on_recompile_limit_hit:
                raise FailOnRecompileLimitHit(text)
            if "recompile_limit" not in self.reasons:
                self.reasons.append("recompile_limit")
                (graph_breaks.info if self.part else log.warning)(text)
            counters["graph_break"]["recompile_limit"] += 1
            return self._eager(args, kwargs)
        if self.entries:
            recompiles.debug("Recompiling %s: %s", self.title, self._why(args, kwargs, key))
            counters["recompiles"][self.title] += 1
        if sys.getprofile() is not None:
            self._note("another profile function is set")
            return self._eager(args, kwargs)
        for t in tensors_of(args, kwargs):
            if type(t) is not Tensor and type(t) is not Parameter:
                self._note(f"an argument is a {type(t).__name__}")
                return self._eager(args, kwargs)
        # Wait for another thread's capture, but not forever: that thread may itself be waiting for
        # this one.
        if not _lock.acquire(timeout=config.capture_wait):
            return self._eager(args, kwargs)
        try:
            entries = self.entries  # that thread may have captured the same variant
            found = next((e for e in entries if e.key == key and e.spec.check(args, kwargs) is not None and e.guard.holds() is None), None)
            if found is None and self.given_up is None:
                return self._capture(args, kwargs, key)
        finally:
            _lock.release()
        if found is None:
            return self._in_parts(args, kwargs)
        self.replayed_calls += 1
        return found.run(*found.spec.check(args, kwargs))

    def _stale(self):
        """Drops variants whose captured state (weights, flags, globals) has changed since: they are
        unlikely to match again."""
        stale = [e for e in self.entries if e.guard.holds() is not None]
        if stale:
            self.entries = [e for e in self.entries if e not in stale]

    def _why(self, args, kwargs, key):
        for e in self.entries:
            if e.key != key:
                continue
            if e.spec.check(args, kwargs) is not None:
                return e.guard.holds()
        return "other arguments (shape, dtype, layout, requires_grad or value)" if any(
            e.key == key for e in self.entries) else "another grad or autocast mode, default dtype or device"

    def _capture(self, args, kwargs, key):
        counters["frames"]["total"] += 1
        self.attempts += 1
        inputs = tensors_of(args, kwargs)
        self.eager_calls += 1
        state.capturing += 1
        # The arguments are described before the call, which may modify them in place.
        first = Spec(args, kwargs)
        before = _callable.Before(self._roots(), self.known_codes, inputs) if _callable.is_callable(self.options) else None
        try:
            with Compiled.noticed(self):
                r, rec, after = _capture.capture(self.fn, self._roots(), first.objects + [(args, "an argument"), (kwargs, "an argument")],
                                                 args, kwargs, inputs, self.known_codes)
        finally:
            state.capturing -= 1
        if rec.reason is not None:
            self.known_codes.update(rec.codes)
            self.failures += 1
            self._note(rec.reason, broken=True)
            if self.options["fullgraph"]:
                raise Unsupported(f"{self.title} cannot be compiled as one graph (fullgraph=True): {rec.reason}")
            if rec.final or self.failures >= config.capture_attempts:
                self.given_up = rec.reason
            return r
        spec = Spec(args, kwargs, rec.fixed) if rec.fixed else first
        spec.learn(rec.reads, rec.known)
        graph = rec.graph
        entry, fused = self._compile(rec, spec, key, args, kwargs)
        if not self._worth(args, len(graph.nodes), fused):
            return r
        if not self.part and self.given_up is None:
            self.table = None  # the registered modules are not needed
        guard = _guards.Guard(after, [v.tensor for v in graph.parameters], conv_norm_lstm.lib() if self.options["backend"] == "inductor" else None)
        entry.guard = guard
        self.entries = [entry, *self.entries]
        self.captures += 1
        counters["frames"]["ok"] += 1
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += len(graph.nodes)
        log.debug("captured %s: %d ops, %d tensors read, %d dicts watched", self.title, len(graph.nodes), len(graph.parameters),
                  len(guard.dicts))
        if before is None or not rec.graph.nodes:
            return r
        if not before.undo(rec):
            _callable.note(self.title)
            return r
        return entry.run(*inputs)

    def _worth(self, args, ops, fused):
        """True if a captured variant is worth keeping."""
        return True

    def _compile(self, rec, spec, key, args, kwargs):
        """Compiles a captured graph: selects C kernels, then builds the replay."""
        graph, fused = rec.graph, 0
        if _callable.is_callable(self.options):
            program = _callable.compiled(graph, rec, self.fn, args, kwargs, self.options, key[:-2], state)
            if program is not None:
                return Entry(spec, None, program, graph, key, False), 0
        if self.options["backend"] == "mindspore" and graph.nodes:
            from mindtorch.torch._dynamo import _on_host
            why = _on_host.refusal(graph, rec)
            if why is None:
                return Entry(spec, None, _on_host.Program(graph, rec, self.fn, args, kwargs, self.options, key[:-2], state, self.title), graph, key,
                             rec.harmless()), 0
            self._note(f"it is not compiled for MindSpore: {why}", broken=True)
            if self.options["fullgraph"]:
                raise Unsupported(f"{self.title} cannot be compiled for MindSpore (fullgraph=True): {why}")
            if not self.part and _USED:
                self.lazily = None  # npu tensors: what runs there is compiled as it runs
        if self.options["backend"] == "inductor":
            from mindtorch.torch._inductor.lowering import lower
            graph, fused = lower(graph, rec.tensors())
        counters["inductor"]["c_kernels"] += fused
        program = _host_inductor.Program(graph, key[:-2], self.title) if self.options["backend"] == "inductor" else Program(graph, key[:-2])
        return Entry(spec, None, program, rec.graph, key, rec.harmless()), fused

    def _note(self, reason, broken=False):
        """Logs why a call ran eagerly, once per reason."""
        if reason in self.reasons:
            return
        self.reasons.append(reason)
        if broken and self._is_break(reason):
            self.breaks.append(reason)
            counters["graph_break"][reason] += 1
        graph_breaks.info("%s runs eagerly: %s", self.title, reason)

    def _is_break(self, reason):
        """False if the graph break was already counted in the caller of a part."""
        return True

    def _roots(self):
        fn = self.fn
        return [(fn, self.title)]

    @property
    def title(self):
        """A name for messages."""
        fn = self.fn
        if isinstance(fn, types.MethodType):
            return f"{type(fn.__self__).__name__}.{fn.__name__}"
        return getattr(fn, "__qualname__", None) or type(fn).__name__


_guards.add_inert_class(Compiled)


class OptimizedModule(Module):
    """A compiled module. Calls go through the cache, everything else to the original module
    (`_orig_mod`)."""

    _own = frozenset(["_orig_mod", "_compiled", "forward", "__wrapped__"])

    def __init__(self, mod, options):
        super().__init__()
        d = self.__dict__
        d.pop("training", None)
        self._modules["_orig_mod"] = mod
        d["_compiled"] = Compiled(_Call(mod), options)

    @property
    def training(self):
        return self._orig_mod.training

    @training.setter
    def training(self, value):
        self._modules["_orig_mod"].training = value

    def __call__(self, *args, **kwargs):
        try:
            if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
                return self._call_impl(*args, **kwargs)
            return self._compiled(args, kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    def forward(self, *args, **kwargs):
        """Computes the module, compiled."""
        return self._compiled(args, kwargs)

    def __getattr__(self, name):
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self.__dict__["_modules"]["_orig_mod"], name)

    def __setattr__(self, name, value):
        if name in ("training",) or name in self.__dict__ or "_modules" not in self.__dict__ or "_orig_mod" not in self._modules:
            object.__setattr__(self, name, value)
        elif name == "_orig_mod":
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        delattr(self._orig_mod, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self):
        return _compiled_again, (self._orig_mod, self.__dict__["_compiled"].options)

    def __deepcopy__(self, memo):
        import copy
        return OptimizedModule(copy.deepcopy(self._orig_mod, memo), self.__dict__["_compiled"].options)

    def __len__(self):
        return len(self._orig_mod)

    def __getitem__(self, i):
        return self._orig_mod[i]

    def __iter__(self):
        return iter(self._orig_mod)

    def extra_repr(self):
        return ""


def _compiled_again(mod, options):
    return OptimizedModule(mod, options)


class _Call:
    """Wraps module(*args) as the function to capture."""

    def __init__(self, mod):
        self.mod = mod
        self.__qualname__ = type(mod).__name__

    def __call__(self, *args, **kwargs):
        return self.mod(*args, **kwargs)


def compile_callable(fn, options):
    """Returns the compiled form of a module, class, function or other callable."""
    if isinstance(fn, OptimizedModule) or getattr(fn, "_torchdynamo_compiled", None) is not None:
        return fn
    if isinstance(fn, Module):
        return OptimizedModule(fn, options)
    if inspect.isclass(fn):
        fn.__call__ = compile_callable(fn.__call__, options)
        return fn
    if getattr(fn, "_torchdynamo_disable", False):
        return fn
    compiled = Compiled(fn, options)

    def wrapper(*args, **kwargs):
        try:
            return compiled(args, kwargs)
        except Exception as e:
            hide_internal_frames(e)
            raise
    if hasattr(fn, "__name__"):
        functools.update_wrapper(wrapper, fn)
    wrapper._torchdynamo_compiled = compiled
    wrapper._torchdynamo_orig_callable = fn
    return wrapper


def innermost_fn(fn):
    """Returns the original function of a compiled one."""
    while hasattr(fn, "_torchdynamo_orig_callable"):
        fn = fn._torchdynamo_orig_callable
    return fn


def reset():
    """Drops everything that was captured, in all compiled callables."""
    for c in list(everyone):
        c.reset()
    counters.clear()
    counters["mindspore"] = _lazy.counters
    _lazy.counters.clear()


def disable(fn=None, recursive=True, *, reason=None, wrapping=True):
    """Marks a function or module: it runs eagerly, including everything it calls. Calling it during
    a capture is a graph break."""
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if isinstance(fn, Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if inspect.isclass(fn):
        return fn
    text = f"torch.compiler.disable is on {getattr(fn, '__qualname__', fn)}" + (f" ({reason})" if reason else "")

    @functools.wraps(innermost_fn(fn))
    def disabled(*args, **kwargs):
        rec = _capture._active(None)
        if isinstance(rec, _capture.Recorder):
            rec.fail(text)
        state.off += 1 if recursive else 0
        try:
            with _lazy.outside(text):
                return innermost_fn(fn)(*args, **kwargs)
        finally:
            state.off -= 1 if recursive else 0
    disabled._torchdynamo_disable = True
    return disabled


class set_stance:
    """Sets the behavior of compiled functions from now on, or inside a `with` block: "default",
    "force_eager", "eager_on_recompile" or "fail_on_recompile"."""

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        if stance not in ("default", "force_eager", "eager_on_recompile", "fail_on_recompile"):
            raise RuntimeError(f"invalid torch.compile stance {stance!r}")
        if skip_guard_eval_unsafe or force_backend is not None:
            raise NotImplementedError("torch.compiler.set_stance(skip_guard_eval_unsafe=..., force_backend=...) is not supported")
        self.old, state.stance, self.stance = state.stance, stance, stance

    def __enter__(self):
        state.stance = self.stance

    def __exit__(self, *exc):
        state.stance = self.old

    def __call__(self, fn):
        state.stance = self.old

        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with set_stance(self.stance):
                return fn(*args, **kwargs)
        return wrapped


def warn_once(text, _seen=set()):      # noqa: B006
    """Emits a warning once per process."""
    if text not in _seen:
        _seen.add(text)
        warnings.warn(text, stacklevel=3)
