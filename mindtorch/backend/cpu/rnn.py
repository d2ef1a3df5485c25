"""Recurrent layers on arrays: a complete sequence forward, and back through time.

Rows of all time steps are stored one step after the other (as in a PackedSequence). `sizes` holds
the number of rows of each step, which never grows in one direction. Internally the batch is the
last dim: (512, 128) @ (128, 16) takes 22 us vs 36 us for (16, 128) @ (128, 512), and each gate is
one contiguous block. The input's part of the gates is one product for all steps, the state's part
one product per step. One tanh serves all gates of a step: the logistic function is tanh at half the
argument, and the halves are folded into the weights.

float32 runs in C if a compiler is available (`mindtorch/backend/c_kernels/rnn.py`); the figures
are those of this module. LSTM, 2 layers of 128, 32 steps of 16, CPU time on one core: 3.6 ms
forward, 5.2 ms backward. With rows instead of columns it is 5.2 ms and 7.4 ms; MindSpore's cell,
step by step, takes 22 ms in all, PyTorch 6.4 ms.
"""
import functools
import itertools

import numpy as np

from mindtorch.backend.cpu import kernel
from mindtorch.backend.cpu.half import downcast, upcast
from mindtorch.backend.cpu.host import quiet
from mindtorch.backend.cpu.blas import product
from mindtorch.backend.cpu.sum import column_sum


def _steps(sizes, reverse):
    """Returns (first row, number of rows) of each step, in the order of computation."""
    out, start = [], 0
    for n in sizes:
        out.append((start, n))
        start += n
    return out[::-1] if reverse else out


def _runs(steps):
    """Returns runs of steps with equally many rows, as (number of steps, rows per step)."""
    return [(len(list(g)), n) for n, g in itertools.groupby(n for _, n in steps)]


def _columns(a):
    """Returns a writable (H, B) copy of a state (B, H)."""
    return np.array(a.T, order="C")


def _blocks(flat, steps, height):
    """Returns one (height, n) view of the flat buffer for each step."""
    out, at = [], 0
    for _, n in steps:
        out.append(flat[at:at + height * n].reshape(height, n))
        at += height * n
    return out


def _in_float32(results):
    """Decorator that computes half precision in float32.

    Only the first `results` outputs are rounded, not the tensors saved for backward.
    """
    def deco(fn):
        @functools.wraps(fn)
        def run(*arrays, **kw):
            to = arrays[0].dtype
            if to.itemsize != 2:
                return fn(*arrays, **kw)
            r = fn(*[a if a is None or a.itemsize != 2 else upcast(a) for a in arrays], **kw)
            return tuple([downcast(a, to) for a in r[:results]]) + r[results:]
        return run
    return deco


def _or_c(fn):
    """Decorator that uses the C kernel of the same name for float32, if a compiler is available.

    A kernel and its gradient run the same check, so both use C or neither does.
    """
    @functools.wraps(fn)
    def run(*arrays, **kw):
        from mindtorch.backend.c_kernels import rnn  # few programs need it
        if rnn.takes(arrays):
            return getattr(rnn, fn.__name__)(*arrays, **kw)
        return fn(*arrays, **kw)
    return run


# ------------------------------------------------------------------ LSTM
def _gate_order(w, hidden):
    """Reorders rows i, f, g, o to i, f, o, g, with the logistic ones halved."""
    r = np.empty_like(w)
    r[:2 * hidden] = w[:2 * hidden]
    r[2 * hidden:3 * hidden] = w[3 * hidden:]
    r[3 * hidden:] = w[2 * hidden:3 * hidden]
    r[:3 * hidden] *= w.dtype.type(0.5)
    return r


def _lstm_work(work, hidden, state, rows):
    """Returns the parts of an LSTM's workspace.

    They are the gates, tanh of the cell state, cell state before each step, hidden state before
    each step, output before the projection.
    """
    a, b, c, d = (k * rows for k in (4 * hidden, 5 * hidden, 6 * hidden, 6 * hidden + state))
    return work[:a], work[a:b], work[b:c], work[c:d].reshape(state, rows), work[d:].reshape(-1, rows) if rows else work[d:].reshape(hidden, 0)


@kernel("lstm lstm_cell")
@_in_float32(3)
@_or_c
@quiet
def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse, keep):
    """Runs an LSTM layer: x (rows, I), h0 (B, H or P), c0 (B, H) -> (y (rows, H or P), h, c).

    With `keep` it also returns the workspace that lstm_backward needs.
    """
    steps = _steps(sizes, reverse)
    hidden = c0.shape[1]
    rows = x.shape[0]
    half = x.dtype.type(0.5)
    first = product(_gate_order(w_ih, hidden), x.T)          # (4 H, rows)
    if b_ih is not None:
        first += _gate_order(b_ih + b_hh, hidden)[:, None]
    w = _gate_order(w_hh, hidden)
    h, c = _columns(h0), _columns(c0)
    ys = np.empty((h.shape[0], rows), x.dtype)
    # One array, because each output of a primitive costs 0.5 us.
    work = np.empty((6 * hidden + h.shape[0] + (0 if w_hr is None else hidden)) * rows, x.dtype)
    gates, cells, before, h_before, raw = _lstm_work(work, hidden, h.shape[0], rows)
    for (start, n), z, t, old in zip(steps, _blocks(gates, steps, 4 * hidden), _blocks(cells, steps, hidden),
                                     _blocks(before, steps, hidden)):
        end = start + n
        full_batch = n == h.shape[1]
        hn = h if full_batch else np.ascontiguousarray(h[:, :n])
        cn = c if full_batch else np.ascontiguousarray(c[:, :n])
        h_before[:, start:end] = hn
        old[...] = cn
        product(w, hn, out=z)
        z += first[:, start:end]
        np.tanh(z, out=z)
        s = z[:3 * hidden]
        s *= half
        s += half
        cn *= z[hidden:2 * hidden]
        cn += z[:hidden] * z[3 * hidden:]
        np.tanh(cn, out=t)
        if w_hr is None:
            np.multiply(z[2 * hidden:3 * hidden], t, out=hn)
        else:
            r = z[2 * hidden:3 * hidden] * t
            raw[:, start:end] = r
            hn = product(w_hr, r)
        ys[:, start:end] = hn
        if not full_batch:
            h[:, :n], c[:, :n] = hn, cn
        elif w_hr is not None:
            h = hn
    r = np.ascontiguousarray(ys.T), np.ascontiguousarray(h.T), np.ascontiguousarray(c.T)
    return (*r, work) if keep else r


def _lstm_factors(gates, cells, before, hidden, steps):
    """Returns (k, kc), the factors of the gradients in a step.

    k multiplies the cell's gradient for i, f and g, and the output's gradient for o. kc multiplies
    the output's gradient for the cell.
    """
    rows = cells.size // hidden if hidden else 0
    k = np.empty(4 * hidden * rows, gates.dtype)
    kc = np.empty(hidden * rows, gates.dtype)
    one = gates.dtype.type(1)
    at = 0
    for count, n in _runs(steps):
        size = count * n * hidden
        z = gates[4 * at:4 * (at + size)].reshape(count, 4, hidden, n)
        t = cells[at:at + size].reshape(count, hidden, n)
        old = before[at:at + size].reshape(count, hidden, n)
        r = k[4 * at:4 * (at + size)].reshape(count, 4, hidden, n)
        i, f, o, g = (z[:, q] for q in range(4))
        s = z[:, :3]
        np.subtract(one, s, out=r[:, :3])
        r[:, :3] *= s  # derivatives of i, f, o
        r[:, 0] *= g
        r[:, 1] *= old
        r[:, 2] *= t
        np.multiply(g, g, out=r[:, 3])
        np.subtract(one, r[:, 3], out=r[:, 3])
        r[:, 3] *= i
        q = kc[at:at + size].reshape(count, hidden, n)
        np.multiply(t, t, out=q)
        np.subtract(one, q, out=q)
        q *= o
        at += size
    return k, kc


@kernel("lstm_backward")
@_or_c
@quiet
def lstm_grad(gy, gh, gc, x, w_ih, w_hh, w_hr, work, *, sizes, reverse, needs):
    """Returns the gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr."""
    steps = _steps(sizes, reverse)
    rows = x.shape[0]
    hidden = gc.shape[1]
    gates, cells, before, h_before, raw = _lstm_work(work, hidden, w_hh.shape[1], rows)
    k, kc = _lstm_factors(gates, cells, before, hidden, steps)
    dz_all = np.empty((4 * hidden, rows), gates.dtype)  # in PyTorch's gate order
    dh, dc = _columns(gh), _columns(gc)
    back = np.ascontiguousarray(np.concatenate((w_hh[:2 * hidden], w_hh[3 * hidden:], w_hh[2 * hidden:3 * hidden])).T)
    gyt = np.ascontiguousarray(gy.T)
    full = gyt if w_hr is None else np.empty_like(gyt)
    hr = None if w_hr is None else np.ascontiguousarray(w_hr.T)
    buffer = np.empty(4 * hidden * (max(sizes) if sizes else 0), gates.dtype)
    todo = list(zip(steps, _blocks(gates, steps, 4 * hidden), _blocks(k, steps, 4 * hidden), _blocks(kc, steps, hidden)))
    for (start, n), z, kz, kcell in reversed(todo):
        end = start + n
        full_batch = n == dh.shape[1]
        dhn = dh if full_batch else np.ascontiguousarray(dh[:, :n])
        dcn = dc if full_batch else np.ascontiguousarray(dc[:, :n])
        dhn += gyt[:, start:end]
        if hr is None:
            dr = dhn
        else:
            full[:, start:end] = dhn
            dr = product(hr, dhn)
        dcn += dr * kcell
        dz = buffer[:4 * hidden * n].reshape(4, hidden, n)
        k4 = kz.reshape(4, hidden, n)
        np.multiply(dcn, k4[:2], out=dz[:2])
        np.multiply(dr, k4[2], out=dz[2])
        np.multiply(dcn, k4[3], out=dz[3])
        d2 = dz.reshape(4 * hidden, n)
        dz_all[:2 * hidden, start:end] = d2[:2 * hidden]
        dz_all[2 * hidden:3 * hidden, start:end] = d2[3 * hidden:]
        dz_all[3 * hidden:, start:end] = d2[2 * hidden:3 * hidden]
        dcn *= z[hidden:2 * hidden]
        if full_batch and hr is None:
            product(back, d2, out=dhn)
        elif full_batch:
            dh = product(back, d2)
        else:
            dh[:, :n], dc[:, :n] = product(back, d2), dcn
    gx = product(dz_all.T, w_ih) if needs[0] else None
    gw_ih = product(dz_all, x) if needs[3] else None
    gw_hh = product(dz_all, h_before.T) if needs[4] else None
    gb = dz_all.sum(axis=1) if needs[5] or needs[6] else None
    gw_hr = product(full, raw.T) if w_hr is not None and needs[7] else None
    return (gx, np.ascontiguousarray(dh.T) if needs[1] else None, np.ascontiguousarray(dc.T) if needs[2] else None, gw_ih,
            gw_hh, gb if needs[5] else None, gb.copy() if needs[6] else None, gw_hr)


# ------------------------------------------------------------------ GRU
@kernel("gru")
@_in_float32(2)
@_or_c
@quiet
def gru(x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse, keep):
    """Runs a GRU layer: x (rows, I), h0 (B, H) -> (y (rows, H), h).

    With `keep` it also returns the tensors that gru_backward needs.
    """
    steps = _steps(sizes, reverse)
    hidden = h0.shape[1]
    gates = product(x, w_ih.T)
    if b_ih is not None:
        gates += b_ih
    half = x.dtype.type(0.5)
    w = np.ascontiguousarray(w_hh.T)
    h = h0.copy()
    rows = x.shape[0]
    y = np.empty((rows, hidden), x.dtype)
    h_before = np.empty_like(y)
    inner = np.empty_like(y)        # the state's part of the new value, before the reset gate
    for start, n in steps:
        end = start + n
        hn = h if n == h.shape[0] else h[:n]
        h_before[start:end] = hn
        z = gates[start:end]
        s = product(hn, w)
        if b_hh is not None:
            s += b_hh
        rz = z[:, :2 * hidden]
        rz += s[:, :2 * hidden]
        rz *= half
        np.tanh(rz, out=rz)
        rz *= half
        rz += half
        r, u, v = z[:, :hidden], z[:, hidden:2 * hidden], z[:, 2 * hidden:]
        inner[start:end] = s[:, 2 * hidden:]
        v += r * inner[start:end]
        np.tanh(v, out=v)
        # h = v + u (h - v)
        hn -= v
        hn *= u
        hn += v
        y[start:end] = hn
    return (y, h, gates, h_before, inner) if keep else (y, h)


@kernel("gru_backward")
@_or_c
@quiet
def gru_grad(gy, gh, x, w_ih, w_hh, z, before, inner, *, sizes, reverse, needs):
    """Returns the gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    hidden = z.shape[1] // 3
    rows = z.shape[0]
    one = z.dtype.type(1)
    r, u, v = (z[:, k * hidden:(k + 1) * hidden] for k in range(3))
    kv = (one - v * v) * (one - u)
    ku = (before - v) * u * (one - u)
    kr = inner * r * (one - r)
    u, r = np.ascontiguousarray(u), np.ascontiguousarray(r)
    dz = np.empty((rows, 3, hidden), z.dtype)  # gradient of the input's part
    ds = np.empty((rows, 3, hidden), z.dtype)  # gradient of the state's part
    dh = gh.copy()
    w = np.ascontiguousarray(w_hh)
    for start, n in reversed(_steps(sizes, reverse)):
        end = start + n
        dhn = dh if n == dh.shape[0] else dh[:n]
        dhn += gy[start:end]
        dv = np.multiply(dhn, kv[start:end], out=dz[start:end, 2])
        np.multiply(dhn, ku[start:end], out=dz[start:end, 1])
        np.multiply(dv, kr[start:end], out=dz[start:end, 0])
        ds[start:end, :2] = dz[start:end, :2]
        np.multiply(dv, r[start:end], out=ds[start:end, 2])
        dhn *= u[start:end]
        dhn += product(ds[start:end].reshape(n, 3 * hidden), w)
    dz, ds = dz.reshape(rows, 3 * hidden), ds.reshape(rows, 3 * hidden)
    return (product(dz, w_ih) if needs[0] else None, dh if needs[1] else None,
            product(dz.T, x) if needs[2] else None, product(ds.T, before) if needs[3] else None,
            column_sum(dz) if needs[4] else None, column_sum(ds) if needs[5] else None)


# ------------------------------------------------------------------ plain RNN
@kernel("rnn rnn_cell")
@_in_float32(2)
@_or_c
@quiet
def rnn(x, h0, w_ih, w_hh, b_ih, b_hh, *, relu, sizes, reverse, keep):
    """Runs an RNN layer with tanh or relu: x (rows, I), h0 (B, H) -> (y (rows, H), h).

    With `keep` it also returns the tensors that rnn_backward needs.
    """
    z = product(x, w_ih.T)
    if b_ih is not None:
        z += b_ih + b_hh
    w = np.ascontiguousarray(w_hh.T)
    h = h0.copy()
    h_before = np.empty_like(z)
    for start, n in _steps(sizes, reverse):
        end = start + n
        hn = h if n == h.shape[0] else h[:n]
        h_before[start:end] = hn
        s = z[start:end]
        s += product(hn, w)
        np.maximum(s, 0, out=s) if relu else np.tanh(s, out=s)
        hn[...] = s
    return (z.copy(), h, z, h_before) if keep else (z, h)


@kernel("rnn_backward")
@_or_c
@quiet
def rnn_grad(gy, gh, x, w_ih, w_hh, y, h_before, *, relu, sizes, reverse, needs):
    """Returns the gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    derivative = (y > 0).astype(y.dtype) if relu else y.dtype.type(1) - y * y
    dz = np.empty_like(y)
    dh = gh.copy()
    w = np.ascontiguousarray(w_hh)
    for start, n in reversed(_steps(sizes, reverse)):
        end = start + n
        dhn = dh if n == dh.shape[0] else dh[:n]
        dhn += gy[start:end]
        np.multiply(dhn, derivative[start:end], out=dz[start:end])
        product(dz[start:end], w, out=dhn)
    gb = column_sum(dz) if needs[4] or needs[5] else None
    return (product(dz, w_ih) if needs[0] else None, dh if needs[1] else None,
            product(dz.T, x) if needs[2] else None, product(dz.T, h_before) if needs[3] else None,
            gb if needs[4] else None, gb.copy() if needs[5] else None)
