"""Helpers of the distributions: parameter broadcasting, conversion of probabilities and logits,
lazy properties."""
from functools import update_wrapper
from numbers import Number

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Tensor, is_tensor

__all__ = ["broadcast_all", "logits_to_probs", "clamp_probs", "probs_to_logits", "lazy_property", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060  # Euler-Mascheroni constant


def broadcast_all(*values):
    """Broadcasts Python scalars and tensors to tensors of one shape. Scalars get the dtype of the
    first tensor, or the default dtype."""
    if not all(isinstance(v, (Tensor, Number)) for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    first = next((v for v in values if is_tensor(v)), None)
    dtype, device = (torch.get_default_dtype(), None) if first is None else (first.dtype, first.device)
    return torch.broadcast_tensors(*[v if is_tensor(v) else torch.tensor(v, dtype=dtype, device=device) for v in values])


def _standard_normal(shape, dtype, device):
    """Returns standard normal samples, generated like PyTorch's `rsample` so that a seed gives the
    same values."""
    return torch.normal(torch.zeros(shape, dtype=dtype, device=device), torch.ones(shape, dtype=dtype, device=device))


def _sum_rightmost(value, dim):
    """Sums over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def logits_to_probs(logits, is_binary=False):
    """Converts logits to probabilities: softmax over the last dimension, or elementwise sigmoid if
    `is_binary`."""
    return torch.sigmoid(logits) if is_binary else torch.softmax(logits, dim=-1)


def clamp_probs(probs):
    """Clamps probabilities away from 0 and 1 by the dtype's eps."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs, is_binary=False):
    """Converts probabilities to logits: log p, or log p - log(1 - p) if `is_binary`."""
    p = clamp_probs(probs)
    return torch.log(p) - torch.log1p(-p) if is_binary else torch.log(p)


class lazy_property:
    """A property that is computed at its first use and then cached."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        update_wrapper(self, wrapped)

    def __get__(self, instance, obj_type=None):
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """Class-level value of a lazy property, which documentation tools recognize as a property."""

    def __init__(self, wrapped):
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat, diag=0):
    """Returns the lower triangle (up to diagonal `diag`) of matrices (..., D, D) as vectors, row by
    row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, cols = torch.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, cols]


def vec_to_tril_matrix(vec, diag=0):
    """Returns matrices (..., D, D) whose lower triangle (up to diagonal `diag`) is filled with the
    vectors row by row."""
    # m entries fill the triangle of n rows if n^2 + (1 + 2 d) n = 2 m + |d| (d + 1), where d is the
    # diagonal.
    edge = 1 + 2 * diag
    n = (-edge + (edge ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > torch.finfo(vec.dtype).eps:
        raise ValueError(f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower triangular part of a "
                         "square D x D matrix.")
    n = int(round(n))
    mat = vec.new_zeros(vec.shape[:-1] + (n, n))
    rows, cols = torch.tril_indices(n, n, diag, device=vec.device)
    mat[..., rows, cols] = vec
    return mat
