"""torch.fft: discrete Fourier transforms of real and complex tensors, their inverses, frequencies
and shifts.

The adjoint of a transform is the inverse transform with "backward" and "forward" swapped, so the
primitives are each other's gradients. stft and istft are in `mindtorch/ops/signal/_stft.py`.
"""
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import C64, C128, F32, default_np
from mindtorch.core.dispatch.type_promotion import promote_int_to_float
from mindtorch.core.dispatch.op_registry import SameDtype, register_op, store_out
from mindtorch.core.dispatch.op_schema import Bool, Float, Index, Int, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.ops._checks import check_tensor, wrap_dim
from mindtorch.ops.shapes._sizes import int_of
from mindtorch.ops.basic import cast, conj, mul_
from mindtorch.ops.creation._from_data import finalize_new, resolve_dtype_device
from mindtorch.ops.shapes.shape import constant_pad, roll

_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
_SINGLE = (F32, C64)

# ------------------------------------------------------------------ primitives
def _complex_of(np_dtype):
    return C64 if np_dtype in _SINGLE else C128


def _full_grad(g, axes, forward, norm):
    return c2c_(g, axes=axes, forward=not forward, norm=_SWAPPED[norm])


#: `c2c_`: complex (or real) to complex over `axes`. `r2c_`: real to the half spectrum that
#: determines the transform, halved along the last axis. `c2r_`: from that half spectrum to n real
#: points.
c2c_ = primitive("fft_c2c", "a, *, axes, forward, norm", lambda ctx, grad: _full_grad(grad, ctx.axes, ctx.forward, ctx.norm), node="FftC2CBackward0")
_real_c2c = primitive("fft_r2c_full", "a, *, axes, forward, norm", lambda ctx, grad: _full_grad(grad, ctx.axes, ctx.forward, ctx.norm), node="FftR2CBackward0")
r2c_ = primitive("fft_r2c", "a, *, axes, norm", lambda ctx, grad: _half_grad(grad, ctx.shapes[0], ctx.axes, ctx.norm), node="FftR2CBackward0")
c2r_ = primitive("fft_c2r", "a, *, axes, n, norm",
                 lambda ctx, grad: _weighted(r2c_(grad, axes=ctx.axes, norm=_SWAPPED[ctx.norm]), ctx.n, ctx.axes[-1], 2.0), node="FftC2RBackward0")
#: the weights of `_weighted`, in the precision of x and with as many dims
_half_weights = primitive("fft_half_weights", "x, *, n, axis, value")


def _half_grad(g, shape, axes, norm):
    n = shape[axes[-1]]
    return c2r_(_weighted(g, n, axes[-1], 0.5), axes=axes, n=n, norm=_SWAPPED[norm])


def _weighted(x, n, axis, k):
    """Multiplies by k the frequencies that represent both themselves and their mirror image (all
    but the first and, for even n, the middle one)."""
    return mul_(x, _half_weights(x, n=n, axis=axis, value=k))


# ------------------------------------------------------------------ arguments
def _norm(norm):
    if norm is None:
        return "backward"
    if norm not in _SWAPPED:
        raise RuntimeError(f"Invalid normalization mode: \"{norm}\"")
    return norm


def _floating(x):
    """Converts integers to floats. Raises an error for half precision, like PyTorch's CPU kernels.
    """
    if x._np_dtype.itemsize == 2 and x._np_dtype.kind in "fV":
        raise RuntimeError(f"Unsupported dtype {scalar_type_name(x._np_dtype)}")
    return promote_int_to_float(x)


def _resized(x, dims, sizes):
    """Crops or zero-pads x to `sizes` along `dims`. RuntimeError for a size below one."""
    shape = x._sizes
    pad = None
    for d, n in zip(dims, sizes):
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        if n != shape[d]:
            if pad is None:
                pad = [0] * (2 * len(shape))
            pad[2 * (len(shape) - 1 - d) + 1] = n - shape[d]
    return x if pad is None else constant_pad(x, pad)


def _one_dim(name, input, n, dim):
    check_tensor(name, input)
    ndim = input.ndim
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if n is not None:
        n = int_of(name, n, "n")
    return wrap_dim(name, dim, ndim), n


def _dims_of(name, input, s, dim):
    """Returns (axes, sizes) of a transform over several dims. A size of -1 keeps the size of the
    dim."""
    check_tensor(name, input)
    ndim = input.ndim
    if dim is not None:
        dims = [dim] if isinstance(dim, int) else list(dim)
        if dims and not ndim:
            raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
        axes = [wrap_dim(name, d, ndim) for d in dims]
        if len(set(axes)) != len(axes):
            raise RuntimeError("FFT dims must be unique")
    if s is not None:
        s = [s] if isinstance(s, int) else [int_of(name, n, "s", i) for i, n in enumerate(s)]
        if dim is not None and len(s) != len(axes):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
        if len(s) > ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions.")
        if dim is None:
            axes = list(range(ndim - len(s), ndim))
    elif dim is None:
        axes = list(range(ndim))
    sizes = [input._sizes[d] if s is None or s[i] == -1 else s[i] for i, d in enumerate(axes)]
    return tuple(axes), sizes


# ------------------------------------------------------------------ one dim
def _transform(name, input, n, dim, norm, forward):
    d, n = _one_dim(name, input, n, dim)
    x = _floating(input)
    norm = _norm(norm)
    x = _resized(x, (d,), (x._sizes[d] if n is None else n,))
    return (c2c_ if x._np_dtype.kind == "c" else _real_c2c)(x, axes=(d,), forward=forward, norm=norm)


#: error for a complex `out=` of a transform with a real result
_REAL = SameDtype("{name} expects a floating point output tensor, but got {have}", ("bfloat16", "float16", "float32", "float64"))


@register_op(ns="fft", name="fft", out=True, autocast="float32")
def fft_op(input, n: SymInt = None, dim: Int = -1, norm=None):
    """Computes the transform along `dim`, of n points (cropped or zero-padded).

    norm: "backward" (none), "ortho" or "forward" (1/n).
    """
    return _transform("fft_fft", input, n, dim, norm, True)


@register_op(ns="fft", out=True, autocast="float32")
def ifft(input, n: SymInt = None, dim: Int = -1, norm=None):
    """Computes the inverse transform along `dim`, of n points. norm: "backward" (1/n), "ortho" or
    "forward" (none)."""
    return _transform("fft_ifft", input, n, dim, norm, False)


def _need_real(f, x):
    if x._np_dtype.kind == "c":
        raise RuntimeError(f"{f} expects a real input tensor, but got {scalar_type_name(x._np_dtype)}")


@register_op(ns="fft", out=True, autocast="float32")
def rfft(input, n: SymInt = None, dim: Int = -1, norm=None):
    """Transforms a real tensor. Returns the first n // 2 + 1 frequencies, which determine the
    others."""
    d, n = _one_dim("fft_rfft", input, n, dim)
    _need_real("rfft", input)
    x = _floating(input)
    norm = _norm(norm)
    x = _resized(x, (d,), (x._sizes[d] if n is None else n,))
    return r2c_(x, axes=(d,), norm=norm)


def _from_half(x, axes, sizes, norm):
    """Returns the real tensor of `sizes` along `axes` for a half spectrum."""
    last = sizes[-1]
    if last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified")
    x = cast(x, _complex_of(x._np_dtype))
    x = _resized(x, axes, sizes[:-1] + [last // 2 + 1])
    return c2r_(x, axes=axes, n=last, norm=norm)


@register_op(ns="fft", out=_REAL, autocast="float32")
def irfft(input, n: SymInt = None, dim: Int = -1, norm=None):
    """Inverts rfft. Returns n real points (default: 2 * (frequencies - 1))."""
    d, n = _one_dim("fft_irfft", input, n, dim)
    x = _floating(input)
    return _from_half(x, (d,), [2 * (x._sizes[d] - 1) if n is None else n], _norm(norm))


@register_op(ns="fft", out=_REAL, autocast="float32")
def hfft(input, n: SymInt = None, dim: Int = -1, norm=None):
    """Transforms a signal with Hermitian symmetry, given by its first half, to n real frequencies.
    """
    d, n = _one_dim("fft_hfft", input, n, dim)
    x = conj(_floating(input))
    return _from_half(x, (d,), [2 * (x._sizes[d] - 1) if n is None else n], _SWAPPED[_norm(norm)])


@register_op(ns="fft", out="same", autocast="float32")
def ihfft(input, n: SymInt = None, dim: Int = -1, norm=None):
    """Inverts hfft. Returns the first n // 2 + 1 points of the Hermitian signal with the given real
    frequencies."""
    d, n = _one_dim("fft_ihfft", input, n, dim)
    _need_real("ihfft", input)
    x = _floating(input)
    norm = _SWAPPED[_norm(norm)]
    x = _resized(x, (d,), (x._sizes[d] if n is None else n,))
    return conj(r2c_(x, axes=(d,), norm=norm))


# ------------------------------------------------------------------ several dims
def _full_n(name, input, s, dim, norm, forward):
    axes, sizes = _dims_of(name, input, s, dim)
    x, norm = _floating(input), _norm(norm)
    return c2c_(_resized(x, axes, sizes), axes=axes, forward=forward, norm=norm)


def _half_n(name, f, input, s, dim, norm):
    axes, sizes = _dims_of(name, input, s, dim)
    if not axes:
        raise RuntimeError(f"{f} must transform at least one axis")
    x = _floating(input)
    return r2c_(_resized(x, axes, sizes), axes=axes, norm=norm)


def _real_n(name, f, input, s, dim, norm):
    axes, sizes = _dims_of(name, input, s, dim)
    if not axes:
        raise RuntimeError(f"{f} must transform at least one axis")
    if s is None or (s if isinstance(s, int) else list(s)[-1]) == -1:
        sizes[-1] = 2 * (sizes[-1] - 1)
    return _from_half(_floating(input), axes, sizes, norm)


@register_op(ns="fft", out=True, autocast="float32")
def fftn(input, s=None, dim: Index = None, norm=None):
    """Computes the transform over several dims (default: all, or the last len(s)), cropped or
    padded to the sizes s."""
    return _full_n("fft_fftn", input, s, dim, norm, True)


@register_op(ns="fft", out=True, autocast="float32")
def ifftn(input, s=None, dim: Index = None, norm=None):
    """Computes the inverse transform over several dims."""
    return _full_n("fft_ifftn", input, s, dim, norm, False)


def _rfftn(name, input, s, dim, norm):
    check_tensor(name, input)
    if input._np_dtype.kind == "c":
        raise RuntimeError(f"rfftn expects a real-valued input tensor, but got {scalar_type_name(input._np_dtype)}")
    return _half_n(name, "rfftn", input, s, dim, _norm(norm))


@register_op(ns="fft", out=True, autocast="float32")
def rfftn(input, s=None, dim: Index = None, norm=None):
    """Transforms a real tensor over several dims. The last one is halved."""
    return _rfftn("fft_rfftn", input, s, dim, norm)


@register_op(ns="fft", out=_REAL, autocast="float32")
def irfftn(input, s=None, dim: Index = None, norm=None):
    """Inverts rfftn. s[-1] is the number of real points in the last dim."""
    return _real_n("fft_irfftn", "irfftn", input, s, dim, _norm(norm))


def _hfftn(name, input, s, dim, norm):
    check_tensor(name, input)
    return _real_n(name, "hfftn", conj(input), s, dim, _SWAPPED[_norm(norm)])


@register_op(ns="fft", out=_REAL)
def hfftn(input, s=None, dim: Index = None, norm=None):
    """Transforms a signal with Hermitian symmetry, given by half of its last dim, over several
    dims. The result is real."""
    return _hfftn("fft_hfftn", input, s, dim, norm)


def _ihfftn(name, input, s, dim, norm):
    check_tensor(name, input)
    if input._np_dtype.kind == "c":
        raise RuntimeError(f"Only supports floating-point dtypes, but found: {scalar_type_name(input._np_dtype)}")
    return conj(_half_n(name, "ihfftn", input, s, dim, _SWAPPED[_norm(norm)]))


@register_op(ns="fft", out=True)
def ihfftn(input, s=None, dim: Index = None, norm=None):
    """Inverts hfftn. Returns half of the Hermitian signal with the given real frequencies."""
    return _ihfftn("fft_ihfftn", input, s, dim, norm)


# ------------------------------------------------------------------ two dims
def _two(name, dim):
    if dim is None:
        raise TypeError(f"{name}(): argument 'dim' must be tuple of ints, not NoneType")
    return dim


@register_op(ns="fft", out=True, autocast="float32")
def fft2(input, s=None, dim: Index = (-2, -1), norm=None):
    """Computes fftn over the last two dims."""
    return _full_n("fft_fft2", input, s, _two("fft_fft2", dim), norm, True)


@register_op(ns="fft", out=True, autocast="float32")
def ifft2(input, s=None, dim: Index = (-2, -1), norm=None):
    """Computes ifftn over the last two dims."""
    return _full_n("fft_ifft2", input, s, _two("fft_ifft2", dim), norm, False)


@register_op(ns="fft", out=True, autocast="float32")
def rfft2(input, s=None, dim: Index = (-2, -1), norm=None):
    """Computes rfftn over the last two dims."""
    return _rfftn("fft_rfft2", input, s, _two("fft_rfft2", dim), norm)


@register_op(ns="fft", out=_REAL, autocast="float32")
def irfft2(input, s=None, dim: Index = (-2, -1), norm=None):
    """Computes irfftn over the last two dims."""
    return _real_n("fft_irfft2", "irfftn", input, s, _two("fft_irfft2", dim), _norm(norm))


@register_op(ns="fft", out=_REAL)
def hfft2(input, s=None, dim: Index = (-2, -1), norm=None):
    """Computes hfftn over the last two dims."""
    return _hfftn("fft_hfft2", input, s, _two("fft_hfft2", dim), norm)


@register_op(ns="fft", out=True)
def ihfft2(input, s=None, dim: Index = (-2, -1), norm=None):
    """Computes ihfftn over the last two dims."""
    return _ihfftn("fft_ihfft2", input, s, _two("fft_ihfft2", dim), norm)


# ------------------------------------------------------------------ frequencies and shifts
#
# The frequencies divided by n * d: the first half, or all in the order of fft.
_frequency_line = primitive("fft_frequencies", "*, n, d, half, np_dtype, device", raw=True)


def _frequencies(name, n, d, dtype, layout, device, requires_grad, out, half):
    dt, on = resolve_dtype_device(name, dtype, device, layout)
    dt = default_np() if dt is None else dt
    if dt.kind not in "fcV":
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if dt.kind == "c":
        raise NotImplementedError(f"'{name}' is not implemented for dtype {dtype} on device cpu")
    n = int_of(name, n, "n")
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    r = _frequency_line(n=n, d=float(d), half=half, np_dtype=dt, device=on)
    return finalize_new(r, requires_grad, on) if out is None else store_out(name, out, r)


@register_op(ns="fft")
def fftfreq(n: Int, d: Float = 1.0, *, dtype=None, layout=None, device=None, pin_memory: Bool = None, requires_grad=False, out=None):
    """Returns the frequencies of fft's n results at sample spacing d: 0, 1, ..., -1, divided by n *
    d."""
    return _frequencies("fftfreq", n, d, dtype, layout, device, requires_grad, out, False)


@register_op(ns="fft")
def rfftfreq(n: Int, d: Float = 1.0, *, dtype=None, layout=None, device=None, pin_memory: Bool = None, requires_grad=False, out=None):
    """Returns the frequencies of rfft's n // 2 + 1 results at sample spacing d."""
    return _frequencies("rfftfreq", n, d, dtype, layout, device, requires_grad, out, True)


def _shifted(name, input, dim, amount):
    check_tensor(name, input)
    n = input.ndim
    dims = range(n) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = [wrap_dim(name, d, n) for d in dims]
    return roll(input, [amount(input._sizes[d]) for d in axes], axes)


@register_op(ns="fft")
def fftshift(input, dim: Index = None):
    """Moves frequency 0 from the beginning to the middle of dims (default: all)."""
    return _shifted("fft_fftshift", input, dim, lambda n: n // 2)


@register_op(ns="fft")
def ifftshift(input, dim: Index = None):
    """Inverts fftshift."""
    return _shifted("fft_ifftshift", input, dim, lambda n: (n + 1) // 2)
