"""Built-in parametrizations (https://pytorch.org/docs/stable/nn.html#parametrizations)."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.utils import parametrize
from mindtorch.torch.nn.utils.spectral_norm import default_dim
from mindtorch.torch.nn.utils.weight_norm import norm_except, normalised

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_MAPS = ("matrix_exp", "cayley", "householder")


def _is_orthogonal(q, eps=None):
    n, k = q.size(-2), q.size(-1)
    identity = torch.eye(k, dtype=q.dtype, device=q.device)
    eps = 10.0 * n * torch.finfo(q.dtype).eps if eps is None else eps
    return torch.allclose(q.mH @ q, identity, atol=eps)


def _make_orthogonal(a):
    """Returns the orthogonal factor of `a`, with signs such that the triangular factor has a
    positive diagonal."""
    q, r = torch.linalg.qr(a)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _skew(x, n, k):
    """Returns the lower triangle of x (n, k), padded to a square, minus its conjugate transpose."""
    x = x.tril()
    if n != k:
        x = torch.cat([x, x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)], dim=-1)
    return x - x.mH


class _Orthogonal(Module):
    """Maps any matrix to one with orthonormal columns (or rows, if there are more columns)."""

    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X):
        n, k = X.size(-2), X.size(-1)
        wide = n < k
        if wide:
            X, n, k = X.mT, k, n
        if self.orthogonal_map == "householder":
            below = X.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (below * below).sum(dim=-2))
            Q = torch.linalg.householder_product(below, tau)
            # The diagonal holds the signs of the columns.
            Q = Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            A = _skew(X, n, k)
            if self.orthogonal_map == "matrix_exp":
                Q = torch.matrix_exp(A)
            else:
                identity = torch.eye(n, dtype=A.dtype, device=A.device)
                Q = torch.linalg.solve(identity - 0.5 * A, identity + 0.5 * A)
            if n != k:
                Q = Q[..., :k]
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    def right_inverse(self, Q):
        with torch.no_grad():
            if Q.shape != self.shape:
                raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                                 f"{Q.shape}.")
            given = Q
            n, k = Q.size(-2), Q.size(-1)
            wide = n < k
            if wide:
                Q, n, k = Q.mT, k, n
            if not hasattr(self, "base"):
                if self.orthogonal_map != "householder":
                    raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley "
                                              "parametrizations when use_trivialization=False.")
                A, tau = torch.geqrf(Q)
                diagonal = A.diagonal(dim1=-2, dim2=-1)
                diagonal.sign_()
                # tau = 0 means no reflection, but the map applies one, which flips the sign: flip
                # it back.
                diagonal[tau == 0.0] *= -1
                return A.mT if wide else A
            if n == k:
                Q = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
            else:
                # Complete the basis with random columns: the forward uses only the first columns.
                filler = torch.randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
                Q = _make_orthogonal(torch.cat([Q, filler], dim=-1))
            self.base = Q
            start = torch.zeros_like(given)
            start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return start


def _tensor(module, name):
    value = getattr(module, name, None)
    if not is_tensor(value):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return value


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Constrains a matrix (or batch of matrices) to be orthogonal.

    `orthogonal_map` is "matrix_exp", "cayley" or "householder".
    """
    weight = _tensor(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                         f"Got: {orthogonal_map}")
    orth = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, orth, unsafe=True)
    return module


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return normalised(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Computes a weight from its norm over all dimensions but `dim` (original0) and its direction
    (original1)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def from_hook_form(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        # Converts state dicts of modules with the older nn.utils.weight_norm.
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{name}.original1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(from_hook_form)
    return module


class _SpectralNorm(Module):
    """Divides by the largest singular value, which power iteration estimates in training."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got "
                             f"n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            h, w = matrix.size()
            u = matrix.new_empty(h).normal_(0, 1)
            v = matrix.new_empty(w).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight):
        if self.dim:
            weight = weight.movedim(self.dim, 0)
        return weight.flatten(1)

    def _power_method(self, weight_mat, n_power_iterations):
        with torch.no_grad():
            for _ in range(n_power_iterations):
                self._u.copy_(F.normalize(torch.mv(weight_mat, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(torch.mv(weight_mat.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Cloned because the backward pass needs the current values, and the next forward modifies
        # them in place.
        u, v = self._u.clone(), self._v.clone()
        return weight / torch.vdot(u, torch.mv(matrix, v))

    def right_inverse(self, value):
        # Assigned values are assumed to be normalized already.
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divides a weight by its spectral norm (Miyato et al., 2018)."""
    weight = _tensor(module, name)
    dim = default_dim(module) if dim is None else dim
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module
