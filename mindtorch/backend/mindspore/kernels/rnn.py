"""LSTM layers. For float32 on the CPU target, MindSpore's LSTM: one launch for the forward and one
for the backward pass.

Otherwise step by step: one product and nine small calls per forward step, about as many per
backward step. Everything that does not depend on the previous step is computed for all steps at
once. There, states are stored as (hidden, batch), so each gate is one contiguous block. Sequences
of different lengths and projections use the host kernels.
"""
import math

from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import (ASCEND, G, HALF, UnsupportedByKernel, P, cast, dtype_of,
                                                       is_contiguous, kernel, ms, number, op, reshape, shape_of)
from mindtorch.backend.mindspore.kernels.matmul import matmul
from mindtorch.backend.mindspore.kernels.random import _DEVICE
from mindtorch.backend.mindspore.kernels.reduction import copied, sums
from mindtorch.backend.mindspore.npu import stype_of
from mindspore.ops.operations import _grad_ops as GO

_FLOATS = "float32 float64 float16 bfloat16"


def _part(x, start, count):
    """Returns rows start .. start + count of a contiguous tensor, as a view."""
    s = shape_of(x)
    strides, n = [], 1
    for k in reversed(s):
        strides.append(n)
        n *= k
    strides.reverse()
    return _DEVICE.view(x, (count, *s[1:]), tuple(strides), start * strides[0], stype_of(x))


def _step(x, t):
    """Returns entry t of a contiguous tensor, as a view."""
    return _part(x, t, 1).view(shape_of(x)[1:])


def _turned(x, *order):
    """Returns a permuted copy."""
    return copied(op(P.Transpose)(x, order))


def _uniform_sizes(sizes, w_hr):
    """Returns (steps, batch) of sequences of equal length."""
    if w_hr is not None or len(set(sizes)) != 1:
        raise UnsupportedByKernel
    return len(sizes), sizes[0]


# On Ascend, the primitives of the CPU target would be aclop operators.
def _one_minus(x):
    one = number(1.0, dtype_of(x))
    return op(G.SubExt)(one, x, 1) if ASCEND else op(P.Sub)(one, x)


def _stacked(xs, dim):
    return op(G.StackExt, dim)(tuple(xs)) if ASCEND else op(P.Stack, dim)(xs)


# ------------------------------------------------------------------ MindSpore's LSTM
#
# Number of weight elements from which concatenating them takes longer than the calls of one step.
_LARGE_CELL = 1 << 18


def _in_rows(x, *sizes):
    return (x if is_contiguous(x) else copied(x)).view(sizes)


def _turned_back(x, reverse):
    """Reverses x in time if `reverse`, else returns `x` itself."""
    return op(P.ReverseV2, (0,))(x) if reverse else x


def _fused_layer(x, h0, c0, w_ih, w_hh, b_ih, b_hh, steps, n, reverse, keep):
    """Computes the kernel `lstm`. The operands and results that the gradient needs are stored as
    the attribute `pooled` of the work tensor."""
    inner, hidden = shape_of(x)[1], shape_of(c0)[1]
    rows = [_in_rows(w_ih, -1, 1, 1), _in_rows(w_hh, -1, 1, 1)]
    if b_ih is not None:
        rows.append(op(P.Add)(b_ih, b_hh).view((-1, 1, 1)))
    ins = (_turned_back(_in_rows(x, steps, n, inner), reverse), copied(h0).view((1, n, hidden)), copied(c0).view((1, n, hidden)), op(P.Concat, 0)(rows))
    y, h, c, work, _ = op(P.LSTM, inner, hidden, 1, b_ih is not None, False, 0.0)(*ins)
    r = _turned_back(y, reverse).view((steps * n, hidden)), h.view((n, hidden)), c.view((n, hidden))
    if not keep:
        return r
    # The results and states are copied, so in-place writes to them do not reach the saved tensors.
    # The autograd graph detects writes to the input.
    work.pooled = (ins[0] if reverse else None, *ins[1:], y, h, c), None
    return (*([copied(a) for a in r] if not reverse else (r[0], copied(r[1]), copied(r[2]))), work)


def _fused_layer_backward(gy, gh, gc, x, work, steps, n, reverse, needs):
    turned, h0, c0, w, y, h, c = work.pooled[0]
    inner, hidden = shape_of(x)[1], shape_of(c)[2]
    count, biased = shape_of(w)[0], shape_of(w)[0] > 4 * hidden * (inner + hidden)
    gx, gh0, gc0, gw = op(GO.LSTMGrad, inner, hidden, 1, biased, False, 0.0)(
        _in_rows(x, steps, n, inner) if turned is None else turned, h0, c0, w, y, h, c, _turned_back(_in_rows(gy, steps, n, hidden), reverse),
        _in_rows(gh, 1, n, hidden), _in_rows(gc, 1, n, hidden), work)[:4]
    np_dtype, at = stype_of(gw), 4 * hidden * inner
    g_ih = _DEVICE.view(gw, (4 * hidden, inner), (inner, 1), 0, np_dtype) if needs[3] else None
    g_hh = _DEVICE.view(gw, (4 * hidden, hidden), (hidden, 1), at, np_dtype) if needs[4] else None
    g_bi, g_bh = [_DEVICE.view(gw, (4 * hidden,), (1,), count - 4 * hidden, np_dtype) if biased and need else None for need in needs[5:7]]
    return (_turned_back(gx, reverse).view((steps * n, inner)) if needs[0] else None, gh0.view((n, hidden)) if needs[1] else None,
            gc0.view((n, hidden)) if needs[2] else None, g_ih, g_hh, g_bi, copied(g_bh) if g_bi is not None and g_bh is not None else g_bh, None)


# ------------------------------------------------------------------ step by step
@kernel("lstm lstm_cell", only=_FLOATS)
def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse, keep):
    """Maps x (rows, I), h0 and c0 (B, H) to (y (rows, H), h, c). With `keep`, it also returns what
    `lstm_backward` expects: i, f, g, o, previous c, tanh(c) and previous h of all steps, shape
    (steps, 7 * H, B)."""
    steps, n = _uniform_sizes(sizes, w_hr)
    if shape_of(h0)[0] != n:
        raise UnsupportedByKernel
    low = dtype_of(x)
    if low in HALF:
        x, h0, c0, w_ih, w_hh, b_ih, b_hh = [None if a is None else cast(a, ms.float32) for a in (x, h0, c0, w_ih, w_hh, b_ih, b_hh)]
    if not ASCEND and dtype_of(x) is ms.float32 and (steps > 1 or math.prod(shape_of(w_hh)) + math.prod(shape_of(w_ih)) < _LARGE_CELL):
        y, h, c, *work = _fused_layer(x, h0, c0, w_ih, w_hh, b_ih, b_hh, steps, n, reverse, keep)
        return (y, h, c, *work) if low not in HALF else (cast(y, low), cast(h, low), cast(c, low), *work)
    hidden = shape_of(c0)[1]
    first = matmul(x, w_ih, False, True)
    if b_ih is not None:
        first = op(P.Add if ASCEND else P.BiasAdd)(first, op(P.Add)(b_ih, b_hh))
    first = _turned(first.view((steps, n, 4 * hidden)), 0, 2, 1)
    h, c = _turned(h0, 1, 0), _turned(c0, 1, 0)
    add, mul, tanh, sigmoid = op(P.Add), op(P.Mul), o.tanh, o.sigmoid
    ys, saved = [None] * steps, [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        z = add(_step(first, t), matmul(w_hh, h))
        i_f, g, out = sigmoid(_part(z, 0, 2 * hidden)), tanh(_part(z, 2 * hidden, hidden)), sigmoid(_part(z, 3 * hidden, hidden))
        new = add(mul(_part(i_f, hidden, hidden), c), mul(_part(i_f, 0, hidden), g))
        tc = tanh(new)
        if keep:
            saved[t] = op(P.Concat, 0)((i_f, g, out, c, tc, h))
        h, c = mul(out, tc), new
        ys[t] = h
    y = _turned(_stacked(ys, 0), 0, 2, 1).view((steps * n, hidden))
    r = y, _turned(h, 1, 0), _turned(c, 1, 0)
    if low in HALF:
        r = tuple([cast(a, low) for a in r])
    return (*r, _stacked(saved, 0)) if keep else r


@kernel("lstm_backward")
def lstm_backward(gy, gh, gc, x, w_ih, w_hh, w_hr, work, *, sizes, reverse, needs):
    """Returns the gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh and w_hr."""
    steps, n = _uniform_sizes(sizes, w_hr)
    if hasattr(work, "pooled"):
        return _fused_layer_backward(gy, gh, gc, x, work, steps, n, reverse, needs)
    if len(shape_of(work)) != 3:
        raise UnsupportedByKernel  # saved by the host kernel
    hidden = shape_of(gc)[1]
    add, mul = op(P.Add), op(P.Mul)
    w = _turned(work.view((steps, 7, hidden, n)), 1, 0, 2, 3)
    i, f, g, out, before, tc, h_before = [_step(w, k) for k in range(7)]
    # Factors of each step: of the cell's gradient for i, f and g, of the output's gradient for o
    # and for the cell.
    ki, kf = mul(mul(i, _one_minus(i)), g), mul(mul(f, _one_minus(f)), before)
    kg, ko = mul(_one_minus(mul(g, g)), i), mul(mul(out, _one_minus(out)), tc)
    kc = mul(_one_minus(mul(tc, tc)), out)
    k = _stacked((ki, kf, kg), 1)            # (steps, 3, H, B)
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
    dz = _turned(_stacked(dzs, 0), 0, 2, 1).view((steps * n, 4 * hidden))
    gx = matmul(dz, w_ih) if needs[0] else None
    g_ih = matmul(dz, x, True) if needs[3] else None
    g_hh = matmul(dz, _turned(h_before, 0, 2, 1).view((steps * n, hidden)), True) if needs[4] else None
    gb = sums(dz, (0,)) if needs[5] or needs[6] else None
    return (gx, _turned(dh, 1, 0) if needs[1] else None, _turned(dc, 1, 0) if needs[2] else None, g_ih, g_hh, gb if needs[5] else None,
            copied(gb) if needs[6] else None, None)
