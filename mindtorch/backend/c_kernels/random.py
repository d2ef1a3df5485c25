"""NumPy interface of random.c: random numbers directly from a generator's Mersenne twister. Without
a compiler every function returns None, and the caller (cpu/random.py, mt19937.py) uses NumPy,
which draws the same numbers.

CPU time of the ops on one core, C / NumPy / PyTorch: 256 uniforms 4.5 / 8.0 / 2.1 us, 256 normals
5.2 / 32 / 2.0 us; a million uniforms 0.25 / 3.9 / 3.0 ms, normals 0.87 / 4.6 / 3.6 ms, a
permutation 3.0 / 7.4 / 6.1 ms, bernoulli 0.68 / 4.6 / 13 ms.
"""
import ctypes

import numpy as np

from mindtorch.backend.cpu._numpy_private import header, twister_state
from mindtorch.backend.cpu.host import address
from mindtorch.backend.c_kernels import build, thread_pool

_P, _L, _I, _F = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
_ARGUMENTS = {"words": [], "uniforms": [], "between": [_F, _F, _F], "doubles": [], "mask": [_L], "integers": [_L, _L], "order": [],
              "normals": [_F, _F, _I]}
_BLOCK, _MANY = 624, 1 << 16
_F32, _F64, _I64, _U32 = map(np.dtype, (np.float32, np.float64, np.int64, np.uint32))


_functions: dict[str, object] | None = None


def _load():
    """Returns {name: function}; empty if unavailable."""
    threads = thread_pool.lib()
    found = build.random() if threads is not None and twister_state(np.random.MT19937(0)) else None
    if found is None:
        return {}
    for name, more in _ARGUMENTS.items():
        f = getattr(found, "mt_draw_" + name)
        f.argtypes, f.restype = [_P, _L, _P, _P, *more], _L
    found.mt_use(threads.mt_share)
    return {name: getattr(found, "mt_draw_" + name) for name in _ARGUMENTS}


class Source:
    """A generator's state for C: the addresses of the twister's state and of the buffered words,
    and the number of words."""

    __slots__ = ("at", "numbers", "words")

    def __init__(self, bits):
        self.numbers = (_L * 3)(twister_state(bits), 0, 0)
        self.at = ctypes.addressof(self.numbers)
        self.words = None


def _draw(generator, name, out, words, *more):
    """Fills `out` (C-contiguous) by a function that consumes this many words; None if unavailable.
    """
    global _functions
    if _functions is None:
        _functions = _load()
    f = _functions.get(name)
    if f is None:
        return None
    # (C releases the interpreter lock, so several threads could draw at once)
    with generator._bits.lock:
        source, buf, pos = generator._source, generator._buf, generator._pos
        if source is None:
            source = generator._source = Source(generator._bits)
        if source.words is not buf:
            source.numbers[1], source.numbers[2], source.words = address(buf), buf.size, buf
        if pos + words <= buf.size:
            pos = f(source.at, pos, None, header(out), *more)
        else:
            buf = np.empty(_BLOCK, _U32)
            pos = f(source.at, pos, address(buf), header(out), *more)
        if pos < 0:
            return None
        generator._buf, generator._pos = buf, pos
    return out


def words(generator, n):
    """Returns the next n words."""
    return _draw(generator, "words", np.empty(n, _U32), n)


def uniforms(generator, shape, out=None):
    """Returns float32 values in [0, 1); out: a C-contiguous array for them."""
    r = np.empty(shape, _F32) if out is None else out
    return _draw(generator, "uniforms", r, r.size)


def between(generator, shape, low, width, high, out=None):
    """Returns float32 values in [low, high)."""
    r = np.empty(shape, _F32) if out is None else out
    return _draw(generator, "between", r, r.size, low, width, high)


def doubles(generator, n):
    """Returns float64 values in [0, 1)."""
    return _draw(generator, "doubles", np.empty(n, _F64), 2 * n)


def mask(generator, shape, bound):
    """Returns a mask that is True where a 53-bit random integer is below a bound."""
    r = np.empty(shape, np.bool_)
    return _draw(generator, "mask", r, 2 * r.size, bound)


def integers(generator, shape, low, width):
    """Returns random words modulo `width` (below 2**32), plus `low`."""
    r = np.empty(shape, _I64)
    return _draw(generator, "integers", r, r.size, low, width)


def order(generator, n):
    """Returns a random permutation of 0..n-1, n below 2**32."""
    return _draw(generator, "order", np.empty(n, _I64), max(n - 1, 0))


def normals(generator, shape, mean, std, draws_all, out=None):
    """Returns at least sixteen float32 normals (draws_all: see rng.normal)."""
    r = np.empty(shape, _F32) if out is None else out
    n = r.size
    if n >= _MANY and thread_pool.ready() is None:  # (sets the number of threads that share them)
        return None
    return None if n < 16 else _draw(generator, "normals", r, n if not n % 16 else 16 + (n if draws_all else n - n % 16), mean, std, draws_all)
