"""torch._functorch.autograd_function: custom functions under transforms."""
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.func._custom import VmapInfo, custom_vmap, has_vmap_rule

__all__ = ["VmapInfo", "CtxWithSavedTensors", "CtxCustomSave", "WrappedCtx", "reductify", "reductify_leaf", "has_overridden_vmap_rule", "custom_vmap"]

has_overridden_vmap_rule = has_vmap_rule


class WrappedCtx:
    """Wrapper of a ctx: attributes that it does not reserve are read from and written to the inner
    ctx."""

    _pt_reserved_attrs = ("_pt_reserved_attrs", "_pt_inner_ctx")

    def __init__(self, ctx):
        reserved = type(self)._pt_reserved_attrs
        for name in reserved:
            if name != "_pt_reserved_attrs" and hasattr(ctx, name):
                raise RuntimeError(f"{type(self).__name__}: name collision: the ctx has an attribute {name!r} already, which is reserved; the reserved "
                                   f"names are {reserved}")
        object.__setattr__(self, "_pt_inner_ctx", ctx)

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "_pt_inner_ctx"), name)

    def __setattr__(self, name, value):
        if name in type(self)._pt_reserved_attrs:
            object.__setattr__(self, name, value)
        else:
            setattr(self._pt_inner_ctx, name, value)


class CtxWithSavedTensors(WrappedCtx):
    """A ctx with replaced saved tensors."""

    _pt_reserved_attrs = ("_pt_new_saved_tensors", *WrappedCtx._pt_reserved_attrs)

    def __init__(self, ctx, new_saved_tensors):
        # A wrapper around another CtxWithSavedTensors skips the check for reserved names.
        if isinstance(ctx, CtxWithSavedTensors):
            object.__setattr__(self, "_pt_inner_ctx", ctx)
        else:
            super().__init__(ctx)
        object.__setattr__(self, "_pt_new_saved_tensors", new_saved_tensors)

    @property
    def saved_tensors(self):
        """Returns the replacement tensors."""
        return self._pt_new_saved_tensors


class CtxCustomSave(WrappedCtx):
    """A ctx that saves tensors for backward and forward, and the batch dimension of each."""

    _pt_reserved_attrs = ("_pt_saved_tensors_bdims", "_pt_current_level", *WrappedCtx._pt_reserved_attrs)

    def __init__(self, ctx, current_level):
        super().__init__(ctx)
        object.__setattr__(self, "_pt_saved_tensors_bdims", ())
        object.__setattr__(self, "_pt_current_level", current_level)

    def save_for_backward(self, *tensors):
        """Saves tensors. None of them is batched here."""
        self._pt_saved_tensors_bdims = (None,) * len(tensors)
        self._pt_inner_ctx.save_for_backward(*tensors)

    save_for_forward = save_for_backward


def reductify(grad_input, grad_input_bdim, input_bdim, batch_size, target_shape_without_bdim_to_reduce_to=None):
    """Applies `reductify_leaf` to each gradient of a tuple."""
    if not isinstance(grad_input, tuple):
        grad_input, grad_input_bdim, input_bdim = (grad_input,), (grad_input_bdim,), (input_bdim,)
        shapes = (target_shape_without_bdim_to_reduce_to,)
    else:
        shapes = target_shape_without_bdim_to_reduce_to or (None,) * len(grad_input)
    return tuple([reductify_leaf(g, b, i, batch_size, s) for g, b, i, s in zip(grad_input, grad_input_bdim, input_bdim, shapes)])


def reductify_leaf(grad_input, grad_input_bdim, input_bdim, batch_size, target_shape_without_bdim_to_reduce_to=None):
    """Matches a gradient to its input: sums it over the batch if the input has no batch dimension,
    and expands it over the batch if the gradient has none.

    The `*_bdim` are the batch dimensions (None: no batch dimension). The other dimensions are
    summed to the target shape, if there is one.
    """
    if grad_input is None or not is_tensor(grad_input) or grad_input_bdim is None and input_bdim is None:
        return grad_input
    if input_bdim is None:
        return grad_input.sum(grad_input_bdim)
    if grad_input_bdim is None:
        g = grad_input.unsqueeze(0).expand(batch_size, *grad_input.shape)
    else:
        g = grad_input.movedim(grad_input_bdim, 0)
    shape = target_shape_without_bdim_to_reduce_to
    if shape is not None:
        ones = (1,) * (g.ndim - 1 - len(shape))
        g = g.sum_to_size(batch_size, *ones, *shape).reshape(batch_size, *shape)
    return g.movedim(0, input_bdim)
