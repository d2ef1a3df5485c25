"""Module hooks: the global registries, and the full backward hooks that see the gradients of an
entire module."""
import warnings
import weakref
from collections import OrderedDict

import mindtorch.torch as torch
from mindtorch.core.dispatch.primitives import RemovableHandle
from mindtorch.core.tensor.tensor import is_tensor

_DOC = ("https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
        "#torch.nn.Module.register_full_backward_hook")


class _Global:
    """Hooks that run for every module. PyTorch stores them as module-level dictionaries."""

    __slots__ = ("forward_pre", "forward", "forward_always", "forward_kwargs", "backward", "backward_pre",
                 "backward_is_full", "buffer", "module", "parameter")

    def __init__(self):
        for name in self.__slots__:
            setattr(self, name, OrderedDict())
        self.backward_is_full = None


everywhere = _Global()


def _register(hooks, hook, *flags):
    handle = RemovableHandle(hooks, extra_dict=flags)
    hooks[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    return handle


def register_module_buffer_registration_hook(hook):
    """Registers hook(module, name, buffer) -> None or another buffer, called by every
    register_buffer."""
    return _register(everywhere.buffer, hook)


def register_module_module_registration_hook(hook):
    """Registers hook(module, name, submodule) -> None or another submodule, called when a submodule
    is set."""
    return _register(everywhere.module, hook)


def register_module_parameter_registration_hook(hook):
    """Registers hook(module, name, parameter) -> None or another parameter, called by every
    register_parameter."""
    return _register(everywhere.parameter, hook)


def register_module_forward_pre_hook(hook):
    """Registers hook(module, args) -> None or new args, called before the forward of every module.
    """
    return _register(everywhere.forward_pre, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Registers hook(module, args[, kwargs], output) -> None or new output, called after the
    forward of every module."""
    flags = []
    if with_kwargs:
        flags.append(everywhere.forward_kwargs)
    if always_call:
        flags.append(everywhere.forward_always)
    return _register(everywhere.forward, hook, *flags)


def _global_backward(hook, full):
    if everywhere.backward_is_full is (not full):
        raise RuntimeError("Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
                           "Please use only one of them.")
    everywhere.backward_is_full = full
    return _register(everywhere.backward, hook)


def register_module_backward_hook(hook):
    """Registers a non-full backward hook, which sees only the last op of a module. Prefer a full
    backward hook."""
    return _global_backward(hook, False)


def register_module_full_backward_hook(hook):
    """Registers hook(module, grad_input, grad_output) -> None or new grad_input for every module.
    """
    return _global_backward(hook, True)


def register_module_full_backward_pre_hook(hook):
    """Registers hook(module, grad_output) -> None or new grad_output for every module."""
    return _register(everywhere.backward_pre, hook)


class WrappedHook:
    """A load_state_dict pre-hook, with a weak reference to its module if the module is its first
    argument."""

    def __init__(self, hook, module=None):
        self.hook = hook
        self.with_module = module is not None
        if self.with_module:
            self.module = weakref.ref(module)

    def __call__(self, *args, **kwargs):
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self):
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state):
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


def _scattered(values, indices, n):
    """Returns a tuple of length n with `values` at the indices `indices` and None elsewhere."""
    full = [None] * n
    for i, v in zip(indices, values):
        full[i] = v
    return tuple(full)


def _checked(new, who, what, n):
    """Returns the result of a hook as a tuple of length n.

    A single tensor is an error, as in PyTorch, after its length has been checked.
    """
    if len(new) != n:
        raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(new)}, but expected {n}")
    if is_tensor(new):
        raise RuntimeError("hook 'hook' has changed the size of value")
    return tuple(new)


class BackwardHook:
    """The full backward hooks of one forward call.

    Two identity functions are recorded: one around the inputs and one around the outputs. In the
    backward pass the identity of the inputs runs last; it has both gradients and calls the hooks.
    """

    def __init__(self, module, hooks, pre_hooks):
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs = None
        self.input_indices = self.output_indices = None
        self.n_in = self.n_out = -1

    def _tap(self, which, args):
        indices = [i for i, a in enumerate(args) if is_tensor(a)]
        tensors = [args[i] for i in indices]
        if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return args, None
        args = list(args)
        for i, t in zip(indices, _identity().apply(self, which, *tensors)):
            args[i] = t
        return tuple(args), indices

    def setup_input_hook(self, args):
        """Returns the positional arguments of the forward, passed through the identity that reports
        their gradients."""
        self.n_in = len(args)
        args, self.input_indices = self._tap("inputs", args)
        return args

    def setup_output_hook(self, result):
        """Returns the result of the forward, passed through the identity that reports its
        gradients."""
        single = not isinstance(result, tuple)
        args = (result,) if single else result
        self.n_out = len(args)
        args, self.output_indices = self._tap("outputs", args)
        return args[0] if single else result._make(args) if hasattr(result, "_make") else args

    # ---- in the backward pass
    def outputs(self, grads):
        full = _scattered(grads, self.output_indices, self.n_out)
        for hook in self.pre_hooks:
            new = hook(self.module, full)
            if new is None:
                continue
            full = _checked(new, "Backward pre hook", "grad_output", self.n_out)
        self.grad_outputs = full
        if self.input_indices is None:
            if self.hooks:
                warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs "
                              f"since no inputs require gradients. See {_DOC} for more details.", stacklevel=2)
            for hook in self.hooks:
                new = hook(self.module, (None,) * self.n_in, full)
                if new is not None and not (isinstance(new, tuple) and all(g is None for g in new)):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always "
                                       "return None or None for all gradients.")
            self.grad_outputs = None
        return tuple(full[i] for i in self.output_indices)

    def inputs(self, grads):
        if self.grad_outputs is None:  # these gradients did not come through this module's outputs
            return grads
        full = _scattered(grads, self.input_indices, self.n_in)
        for hook in self.hooks:
            new = hook(self.module, full, self.grad_outputs)
            if new is None:
                continue
            full = _checked(new, "Backward hook", "grad_input", self.n_in)
        self.grad_outputs = None
        return tuple(full[i] for i in self.input_indices)


_cached_identity = None


def _identity():
    """Returns the Function used for both identities. It is created lazily because autograd is
    imported after nn."""
    global _cached_identity
    if _cached_identity is None:
        class BackwardHookFunction(torch.autograd.Function):
            @staticmethod
            def forward(ctx, owner, which, *tensors):
                ctx.report = getattr(owner, which)
                ctx.set_materialize_grads(False)
                ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
                return tensors

            @staticmethod
            def backward(ctx, *grads):
                return (None, None) + tuple(ctx.report(grads))

        _cached_identity = BackwardHookFunction
    return _cached_identity


def warn_non_full(inputs, result, grad_fn):
    """Issues PyTorch's warnings about gradients that a non-full backward hook misses."""
    lead = "Using non-full backward hooks on a Module that does not "
    tail = ("is deprecated and will be removed in future versions. This hook will be missing some of the grad_{}. "
            "Please use register_full_backward_hook to get the documented behavior.")

    def flat(x):
        return is_tensor(x) or (isinstance(x, tuple) and all(is_tensor(t) for t in x))

    message = None
    if not flat(result):
        message = lead + "return a single Tensor or a tuple of Tensors " + tail.format("output")
    elif not flat(inputs):
        message = lead + "take as input a single Tensor or a tuple of Tensors " + tail.format("input")
    else:
        tensors = (result,) if is_tensor(result) else result
        ours = {t.grad_fn for t in tensors if t.grad_fn is not None}
        below = {fn for fn, _ in grad_fn.next_functions} if grad_fn is not None else set()
        given = {t.grad_fn for t in ((inputs,) if is_tensor(inputs) else inputs)}
        if len(ours) > 1 or (len(ours) == 1 and grad_fn not in ours):
            message = ("Using a non-full backward hook when outputs are generated by different autograd Nodes is "
                       "deprecated and will be removed in future versions. This hook will be missing some "
                       "grad_output. Please use register_full_backward_hook to get the documented behavior.")
        elif below != given:
            message = ("Using a non-full backward hook when the forward contains multiple autograd Nodes is "
                       "deprecated and will be removed in future versions. This hook will be missing some grad_input. "
                       "Please use register_full_backward_hook to get the documented behavior.")
    if message:
        warnings.warn(message, FutureWarning, stacklevel=3)
