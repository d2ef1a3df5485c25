"""Base class of all optimizers (https://pytorch.org/docs/stable/optim.html).

In addition to PyTorch's interface, an optimizer has `parameters` and accepts gradients:
`optimizer(grads)` or `optimizer.step(grads)`, for training loops written around
`mindspore.value_and_grad`.
"""
import functools
import inspect
import itertools
import operator
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from typing import Any, TypeAlias

import mindtorch.torch as torch
from mindtorch.backend import optimizer_formulas
from mindtorch.backend.mindspore import parallel_context
from mindtorch.backend.mindspore.private import MSTensor
from mindtorch.backend.mindspore.runtime import in_graph_mode
from mindtorch.core.device import device_dispatch, fused_optim
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.sparse import CompressedTensor
from mindtorch.core.dispatch.primitives import RemovableHandle
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import Tensor, adopt, is_tensor
from mindtorch.torch.optim._spaces import InPlace, Lists, Recorded

__all__ = ["Optimizer", "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"]

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
StateDict: TypeAlias = dict[str, Any]
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
GlobalOptimizerPreHook: TypeAlias = Callable[["Optimizer", Args, Kwargs], tuple[Args, Kwargs] | None]
GlobalOptimizerPostHook: TypeAlias = Callable[["Optimizer", Args, Kwargs], None]

_global_optimizer_pre_hooks: dict = OrderedDict()
_global_optimizer_post_hooks: dict = OrderedDict()


class _RequiredParameter:
    """Default of a hyperparameter that every parameter group must specify."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


def _handle(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """Registers a global pre-hook: hook(optimizer, args, kwargs) runs before `step` of every
    optimizer.

    The hook may return new (args, kwargs).
    """
    return _handle(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Registers a global post-hook: hook(optimizer, args, kwargs) runs after `step` of every
    optimizer."""
    return _handle(_global_optimizer_post_hooks, hook)


# ------------------------------------------------------------------ helpers of the algorithms
def _use_grad_for_differentiable(func):
    """Decorator of `step`: enables gradient mode inside only if differentiable=True."""
    @functools.wraps(func)
    def step(self, *args, **kwargs):
        old = mode.on
        mode.on = bool(self.defaults.get("differentiable", False))
        try:
            return func(self, *args, **kwargs)
        finally:
            mode.on = old
    return step


def _evaluate(closure):
    """Returns the closure's loss, computed with gradients enabled; None without a closure."""
    if closure is None:
        return None
    old = mode.on
    mode.on = True
    try:
        return closure()
    finally:
        mode.on = old


def _get_value(x):
    """Returns the value of a one-element tensor; returns Python scalars unchanged."""
    # fast path: the isinstance check on MindSpore's class costs 0.3 us
    if x.__class__ is float or x.__class__ is int:
        return x
    return x.item() if isinstance(x, MSTensor) else x


def _to_scalar(x):
    """Returns a one-element tensor as a 0-dim tensor; returns Python scalars unchanged."""
    return x.squeeze() if is_tensor(x) and x.dim() != 0 else x


def _stack_if_compiling(x):
    """Returns `x` unchanged: the step count is never traced by a compiler here."""
    return x


def _get_scalar_dtype(is_fused=None):
    """Returns the dtype of the `step` tensors in the state."""
    if is_fused:
        return torch.float32
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


def _get_capturable_supported_devices(supports_xla=True):
    return ["cuda", "xpu", "hpu", "privateuseone"] + (["xla"] if supports_xla else [])


def _get_fused_kernels_supported_devices():
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _get_foreach_kernels_supported_devices():
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """Returns the default (fused, foreach): always False, since one implementation serves all cases
    here."""
    return False, False


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    """Decorator that marks functions for torch.compile in PyTorch; does nothing here."""
    def decorate(func):
        return func
    return decorate


def _view_as_real(params, *state_and_grads):
    """Replaces the complex entries of the lists, in place, by their real views."""
    for i, p in enumerate(params):
        if torch.is_complex(p):
            params[i] = torch.view_as_real(p)
            for s in state_and_grads:
                s[i] = torch.view_as_real(s[i])


def _device_dtype_check_for_fused(p, cuda_unsupported=False):
    devices = _get_fused_kernels_supported_devices()
    if cuda_unsupported:
        devices.remove("cuda")
    if not (p.device.type in (*devices, "npu") and torch.is_floating_point(p)):
        raise RuntimeError("`fused=True` requires all the params to be floating point Tensors of supported devices: "
                           f"{devices} but {p.dtype} and {p.device.type}")


def _check_fused(optimizer, fused, foreach, differentiable):
    """Rejects the options that conflict with fused=True, with PyTorch's error messages."""
    if not fused:
        return
    if differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    optimizer._step_supports_amp_scaling = True


def _check_lr(lr, message="Invalid learning rate: {}"):
    if is_tensor(lr) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= lr:
        raise ValueError(message.format(lr))


def _check_betas(betas):
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def _check_at_least_zero(**values):
    names = {"eps": "epsilon"}
    for name, value in values.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {names.get(name, name)} value: {value}")


def _check_steps(state_steps):
    for t in state_steps:
        if not is_tensor(t):
            raise RuntimeError("API has changed, `state_steps` argument must contain a list of singleton tensors")


def _zero_step(fused=None):
    return _host_number(0.0, _get_scalar_dtype(fused))


def _host_number(value, dtype=None):
    """Returns a tensor for a scalar of the state, such as a step count.

    It is on the CPU for parameters of every device, so that reading it does not synchronize.
    """
    return torch.tensor(value, dtype=dtype or _get_scalar_dtype(), device="cpu")


def _zeros(p):
    return torch.zeros_like(p, memory_format=torch.preserve_format)


def _amp_skips(grads, grad_scale, found_inf):
    """Unscales gradients in place, like a fused step under GradScaler; True if the step must be
    skipped."""
    if found_inf is not None and found_inf.item():
        return True
    if grad_scale is not None:
        for g in grads:
            g.div_(grad_scale)
    return False


# ------------------------------------------------------------------ the elementwise algorithms (mindtorch/backend/optimizer_formulas.py)
class _State:
    """Declaration of a tensor that an algorithm stores for each parameter.

    Args:
        name: its key in the state.
        make: make(parameter, gradient, group) is called before the first step. None: the tensor
            already exists, or (optional) the first step creates it.
        when: when(group) is True if the group's options require the tensor.
        scalar: states saved by older versions have a Python number here.
    """

    __slots__ = ("name", "make", "when", "optional", "scalar")

    def __init__(self, name, make=lambda p, g, group: _zeros(p), when=None, optional=False, scalar=False):
        self.name, self.make, self.when, self.optional, self.scalar = name, make, when, optional, scalar


_STEP = _State("step", lambda p, g, group: _zero_step(group.get("fused")), scalar=True)


def _begin(name, params, state_steps, foreach, differentiable, capturable=False, *, supports_xla=True, checked="params and state_steps",
           fused=False):
    """Checks the arguments of an algorithm and returns the plan of its fused kernel.

    The plan is None if tensor ops have to do the update: the name is None, there are no parameters,
    or the kernel does not support them.
    """
    _check_steps(state_steps)
    if not params:
        return None
    if foreach and differentiable:
        raise AssertionError("_foreach ops don't support autograd")
    if capturable:
        devices = _get_capturable_supported_devices(supports_xla)
        if any(p.device.type not in (*devices, "npu") for p in params):
            raise AssertionError(f"If capturable=True, {checked} must be on supported devices: {devices}.")
    return fused_optim.plan(name, params, differentiable, fused=bool(fused)) if name is not None else None


def _counted(plan, state_steps):
    """Increments every step tensor and returns the new values.

    Where tensor ops do the update, the result is an iterator that increments lazily.
    """
    if plan is not None:
        return fused_optim.step_counts(state_steps)
    return map(_count, state_steps)


def _count(step):
    step += 1
    return step.item()


def _update(plan, name, changed, grads, keys, make, differentiable=False, real=True, foreach=False):
    """Performs one step of an algorithm on lists of tensors.

    Returns the list of the update's results, one per parameter, if tensor ops do the update, else
    None.

    Args:
        changed: parameters, and their states in the order of the update's arguments.
        keys: one per parameter. make(key) returns its (options, numbers); if `make` is a tuple,
            it is used for all parameters.
        real: treat complex tensors as pairs of reals.
        foreach: round like PyTorch's foreach ops when tensor ops do the update.
    """
    constant = make.__class__ is tuple
    if plan is not None:
        # Parameters with equal values must share one object.
        if constant:
            consts = [make] * len(grads)
        else:
            keys = list(keys)
            if keys.count(keys[0]) == len(keys):
                consts = [make(keys[0])] * len(keys)
            else:
                known = {k: make(k) for k in set(keys)}
                consts = [known[k] for k in keys]
        fused_optim.fused_step(plan, changed, grads, consts)
        return None
    space, out = Recorded if differentiable else Lists if foreach else InPlace, []
    update = space.steps.get(name) or optimizer_formulas.STEPS[name]
    for i, key in enumerate(keys):
        row = [grads[i], *[column[i] for column in changed]]
        if real and torch.is_complex(row[1]):
            row = [torch.view_as_real(x) for x in row]
        out.append(update(space, *(make if constant else make(key)), *row))
    return out


# Options of a group that fill several arguments of an algorithm.
_SPLIT_OPTIONS = {
    "betas": ("beta1", "beta2"),
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
    "eps": ("eps1", "eps2"),
}


def _group_step(algorithm, lists=None, without=(), after=None):
    """Returns the method `step` of an optimizer, which calls `algorithm` for each parameter group.

    The arguments are the lists that `_init_group` fills, the group's options and the gradient
    scaler's attributes, by the names in the signature of `algorithm`.

    Args:
        lists: names of the arguments in the order of `_init_group`, by default those without a
            default value.
        without: arguments that are no options of a group.
        after: after(optimizer, group, *lists) runs after each call.
    """
    parameters = inspect.signature(algorithm).parameters.values()
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    lists = lists or wanted
    order = [lists.index(name) for name in wanted] if lists != wanted else None
    names = [p.name for p in parameters if p.name not in (*lists, *without)]
    flags = [name for name in ("has_sparse_grad", "has_complex") if name in names]
    scaling = [name for name in ("grad_scale", "found_inf") if name in names]
    split = [(option, parts) for option, parts in _SPLIT_OPTIONS.items() if parts[0] in names]
    options = [name for name in names if name not in itertools.chain(flags, scaling, *(parts for _, parts in split))]
    read = operator.itemgetter(*options)

    def step(self, closure=None):
        """Performs one update; returns the closure's loss."""
        old = mode.on
        mode.on = bool(self.defaults.get("differentiable", False))
        try:
            loss = None if closure is None else _evaluate(closure)
            for group in self.param_groups:
                columns = [[] for _ in lists]
                found = self._init_group(group, *columns)
                arguments = dict(zip(options, read(group)))
                if len(flags) > 1:
                    arguments.update(zip(flags, found))
                elif flags:
                    arguments[flags[0]] = found
                for option, (first, second) in split:
                    arguments[first], arguments[second] = group[option]
                for name in scaling:
                    arguments[name] = getattr(self, name, None)
                algorithm(*[columns[i] for i in order] if order else columns, **arguments)
                if after is not None:
                    after(self, group, *columns)
            return loss
        finally:
            mode.on = old

    return step


# ------------------------------------------------------------------ graph mode
class GraphLR(torch.nn.Parameter):
    """Learning rate of an optimizer created in MindSpore's graph mode: a `mindspore.Parameter` that
    prints as a scalar.

    `mindspore.ops.assign(group["lr"], value)` changes it, also inside a compiled function.
    """

    def __repr__(self):
        return repr(self.item())

    __str__ = __repr__

    def __format__(self, spec):
        return format(self.item(), spec)

    def __reduce_ex__(self, proto):
        return GraphLR.of, (self.item(),)

    def __deepcopy__(self, memo):
        return GraphLR.of(self.item())

    @staticmethod
    def of(value):
        # on the CPU, whatever the default device
        return GraphLR(torch.tensor(value, dtype=torch.float32, device="cpu"), requires_grad=False)


def _graph_lr(group):
    """Replaces a group's scalar learning rate by a GraphLR in graph mode; no effect in eager mode.
    """
    lr = group.get("lr")
    if isinstance(lr, (int, float)) and not isinstance(lr, bool) and in_graph_mode():
        group["lr"] = GraphLR.of(float(lr))


# ------------------------------------------------------------------ the class
class _Parameters:
    """Descriptor of `optimizer.parameters`, the tuple of all parameters.

    It is not a property, so that subclasses may use the name.
    """

    def __get__(self, optimizer, cls=None):
        if optimizer is None:
            return self
        return tuple(p for group in optimizer.param_groups for p in group["params"])


def _is_grads(x):
    return isinstance(x, (tuple, list)) and len(x) > 0 and all(g is None or isinstance(g, MSTensor) for g in x)


class Optimizer:
    """Base class of optimizers.

    Args:
        params: iterable of tensors, of (name, tensor) pairs, or of dicts, each a group with its
            options.
        defaults: values of the options that a group does not specify.
    """

    OptimizerPreHook: TypeAlias = Callable[["Optimizer", Args, Kwargs], tuple[Args, Kwargs] | None]
    OptimizerPostHook: TypeAlias = Callable[["Optimizer", Args, Kwargs], None]

    parameters = _Parameters()

    def __init__(self, params, defaults):
        parallel_context.refuse_automatic("an optimizer")
        self.defaults = defaults
        self._make_hooks()
        self._patch_step_function()
        if isinstance(params, MSTensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            + torch.typename(params))
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self):
        for kind in ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre",
                     "load_state_dict_post"):
            self.__dict__.setdefault(f"_optimizer_{kind}_hooks", OrderedDict())

    def _patch_step_function(self):
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{self.__class__.__name__}.zero_grad"
        cls = self.__class__
        if not getattr(cls.step, "hooked", None):
            cls.step = self.profile_hook_step(cls.step)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_hooks()
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)
        scalars = [s.name for s in self._states if s.scalar]
        for group in self.param_groups:
            for name, value in self._added_options.items():
                group.setdefault(name, value)
            for p in group["params"] if scalars else ():
                state = self.state.get(p, {})
                for name in scalars:
                    if name in state and not isinstance(state[name], MSTensor):
                        state[name] = _host_number(float(state[name]), _get_scalar_dtype(group.get("fused")))

    def __repr__(self):
        text = self.__class__.__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group.keys()):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    def _cuda_graph_capture_health_check(self):
        """Does nothing: steps are never captured into a device graph here."""

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    # ---- step
    @staticmethod
    def profile_hook_step(func):
        """Wraps a `step`: runs the hooks around it and accepts gradients as its first argument."""
        parameters = list(inspect.signature(func).parameters.values())[1:]
        torch_style = not parameters or parameters[0].name == "closure" or parameters[0].kind in (
            inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)

        def call(self, args, kwargs):
            if device_dispatch.USED:
                for group in self.param_groups:
                    for p in group["params"][:1]:
                        device_dispatch.raise_pending_errors(p._device)
            if not args or not _is_grads(args[0]):
                return func(self, *args, **kwargs)
            params = Optimizer.parameters.__get__(self)
            grads = [None if g is None else adopt(g, None if p is None else p._device) for g, p in itertools.zip_longest(args[0], params[:len(args[0])])]
            if not torch_style:
                return func(self, tuple(grads), *args[1:], **kwargs)
            closure = args[1] if len(args) > 1 else kwargs.pop("closure", None)
            return self._step_with(grads, func, closure, args[2:], kwargs)

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            try:
                self = args[0]
                if not (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _global_optimizer_pre_hooks
                        or _global_optimizer_post_hooks):
                    if len(args) == 1 and not device_dispatch.USED:
                        return func(*args, **kwargs)
                    return call(self, args[1:], kwargs)
                for hook in [*_global_optimizer_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
                    result = hook(self, args, kwargs)
                    if result is None:
                        continue
                    if not isinstance(result, tuple) or len(result) != 2:
                        raise RuntimeError(f"{func} must return None or a tuple of (new_args, new_kwargs), but got "
                                           f"{result}.")
                    args, kwargs = result
                out = call(args[0], args[1:], kwargs)
                for hook in [*self._optimizer_step_post_hooks.values(), *_global_optimizer_post_hooks.values()]:
                    hook(self, args, kwargs)
                return out
            except Exception as e:
                hide_internal_frames(e)
                raise

        wrapper.hooked = True
        return wrapper

    def _step_with(self, grads, func, closure, args, kwargs):
        """Performs one step with `grads` instead of the parameters' .grad, which is restored
        afterwards."""
        loss = _evaluate(closure)
        params = Optimizer.parameters.__get__(self)
        if len(grads) != len(params):
            raise ValueError(f"got {len(grads)} gradients for {len(params)} parameters")
        kept = [p._grad_ for p in params]
        try:
            for p, g in zip(params, grads):
                # A frozen parameter (the statistics of a MindSpore BatchNorm, for example) must not
                # change, though MindSpore returns a gradient for it.
                p.grad = None if isinstance(p, torch.nn.Parameter) and not p._requires_grad_ else g
            result = func(self, *args, **kwargs)
        finally:
            for p, g in zip(params, kept):
                p._grad_ = g
        return result if loss is None else loss

    def step(self, closure=None):
        """Updates the parameters from their gradients.

        Args:
            closure: re-evaluates the model and returns the loss. A tuple or list of gradients may
                be passed instead.
        """
        raise NotImplementedError

    def __call__(self, *args, **kwargs):
        """Calls `step`, for the optimizer(grads) of MindSpore's training loops."""
        return self.step(*args, **kwargs)

    def zero_grad(self, set_to_none=True):
        """Sets the gradients to None, or to zero in place."""
        for group in self.param_groups:
            for p in group["params"]:
                g = p._grad_
                if g is None:
                    continue
                if set_to_none or device_dispatch.async_errors.about(g):
                    p._grad_ = None
                    continue
                if g.grad_fn is not None:
                    g.detach_()
                else:
                    g.requires_grad_(False)
                g.zero_()

    # ---- declarations of an elementwise algorithm, and how its lists are filled
    _added_options: dict = {}  # options that states saved by older versions lack, with their values
    _states = ()  # `_State` of each tensor, in the order of a state dict
    _lists = ()  # their names, in the order of the lists that `_init_group` fills
    _no_sparse = None  # error message for a sparse gradient; None if supported
    # when fused=True checks the parameters: in each "step", or when their "state" is created
    _fused_checks = ""
    # what `_init_group` returns: whether a parameter is "complex", whether a gradient is "sparse",
    # or "both" as (sparse, complex)
    _tells = "complex"

    def _init_group(self, group, params, grads, *columns):
        """Appends the parameters with gradients, the gradients and the states to the lists,
        creating missing states."""
        has_sparse, has_complex, complexes = False, False, self._tells != "sparse"
        states, fused = self.state, self._fused_checks if group.get("fused") else ""
        declared = [s for s in self._states if s.when is None or s.when(group)]
        found = []
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if fused == "step":
                _device_dtype_check_for_fused(p)
            if g.__class__ is not Tensor and (g.is_sparse or g.__class__ is CompressedTensor):
                if self._no_sparse is not None:
                    raise RuntimeError(self._no_sparse)
                has_sparse = True
            if complexes and p._np_dtype.kind == "c":
                has_complex = True
            if declared:
                state = states[p]
                if not state:
                    if fused == "state":
                        _device_dtype_check_for_fused(p)
                    for s in declared:
                        if s.make is not None:
                            state[s.name] = s.make(p, g, group)
                found.append(state)
            params.append(p)
            grads.append(g)
        for s in declared:
            name = s.name
            columns[self._lists.index(name)].extend([state.get(name) for state in found] if s.optional else [state[name] for state in found])
        return has_complex if self._tells == "complex" else has_sparse if self._tells == "sparse" else (has_sparse, has_complex)

    # ---- parameter groups
    def add_param_group(self, param_group):
        """Adds a group: a dict with "params" and the options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, MSTensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        else:
            params = list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named):
            if not all(named):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["params"] = params
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        param_group["params"] = params
        for p in params:
            if not is_tensor(p):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + torch.typename(p))
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        _graph_lr(param_group)
        ids = set(map(id, params))
        if len(ids) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause "
                          "an error; see github.com/pytorch/pytorch/issues/40967 for more information", stacklevel=3)
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                which = "with names" if "param_names" in param_group else "without names"
                raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                                 f"{which} to the optimizer")
        if any(id(p) in ids for group in self.param_groups for p in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    # ---- state dict
    def state_dict(self):
        """Returns {"state": ..., "param_groups": ...}; the state is keyed by the indices of the
        parameters.

        The tensors are the optimizer's own, not copies.
        """
        for hook in tuple(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        position, groups, start = {}, [], 0
        for group in self.param_groups:
            packed = {k: v.item() if v.__class__ is GraphLR else v for k, v in group.items() if k != "params"}
            # A parameter keeps the index assigned by an earlier group; if it occurs twice in one
            # group, the last index counts.
            position.update({id(p): i for i, p in enumerate(group["params"], start) if id(p) not in position})
            packed["params"] = [position[id(p)] for p in group["params"]]
            start += len(packed["params"])
            groups.append(packed)
        state = {(position[id(k)] if is_tensor(k) else k): v for k, v in self.state.items()}
        out = {"state": state, "param_groups": groups}
        for hook in tuple(self._optimizer_state_dict_post_hooks.values()):
            changed = hook(self, out)
            if changed is not None:
                out = changed
        return out

    def load_state_dict(self, state_dict):
        """Loads the `state_dict` result of an optimizer with groups of the same sizes.

        Tensors of the state are converted to the parameter's dtype and device, except `step`.
        Raises ValueError if the groups do not match.
        """
        state_dict = state_dict.copy()
        for hook in tuple(self._optimizer_load_state_dict_pre_hooks.values()):
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                             "group")
        by_id = {k: p for g, s in zip(groups, saved) for k, p in zip(s["params"], g["params"])}
        state = defaultdict(dict)
        for k, v in state_dict["state"].items():
            if k in by_id:
                state[by_id[k]] = self._cast_state(by_id[k], v, k, saved)
            else:
                state[k] = v
        for group, new in zip(groups, saved):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
            _graph_lr(new)
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in tuple(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def _cast_state(self, param, value, param_id, groups, key=None):
        if isinstance(value, MSTensor):
            return Optimizer._process_value_according_to_param_policy(param, adopt(value), param_id, groups, key)
        if isinstance(value, dict):
            return {k: self._cast_state(param, v, param_id, groups, k) for k, v in value.items()}
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            return type(value)(self._cast_state(param, v, param_id, groups) for v in value)
        return value

    @staticmethod
    def _process_value_according_to_param_policy(param, value, param_id, param_groups, key: Hashable = None):
        if key == "step":
            group = next((g for g in param_groups if param_id in g["params"]), {})
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=torch.float32, device="cpu")
            return value.cpu() if is_tensor(value) and value._handle is not None else value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    # ---- hooks
    def register_step_pre_hook(self, hook):
        """Registers hook(optimizer, args, kwargs) to run before each step; it may return new (args,
        kwargs)."""
        return _handle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Registers hook(optimizer, args, kwargs) to run after each step."""
        return _handle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Registers hook(optimizer) to run before state_dict()."""
        return _handle(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Registers hook(optimizer, state_dict) to run after state_dict(); it may return another
        dict."""
        return _handle(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Registers hook(optimizer, state_dict) to run before a state is loaded; it may return
        another dict."""
        return _handle(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Registers hook(optimizer) to run after a state has been loaded."""
        return _handle(self._optimizer_load_state_dict_post_hooks, hook, prepend)
