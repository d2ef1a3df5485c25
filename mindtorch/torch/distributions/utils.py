"""Helpers of the distributions: broadcasting of parameters, probabilities and logits, lazy attributes."""
from functools import update_wrapper
from numbers import Number

import mindtorch.torch as torch
from mindtorch.core.tensor import Tensor, taken

__all__ = ["broadcast_all", "logits_to_probs", "clamp_probs", "probs_to_logits", "lazy_property", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060      # Euler-Mascheroni


def broadcast_all(*values):
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the first tensor, or the default dtype."""
    if not all(isinstance(v, (Tensor, Number)) for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    first = next((v for v in values if taken(v)), None)
    dtype, device = (torch.get_default_dtype(), None) if first is None else (first.dtype, first.device)
    return torch.broadcast_tensors(*[v if taken(v) else torch.tensor(v, dtype=dtype, device=device) for v in values])


def _standard_normal(shape, dtype, device):
    """Normal numbers, drawn as torch draws them for rsample."""
    return torch.normal(torch.zeros(shape, dtype=dtype, device=device), torch.ones(shape, dtype=dtype, device=device))


def _sum_rightmost(value, dim):
    """Sum over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def logits_to_probs(logits, is_binary=False):
    """Probabilities of logits: of the last dimension together, or (is_binary) each of its own."""
    return torch.sigmoid(logits) if is_binary else torch.softmax(logits, dim=-1)


def clamp_probs(probs):
    """Probabilities kept away from 0 and 1 by the dtype's precision."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs, is_binary=False):
    """Logits of probabilities: log p, or (is_binary) log p - log(1 - p)."""
    p = clamp_probs(probs)
    return torch.log(p) - torch.log1p(-p) if is_binary else torch.log(p)


class lazy_property:
    """A property that is computed at its first use and kept."""

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
    """What the class shows of a lazy property: something documentation tools take for a property."""

    def __init__(self, wrapped):
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat, diag=0):
    """The lower triangle (up to diagonal `diag`) of matrices (..., D, D), row by row, as vectors."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, cols = torch.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, cols]


def vec_to_tril_matrix(vec, diag=0):
    """Matrices (..., D, D) whose lower triangle (up to diagonal `diag`) holds the vectors row by row."""
    # m entries fill the triangle of n rows where n^2 + (1 + 2 d) n = 2 m + |d| (d + 1), d being the diagonal.
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
