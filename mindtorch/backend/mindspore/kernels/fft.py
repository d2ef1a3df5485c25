"""Fourier transforms on MindSpore's CPU target, which uses the same library as the host kernels
(pocketfft)."""
from mindtorch.backend.mindspore.kernels._call import COMPLEX, cast, copied, dtype_of, ms, shape_of
from mindtorch.backend.mindspore.kernels._index_utils import cpu_kernel as kernel, dense, table

_ANY = "float32 float64 complex64 complex128"


def _complex(a):
    """Converts to the complex dtype of the same precision."""
    d = dtype_of(a)
    return a if d in COMPLEX else cast(a, ms.complex64 if d is ms.float32 else ms.complex128)


@kernel("fft_c2c fft_r2c_full", only=_ANY)
def _full(a, *, axes, forward, norm):
    z = _complex(a)
    if not axes:
        return copied(a) if z is a else z
    return (ms.ops.fftn if forward else ms.ops.ifftn)(dense(z), None, axes, norm)


kernel("fft_r2c", lambda a, *, axes, norm: ms.ops.rfftn(dense(a), None, axes, norm), only="float32 float64")


@kernel("fft_c2r", only=_ANY)
def _real(a, *, axes, n, norm):
    s = [shape_of(a)[d] for d in axes]
    s[-1] = n
    return ms.ops.irfftn(dense(_complex(a)), tuple(s), axes, norm)


@kernel("fft_half_weights")
def _half_weights(x, *, n, axis, value):
    """Returns the weights of a half spectrum: `value` for a frequency that also represents its
    mirror image, 1 for frequency 0 and for the Nyquist frequency of an even n."""
    m = n // 2 + 1
    w = [1.0, *[value] * (m - 1)]
    if n % 2 == 0:
        w[-1] = 1.0
    r = cast(table(w), ms.float32 if dtype_of(x) in (ms.float32, ms.complex64) else ms.float64)
    return r.view([m if d == axis else 1 for d in range(len(shape_of(x)))])
