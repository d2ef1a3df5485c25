"""Fourier transforms, short-time transforms and window functions against PyTorch."""
import math
import warnings

import numpy as np
import pytest
from _parity import In, check, mine, real, values
from hypothesis import given
from hypothesis import strategies as st

REALS = ["float32", "float64", "int64", "bool"]
COMPLEX = ["complex64", "complex128"]
LAYOUTS = ["plain", "plain", "transposed", "strided"]
NORMS = [None, "backward", "ortho", "forward"]
TOL = {"rtol": 1e-4, "atol": 1e-4}


def signal(data, dtypes, shapes):
    shape, d = data.draw(st.sampled_from(shapes)), data.draw(st.sampled_from(dtypes))
    return In(values(data.draw(st.integers(0, 10**6)), shape, d), d, data.draw(st.sampled_from(LAYOUTS)), True)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@given(st.data())
def test_one_dim(name, data):
    x = signal(data, REALS + (COMPLEX if name not in ("rfft", "ihfft") else []),
               [(1,), (2,), (5,), (8,), (3, 4), (2, 3, 5)])
    n = data.draw(st.sampled_from([None, None, 1, 2, 3, 4, 7, 0]))
    dim = data.draw(st.integers(-x.values.ndim, x.values.ndim - 1))
    norm = data.draw(st.sampled_from(NORMS))
    check(lambda T, a: getattr(T.fft, name)(a, n, dim, norm), x, second=x.dtype in ("float64", "complex128"), **TOL)


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", "fftn", "ifftn", "rfftn",
                                  "irfftn", "hfftn",
                                  "ihfftn"])
@given(st.data())
def test_several_dims(name, data):
    x = signal(data, REALS + (COMPLEX if not name.startswith(("rfft", "ihfft")) else []),
               [(4,), (3, 4), (2, 2), (2, 3, 5), (4, 1, 3), (2, 3, 2, 4)])
    n = x.values.ndim
    kw = {"norm": data.draw(st.sampled_from(NORMS))}
    if data.draw(st.booleans()):
        kw["dim"] = tuple(data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=2)))
    if data.draw(st.booleans()):
        k = len(kw["dim"]) if "dim" in kw else 2
        kw["s"] = tuple(data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 6]), min_size=k, max_size=k)))
    check(lambda T, a: getattr(T.fft, name)(a, **kw), x, second=x.dtype in ("float64", "complex128"), **TOL)


@given(st.data())
def test_shifts(data):
    x = signal(data, REALS + COMPLEX, [(1,), (4,), (5,), (3, 4), (2, 3, 5), (0, 3)])
    n = x.values.ndim
    kw = {} if data.draw(st.booleans()) else {"dim": data.draw(st.integers(-n, n - 1))}
    check(lambda T, a: T.fft.fftshift(a, **kw), x)
    check(lambda T, a: T.fft.ifftshift(a, **kw), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", None])
def test_frequencies(dtype):
    for n in (0, 1, 2, 5, 8):
        for d in (1.0, 0.25, -3):
            for name in ("fftfreq", "rfftfreq"):
                check(lambda T, n=n, d=d, name=name: getattr(T.fft, name)(n, d, dtype=dtype and getattr(T, dtype)))
    assert mine.fft.fftfreq(3, requires_grad=True).requires_grad
    check(lambda T: T.fft.fftfreq(-1))
    check(lambda T: T.fft.fftfreq(3, dtype=T.int64))


@pytest.mark.parametrize("call", [
    lambda T, a: T.fft.fft(a, 0), lambda T, a: T.fft.fft(a, dim=2), lambda T, a: T.fft.fft(a, norm="unit"),
    lambda T, a: T.fft.fft(a.half()), lambda T, a: T.fft.fft(T.tensor(1.0)), lambda T, a: T.fft.fft([1.0]),
    lambda T, a: T.fft.fft(a, 3.0), lambda T, a: T.fft.rfft(a + 0j), lambda T, a: T.fft.ihfft(a + 0j),
    lambda T, a: T.fft.irfft(a[:, :1]), lambda T, a: T.fft.fft(a[:, :0]), lambda T, a: T.fft.rfftn(a + 0j),
    lambda T, a: T.fft.ihfftn(a + 0j), lambda T, a: T.fft.fftn(a, dim=(0, 0)), lambda T, a: T.fft.fftn(a, s=(1, 2, 3)),
    lambda T, a: T.fft.fftn(a, s=(1, 2), dim=(0,)), lambda T, a: T.fft.rfftn(a, dim=()), lambda T,
    a: T.fft.irfftn(T.tensor(1.0)),
    lambda T, a: T.fft.fft2(a[0]), lambda T, a: T.fft.fft2(a, s=(3,)), lambda T, a: T.fft.fft2(a, dim=None),
    lambda T, a: T.fft.fftn(a, dim=(0, 7)), lambda T, a: T.fft.fftn(T.tensor(1.0)), lambda T, a: T.fft.fftn(a, dim=()),
    lambda T, a: T.fft.fftshift(T.tensor(1.0)), lambda T, a: T.fft.fftshift(a, dim=3)])
def test_errors_and_edges(call):
    check(call, In(values(0, (3, 4), "float32")), rtol=1e-4)


def test_messages():
    for call in (lambda T: T.fft.fft(T.zeros(3), 0), lambda T: T.fft.irfft(T.zeros(1)),
                 lambda T: T.fft.rfft(T.zeros(3) + 0j),
                 lambda T: T.fft.fftn(T.zeros(3), s=(2, 2)), lambda T: T.fft.fft(T.zeros(3), norm="x"),
                 lambda T: T.stft(T.zeros(9), 4), lambda T: T.stft(T.zeros(9), 4, hop_length=0, return_complex=True),
                 lambda T: T.stft(T.zeros(9), 4, win_length=5, return_complex=True),
                 lambda T: T.stft(T.zeros(9), 12, center=False, return_complex=True),
                 lambda T: T.stft(T.zeros(9), 4, window=T.ones(3), return_complex=True),
                 lambda T: T.istft(T.zeros(3, 4), 4), lambda T: T.istft(T.zeros(4, 4) + 0j, 5),
                 lambda T: T.istft(T.zeros(3, 4) + 0j, 4, hop_length=5),
                 lambda T: T.istft(T.zeros(3, 4) + 0j, 4, window=T.zeros(4))):
        texts = []
        for T in (real, mine):
            with pytest.raises(RuntimeError) as e:
                call(T)
            texts.append(str(e.value).split("\n")[0])
        assert texts[0] == texts[1]


def test_out():
    for T in (real, mine):
        out = T.empty(3, dtype=T.complex64)
        assert T.fft.fft(T.tensor([1.0, 2.0, 3.0]), out=out) is out
        assert abs(out[0].item() - 6) < 1e-6
        with pytest.raises(RuntimeError):
            T.fft.rfft(T.zeros(3), out=T.empty(2))


# ------------------------------------------------------------------ short-time transforms
@pytest.fixture(scope="module", autouse=True)
def warned():
    """Triggers the once-per-process warning about a missing window, so that the tests do not depend
    on their order."""
    for T in (real, mine):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            T.istft(T.stft(T.ones(9), 4, return_complex=True), 4)


@pytest.mark.host_only("in a process without the device")
def test_missing_window_warns_once(process):
    """The first call in a process emits two warnings (stft, istft), the second call none."""
    process.ok("""
        import warnings
        import mindtorch.torch as T
        counts = []
        for _ in range(2):
            with warnings.catch_warnings(record=True) as w:
                warnings.simplefilter("always")
                T.istft(T.stft(T.ones(9), 4, return_complex=True), 4)
            counts.append(sum("window was not provided" in str(x.message) for x in w))
        assert counts == [2, 0], counts
    """)


def window_of(data, n, dtypes=("float32",)):
    kind = data.draw(st.sampled_from(["none", "none", *dtypes]))
    return None if kind == "none" else In(values(data.draw(st.integers(0, 99)), (n,), kind, 0.5, 1.5), kind, "plain",
                                          True)


@given(st.data())
def test_stft(data):
    x = signal(data, ["float32", "float64", "complex64"], [(20,), (2, 17), (1, 33)])
    n_fft = data.draw(st.sampled_from([4, 5, 8, 9]))
    kw = {"hop_length": data.draw(st.sampled_from([None, 1, 3, 7]))}
    win = data.draw(st.sampled_from([n_fft, n_fft, n_fft - 1, 2]))
    kw["win_length"] = win
    w = window_of(data, win, ("float32", "float64", "complex64"))
    kw["center"] = data.draw(st.booleans())
    if kw["center"]:
        kw["pad_mode"] = data.draw(st.sampled_from(["reflect", "constant", "replicate"]))
    else:
        # PyTorch reads beyond the signal if the window cannot be centered exactly.
        kw["align_to_window"] = data.draw(st.sampled_from([None, False] if (n_fft - win) % 2 else [None, True, False]))
    kw["normalized"] = data.draw(st.booleans())
    kw["onesided"] = data.draw(st.sampled_from([None, None, True, False]))
    kw["return_complex"] = data.draw(st.sampled_from([True, True, False, None]))
    if w is None:
        check(lambda T, a: T.stft(a, n_fft, **kw), x, **TOL)
    else:
        check(lambda T, a, w: a.stft(n_fft, window=w, **kw), x, w, **TOL)


@given(st.data())
def test_istft(data):
    n_fft = data.draw(st.sampled_from([4, 6, 8]))
    win = data.draw(st.sampled_from([n_fft, n_fft, n_fft - 1]))
    onesided = data.draw(st.sampled_from([None, True, False]))
    size = n_fft if onesided is False else n_fft // 2 + 1
    x = signal(data, COMPLEX, [(size, 5), (2, size, 7)])
    w = window_of(data, win, ("float32", "float64"))
    kw = {"hop_length": data.draw(st.sampled_from([None, 1, 2])), "win_length": win, "center": data.draw(st.booleans()),
          "normalized": data.draw(st.booleans()), "onesided": onesided,
          "length": data.draw(st.sampled_from([None, None, 3, 50])),
          "return_complex": onesided is False and data.draw(st.booleans())}
    def call(T, a, w=None):
        with warnings.catch_warnings():
            # Both sides warn when the signal is padded.
            warnings.filterwarnings("ignore", message="The length of signal")
            return T.istft(a, n_fft, window=w, **kw)
    check(call, *([x] if w is None else [x, w]), **TOL)


def test_istft_inverts_stft():
    x = mine.tensor(np.random.RandomState(0).randn(2, 50).astype("float32"))
    w = mine.hann_window(16)
    y = mine.istft(mine.stft(x, 16, window=w, return_complex=True), 16, window=w, length=50)
    np.testing.assert_allclose(y.numpy(), x.numpy(), atol=1e-5)
    with pytest.warns(UserWarning, match="length of signal is shorter"):
        mine.istft(mine.stft(x, 16, window=w, return_complex=True), 16, window=w, length=80)


# ------------------------------------------------------------------ windows
@pytest.mark.parametrize("name", ["hann_window", "hamming_window", "blackman_window", "bartlett_window",
                                  "kaiser_window"])
def test_windows(name):
    for n in (0, 1, 2, 5, 16):
        for periodic in (True, False):
            for dtype in ("float32", "float64", "float16"):
                # PyTorch computes float16 windows in float16.
                loose = {"rtol": 1e-2, "atol": 2e-3} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-6}
                check(lambda T, n=n, p=periodic, d=dtype: getattr(T, name)(n, periodic=p, dtype=getattr(T, d)), **loose)
    check(lambda T: getattr(T, name)(-1))
    check(lambda T: getattr(T, name)(3, dtype=T.int64))
    check(lambda T: getattr(T, name)(3.0))
    check(lambda T: getattr(T, name)(3, dtype=T.complex64))
    assert getattr(mine, name)(3, requires_grad=True).requires_grad
    assert getattr(mine, name)(3).dtype is mine.get_default_dtype()


def test_window_parameters():
    check(lambda T: T.hamming_window(7, True, 0.6), atol=1e-6)
    check(lambda T: T.hamming_window(7, False, 0.6, 0.3), atol=1e-6)
    check(lambda T: T.kaiser_window(7, True, 3.0), atol=1e-6)
    check(lambda T: T.kaiser_window(7, periodic=False, beta=3.0), atol=1e-6)


WINDOWS = {"bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.5}, "gaussian": {"std": 1.5},
           "general_cosine": {"a": [0.4, 0.3, 0.2, 0.1]}, "general_hamming": {"alpha": 0.6}, "hamming": {}, "hann": {},
           "kaiser": {"beta": 4.0},
           "nuttall": {}}


@pytest.mark.parametrize("name", WINDOWS)
def test_signal_windows(name):
    base = {"a": [0.5, 0.5]} if name == "general_cosine" else {}
    for n in (0, 1, 2, 5, 16):
        for sym in (True, False):
            for kw in (base, WINDOWS[name]):
                check(lambda T, n=n, s=sym, kw=kw: getattr(T.signal.windows, name)(n, sym=s, **kw), rtol=1e-5,
                      atol=1e-6)
                check(lambda T, n=n, s=sym, kw=kw: getattr(T.signal.windows, name)(n, sym=s, dtype=T.float64, **kw),
                      rtol=1e-6, atol=1e-7)
    check(lambda T: getattr(T.signal.windows, name)(-1, **base))
    check(lambda T: getattr(T.signal.windows, name)(3, dtype=T.float16, **base))
    assert getattr(mine.signal.windows, name)(3, requires_grad=True, **base).requires_grad


@pytest.mark.parametrize("call", [
    lambda W: W.gaussian(4, std=0), lambda W: W.exponential(4, tau=0), lambda W: W.exponential(4, center=1.0),
    lambda W: W.exponential(4, center=1.0, sym=False), lambda W: W.kaiser(4, beta=-1.0),
    lambda W: W.kaiser(4, beta=0.0),
    lambda W: W.general_cosine(4, a=[]), lambda W: W.general_cosine(4, a=0.5), lambda W: W.general_cosine(4, a=(1,))])
def test_signal_window_errors(call):
    check(lambda T: call(T.signal.windows), atol=1e-6)


def test_names():
    assert set(mine.signal.windows.__all__) == set(real.signal.windows.__all__)
    for n in set(real.fft.__all__) - {"Tensor"}:
        assert hasattr(mine.fft, n), n
    assert math.isclose(mine.fft.rfftfreq(4)[-1].item(), 0.5)
