"""Autocast: which ops compute in lower precision and which in float32 inside a region.

Inside a region the dispatcher calls `_cast_operands`, which follows the op's record
(`@op(autocast=...)`):

    lower      computes in the region's dtype
    float32    computes in float32
    by_input   computes in the dtype of its input: weights and states are cast to it

This is the behavior of PyTorch's CPU backend, found by running its op samples inside
`torch.autocast("cpu", torch.bfloat16)`.

Accelerator tensors have their own regions and follow `THERE`, the behavior of PyTorch's CUDA
backend (from the lists in its documentation):

    widest     computes in float32 if an operand is float32
    refused    raises: its result would not be accurate in float16
"""
from __future__ import annotations

import functools
import threading
from types import FunctionType
from typing import Any, TypeAlias
from collections.abc import Callable

import numpy as np

from mindtorch.backend.interface import NpDtype
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.device.device import recorded as RECORDED, shadow as SHADOW
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.dtypes import LOW
from mindtorch.core.tensor.tensor import is_tensor

#: How torch.compile treats the functions of this module (`mindtorch/torch/_dynamo/_capture.py`).
CAPTURE = {"switch": "safe", "call_in": "followed"}

class _State(threading.local):
    """NumPy dtypes of the host's (`to`) and the accelerator's (`there`) region; None outside."""

    to: NpDtype | None = None
    there: NpDtype | None = None


state = _State()
_F32 = np.dtype(np.float32)


def _lowered(x, d):
    # float64 stays: PyTorch casts only float32, float16 and bfloat16.
    if is_tensor(x):
        try:
            k = x._array.dtype
        except dispatcher.SparseUse:
            return _values_by(_lowered, x, d)
        return hooks.cast(x, d) if k is not d and (k == _F32 or k in LOW) else x
    if x.__class__ is list or x.__class__ is tuple:
        return x.__class__(_lowered(i, d) for i in x)
    return x


def _values_by(fn, x, *args):
    """Returns a sparse tensor with its values cast."""
    v = fn(x._sp_values, *args)
    return x if v is x._sp_values else x._with_values(v)


def _raised(x):
    if is_tensor(x):
        try:
            return hooks.cast(x, _F32) if x._array.dtype in LOW else x
        except dispatcher.SparseUse:
            return _values_by(_raised, x)
    if x.__class__ is list or x.__class__ is tuple:
        return x.__class__(_raised(i) for i in x)
    return x


Regions: TypeAlias = tuple[NpDtype | None, NpDtype | None]
NONE: Regions = (None, None)


def switch(regions: Regions) -> Regions:
    """Sets the dtypes of this thread's regions of the host and of the accelerator.

    None ends a region. Returns the previous dtypes.
    """
    old = state.to, state.there
    state.to, state.there = regions
    if (regions == NONE) is not (old == NONE):
        (dispatcher.enable_layer if regions != NONE else dispatcher.disable_layer)("ops", "autocast")
    return old


# ------------------------------------------------------------------ the accelerator
_LOWER = """conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu addmm addmv addr matmul einsum mm mv vecdot linear addbmm
 baddbmm bmm chain_matmul multi_dot scaled_dot_product_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell lstm gru rnn_tanh rnn_relu"""
_FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm native_layer_norm group_norm frobenius_norm
 nuclear_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
 margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits cross_entropy
 dist pdist cdist renorm logsumexp interpolate upsample upsample_nearest upsample_bilinear
 prod softmax log_softmax softmin cumprod cumsum vector_norm matrix_norm sum norm"""
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler_2d grid_sampler_3d index_put scatter_add tensordot"
#: op -> its autocast category on an accelerator
THERE = {**dict.fromkeys(_LOWER.split(), "lower"), **dict.fromkeys(_FLOAT32.split(), "float32"), **dict.fromkeys(_WIDEST.split(), "widest"),
         "binary_cross_entropy": "refused"}


@functools.lru_cache(None)
def _there(name: str, category: str | None) -> str | None:
    """Returns the category of an entry on an accelerator.

    `name` is its name, such as "nn.functional.linear" or "Tensor.__matmul__"; `category` is the
    category on the host.
    """
    space, _, last = name.rpartition(".")
    if space == "fft" or space == "linalg" and last not in THERE:
        return category
    return THERE.get(last.strip("_") if last.startswith("__") else last)


def covers(x: Any) -> bool:
    """True if the host's region applies to a tensor.

    The tensor is on the host, or represents a host tensor in a graph.
    """
    return state.to is not None and (x._device.type == "cpu" or x._device is SHADOW or x._device is RECORDED)


def _is_there(args):
    for a in args:
        if is_tensor(a):
            if a._handle is not None and a._device is not SHADOW and a._device is not RECORDED:
                return True
        elif a.__class__ in (list, tuple) and _is_there(a):
            return True
    return False


def _widest(args, kwargs):
    given = [*args, *kwargs.values()]
    if any([is_tensor(x) and x._np_dtype == _F32 for a in given for x in (a if a.__class__ in (list, tuple) else (a,))]):
        return [_raised(a) for a in args], {k: _raised(v) for k, v in kwargs.items()}
    return args, kwargs


@dispatcher.register_layer("ops", "autocast")
def _cast_operands(entry, args, kwargs, below):
    """Dispatcher layer: casts the operands to the dtype that suits the op."""
    category, d = entry.autocast, state.to
    if category.__class__ is FunctionType:
        category = category(*args, **kwargs)  # it depends on the arguments
    old = d, state.there
    if old[1] is not None or device_dispatch.DEVICES:
        if _is_there(args) or kwargs and _is_there(kwargs.values()):
            category, d = None if entry.inplace else _there(entry.name, category), old[1]
    if category is None or d is None:
        return below(entry, args, kwargs)
    if category == "lower":
        args, kwargs = [_lowered(a, d) for a in args], {k: _lowered(v, d) for k, v in kwargs.items()}
    elif category == "widest":
        args, kwargs = _widest(args, kwargs)
    elif category == "refused":
        raise RuntimeError("torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid layer right "
                           "before the binary cross entropy layer.\nIn this case, combine the two layers using "
                           "torch.nn.functional.binary_cross_entropy_with_logits\n"
                           "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast.")
    elif category == "float32":
        args, kwargs = [_raised(a) for a in args], {k: _raised(v) for k, v in kwargs.items()}
    elif args and is_tensor(args[0]):
        self_dtype = args[0]._np_dtype
        args = [_lowered(a, self_dtype) if self_dtype in LOW else _raised(a) for a in args]
    # The ops that this op is composed of must not be cast again.
    state.to = state.there = None
    try:
        return below(entry, args, kwargs)
    finally:
        state.to, state.there = old


# ------------------------------------------------------------------ MindSpore's mixed precision
def _to(x, d):
    """Casts floating-point tensors (except float64), also nested ones, to dtype `d`."""
    if is_tensor(x):
        return hooks.cast(x, d) if x._array.dtype != d and (x._array.dtype == _F32 or x._array.dtype in LOW) else x
    if isinstance(x, dict):
        return {k: _to(v, d) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_to(v, d) for v in x))
    if x.__class__ in (list, tuple):
        return x.__class__(_to(v, d) for v in x)
    return x


def call_in(kind: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls fn(*args, **kwargs) like a Cell with MindSpore's mixed precision.

        kind  "float16", "bfloat16", "float32": inputs are cast to it, and ops compute in it (matrix
              products and convolutions cast their parameters).
              "autocast float16": inputs are not cast.
              "float32 result, autocast ...": likewise, and the result is cast to float32.
    """
    region = kind.rpartition(" ")[2]
    d = _F32 if region == "float32" else LOW[0] if region == "float16" else LOW[1]
    if region == kind:
        args, kwargs = _to(args, d), _to(kwargs, d)
    old = switch(NONE if d is _F32 else (d, d))
    try:
        out = fn(*args, **kwargs)
    finally:
        switch(old)
    return _to(out, _F32) if kind.startswith("float32 result") else out
