"""torch.autograd.Function: custom operations with hand-written gradients."""
import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

from mindtorch.core.hooks import hooks
from mindtorch.core.transforms import vmap, functorch_levels
from mindtorch.core.autograd import forward_ad
from mindtorch.core.dispatch import primitives
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.autograd.grad_mode import mode, no_grad
from mindtorch.core.mindspore.grad import link, native_recording
from mindtorch.core.dispatch.primitives import Node, new_node
from mindtorch.core.tensor.tensor import TRANSFORMS, Parameter, Tensor, VersionCounter, shallow_copy, bump_version, detached, creation_meta_message, version_counter, is_tensor
from mindtorch.core.tensor.view_meta import register_view
from mindtorch.ops.creation.create import zeros_
from mindtorch.torch.autograd import _function_tangents

__all__ = ["FunctionCtx", "Function", "once_differentiable", "InplaceFunction", "NestedIOFunction", "BackwardCFunction"]


class FunctionCtx:
    """Methods of `ctx`, by which forward stores state for backward."""

    def save_for_backward(self, *tensors):
        """Saves tensors for backward. A later in-place write to one of them raises an error in
        backward."""
        for t in tensors:
            if t is not None and not is_tensor(t):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors):
        """Saves tensors for jvp, where saved_tensors returns them."""
        for t in tensors:
            if t is not None and not is_tensor(t):
                raise TypeError(f"save_for_forward can only save variables, but argument is of type {type(t).__name__}")
        self._for_forward = tensors

    def mark_dirty(self, *args):
        """Declares the inputs that forward modified in place."""
        self._dirty = args

    def mark_non_differentiable(self, *args):
        """Declares the outputs that have no gradient."""
        self._nondiff = args

    def set_materialize_grads(self, value):
        """With False, missing output gradients are passed as None instead of zeros."""
        self._materialize = value


class BackwardCFunction(Node, FunctionCtx):
    """grad_fn of a custom Function. It is also the `ctx` of its methods."""

    __slots__ = ("__dict__",)

    @property
    def saved_tensors(self):
        """Tensors passed to save_for_backward; inside jvp, those passed to save_for_forward."""
        if getattr(self, "_in_jvp", False):
            return tuple(getattr(self, "_for_forward", ()))
        if self._released:
            raise RuntimeError("Trying to backward through the graph a second time (or directly access saved tensors after they "
                               "have already been freed). Saved intermediate values of the graph are freed when you call "
                               ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
                               "graph a second time or if you need to access saved tensors after calling backward.")
        vals = self._saved
        if vals is None:
            return tuple(getattr(self, "_to_save", ()))
        return tuple(None if s is None else primitives._unpack(self, s, str(i)) for i, s in enumerate(vals.values()))

    @property
    def _raw_saved_tensors(self):
        """SavedTensor objects of the tensors passed to save_for_backward, for registering hooks."""
        if self._released:
            return self.saved_tensors  # this raises the error
        return tuple(primitives.SavedTensor._of(self, k) for k in self._saved or ())

    @property
    def saved_variables(self):
        """Deprecated name of saved_tensors."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def needs_input_grad(self):
        return self._needs

    def _apply(self, gs):
        if getattr(self, "_materialize", True):
            made = self._out_meta if getattr(self, "_materialize_non_diff_grads", True) else self._differentiable
            gs = [(primitives._zeros(m, gs) if self._where is None else zeros_(size=m[0], stride=None, np_dtype=m[1], device=self._where))
                  if g is None and m is not None else g for g, m in zip(gs, made)]
        fn = type(self)._function
        if fn.backward is Function.backward:
            backward = fn.vjp
        elif fn.vjp is Function.vjp:
            backward = fn.backward
        else:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
                               "of them.")
        res = backward(self, *gs)
        if not isinstance(res, tuple):
            res = tuple(res) if isinstance(res, list) else (res,)
        n = len(self._needs)
        if len(res) > n:
            if any(r is not None for r in res[n:]):
                raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(res)})")
            res = res[:n]
        elif len(res) < n:
            raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(res)})")
        out = []
        for i, (r, expected) in enumerate(zip(res, self._is_tensor)):
            if not expected:
                if r is not None:
                    raise RuntimeError(f"function {self.name()} returned a gradient different from None at position {i + 1}, but "
                                       "the corresponding forward input was not a Variable")
                continue
            if r is not None and not is_tensor(r):
                raise TypeError(f"expected Variable or None (got {type(r).__name__})")
            out.append(r)
        return out

    def __getattr__(self, name):
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class _Recording(threading.local):
    """record(function class, args, kwargs), set while this thread exports a program: returns the
    function's result, or NotImplemented if the call is not recorded as one node."""

    record: Callable[[type, tuple[Any, ...], dict[str, Any]], Any] | None = None


recording = _Recording()

#: the function of torch/func/_custom.py that applies a Function under vmap: it registers itself
#: before the first vmap
_under_vmap: list[Callable[..., Any]] = []


class _FunctionMeta(type):
    def __init__(cls, name, bases, attrs):
        super().__init__(name, bases, attrs)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_function": cls, "__module__": cls.__module__})


class Function(metaclass=_FunctionMeta):
    """Base of custom autograd functions (https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function).

    Subclasses define static methods forward(ctx, *args) (or forward(*args) with setup_context(ctx, inputs, output)) and
    backward(ctx, *grads); they are used through `apply`.
    """

    generate_vmap_rule = False
    _any_setup = False

    @staticmethod
    def vmap(info, in_dims, *args):
        """Returns (result, out_dims) for arguments that are batched along `in_dims`. Override it to
        support vmap."""
        raise NotImplementedError("To use autograd.Function with vmap, you must either override the vmap static method or set generate_vmap_rule=True.")

    def __init__(self, *args, **kwargs):
        warnings.warn(f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
                      "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
                      "version of PyTorch.", DeprecationWarning, stacklevel=2)

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with static forward "
                           "method. (Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)")

    @staticmethod
    def forward(*args, **kwargs):
        """Computes the outputs."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Saves state for backward if forward has no ctx argument."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """Computes one gradient per forward argument."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it "
                                  "with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx, *grad_inputs):
        """Computes one tangent per output from one tangent per forward argument (None for a
        non-tensor)."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs forward and records the function. If an argument has a tangent, jvp computes the
        tangents of the outputs."""
        try:
            if recording.record is not None:
                out = recording.record(cls, args, kwargs)
                if out is not NotImplemented:
                    return out
            if dispatch_state.dual is not None and dispatch_state.dual(*args, *kwargs.values()):
                return _function_tangents.apply(cls, args, kwargs)
            if dispatch_state.primitives:
                level = vmap.top([*args, *kwargs.values()])
                if level is not None:
                    return _under_vmap[0](cls, level, args, kwargs)
            return cls._apply_plain(args, kwargs)[0]
        except Exception as e:
            hide_internal_frames(e)
            raise

    @classmethod
    def _apply_plain(cls, args, kwargs):
        """Returns (result, node, outputs as returned by forward, arguments in order), ignoring
        tangents."""
        node, args, tensors, record = _new_function_node(cls, args, kwargs)
        out = _run_forward(cls, node, args)
        single = is_tensor(out) or not isinstance(out, tuple)
        outs = [out] if single else list(out)
        dirty = getattr(node, "_dirty", ())
        for t in dirty:
            if not any([t is o for o in outs]):
                raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs "
                                   "that are modified inplace must all be outputs of the Function.")
        if not record:
            node._next_edges, node._input_metadata = [], ()
            for o in outs:
                if mode.on and is_tensor(o) and o._creation_meta == "no_grad":
                    o._creation_meta = "custom"
            r = out if not any([o is t for o in outs for t in tensors]) else _plain(outs, tensors, dirty, single)
            return r, node, outs, args
        node._next_edges = [None if not t._requires_grad_ else (t._grad_fn_, t._output_nr) if t._grad_fn_ is not None else None if t._view_without_history else t
                            for t in tensors]
        results = _set_history(node, outs, tensors, dirty)
        _save_tensors(node, outs, results, tensors)
        if native_recording():
            link(node, tuple(results), tensors)
        if hooks.stack_recorder is not None:
            hooks.stack_recorder(results, node._sequence_number)
        return (results[0] if single else tuple(results)), node, outs, args


def _new_function_node(cls, args, kwargs):
    """Returns (node of a call, arguments in order, tensors among the positional ones, True if the
    call is recorded)."""
    kind = cls._backward_cls
    if TRANSFORMS.count and functorch_levels.levels():
        kind = _in_transform(cls)
    node = new_node(kind)
    node._prim = None
    tensors = [a for a in args if is_tensor(a)]
    record = mode.on and any([t._requires_grad_ for t in tensors])
    node._needs = tuple([is_tensor(a) and record and a._requires_grad_ for a in args])
    node._is_tensor = tuple([is_tensor(a) for a in args])
    if kwargs:
        import inspect
        params = list(inspect.signature(cls.forward).parameters)
        names = params if _split(cls) else params[1:]
        args = args + tuple(kwargs[k] for k in names[len(args):] if k in kwargs)
    if _split(cls):
        args = _with_defaults(cls, args)
    if len(args) > len(node._needs):
        node._needs += (False,) * (len(args) - len(node._needs))
        node._is_tensor += (False,) * (len(args) - len(node._is_tensor))
    return node, args, tensors, record


def _run_forward(cls, node, args):
    """Returns what forward returns, computed without recording and without tangents."""
    tangents = forward_ad.state
    on, tangents.on = tangents.on, False
    try:
        with no_grad():
            if _split(cls):
                out = cls.forward(*args)
                cls.setup_context(node, args, out)
            else:
                out = cls.forward(node, *args)
    finally:
        tangents.on = on
    return out


def _set_history(node, outs, tensors, dirty):
    """Returns the results of a recorded call: the outputs of forward with the node as their
    history."""
    nondiff = getattr(node, "_nondiff", ())
    meta, results, nowhere = [], [], []
    for i, o in enumerate(outs):
        if not is_tensor(o):
            meta.append(None)
            results.append(o)
            continue
        meta.append((o._sizes, o._np_dtype))
        twice = next((j for j in range(i) if outs[j] is o), None)
        # a tensor that occurs twice among the outputs: its gradient arrives at the last index
        if twice is not None:
            o = results[twice]
            if o._grad_fn_ is node:
                o._output_nr = i
        elif any([o is x for x in nondiff]) or o._np_dtype.kind not in "fcV":
            o = _as_is(o, detached) if any([o is t for t in tensors]) else o
            nowhere.append(i)
        elif any([o is d for d in dirty]):
            _check_dirty(o, len(outs))
            o = _dirty(o, node, i)
        else:
            o = _attached(node, i, o, outs, tensors)
        results.append(o)
    node._out_meta = meta
    #: device (None: host) on which to create missing output gradients
    node._where = next((o._device for o in outs if is_tensor(o) and o._handle is not None), None)
    node._input_metadata = tuple(meta)
    node._differentiable = [None if i in nowhere else m for i, m in enumerate(meta)] if nowhere else meta
    return results


def _attached(node, i, o, outs, tensors):
    """Returns output `i` as a result of the node."""
    if any([o is t for t in tensors]):
        # An input returned unchanged becomes a view of it, as in PyTorch.
        src = o
        o = _as_is(src, shallow_copy)
        if o._base is None:
            register_view(o, src)
    elif o._grad_fn_ is not None and o._base is None:
        o = detached(o)
    o._grad_fn_, o._output_nr, o._requires_grad_, o._view_without_history = node, i, True, False
    if o._base is not None:
        o._creation_meta, o._made = "multi" if sum(map(is_tensor, outs)) > 1 else "custom", version_counter(o).v
    return o


def _save_tensors(node, outs, results, tensors):
    """Saves the tensors given to save_for_backward; outputs are saved without a reference cycle."""
    kept = {}
    for i, t in enumerate(getattr(node, "_to_save", ())):
        if t is None:
            kept[str(i)] = None
            continue
        j = next((j for j, o in enumerate(outs) if o is t), None)
        if j is None:
            primitives._save(str(i), t, kept)
            continue
        r = results[j]
        if primitives.saved_hooks and primitives.hooks_here.pairs:
            primitives._save(str(i), r, kept, j if r._grad_fn_ is node else None)
        elif not any([t is x for x in tensors]):
            kept[str(i)] = primitives._Out(r, j) if r._requires_grad_ and r._grad_fn_ is node else (r, version_counter(r), version_counter(r).v)
        else:
            kept[str(i)] = primitives._Out(r, j) if r._grad_fn_ is node else (t, version_counter(t), version_counter(t).v)
    node._saved = kept
    if hasattr(node, "_to_save"):
        del node._to_save


def check_setup(cls):
    """Raises RuntimeError unless a Function's forward has no ctx, as required by transforms
    (mindtorch's own Functions may have it)."""
    if not _split(cls) and not cls._any_setup and not cls.__module__.startswith(("mindtorch.", "torch.")):
        raise RuntimeError("In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context "
                           "staticmethod. For more details, please see https://pytorch.org/docs/main/notes/extending.func.html")


def _in_transform(cls):
    """Returns the class of a function's node inside transforms."""
    check_setup(cls)
    if not functorch_levels.differentiating():
        return cls._backward_cls
    made = cls.__dict__.get("_generated_cls")
    if made is None:
        made = cls._generated_cls = type(cls.__name__ + "GeneratedBackward", (cls._backward_cls,), {"__module__": cls.__module__})
    return made


def _with_defaults(cls, args):
    """Appends forward's defaults for omitted arguments: setup_context receives all of them."""
    defaults = cls.__dict__.get("_defaults")
    if defaults is None:
        import inspect
        defaults = cls._defaults = [p.default for p in inspect.signature(cls.forward).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if any(p.kind == p.VAR_POSITIONAL for p in inspect.signature(cls.forward).parameters.values()):
            defaults.clear()
    return (*args, *defaults[len(args):]) if len(args) < len(defaults) else args


def _split(cls):
    return cls.setup_context is not Function.setup_context


def _as_is(x, plainly):
    """Handles an input that forward returned: returns another tensor on its memory.

    For a user's tensor subclass the result has that class (its __torch_function__ handles view_as).
    """
    cls = x.__class__
    if cls is Tensor or cls is Parameter or not is_tensor(x):
        return plainly(x)
    with no_grad():
        return x.view_as(x)


def _plain(outs, tensors, dirty, single):
    for t in dirty:
        bump_version(t)
    res = [_as_is(o, _view_of) if is_tensor(o) and any(o is t for t in tensors) and (o._requires_grad_ or not any(o is d for d in dirty)) else o
           for o in outs]
    return res[0] if single else tuple(res)


def _view_of(x):
    """Handles an input that is returned while nothing is recorded: returns a view of it, or a
    detached alias if it requires grad."""
    if x._requires_grad_:
        return detached(x)
    r = shallow_copy(x)
    register_view(r, x)
    return r


def _check_dirty(x, count):
    """Raises PyTorch's errors if a Function with `count` outputs modified a tensor in place that
    cannot take the new history."""
    if x._grad_fn_ is None and x._requires_grad_:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    base = x._base
    if base is None:
        return
    if count > 1:
        raise RuntimeError("If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor: "
                           "one of several outputs cannot become the history of the view's base. clone() the input, or let one Function write to it and "
                           "return it, and another one compute the rest.")
    if x._creation_meta is not None:
        raise RuntimeError(creation_meta_message(x, "is being"))
    if x._requires_grad_ and base._requires_grad_ and base._grad_fn_ is None:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


def _dirty(x, node, i):
    from mindtorch.core.tensor import inplace
    if native_recording():
        raise NotImplementedError("autograd.Function that writes to its input in place (mark_dirty) inside MindSpore's "
                                  f"value_and_grad (dtype {x.dtype}, device {x.device}); use backward() or an out-of-place "
                                  "function")
    bump_version(x)  # this also covers writes that forward made through .data or NumPy
    r = shallow_copy(x)
    r._grad_fn_, r._output_nr, r._requires_grad_ = node, i, True
    if x._version_counter is None:
        x._version_counter = VersionCounter()
    r._version_counter = x._version_counter
    node._input_metadata = ((x._sizes, x._np_dtype),) * (i + 1)
    inplace.rebase(x, r)
    return x


def once_differentiable(fn):
    """Decorator for a backward that cannot be differentiated again; attempts to do so raise
    RuntimeError."""
    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with no_grad():
            res = fn(ctx, *args)
        if not mode.on or not any(is_tensor(a) and a._requires_grad_ for a in args):
            return res
        outs = res if isinstance(res, tuple) else (res,)
        marked = tuple(_Once.apply(o, *[a for a in args if is_tensor(a)]) if is_tensor(o) else o for o in outs)
        return marked if isinstance(res, tuple) else marked[0]
    return wrapper


class _SingleLevelFunction(Function):
    """Function for operators' gradient rules: its forward may have a ctx inside transforms, too."""

    _any_setup = True


class _Once(Function):
    @staticmethod
    def forward(ctx, x, *deps):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """Function with an `inplace` flag."""


class NestedIOFunction(Function):
    """Legacy Function with nested inputs and outputs; unsupported."""

    @classmethod
    def apply(cls, *args, **kwargs):
        raise NotImplementedError("torch.autograd.function.NestedIOFunction is not supported; use Function")
