"""GRU and plain RNN layers, computed step by step. A GRU step is one matrix product and nine small
calls, an RNN step three calls.

MindSpore's CPU target has no kernel for these layers. Everything that does not depend on the
previous step is computed for all steps at once. States are stored as (hidden, batch), as in
`rnn.py`.
"""
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import HALF, UnsupportedByKernel, P, broadcast, cast, dtype_of, kernel, op, reshape, shape_of
from mindtorch.backend.mindspore.kernels.matmul import matmul
from mindtorch.backend.mindspore.kernels.reduction import copied, sums
from mindtorch.backend.mindspore.kernels.rnn import _FLOATS, _one_minus, _part, _step, _turned, _uniform_sizes


def _input_part(x, w_ih, bias, steps, n):
    """Returns the contribution of the inputs of all steps, shape (steps, gates, batch)."""
    first = matmul(x, w_ih, False, True)
    if bias is not None:
        first = op(P.BiasAdd)(first, bias)
    return _turned(first.view((steps, n, shape_of(w_ih)[0])), 0, 2, 1)


def _output(ys, steps, n):
    """Returns the states of all steps, each (hidden, batch), as (rows, hidden)."""
    return _turned(op(P.Stack, 0)(ys), 0, 2, 1).view((steps * n, shape_of(ys[0])[0]))


def _gradient_of_output(gy, steps, n):
    return _turned(reshape(gy, (steps, n, shape_of(gy)[1])), 0, 2, 1)


def _downcast(r, low):
    return tuple([cast(a, low) for a in r]) if low in HALF else r


# ------------------------------------------------------------------ GRU
@kernel("gru", only=_FLOATS)
def gru(x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse, keep):
    """Maps x (rows, I) and h0 (B, H) to (y (rows, H), h). With `keep`, it also returns what
    `gru_backward` expects: r, u, v, inner and the previous h of all steps, shape (steps, 5 * H, B),
    and two Nones."""
    steps, n = _uniform_sizes(sizes, None)
    if shape_of(h0)[0] != n:
        raise UnsupportedByKernel
    low = dtype_of(x)
    x, h0, w_ih, w_hh, b_ih, b_hh = [o.upcast(a) for a in (x, h0, w_ih, w_hh, b_ih, b_hh)]
    hidden = shape_of(h0)[1]
    first = _input_part(x, w_ih, b_ih, steps, n)
    bias = None if b_hh is None else copied(broadcast(b_hh.view((3 * hidden, 1)) if b_hh.is_contiguous() else reshape(b_hh, (3 * hidden, 1)), (3 * hidden, n)))
    h = _turned(h0, 1, 0)
    add, mul, tanh, sigmoid = op(P.Add), op(P.Mul), o.tanh, o.sigmoid
    ys, saved = [None] * steps, [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        z, s = _step(first, t), matmul(w_hh, h)
        if bias is not None:
            s = add(s, bias)
        ru, inner = sigmoid(add(_part(z, 0, 2 * hidden), _part(s, 0, 2 * hidden))), _part(s, 2 * hidden, hidden)
        v = tanh(add(_part(z, 2 * hidden, hidden), mul(_part(ru, 0, hidden), inner)))
        if keep:
            saved[t] = op(P.Concat, 0)((ru, v, inner, h))
        h = ys[t] = add(v, mul(_part(ru, hidden, hidden), o.sub(h, v)))
    r = _downcast((_output(ys, steps, n), _turned(h, 1, 0)), low)
    return (*r, op(P.Stack, 0)(saved), None, None) if keep else r


@kernel("gru_backward")
def gru_backward(gy, gh, x, w_ih, w_hh, work, before, inner, *, sizes, reverse, needs):
    """Returns the gradients of x, h0, w_ih, w_hh, b_ih and b_hh."""
    if before is not None:
        raise UnsupportedByKernel  # saved by the host kernel
    steps, n = _uniform_sizes(sizes, None)
    hidden = shape_of(gh)[1]
    add, mul = op(P.Add), op(P.Mul)
    w = _turned(work.view((steps, 5, hidden, n)), 1, 0, 2, 3)
    r, u, v, inner, before = [_step(w, k) for k in range(5)]
    rest = _one_minus(u)
    kv = mul(_one_minus(mul(v, v)), rest)
    kr = mul(mul(inner, mul(r, _one_minus(r))), kv)
    # (steps, 4, H, B); the first three belong to the product with the state
    k = op(P.Stack, 1)((kr, mul(o.sub(before, v), mul(u, rest)), mul(kv, r), kv))
    gyt, back = _gradient_of_output(gy, steps, n), _turned(w_hh, 1, 0)
    dh = _turned(gh, 1, 0)
    dzs = [None] * steps
    for t in range(steps) if reverse else reversed(range(steps)):
        dh = add(dh, _step(gyt, t))
        z = dzs[t] = mul(_step(k, t), dh.view((1, hidden, n))).view((4 * hidden, n))
        dh = add(mul(dh, _step(u, t)), matmul(back, _part(z, 0, 3 * hidden)))
    z = _turned(op(P.Stack, 0)(dzs), 1, 0, 2).view((4 * hidden, steps * n))
    ds = _part(z, 0, 3 * hidden)
    dz = op(P.Concat, 0)((_part(z, 0, 2 * hidden), _part(z, 3 * hidden, hidden)))
    return (matmul(dz, w_ih, True) if needs[0] else None, _turned(dh, 1, 0) if needs[1] else None, matmul(dz, x) if needs[2] else None,
            matmul(ds, _turned(before, 0, 2, 1).view((steps * n, hidden))) if needs[3] else None,
            sums(dz, (1,)) if needs[4] else None, sums(ds, (1,)) if needs[5] else None)


# ------------------------------------------------------------------ plain RNN
@kernel("rnn rnn_cell", only=_FLOATS)
def _rnn(x, h0, w_ih, w_hh, b_ih, b_hh, *, relu, sizes, reverse, keep):
    """Maps x (rows, I) and h0 (B, H) to (y (rows, H), h) with tanh or relu. With `keep`, it also
    returns the states after and before each step, each of shape (steps, H, B)."""
    steps, n = _uniform_sizes(sizes, None)
    if shape_of(h0)[0] != n:
        raise UnsupportedByKernel
    low = dtype_of(x)
    x, h0, w_ih, w_hh, b_ih, b_hh = [o.upcast(a) for a in (x, h0, w_ih, w_hh, b_ih, b_hh)]
    add = op(P.Add)
    first = _input_part(x, w_ih, None if b_ih is None else add(b_ih, b_hh), steps, n)
    h = _turned(h0, 1, 0)
    ys, befores = [None] * steps, [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        z = add(_step(first, t), matmul(w_hh, h))
        befores[t] = h
        h = ys[t] = o.at_least(z, 0) if relu else o.tanh(z)
    r = _downcast((_output(ys, steps, n), _turned(h, 1, 0)), low)
    return (*r, op(P.Stack, 0)(ys), op(P.Stack, 0)(befores)) if keep else r


@kernel("rnn_backward")
def _rnn_backward(gy, gh, x, w_ih, w_hh, y, before, *, relu, sizes, reverse, needs):
    """Returns the gradients of x, h0, w_ih, w_hh, b_ih and b_hh."""
    steps, n = _uniform_sizes(sizes, None)
    if len(shape_of(y)) != 3:
        raise UnsupportedByKernel  # saved by the host kernel
    hidden = shape_of(gh)[1]
    add, mul = op(P.Add), op(P.Mul)
    derivative = cast(o.gt(y, 0), dtype_of(y)) if relu else _one_minus(mul(y, y))
    gyt, back = _gradient_of_output(gy, steps, n), _turned(w_hh, 1, 0)
    dh = _turned(gh, 1, 0)
    dzs = [None] * steps
    for t in range(steps) if reverse else reversed(range(steps)):
        dzs[t] = mul(add(dh, _step(gyt, t)), _step(derivative, t))
        dh = matmul(back, dzs[t])
    dz = _turned(op(P.Stack, 0)(dzs), 1, 0, 2).view((hidden, steps * n))
    gb = sums(dz, (1,)) if needs[4] or needs[5] else None
    return (matmul(dz, w_ih, True) if needs[0] else None, _turned(dh, 1, 0) if needs[1] else None, matmul(dz, x) if needs[2] else None,
            matmul(dz, _turned(before, 0, 2, 1).view((steps * n, hidden))) if needs[3] else None,
            gb if needs[4] else None, copied(gb) if needs[5] else None)
