"""Autocast: which ops compute in a lower precision, which in float32, inside a region.

A region makes the dispatcher ask `_cast_operands`.  The lists are what torch's CPU backend does,
found by running its op samples inside `torch.autocast("cpu", torch.bfloat16)`.
"""
import functools
import threading

import numpy as np

from mindtorch.backend.mindspore import cell
from mindtorch.core import dispatch
from mindtorch.core.dtypes import LOW
from mindtorch.core.tensor import Tensor

#: how torch.compile takes the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "followed"

LOWER = frozenset("""matmul mm bmm addmm addbmm baddbmm nn.functional.linear linalg.vecdot nn.functional.prelu
 nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
 nn.functional.conv_transpose3d nn.functional.scaled_dot_product_attention linalg.multi_dot linalg.matrix_power lstm rnn_tanh rnn_relu rnn_tanh_cell
 rnn_relu_cell""".split())

#: Ops that compute in the dtype in which their input comes: weights and states are cast to it.
BY_INPUT = frozenset(["gru"])

FLOAT32 = frozenset("""cdist cholesky cholesky_inverse cholesky_solve geqrf fft.hfft fft.irfft fft.irfft2 fft.irfftn fft.fft fft.ifft
 fft.fft2 fft.ifft2 fft.fftn fft.ifftn fft.rfft fft.rfft2 fft.rfftn fft.ihfft grid_sampler_2d grid_sampler_3d linalg.cholesky
 linalg.cholesky_ex linalg.cond linalg.eigh linalg.eigvalsh linalg.eig linalg.eigvals linalg.householder_product linalg.inv
 linalg.inv_ex linalg.lstsq linalg.qr linalg.solve linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve lu_solve
 nanquantile quantile nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool3d nn.functional.avg_pool3d
 nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits nn.functional.cosine_embedding_loss
 nn.functional.cross_entropy nn.functional.ctc_loss nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
 nn.functional.grid_sample nn.functional.hinge_embedding_loss nn.functional.huber_loss nn.functional.kl_div nn.functional.l1_loss
 nn.functional.margin_ranking_loss nn.functional.max_pool3d nn.functional.max_unpool1d nn.functional.max_unpool2d
 nn.functional.max_unpool3d nn.functional.mse_loss nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
 nn.functional.nll_loss nn.functional.poisson_nll_loss nn.functional.smooth_l1_loss nn.functional.soft_margin_loss
 nn.functional.triplet_margin_loss ormqr prod qr stft istft svd trace triangular_solve polar view_as_complex""".split())


class _State(threading.local):
    """`to` is the NumPy dtype of the active region, None outside of one."""

    to = None


state = _State()
_F32 = np.dtype(np.float32)
_cast = None        # set by the ops floor


def _lowered(x, d):
    # float64 stays: torch leaves what is not float32 or half alone.
    if isinstance(x, Tensor):
        k = x._a.dtype
        return _cast(x, d) if k is not d and (k == _F32 or k in LOW) else x
    if x.__class__ is list or x.__class__ is tuple:
        return x.__class__(_lowered(i, d) for i in x)
    return x


def _raised(x):
    if isinstance(x, Tensor):
        return _cast(x, _F32) if x._a.dtype in LOW else x
    if x.__class__ is list or x.__class__ is tuple:
        return x.__class__(_raised(i) for i in x)
    return x


def category_of(names):
    """What autocast does with the op of these names: "lower", "float32", "by_input", or None."""
    for category, members in (("by_input", BY_INPUT), ("lower", LOWER), ("float32", FLOAT32)):
        if not members.isdisjoint(names):
            return category
    return None


def switch(to):
    """Sets the dtype of this thread's region (None: there is none any more) and returns the one before."""
    old = state.to
    state.to = to
    if (to is None) is not (old is None):
        (dispatch.want if to is not None else dispatch.drop)("ops", "autocast")
    return old


@dispatch.layer("ops", "autocast")
def _cast_operands(entry, args, kwargs, below):
    """The layer of the dispatcher: operands in the dtype that suits the op."""
    category = entry.autocast
    old = state.to
    if category is None or old is None:
        return below(entry, args, kwargs)
    if category == "lower":
        args, kwargs = [_lowered(a, old) for a in args], {k: _lowered(v, old) for k, v in kwargs.items()}
    elif category == "float32":
        args, kwargs = [_raised(a) for a in args], {k: _raised(v) for k, v in kwargs.items()}
    elif args and isinstance(args[0], Tensor):
        d = args[0]._stype
        args = [_lowered(a, d) if d in LOW else _raised(a) for a in args]
    # What the op is composed of must not be cast again.
    state.to = None
    try:
        return below(entry, args, kwargs)
    finally:
        state.to = old


# ------------------------------------------------------------------ MindSpore's way
def _to(x, d):
    """Floating-point tensors (float64 apart), also nested, in dtype `d`."""
    if isinstance(x, Tensor):
        return _cast(x, d) if x._a.dtype != d and (x._a.dtype == _F32 or x._a.dtype in LOW) else x
    if isinstance(x, dict):
        return {k: _to(v, d) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_to(v, d) for v in x))
    if x.__class__ in (list, tuple):
        return x.__class__(_to(v, d) for v in x)
    return x


def call_in(kind, fn, args, kwargs):
    """fn(*args, **kwargs) as a Cell of that mixed precision computes.

    kind  "float16", "bfloat16", "float32": inputs are cast to it, and ops compute in it (matrix products and convolutions
          cast their parameters).  "autocast float16": inputs stay as they are; "float32 result, autocast ..." the same,
          with the result in float32.
    """
    region = kind.rpartition(" ")[2]
    d = _F32 if region == "float32" else LOW[0] if region == "float16" else LOW[1]
    if region == kind:
        args, kwargs = _to(args, d), _to(kwargs, d)
    old = switch(None if d is _F32 else d)
    try:
        out = fn(*args, **kwargs)
    finally:
        switch(old)
    return _to(out, _F32) if kind.startswith("float32 result") else out


cell.call_in = call_in
cell.to_float32 = functools.partial(_to, d=_F32)
