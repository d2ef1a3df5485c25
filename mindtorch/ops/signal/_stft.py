"""Short-time Fourier transform and its inverse."""
import warnings

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.tensor.dtypes import C64, F32, F64
from mindtorch.core.tensor.stride_rules import as_computed
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.op_schema import Bool, Int
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops._checks import check_tensor
from mindtorch.ops.basic import new_full
from mindtorch.ops.shapes._sizes import int_of
from mindtorch.ops.signal.fft import fft_op, ifft, irfft, rfft
from mindtorch.ops.nn.pad import pad_
from mindtorch.ops.elementwise.binary import div, mul
from mindtorch.ops.shapes._memory import view_as_real_
from mindtorch.ops.shapes.shape import constant_pad
from mindtorch.ops.shapes.views import unfold_, unfold_back as overlap_add


def _flag(x):
    return "None" if x is None else int(bool(x))


def _described(name, kind, x, window, n_fft, hop, win, flags):
    """Returns the beginning of PyTorch's error messages for stft and istft."""
    if window is None:
        w = "None"
    else:
        w = f"torch.{scalar_type_name(window._np_dtype)}Tensor{{{list(window._sizes)}}}"
    return f"{name}({kind}{list(x._sizes)}, n_fft={n_fft}, hop_length={hop}, win_length={win}, window={w}, {flags})"


# A copy: strided views of complex memory are slow to create.
_turned = primitive("transposed_copy", "a", lambda ctx, grad: _turned(grad), raw=True, node="TransposeBackward0", layout=as_computed)
_least_magnitude = primitive("least_magnitude", "a")
_warned = set()


def _warn_of_no_window(name, what):
    """Issues PyTorch's warning, once for each of the two functions."""
    if name not in _warned:
        _warned.add(name)
        warnings.warn(f"A window was not provided. A rectangular window will be applied, {what}. To suppress this "
                      "warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, "
                      "device=<device>)`.", stacklevel=3)


def _centred_window(window, win_length, n_fft, x, np_dtype):
    """Returns the window (default: ones), zero-padded on both sides to n_fft points. None if it
    would be all ones."""
    if window is None:
        if win_length == n_fft:
            return None
        window = new_full(x, size=(win_length,), value=1, np_dtype=np_dtype)
    if win_length == n_fft:
        return window
    left = (n_fft - win_length) // 2
    return constant_pad(window, (left, n_fft - win_length - left))


@register_op(autocast="float32")
def stft(input, n_fft: Int, hop_length: Int = None, win_length: Int = None, window=None, center=True, pad_mode="reflect", normalized: Bool = False,
         onesided: Bool = None, return_complex: Bool = None, align_to_window: Bool = None):
    """Computes the Fourier transforms of overlapping frames.

    (*, n) -> (*, frequencies, frames), complex, or real with a last dim of 2. Frames of n_fft
    points start every hop_length (default: n_fft // 4) points and are multiplied by the window.
    `center` pads the signal so that frame t is centered at t * hop_length. `onesided` (the default
    for real signals) keeps n_fft // 2 + 1 frequencies.
    """
    check_tensor("stft", input)
    if window is not None:
        check_tensor("stft", window, "window", 5)
    n_fft = int_of("stft", n_fft, "n_fft")
    hop = n_fft // 4 if hop_length is None else int_of("stft", hop_length, "hop_length")
    win = n_fft if win_length is None else int_of("stft", win_length, "win_length")
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    x = input
    if center:
        half, shape = n_fft // 2, input._sizes
        x = pad_(input.reshape((1,) * (3 - len(shape)) + shape), (half, half), pad_mode)
        x = x.reshape(x.shape[3 - len(shape):]) if len(shape) < 3 else x

    def bad(why):
        flags = (f"normalized={_flag(normalized)}, onesided={_flag(onesided)}, return_complex={_flag(return_complex)}, "
                 f"align_to_window={_flag(align_to_window)}")
        return RuntimeError(_described("stft", f"torch.{scalar_type_name(x._np_dtype)}Tensor", x, window, n_fft, hop, win,
                                       flags) + " : " + why)

    complex_in = x._np_dtype.kind == "c" or window is not None and window._np_dtype.kind == "c"
    if return_complex is None and not complex_in:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further "
                           "require that return_complex=True in a future PyTorch release.")
    if x._np_dtype.kind not in "fcV":
        raise bad("expected a tensor of floating point or complex values")
    if x.ndim not in (1, 2):
        raise bad("expected a 1D or 2D tensor")
    if not center and align_to_window:
        side = (n_fft - win) // 2
        x = constant_pad(x, (side, n_fft - win - side))
    n = x._sizes[-1]
    if not 0 < n_fft <= n:
        raise bad(f"expected 0 < n_fft < {n}, but got n_fft={n_fft}")
    if hop <= 0:
        raise bad(f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        raise bad(f"expected 0 < win_length <= n_fft, but got win_length={win}")
    if window is not None and window._sizes != (win,):
        raise bad(f"expected a 1D window tensor of size equal to win_length={win}, but got window with size "
                  f"{list(window._sizes)}")
    if onesided and complex_in:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if window is None:
        _warn_of_no_window("stft", "which is known to cause spectral leakage: windows such as torch.hann_window reduce "
                           "it")
    frames = unfold_(x, dim=x.ndim - 1, size=n_fft, step=hop)
    w = _centred_window(window, win, n_fft, x, x._np_dtype)
    if w is not None:
        frames = mul(frames, w)
    norm = "ortho" if normalized else None
    half = (not complex_in) if onesided is None else bool(onesided)
    r = (rfft if half else fft_op)(frames, None, -1, norm)
    if return_complex or return_complex is None:
        return _turned(r)
    return view_as_real_(_turned(r))


@register_op(autocast="float32")
def istft(input, n_fft: Int, hop_length: Int = None, win_length: Int = None, window=None, center: Bool = True, normalized: Bool = False, onesided: Bool = None,
          length: Int = None, return_complex: Bool = False):
    """Inverts stft by overlap-add: (*, frequencies, frames) complex -> (*, n) real (or complex).

    RuntimeError if the windows do not cover the signal. `length` crops the result, or pads it with
    zeros (with a warning).
    """
    check_tensor("istft", input)
    if window is not None:
        check_tensor("istft", window, "window", 5)
    n_fft = int_of("istft", n_fft, "n_fft")
    hop = n_fft // 4 if hop_length is None else int_of("istft", hop_length, "hop_length")
    win = n_fft if win_length is None else int_of("istft", win_length, "win_length")

    def bad(why):
        flags = (f"center={_flag(center)}, normalized={_flag(normalized)}, onesided={_flag(onesided)}, "
                 f"length={length}, return_complex={_flag(return_complex)}) ")
        return RuntimeError(_described("istft", f"CPU{scalar_type_name(input._np_dtype)}Type", input, window, n_fft, hop, win,
                                       flags)[:-1] + why)

    if input._np_dtype.kind != "c":
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with "
                           "return_complex=True.")
    if input.ndim < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-2, 1], but got -3)")
    if not input._numel:
        raise bad(": input tensor cannot be empty.")
    if input.ndim not in (2, 3):
        raise bad(f": expected a tensor with 3 or 4 dimensions, but got {input.ndim + 1}")
    size = input._sizes[-2]
    half = size != n_fft if onesided is None else bool(onesided)
    if half:
        if size != n_fft // 2 + 1:
            raise bad(": expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 "
                      f"when onesided=True, but got {size}")
    elif size != n_fft:
        raise bad(": expected the frequency dimension (3rd to the last) of the input tensor to match n_fft when "
                  f"onesided=False, but got {size}")
    if not 0 < hop <= win:
        raise bad(": expected 0 < hop_length <= win_length")
    if not 0 < win <= n_fft:
        raise bad(": expected 0 < win_length <= n_fft")
    if window is not None and window._sizes != (win,):
        raise bad(": Invalid window shape. window has to be 1D and length of `win_length`")
    if return_complex and half:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window._np_dtype.kind == "c":
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    if window is None:
        _warn_of_no_window("istft", "although the inversion is only lossless with the window that stft used")
    return _overlapped(input, n_fft, hop, win, window, center, "ortho" if normalized else None, half, length,
                       return_complex, bad)


def _overlapped(x, n_fft, hop, win, window, center, norm, half, length, return_complex, bad):
    x = _turned(x)
    count = x._sizes[-2]
    if return_complex:
        frames = ifft(x, None, -1, norm)
    else:
        frames = irfft(x if half else x[..., :n_fft // 2 + 1], n_fft, -1, norm)
    real = F32 if x._np_dtype == C64 else F64
    w = _centred_window(window, win, n_fft, x, real)
    if w is None:
        w = new_full(x, size=(n_fft,), value=1, np_dtype=real)
    full = n_fft + hop * (count - 1)
    frames = mul(frames, w)
    dim = frames.ndim - 2
    y = overlap_add(frames, shape=frames._sizes[:-2] + (full,), dim=dim, size=n_fft, step=hop)
    squares = mul(w, w).broadcast_to((count, n_fft))
    cover = overlap_add(squares, shape=(full,), dim=0, size=n_fft, step=hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else full - n_fft // 2 if center else full
    y, cover = y[..., start:end], cover[start:end]
    if not cover._numel:
        raise RuntimeError("min(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                           "reduction dim with the 'dim' argument.")
    if to_host(_least_magnitude(cover)) <= 1e-11:
        raise bad("window overlap add min: 1\n[ CPUBoolType{} ]")
    y = div(y, cover)
    if end > full:
        warnings.warn("The length of signal is shorter than the length parameter. Result is being padded with zeros in "
                      "the tail. Please check your center and hop_length settings.", stacklevel=3)
        y = constant_pad(y, (0, end - full))
    return y
