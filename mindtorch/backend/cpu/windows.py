"""Kernels of window functions: the first `points` points of the symmetric window of n, computed in float64."""
import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.basic import cast_array


def _as_dtype(a, np_dtype):
    return cast_array(a, np_dtype) if a.dtype != np_dtype else a


def _bessel(x):
    from scipy.special import i0
    return i0(x)


@kernel("cosine_window")
def _cosines(n, points, coefficients, np_dtype, device):
    """Computes the alternating sum a0 - a1 cos(x) + a2 cos(2x) - ... over one period."""
    x = 2.0 * np.pi * np.arange(points) / (n - 1)
    return _as_dtype(sum(a * np.cos(k * x) * (-1.0) ** k for k, a in enumerate(coefficients)) + 0.0 * x, np_dtype)


@kernel("triangle_window")
def _triangle(n, points, np_dtype, device):
    return _as_dtype(1.0 - np.abs(2.0 * np.arange(points) / (n - 1) - 1.0), np_dtype)


@kernel("kaiser_window")
def _kaiser(n, points, beta, np_dtype, device):
    t = 2.0 * np.arange(points) / (n - 1) - 1.0
    return _as_dtype(_bessel(beta * np.sqrt(np.maximum(1.0 - t * t, 0.0))) / _bessel(beta), np_dtype)


@kernel("exponential_window")
def _exponential(n, points, center, tau, np_dtype, device):
    middle = (n - 1) / 2.0 if center is None else center
    return _as_dtype(np.exp(-np.abs(np.arange(points) - middle) / tau), np_dtype)


@kernel("sine_window")
def _sine(n, points, np_dtype, device):
    return _as_dtype(np.sin(np.pi * (np.arange(points) + 0.5) / n), np_dtype)


@kernel("gaussian_window")
def _gaussian(n, points, std, np_dtype, device):
    return _as_dtype(np.exp(-0.5 * ((np.arange(points) - (n - 1) / 2.0) / std) ** 2), np_dtype)
