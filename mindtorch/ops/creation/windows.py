"""Window functions: torch.hann_window and similar ones, torch.signal.windows."""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import default_np
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int, Scalar
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor
from mindtorch.ops.creation._from_data import full_, finalize_new, resolve_dtype_device
from mindtorch.ops.shapes._sizes import int_of

# Each computes the first `points` points of the symmetric window of n points.
_cosines = primitive("cosine_window", "*, n, points, coefficients, np_dtype, device", raw=True)
_triangle = primitive("triangle_window", "*, n, points, np_dtype, device", raw=True)
_kaiser = primitive("kaiser_window", "*, n, points, beta, np_dtype, device", raw=True)
_exponential = primitive("exponential_window", "*, n, points, center, tau, np_dtype, device", raw=True)
_sine = primitive("sine_window", "*, n, points, np_dtype, device", raw=True)
_gaussian = primitive("gaussian_window", "*, n, points, std, np_dtype, device", raw=True)


def _points(shape, n, m, d, on, requires_grad, given):
    """Returns the first m points of a window of n points; a window of one point is 1."""
    if m < 2:
        t = full_(size=(m,), stride=None, value=1, np_dtype=d, device=on)
    else:
        t = shape(n=n, points=m, np_dtype=d, device=on, **given)
    return finalize_new(t, requires_grad, on)


# ------------------------------------------------------------------ torch.*_window
def _window(name, length, periodic, dtype, layout, device, requires_grad, shape, **given):
    d, on = resolve_dtype_device(name, dtype, device, None)
    d = default_np() if d is None else d
    if layout is not None and repr(layout) != "torch.strided":
        raise RuntimeError(f"{name} is not implemented for sparse types, got: layout={layout}")
    if d.kind == "c":
        raise NotImplementedError(f"'{name}' is not implemented for dtype {dtype} on device cpu")
    if d.kind not in "fV":
        raise RuntimeError(f"{name} expects floating point dtypes, got: dtype={scalar_type_name(d)}")
    m = int_of(name, length, "window_length")
    if m < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={m}")
    return _points(shape, m + 1 if periodic else m, m, d, on, requires_grad, given)


@register_op(method=False)
def hann_window(window_length: Int, periodic: Bool = True, *, dtype=None, layout=None, device=None, pin_memory: Bool = None,
                requires_grad=False):
    """(1 - cos x) / 2 over one period; `periodic` leaves out the last point, for use with stft."""
    return _window("hann_window", window_length, periodic, dtype, layout, device, requires_grad,
                   _cosines, coefficients=(0.5, 0.5))


@register_op(method=False)
def hamming_window(window_length: Int, periodic: Bool = True, alpha: Scalar = 0.54, beta: Scalar = 0.46, *, dtype=None, layout=None, device=None,
                   pin_memory: Bool = None,
                   requires_grad=False):
    """alpha - beta * cos x over one period."""
    return _window("hamming_window", window_length, periodic, dtype, layout, device, requires_grad,
                   _cosines, coefficients=(alpha, beta))


@register_op(method=False)
def blackman_window(window_length: Int, periodic: Bool = True, *, dtype=None, layout=None, device=None, pin_memory: Bool = None,
                    requires_grad=False):
    """0.42 - 0.5 cos x + 0.08 cos 2x over one period."""
    return _window("blackman_window", window_length, periodic, dtype, layout, device, requires_grad,
                   _cosines, coefficients=(0.42, 0.5, 0.08))


@register_op(method=False)
def bartlett_window(window_length: Int, periodic: Bool = True, *, dtype=None, layout=None, device=None, pin_memory: Bool = None,
                    requires_grad=False):
    """A triangle from 0 to 1 and back."""
    return _window("bartlett_window", window_length, periodic, dtype, layout, device, requires_grad,
                   _triangle)


@register_op(method=False)
def kaiser_window(window_length: Int, periodic: Bool = True, beta: Scalar = 12.0, *, dtype=None, layout=None, device=None, pin_memory: Bool = None,
                  requires_grad=False):
    """I0(beta * sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    return _window("kaiser_window", window_length, periodic, dtype, layout, device, requires_grad,
                   _kaiser, beta=beta)


# ------------------------------------------------------------------ torch.signal.windows
def _signal_window(name, M, sym, dtype, layout, device, requires_grad, shape, **given):
    if M.__class__ is not int:
        M = int_of(name, M, "M")
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and repr(layout) != "torch.strided":
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    d, on = resolve_dtype_device(name, dtype, device, None)
    d = default_np() if d is None else d
    if d.kind != "f" or d.itemsize < 4:
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    return _points(shape, M if sym else M + 1, M, d, on, requires_grad, given)


@register_op(ns="signal.windows")
def exponential(M, *, center: Bool = None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-|n - center| / tau). `center` can be set only if sym is False."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _signal_window("exponential", M, sym, dtype, layout, device, requires_grad, _exponential, center=center, tau=tau)


@register_op(ns="signal.windows")
def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """sin(pi * (n + 1/2) / M): half a period."""
    return _signal_window("cosine", M, sym, dtype, layout, device, requires_grad,
                          _sine)


@register_op(ns="signal.windows")
def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-((n - middle) / std)^2 / 2)"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _signal_window("gaussian", M, sym, dtype, layout, device, requires_grad,
                          _gaussian, std=std)


@register_op(ns="signal.windows")
def kaiser(M, *, beta: Scalar = 12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """I0(beta * sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _signal_window("kaiser", M, sym, dtype, layout, device, requires_grad, _kaiser, beta=beta)


def _general_cosine(M, a, sym, dtype, layout, device, requires_grad):
    return _signal_window("general_cosine", M, sym, dtype, layout, device, requires_grad,
                          _cosines, coefficients=a)


@register_op(ns="signal.windows")
def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """a[0] - a[1] cos x + a[2] cos 2x - ... over one period."""
    if isinstance(a, (str, Tensor)) or not hasattr(a, "__iter__"):
        raise TypeError("Coefficients must be a list/tuple")
    a = tuple(a)
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _general_cosine(M, a, sym, dtype, layout, device, requires_grad)


@register_op(ns="signal.windows")
def general_hamming(M, *, alpha: Scalar = 0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """alpha - (1 - alpha) cos x over one period."""
    return _general_cosine(M, (alpha, 1.0 - alpha), sym, dtype, layout, device, requires_grad)


@register_op(ns="signal.windows")
def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.54 - 0.46 cos x over one period."""
    return _general_cosine(M, (0.54, 0.46), sym, dtype, layout, device, requires_grad)


@register_op(ns="signal.windows")
def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """(1 - cos x) / 2 over one period."""
    return _general_cosine(M, (0.5, 0.5), sym, dtype, layout, device, requires_grad)


@register_op(ns="signal.windows")
def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.42 - 0.5 cos x + 0.08 cos 2x over one period."""
    return _signal_window("blackman", M, sym, dtype, layout, device, requires_grad,
                          _cosines, coefficients=(0.42, 0.5, 0.08))


@register_op(ns="signal.windows")
def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A triangle from 0 to 1 and back."""
    return _signal_window("bartlett", M, sym, dtype, layout, device, requires_grad,
                          _triangle)


@register_op(ns="signal.windows")
def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Nuttall's four-term window with continuous first derivative."""
    return _general_cosine(M, (0.3635819, 0.4891775, 0.1365995, 0.0106411), sym, dtype, layout, device, requires_grad)
