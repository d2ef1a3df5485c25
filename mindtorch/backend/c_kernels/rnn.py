"""NumPy interface of rnn.c: float32 LSTM, GRU and plain RNN over whole sequences. Not
available without a compiler (see `takes`).

CPU time on one core in ms (AVX-512, 256 bits per cycle), forward and backward of a layer over steps
x batch x inputs -> units, C / NumPy and oneDNN / PyTorch:

    LSTM 32x16x128 -> 128 5.4 / 7.6 / 5.3, 50x3x40 -> 50 0.8 / 2.9 / 0.8,
         35x20x200 -> 650 113 / 150 / 110
    GRU  32x16x128 -> 128 5.7 / 9.0 / 12.3, 50x3x40 -> 50 0.6 / 3.0 / 6.3,
         35x20x200 -> 650 80 / 81 / 147
    RNN  32x16x128 -> 128 1.7 / 2.0 / 2.8, 50x3x40 -> 50 0.4 / 0.7 / 1.8,
         8x256x32 -> 24 0.95 / 0.75 / 1.04
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu.host import address as at
from mindtorch.backend.cpu.blas import product
from mindtorch.backend.cpu.sum import column_sum
from mindtorch.backend.c_kernels import build, thread_pool

_F32 = np.dtype(np.float32)
_P, _L, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
_ARGUMENTS = {
    "mt_lstm": [_P, _L, _I, _L, _L, _L] + [_P] * 11,
    "mt_lstm_grad": [_P, _L, _I, _L, _L] + [_P] * 10,
    "mt_gru": [_P, _L, _I, _L, _L] + [_P] * 8,
    "mt_gru_grad": [_P, _L, _I, _L] + [_P] * 8,
    "mt_rnn": [_P, _L, _I, _I, _L, _L] + [_P] * 4,
    "mt_rnn_grad": [_P, _L, _I, _I, _L] + [_P] * 5,
}


@functools.cache
def _lib():
    found, threads = build.rnn(), thread_pool.lib()
    if found is None or threads is None:
        return None
    build.declare(found, _ARGUMENTS, ())
    found.mt_use(threads.mt_share, threads.mt_parts)
    return found


def takes(arrays):
    """True if there are kernels for these operands. A kernel and its gradient must get the same
    answer."""
    return all(a is None or a.dtype is _F32 and a.size for a in arrays) and thread_pool.ready() is not None and _lib() is not None


def _ptr(a):
    return None if a is None else at(a)


def _flat(a):
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


@functools.lru_cache(256)
def _steps(sizes):
    """Returns the number of rows of each step, as an array for C, and the number of steps."""
    return np.array(sizes, np.int64), len(sizes)


def _parts(work, rows, *widths):
    """Splits a workspace into matrices of `rows` rows."""
    out, start = [], 0
    for w in widths:
        out.append(work[start:start + rows * w].reshape(rows, w))
        start += rows * w
    return out


# ------------------------------------------------------------------ LSTM
def _lstm_parts(work, rows, n, p, projected):
    """Returns the parts of the workspace: gates, tanh of the cell state, cell and hidden state
    before each step, output before projection."""
    return (*_parts(work, rows, 4 * n, n, n, p), *(_parts(work[(6 * n + p) * rows:], rows, n) if projected else (None,)))


def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse, keep):
    """Implements lstm of backend/cpu/rnn.py and also returns a workspace for `lstm_grad`."""
    (b, n), p, rows = c0.shape, h0.shape[1], x.shape[0]
    steps, t = _steps(sizes)
    tc = before = h_before = raw = work = None
    if keep:
        work = np.empty((6 * n + p + (0 if w_hr is None else n)) * rows, _F32)
        gates, tc, before, h_before, raw = _lstm_parts(work, rows, n, p, w_hr is not None)
        product(x, w_ih.T, out=gates)
    else:
        gates = product(x, w_ih.T)
    single = t == 1  # a single step does not justify a copy of the weights
    if single:
        gates += product(h0[:rows], w_hh.T)
    bias = None if b_ih is None else b_ih + b_hh
    y, h, c = np.empty((rows, p), _F32), h0.copy("C"), c0.copy("C")
    w_hh, w_hr = None if single else _flat(w_hh), None if w_hr is None else _flat(w_hr)
    _lib().mt_lstm(at(steps), t, reverse, n, p, b, at(gates), _ptr(bias), _ptr(w_hh), _ptr(w_hr), at(h), at(c), at(y),
                   _ptr(tc), _ptr(before), _ptr(h_before), _ptr(raw))
    return (y, h, c, work) if keep else (y, h, c)


def lstm_grad(gy, gh, gc, x, w_ih, w_hh, w_hr, work, *, sizes, reverse, needs):
    """Returns the gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr."""
    n, p, rows = gc.shape[1], w_hh.shape[1], x.shape[0]
    steps, t = _steps(sizes)
    gates, tc, before, h_before, raw = _lstm_parts(work, rows, n, p, w_hr is not None)
    gy, dh, dc, w_hh = _flat(gy), gh.copy("C"), gc.copy("C"), _flat(w_hh)
    d, full = np.empty((rows, 4 * n), _F32), None
    if w_hr is not None:
        w_hr, full = _flat(w_hr), np.empty((rows, p), _F32)
    _lib().mt_lstm_grad(at(steps), t, reverse, n, p, at(gates), at(tc), at(before), at(w_hh), _ptr(w_hr), at(gy), at(dh), at(dc), at(d), _ptr(full))
    gb = column_sum(d) if needs[5] or needs[6] else None
    return (product(d, w_ih) if needs[0] else None, dh if needs[1] else None, dc if needs[2] else None, product(d.T, x) if needs[3] else None,
            product(d.T, h_before) if needs[4] else None, gb if needs[5] else None, None if not needs[6] else gb.copy() if needs[5] else gb,
            product(full.T, raw) if full is not None and needs[7] else None)


# ------------------------------------------------------------------ GRU
def gru(x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse, keep):
    """Implements gru of backend/cpu/rnn.py."""
    (b, n), rows = h0.shape, x.shape[0]
    steps, t = _steps(sizes)
    gates = product(x, w_ih.T)
    if b_ih is not None:
        gates += b_ih
    given = product(h0[:rows], w_hh.T) if t == 1 else None
    y, h = np.empty((rows, n), _F32), h0.copy("C")
    inner, h_before = (np.empty((rows, n), _F32), np.empty((rows, n), _F32)) if keep else (None, None)
    w_hh, b_hh = None if t == 1 else _flat(w_hh), None if b_hh is None else _flat(b_hh)
    _lib().mt_gru(at(steps), t, reverse, n, b, at(gates), _ptr(b_hh), _ptr(w_hh), _ptr(given), at(h), at(y), _ptr(inner), _ptr(h_before))
    return (y, h, gates, h_before, inner) if keep else (y, h)


def gru_grad(gy, gh, x, w_ih, w_hh, z, before, inner, *, sizes, reverse, needs):
    """Returns the gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    rows, n = before.shape
    steps, t = _steps(sizes)
    gy, dh, w_hh = _flat(gy), gh.copy("C"), _flat(w_hh)
    d, d2 = np.empty((rows, 3 * n), _F32), np.empty((rows, 3 * n), _F32)
    _lib().mt_gru_grad(at(steps), t, reverse, n, at(z), at(before), at(inner), at(w_hh), at(gy), at(dh), at(d), at(d2))
    return (product(d, w_ih) if needs[0] else None, dh if needs[1] else None, product(d.T, x) if needs[2] else None,
            product(d2.T, before) if needs[3] else None, column_sum(d) if needs[4] else None, column_sum(d2) if needs[5] else None)


# ------------------------------------------------------------------ plain RNN
def rnn(x, h0, w_ih, w_hh, b_ih, b_hh, *, relu, sizes, reverse, keep):
    """Implements the plain RNN of backend/cpu/rnn.py."""
    (b, n), rows = h0.shape, x.shape[0]
    steps, t = _steps(sizes)
    y = product(x, w_ih.T)
    if b_ih is not None:
        y += b_ih + b_hh
    if t == 1:
        y += product(h0[:rows], w_hh.T)
    h, h_before = h0.copy("C"), np.empty((rows, n), _F32) if keep else None
    w_hh = None if t == 1 else _flat(w_hh)
    _lib().mt_rnn(at(steps), t, reverse, relu, n, b, _ptr(w_hh), at(h), at(y), _ptr(h_before))
    return (y.copy(), h, y, h_before) if keep else (y, h)


def rnn_grad(gy, gh, x, w_ih, w_hh, y, h_before, *, relu, sizes, reverse, needs):
    """Returns the gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    rows, n = y.shape
    steps, t = _steps(sizes)
    gy, dh, w_hh = _flat(gy), gh.copy("C"), _flat(w_hh)
    d = np.empty((rows, n), _F32)
    _lib().mt_rnn_grad(at(steps), t, reverse, relu, n, at(y), at(w_hh), at(gy), at(dh), at(d))
    gb = column_sum(d) if needs[4] or needs[5] else None
    return (product(d, w_ih) if needs[0] else None, dh if needs[1] else None, product(d.T, x) if needs[2] else None,
            product(d.T, h_before) if needs[3] else None, gb if needs[4] else None, None if not needs[5] else gb.copy() if needs[4] else gb)
