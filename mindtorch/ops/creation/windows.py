"""Window functions: torch.hann_window and its like, torch.signal.windows."""
import numpy as np

from mindtorch.core.alias import title
from mindtorch.core.dtypes import default_np
from mindtorch.core.table import op
from mindtorch.core.tensor import Tensor
from mindtorch.ops.shapes._sizes import int_of
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.ops.creation.create import finish, place


def _cosines(x, coefficients):
    """Alternating sum a0 - a1 cos(x) + a2 cos(2x) - ..."""
    return sum(a * np.cos(k * x) * (-1.0) ** k for k, a in enumerate(coefficients)) + 0.0 * x


def _bessel(x):
    from scipy.special import i0
    return i0(x)


def _kaiser(n, points, beta):
    """Kaiser's window of n points, of which the first `points` are wanted."""
    t = 2.0 * np.arange(points) / (n - 1) - 1.0
    return _bessel(beta * np.sqrt(np.maximum(1.0 - t * t, 0.0))) / _bessel(beta)


# ------------------------------------------------------------------ torch.*_window
def _window(name, length, periodic, dtype, layout, device, requires_grad, shape):
    """shape(n, m): the first m points of the symmetric window of n."""
    d = place(name, dtype, device, None)
    d = default_np() if d is None else d
    if layout is not None and repr(layout) != "torch.strided":
        raise RuntimeError(f"{name} is not implemented for sparse types, got: layout={layout}")
    if d.kind == "c":
        raise NotImplementedError(f"'{name}' is not implemented for dtype {dtype} on device cpu")
    if d.kind not in "fV":
        raise RuntimeError(f"{name} expects floating point dtypes, got: dtype={title(d)}")
    m = int_of(name, length, "window_length")
    if m < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={m}")
    n = m + 1 if periodic else m
    a = np.ones(m) if m < 2 else shape(n, m)
    return finish(cast_array(a, d) if a.dtype != d else a, requires_grad, device)


def _angle(n, m):
    return 2.0 * np.pi * np.arange(m) / (n - 1)


@op(method=False)
def hann_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=None,
                requires_grad=False):
    """(1 - cos x) / 2 over one period; `periodic` leaves out the last point, for use with stft."""
    return _window("hann_window", window_length, periodic, dtype, layout, device, requires_grad,
                   lambda n, m: _cosines(_angle(n, m), (0.5, 0.5)))


@op(method=False)
def hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None,
                   pin_memory=None,
                   requires_grad=False):
    """alpha - beta * cos x over one period."""
    return _window("hamming_window", window_length, periodic, dtype, layout, device, requires_grad,
                   lambda n, m: _cosines(_angle(n, m), (alpha, beta)))


@op(method=False)
def blackman_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=None,
                    requires_grad=False):
    """0.42 - 0.5 cos x + 0.08 cos 2x over one period."""
    return _window("blackman_window", window_length, periodic, dtype, layout, device, requires_grad,
                   lambda n, m: _cosines(_angle(n, m), (0.42, 0.5, 0.08)))


@op(method=False)
def bartlett_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=None,
                    requires_grad=False):
    """A triangle from 0 to 1 and back."""
    return _window("bartlett_window", window_length, periodic, dtype, layout, device, requires_grad,
                   lambda n, m: 1.0 - np.abs(2.0 * np.arange(m) / (n - 1) - 1.0))


@op(method=False)
def kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=None,
                  requires_grad=False):
    """I0(beta * sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    return _window("kaiser_window", window_length, periodic, dtype, layout, device, requires_grad,
                   lambda n, m: _kaiser(n, m, beta))


# ------------------------------------------------------------------ torch.signal.windows
def _signal_window(name, M, sym, dtype, layout, device, requires_grad, shape):
    if M.__class__ is not int:
        M = int_of(name, M, "M")
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and repr(layout) != "torch.strided":
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    d = place(name, dtype, device, None)
    d = default_np() if d is None else d
    if d.kind != "f" or d.itemsize < 4:
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    a = np.ones(M) if M < 2 else shape(M if sym else M + 1, M)
    return finish(a.astype(d), requires_grad)


@op(ns="signal.windows")
def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-|n - center| / tau); a centre can be given for windows that are not symmetric."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def shape(n, m):
        middle = (n - 1) / 2.0 if center is None else center
        return np.exp(-np.abs(np.arange(m) - middle) / tau)
    return _signal_window("exponential", M, sym, dtype, layout, device, requires_grad, shape)


@op(ns="signal.windows")
def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """sin(pi * (n + 1/2) / M): half a period."""
    return _signal_window("cosine", M, sym, dtype, layout, device, requires_grad,
                          lambda n, m: np.sin(np.pi * (np.arange(m) + 0.5) / n))


@op(ns="signal.windows")
def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-((n - middle) / std)^2 / 2)"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _signal_window("gaussian", M, sym, dtype, layout, device, requires_grad,
                          lambda n, m: np.exp(-0.5 * ((np.arange(m) - (n - 1) / 2.0) / std) ** 2))


@op(ns="signal.windows")
def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """I0(beta * sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _signal_window("kaiser", M, sym, dtype, layout, device, requires_grad, lambda n, m: _kaiser(n, m, beta))


def _general_cosine(M, a, sym, dtype, layout, device, requires_grad):
    return _signal_window("general_cosine", M, sym, dtype, layout, device, requires_grad,
                          lambda n, m: _cosines(_angle(n, m), a))


@op(ns="signal.windows")
def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """a[0] - a[1] cos x + a[2] cos 2x - ... over one period."""
    if isinstance(a, (str, Tensor)) or not hasattr(a, "__iter__"):
        raise TypeError("Coefficients must be a list/tuple")
    a = tuple(a)
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _general_cosine(M, a, sym, dtype, layout, device, requires_grad)


@op(ns="signal.windows")
def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """alpha - (1 - alpha) cos x over one period."""
    return _general_cosine(M, (alpha, 1.0 - alpha), sym, dtype, layout, device, requires_grad)


@op(ns="signal.windows")
def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.54 - 0.46 cos x over one period."""
    return _general_cosine(M, (0.54, 0.46), sym, dtype, layout, device, requires_grad)


@op(ns="signal.windows")
def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """(1 - cos x) / 2 over one period."""
    return _general_cosine(M, (0.5, 0.5), sym, dtype, layout, device, requires_grad)


@op(ns="signal.windows")
def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.42 - 0.5 cos x + 0.08 cos 2x over one period."""
    return _signal_window("blackman", M, sym, dtype, layout, device, requires_grad,
                          lambda n, m: _cosines(_angle(n, m), (0.42, 0.5, 0.08)))


@op(ns="signal.windows")
def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A triangle from 0 to 1 and back."""
    return _signal_window("bartlett", M, sym, dtype, layout, device, requires_grad,
                          lambda n, m: 1.0 - np.abs(2.0 * np.arange(m) / (n - 1) - 1.0))


@op(ns="signal.windows")
def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Nuttall's four-term window with continuous first derivative."""
    return _general_cosine(M, (0.3635819, 0.4891775, 0.1365995, 0.0106411), sym, dtype, layout, device, requires_grad)
