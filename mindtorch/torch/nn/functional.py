"""torch.nn.functional (https://pytorch.org/docs/stable/nn.functional.html), filled from the op
registry.

Defined here are only the few names that are not ops: constants, and helpers that other libraries
import.
"""
import enum as _enum
import importlib as _importlib
import math
import warnings

import mindtorch.ops  # noqa: F401
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.ops.nn import attention as _attention
from mindtorch.ops.nn import embedding as _embedding
from mindtorch.ops.linalg.matmul import linear as _linear_op
from mindtorch.ops.linalg.matmul import scaled_grouped_mm, scaled_mm  # noqa: F401
from mindtorch.torch import _namespace
from mindtorch.torch.nn import _reduction as _Reduction  # noqa: F401

_namespace.fill(globals(), "nn.functional")

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


class ScalingType(_enum.Enum):
    """Layouts of the scale factors of an 8-bit matrix (for `scaled_mm`, which is not supported)."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(_enum.Enum):
    """Layouts in which the scale factors are swizzled."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


# ------------------------------------------------------------------ sizes
def _repeater(n):
    def repeat(x):
        """Returns x as a tuple; a single value is repeated."""
        return tuple(x) if isinstance(x, (list, tuple)) else (x,) * n
    return repeat


_single, _pair, _triple = _repeater(1), _repeater(2), _repeater(3)


def _list_with_default(out_size, defaults):
    """Returns the sizes, with None replaced by the trailing defaults."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size):])]


def _verify_batch_size(size):
    """Raises ValueError if a training batch has a single value per channel."""
    if math.prod(size) // (size[1] or 1) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def _verify_spatial_size(size):
    """Raises ValueError if there is a single spatial element."""
    if math.prod(size[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {size}")


def assert_int_or_pair(arg, arg_name, message):
    """Raises AssertionError(message) unless `arg` is an int or has two elements."""
    if not isinstance(arg, int) and len(arg) != 2:
        raise AssertionError(message.format(arg_name))


def _unpool_output_size(input, kernel_size, stride, padding, output_size):
    """Returns the spatial size of max_unpool's result; validates `output_size` if it is passed."""
    size = input.shape[-len(kernel_size):]
    default = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(size, stride, kernel_size, padding)]
    if output_size is None:
        return default
    n = len(kernel_size)
    if len(output_size) == n + 2:
        output_size = output_size[2:]
    if len(output_size) != n:
        raise ValueError("output_size should be a sequence containing "
                         f"{n} or {n + 2} elements, but it has a length of '{len(output_size)}'")
    for d, (o, m, s) in enumerate(zip(output_size, default, stride)):
        if not m - s < o < m + s:
            raise ValueError(f"invalid output_size \"{output_size}\" (dim {d} must be between {m - s} and {m + s})")
    return output_size


# ------------------------------------------------------------------ helpers of attention
def _none_or_dtype(input):
    """Returns the dtype of a tensor, or None for None."""
    if input is None:
        return None
    if is_tensor(input):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """Converts a mask to an additive float mask (bool: -inf where True). None stays None."""
    if mask is not None and check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
                      stacklevel=2)
    return _attention._canonical_mask(mask, mask_name, None, other_name, target_type.np, False)


def _check_key_padding_mask(key_padding_mask, src_len, bsz):
    """Raises AssertionError unless the mask has shape (bsz, src_len)."""
    if tuple(key_padding_mask.shape) != (bsz, src_len):
        raise AssertionError(f"Expected key_padding_mask.shape to be {(bsz, src_len)}, but got "
                             f"{tuple(key_padding_mask.shape)}")


def _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads):
    """True if the inputs of multi-head attention are batched. AssertionError if their shapes do not
    match."""
    return _attention._check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)


def _in_projection_packed(q, k, v, w, b=None):
    """Projects q, k and v with one packed weight (3 E, E)."""
    return list(_attention._project(q, k, v, w, b))


def _in_projection(q, k, v, w_q, w_k, w_v, b_q=None, b_k=None, b_v=None):
    """Projects q, k and v with separate weights."""
    return _linear_op(q, w_q, b_q), _linear_op(k, w_k, b_k), _linear_op(v, w_v, b_v)


def _get_softmax_dim(name, ndim, stacklevel):
    """Returns the default dim of softmax from the time before the argument was required."""
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
                  stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


def _no_grad_embedding_renorm_(weight, input, max_norm, norm_type):
    """Rescales the rows of `weight` at `input` in place to a norm of at most `max_norm`."""
    _embedding.renorm(weight, input, max_norm, norm_type)


def _is_integer(x):
    """True for an int or an integer tensor."""
    return x.dtype.np.kind in "iu" if is_tensor(x) else isinstance(x, int)


def _threshold(input, threshold, value, inplace=False):
    """`threshold` under the name of PyTorch's Python implementation."""
    return globals()["threshold"](input, threshold, value, inplace)


def _declare_pools():
    scope = globals()
    for n in (1, 2, 3):
        for name in (f"max_pool{n}d", f"adaptive_max_pool{n}d") + ((f"fractional_max_pool{n}d",) if n > 1 else ()):
            scope["_" + name] = scope[name]


_declare_pools()


_ELSEWHERE = {"grad": "nn.grad", "torch": "", "_VF": "_VF", "has_torch_function": "overrides",
              "has_torch_function_unary": "overrides", "has_torch_function_variadic": "overrides",
              "handle_torch_function": "overrides"}


def __getattr__(name):
    # Modules of the facade that import this module are imported lazily.
    where = _ELSEWHERE.get(name)
    if where is not None:
        path = "mindtorch.torch." + where if where else "mindtorch.torch"
        try:
            module = _importlib.import_module(path)
        except ModuleNotFoundError as err:
            if err.name != path:
                raise
        else:
            return getattr(module, name) if where == "overrides" else module
    raise AttributeError(f"module 'torch.nn.functional' has no attribute '{name}'")
