"""torch._higher_order_ops.wrap: operators that call a function in some context."""
from mindtorch.core.autograd import grad_mode
from mindtorch.torch._higher_order_ops._operators import operator

__all__ = ["tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap_with_autocast", "wrap_with_set_grad_enabled", "dynamo_bypassing_wrapper", "wrap"]


@operator("wrap")
def wrap(func, *args, **kwargs):
    """Returns func(*args, **kwargs)."""
    return func(*args, **kwargs)


@operator("tag_activation_checkpoint")
def tag_activation_checkpoint(gmod, *args, **kwargs):
    """Returns gmod(*args, **kwargs); the backward pass recomputes it."""
    from mindtorch.torch.utils.checkpoint import checkpoint
    named = {k: kwargs.pop(k) for k in ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "context_fn") if k in kwargs}
    return checkpoint(gmod, *args, **{"use_reentrant": False, **named}, **kwargs)


@operator("wrap_activation_checkpoint")
def wrap_activation_checkpoint(function, *args, **kwargs):
    """Returns function(*args, **kwargs); the backward pass recomputes it."""
    from mindtorch.torch.utils.checkpoint import checkpoint
    return checkpoint(function, *args, **{"use_reentrant": False, **kwargs})


@operator("wrap_with_autocast")
def wrap_with_autocast(device_type, dtype, enabled, cache_enabled, wrapped_func, *args, **kwargs):
    """Returns wrapped_func(*args, **kwargs), computed under autocast."""
    from mindtorch.torch.amp import autocast
    with autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)


@operator("wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(enable_grad, wrapped_func, *args, **kwargs):
    """Returns wrapped_func(*args, **kwargs), computed with gradients enabled or disabled."""
    with grad_mode.set_grad_enabled(enable_grad):
        return wrapped_func(*args, **kwargs)


@operator("dynamo_bypassing_wrapper")
def dynamo_bypassing_wrapper(wrapper_fn_or_key, inner_fn, *args, **kwargs):
    """Returns wrapper_fn(inner_fn)(*args, **kwargs)."""
    return wrapper_fn_or_key(inner_fn)(*args, **kwargs)
