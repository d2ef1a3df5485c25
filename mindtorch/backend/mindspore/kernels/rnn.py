"""LSTM layers step by step: one product and nine small calls a step forward, about as many back; what does not depend on the step before goes for all at once.

States lie as (hidden, batch), so that each gate is one contiguous block.  Sequences of several lengths and projections are the host's.
"""
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import HALF, Lacking, P, dtype_of, kernel, ms, number, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.matmul import matmul
from mindtorch.backend.mindspore.kernels.random import _DEVICE
from mindtorch.backend.mindspore.kernels.reduction import copied, sums
from mindtorch.backend.mindspore.npu import STYPES

_FLOATS = "float32 float64 float16 bfloat16"


def _part(x, start, count):
    """Rows start .. start + count of a contiguous tensor: a view."""
    s = shape_of(x)
    strides, n = [], 1
    for k in reversed(s):
        strides.append(n)
        n *= k
    strides.reverse()
    return _DEVICE.view(x, (count, *s[1:]), tuple(strides), start * strides[0], STYPES[dtype_of(x)])


def _step(x, t):
    """Entry t of a contiguous tensor: a view."""
    return _part(x, t, 1).view(shape_of(x)[1:])


def _turned(x, *order):
    """Dimensions in another order, in memory of its own."""
    return copied(op(P.Transpose)(x, order))


def _whole(sizes, w_hr):
    """(steps, batch) of sequences of one length."""
    if w_hr is not None or len(set(sizes)) != 1:
        raise Lacking
    return len(sizes), sizes[0]


def _one_minus(x):
    return op(P.Sub)(number(1.0, dtype_of(x)), x)


@kernel("lstm lstm_cell", only=_FLOATS)
def _lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse, keep):
    """x (rows, I), h0, c0 (B, H) -> (y (rows, H), h, c); with `keep` what lstm_backward takes: (steps, i f g o, c before, tanh c, h before, B)."""
    steps, n = _whole(sizes, w_hr)
    if shape_of(h0)[0] != n:
        raise Lacking
    low = dtype_of(x)
    if low in HALF:
        x, h0, c0, w_ih, w_hh, b_ih, b_hh = [None if a is None else op(P.Cast)(a, ms.float32) for a in (x, h0, c0, w_ih, w_hh, b_ih, b_hh)]
    hidden = shape_of(c0)[1]
    first = matmul(x, w_ih, False, True)
    if b_ih is not None:
        first = op(P.BiasAdd)(first, op(P.Add)(b_ih, b_hh))
    first = _turned(first.view((steps, n, 4 * hidden)), 0, 2, 1)
    h, c = _turned(h0, 1, 0), _turned(c0, 1, 0)
    add, mul, tanh, sigmoid = op(P.Add), op(P.Mul), o.tanh, o.sigmoid
    ys, kept = [None] * steps, [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        z = add(_step(first, t), matmul(w_hh, h))
        i_f, g, out = sigmoid(_part(z, 0, 2 * hidden)), tanh(_part(z, 2 * hidden, hidden)), sigmoid(_part(z, 3 * hidden, hidden))
        new = add(mul(_part(i_f, hidden, hidden), c), mul(_part(i_f, 0, hidden), g))
        tc = tanh(new)
        if keep:
            kept[t] = op(P.Concat, 0)((i_f, g, out, c, tc, h))
        h, c = mul(out, tc), new
        ys[t] = h
    y = _turned(op(P.Stack, 0)(ys), 0, 2, 1).view((steps * n, hidden))
    r = y, _turned(h, 1, 0), _turned(c, 1, 0)
    if low in HALF:
        r = tuple([op(P.Cast)(a, low) for a in r])
    return (*r, op(P.Stack, 0)(kept)) if keep else r


@kernel("lstm_backward")
def _lstm_backward(gy, gh, gc, x, w_ih, w_hh, w_hr, work, *, sizes, reverse, needs):
    """Gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr."""
    steps, n = _whole(sizes, w_hr)
    if len(shape_of(work)) != 3:
        raise Lacking                   # (the host's)
    hidden = shape_of(gc)[1]
    add, mul = op(P.Add), op(P.Mul)
    w = _turned(work.view((steps, 7, hidden, n)), 1, 0, 2, 3)
    i, f, g, out, before, tc, h_before = [_step(w, k) for k in range(7)]
    # What a step multiplies: the cell's gradient for i, f, g, the output's for o and for the cell.
    ki, kf = mul(mul(i, _one_minus(i)), g), mul(mul(f, _one_minus(f)), before)
    kg, ko = mul(_one_minus(mul(g, g)), i), mul(mul(out, _one_minus(out)), tc)
    kc = mul(_one_minus(mul(tc, tc)), out)
    k = op(P.Stack, 1)((ki, kf, kg))            # (steps, 3, H, B)
    gyt = _turned(gy.view((steps, n, hidden)) if gy.is_contiguous() else reshape(gy, (steps, n, hidden)), 0, 2, 1)
    back = _turned(w_hh, 1, 0)
    dh, dc = _turned(gh, 1, 0), _turned(gc, 1, 0)
    dzs = [None] * steps
    for t in range(steps) if reverse else reversed(range(steps)):
        dh = add(dh, _step(gyt, t))
        dc = add(dc, mul(dh, _step(kc, t)))
        z = op(P.Concat, 0)((mul(_step(k, t), dc.view((1, hidden, n))).view((3 * hidden, n)), mul(dh, _step(ko, t))))
        dzs[t] = z
        dh = matmul(back, z)
        dc = mul(dc, _step(f, t))
    dz = _turned(op(P.Stack, 0)(dzs), 0, 2, 1).view((steps * n, 4 * hidden))
    gx = matmul(dz, w_ih) if needs[0] else None
    g_ih = matmul(dz, x, True) if needs[3] else None
    g_hh = matmul(dz, _turned(h_before, 0, 2, 1).view((steps * n, hidden)), True) if needs[4] else None
    gb = sums(dz, (0,)) if needs[5] or needs[6] else None
    return (gx, _turned(dh, 1, 0) if needs[1] else None, _turned(dc, 1, 0) if needs[2] else None, g_ih, g_hh, gb if needs[5] else None,
            copied(gb) if needs[6] else None, None)
