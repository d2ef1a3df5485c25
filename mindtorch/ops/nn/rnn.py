"""Recurrent networks: kernels for entire layers with backpropagation through time, and the
functions and cells of torch._VF built on them."""
from mindtorch.core.dispatch import autocast
from mindtorch.core.autograd import forward_ad
from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.basic import new_full
from mindtorch.ops.nn._fused import composite_backward, check_tensor_arg
from mindtorch.ops.nn.dropout import _dropout
from mindtorch.ops.linalg.matmul import linear


def _cat(items, dim=0):
    return items[0] if len(items) == 1 else OPS["cat"].fn(list(items), dim)


# ------------------------------------------------------------------ one layer in one direction
#
# The rows of all sequences are ordered by time step; `sizes` holds the number of rows of each step.
# After the states, the kernels return the values that their gradients start from, if `keep` is set.
# Half precision is computed in float32: the primitives are raw, and the kernels round.
def _compose_lstm(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse):
    gates = linear(x, w_ih, b_ih)

    def step(z, h, c):
        i, f, g, o = (z + linear(h, w_hh, b_hh)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h if w_hr is None else linear(h, w_hr)), c
    return _unroll(gates, (h, c), step, sizes, reverse)


def _unroll(gates, states, step, sizes, reverse):
    """Runs `step` over time with differentiable ops. The states are the hidden state and, for an
    LSTM, the cell state."""
    ys, start = {}, [0]
    for n in sizes:
        start.append(start[-1] + n)
    for k in (reversed(range(len(sizes))) if reverse else range(len(sizes))):
        n = sizes[k]
        new = step(gates.narrow(0, start[k], n), *[s.narrow(0, 0, n) for s in states])
        new = new if isinstance(new, tuple) else (new,)
        ys[k] = new[0]
        states = tuple(a if n == s._sizes[0] else _cat([a, s.narrow(0, n, s._sizes[0] - n)])
                       for a, s in zip(new, states))
    return (_cat([ys[k] for k in range(len(sizes))]),) + tuple(states)


_lstm_grad = primitive("lstm_backward", "gy, gh, gc, x, w_ih, w_hh, w_hr=None, work, *, sizes, reverse, needs")


def _lstm_rule(ctx, grad):
    if mode.on:
        return composite_backward(lambda *a: _compose_lstm(*a, ctx.sizes, ctx.reverse),
                                  (ctx.x, ctx.h0, ctx.c0, ctx.w_ih, ctx.w_hh, ctx.b_ih, ctx.b_hh, ctx.w_hr), grad)
    return _lstm_grad(grad[0], grad[1], grad[2], ctx.x, ctx.w_ih, ctx.w_hh, ctx.w_hr, ctx.out3, sizes=ctx.sizes, reverse=ctx.reverse, needs=ctx.needs)


lstm_layer = primitive("lstm", "x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, *, sizes, reverse, keep", _lstm_rule, raw=True,
                       residuals=(3,), node="MkldnnRnnLayerBackward0")
# PyTorch composes a cell from two matmuls, so the edges of its autograd graph have another order.
_lstm_cell = primitive("lstm_cell", "x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, *, sizes, reverse, keep", _lstm_rule, raw=True,
                       residuals=(3,), node="LstmBackward0", order=(5, 3, 6, 4, 7, 0, 1, 2))


def _compose_gru(x, h, w_ih, w_hh, b_ih, b_hh, sizes, reverse):
    gates = linear(x, w_ih, b_ih)

    def step(z, h):
        r, u, v = z.chunk(3, 1)
        hr, hu, hv = linear(h, w_hh, b_hh).chunk(3, 1)
        r, u = (r + hr).sigmoid(), (u + hu).sigmoid()
        v = (v + r * hv).tanh()
        return v + u * (h - v)
    return _unroll(gates, (h,), step, sizes, reverse)


_gru_grad = primitive("gru_backward", "gy, gh, x, w_ih, w_hh, gates, h_before, inner, *, sizes, reverse, needs")


def _gru_rule(ctx, grad):
    if mode.on:
        return composite_backward(lambda *a: _compose_gru(*a, ctx.sizes, ctx.reverse), (ctx.x, ctx.h0, ctx.w_ih, ctx.w_hh, ctx.b_ih, ctx.b_hh), grad)
    return _gru_grad(grad[0], grad[1], ctx.x, ctx.w_ih, ctx.w_hh, ctx.out2, ctx.out3, ctx.out4, sizes=ctx.sizes, reverse=ctx.reverse, needs=ctx.needs)


gru_layer = primitive("gru", "x, h0, w_ih, w_hh, b_ih=None, b_hh=None, *, sizes, reverse, keep", _gru_rule, raw=True, residuals=(2, 3, 4),
                      order=(5, 3, 4, 2, 0, 1))


def _compose_rnn(x, h, w_ih, w_hh, b_ih, b_hh, relu, sizes, reverse):
    gates = linear(x, w_ih, b_ih)

    def step(z, h):
        s = z + linear(h, w_hh, b_hh)
        return s.relu() if relu else s.tanh()
    return _unroll(gates, (h,), step, sizes, reverse)


_rnn_grad = primitive("rnn_backward", "gy, gh, x, w_ih, w_hh, y, h_before, *, relu, sizes, reverse, needs")


def _rnn_rule(ctx, grad):
    if mode.on:
        return composite_backward(lambda *a: _compose_rnn(*a, ctx.relu, ctx.sizes, ctx.reverse), (ctx.x, ctx.h0, ctx.w_ih, ctx.w_hh, ctx.b_ih, ctx.b_hh), grad)
    return _rnn_grad(grad[0], grad[1], ctx.x, ctx.w_ih, ctx.w_hh, ctx.out2, ctx.out3, relu=ctx.relu, sizes=ctx.sizes, reverse=ctx.reverse, needs=ctx.needs)


rnn_layer = primitive("rnn", "x, h0, w_ih, w_hh, b_ih=None, b_hh=None, *, relu, sizes, reverse, keep", _rnn_rule, raw=True, residuals=(2, 3),
                      order=(5, 3, 4, 2, 0, 1))
_rnn_cell = primitive("rnn_cell", "x, h0, w_ih, w_hh, b_ih=None, b_hh=None, *, relu, sizes, reverse, keep", _rnn_rule, raw=True, residuals=(2, 3),
                      node="RnnBackward0", order=(4, 2, 5, 3, 0, 1))


def _needs_grad(*tensors):
    """True if a node will be recorded for any of these tensors."""
    return forward_ad.is_differentiated(*[t for t in tensors if t is not None])


# ------------------------------------------------------------------ stacks of layers
def _weights(params, has_biases, projected):
    """Splits the flat list of a network's weights into groups, one per layer and direction: (w_ih,
    w_hh, b_ih, b_hh, w_hr)."""
    size = 2 + 2 * has_biases + projected
    if len(params) % size:
        raise RuntimeError(f"rnn: expected groups of {size} weights, got {len(params)}")
    groups = []
    for i in range(0, len(params), size):
        p = list(params[i:i + size])
        hr = p.pop() if projected else None
        groups.append((p[0], p[1]) + ((p[2], p[3]) if has_biases else (None, None)) + (hr,))
    return groups


def _stack(kind, x, states, groups, num_layers, dropout, train, bidirectional, sizes, lstm_one=None):
    """Runs all layers over rows x. States are tensors (layers * directions, B, H). Returns (y,
    *final states)."""
    directions = 2 if bidirectional else 1
    if len(groups) != num_layers * directions:
        raise RuntimeError(f"rnn: expected weights for {num_layers * directions} layers and directions, got "
                           f"{len(groups)}")
    final = [[] for _ in states]
    for layer in range(num_layers):
        ys = []
        for k in range(directions):
            n = layer * directions + k
            w_ih, w_hh, b_ih, b_hh, w_hr = groups[n]
            start = [s.select(0, n) for s in states]
            kw = {"sizes": sizes, "reverse": k == 1, "keep": _needs_grad(x, *start, *groups[n])}
            if kind == "lstm":
                r = (lstm_one or lstm_layer)(x, start[0], start[1], w_ih, w_hh, b_ih, b_hh, w_hr, **kw)
            elif kind == "gru":
                r = gru_layer(x, start[0], w_ih, w_hh, b_ih, b_hh, **kw)
            else:
                r = rnn_layer(x, start[0], w_ih, w_hh, b_ih, b_hh, relu=kind == "rnn_relu", **kw)
            ys.append(r[0])
            for f, s in zip(final, r[1:1 + len(states)]):
                f.append(s)
        x = _cat(ys, 1)
        if dropout and train and layer < num_layers - 1:
            x = _dropout(x, dropout, True)
    return (x,) + tuple(OPS["stack"].fn(f, 0) for f in final)


def _check(name, x, states, w_ih):
    if x._np_dtype.kind not in "fV":
        raise NotImplementedError(f"'{name}' is not implemented for dtype {x.dtype} on device {x.device}")
    for s in (*states, w_ih):
        if s._np_dtype != x._np_dtype and not (_uses_autocast(x) and 8 not in (s._np_dtype.itemsize, x._np_dtype.itemsize)):
            raise RuntimeError(f"{name}: input, hidden state and weights must have the same dtype, got {x.dtype} and "
                               f"{s.dtype}")


def _run(kind, input, states, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, lstm_one=None):
    """Runs a network over padded input (T, B, I) or (B, T, I)."""
    check_tensor_arg(kind, "input", input)
    projected = kind == "lstm" and states[0]._sizes[2] != states[1]._sizes[2]
    groups = _weights(params, has_biases, projected)
    _check(kind, input, states, groups[0][0])
    x = input.transpose(0, 1) if batch_first else input
    t, b, width = x._sizes
    r = _stack(kind, x.reshape(t * b, width), states, groups, num_layers, dropout, train, bidirectional, (b,) * t,
               lstm_one)
    y = r[0].reshape(t, b, r[0]._sizes[1])
    return (y.transpose(0, 1) if batch_first else y,) + r[1:]


def _run_packed(kind, data, batch_sizes, states, params, has_biases, num_layers, dropout, train, bidirectional):
    """Runs a network over the rows of a PackedSequence."""
    check_tensor_arg(kind, "data", data)
    projected = kind == "lstm" and states[0]._sizes[2] != states[1]._sizes[2]
    groups = _weights(params, has_biases, projected)
    _check(kind, data, states, groups[0][0])
    sizes = tuple(to_host(batch_sizes).tolist())
    return _stack(kind, data, states, groups, num_layers, dropout, train, bidirectional, sizes)


def run_lstm(layer, input, hx, *rest):
    """Runs lstm over a padded batch, with another primitive for one layer and direction."""
    return _run("lstm", input, tuple(hx), *rest, lstm_one=layer)


@register_op(method=False, autocast="lower")
def lstm(*args):
    """torch._VF.lstm.

    Arguments: (input, (h, c), weights, has_biases, num_layers, dropout, train, bidirectional,
    batch_first), or for packed rows (data, batch_sizes, (h, c), weights, has_biases, num_layers,
    dropout, train, bidirectional). Returns (output, h, c).
    """
    if is_tensor(args[1]):
        data, sizes, hx, *rest = args
        return _run_packed("lstm", data, sizes, tuple(hx), *rest)
    input, hx, *rest = args
    return _run("lstm", input, tuple(hx), *rest)


def _declare(kind, autocast):
    def run(*args):
        """Runs a recurrent network like the function of this name in torch._VF.

        Arguments: (input, h, weights, has_biases, num_layers, dropout, train, bidirectional,
        batch_first), or for packed rows (data, batch_sizes, h, weights, has_biases, num_layers,
        dropout, train, bidirectional). Returns (output, h).
        """
        if is_tensor(args[2]):
            data, sizes, hx, *rest = args
            return _run_packed(kind, data, sizes, (hx,), *rest)
        input, hx, *rest = args
        return _run(kind, input, (hx,), *rest)
    run.__name__ = kind
    return register_op(method=False, name=kind, autocast=autocast)(run)


gru = _declare("gru", "by_input")
rnn_tanh = _declare("rnn_tanh", "lower")
rnn_relu = _declare("rnn_relu", "lower")


# ------------------------------------------------------------------ cells
def _cell_input(name, input, states, w_ih, w_hh):
    check_tensor_arg(name, "input", input)
    _check(name, input, states, states[0])
    for x, w in ((input, w_ih), (states[0], w_hh)):
        # Autocast casts both, unless one is float64.
        if x._np_dtype != w._np_dtype and (autocast.state.to is None or 8 in (x._np_dtype.itemsize, w._np_dtype.itemsize)):
            raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {scalar_type_name(x._np_dtype)} and {scalar_type_name(w._np_dtype)}")
    if input.ndim == 1:
        return input.unsqueeze(0), [s.unsqueeze(0) for s in states], True
    return input, list(states), False


def _uses_autocast(x):
    """True if a cell is computed from separate ops: inside autocast each of them has its own dtype.
    """
    return autocast.covers(x)


@register_op(method=False)
def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Computes one step of an LSTM: (B, I), ((B, H), (B, H)) -> (h, c)."""
    x, (h, c), single = _cell_input("lstm_cell", input, tuple(hx), w_ih, w_hh)
    if _uses_autocast(x):
        _, h, c = _compose_lstm(x, h, c, w_ih, w_hh, b_ih, b_hh, None, (x._sizes[0],), False)
        return (h.squeeze(0), c.squeeze(0)) if single else (h, c)
    b_ih, b_hh = _fill_missing_bias(b_ih, b_hh, w_hh)
    _, h, c, *_ = _lstm_cell(x, h, c, w_ih, w_hh, b_ih, b_hh, None, sizes=(x._sizes[0],), reverse=False,
                             keep=_needs_grad(x, h, c, w_ih, w_hh, b_ih, b_hh))
    return (h.squeeze(0), c.squeeze(0)) if single else (h, c)


def _fill_missing_bias(b_ih, b_hh, w_hh):
    """Returns both biases, or None for both. A missing bias is replaced by zeros if the other is
    given."""
    if (b_ih is None) == (b_hh is None):
        return b_ih, b_hh
    zero = new_full(w_hh, size=w_hh._sizes[:1], value=0, np_dtype=w_hh._np_dtype)
    return (zero if b_ih is None else b_ih), (zero if b_hh is None else b_hh)


@register_op(method=False)
def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Computes one step of a GRU: (B, I), (B, H) -> (B, H)."""
    x, (h,), single = _cell_input("gru_cell", input, (hx,), w_ih, w_hh)
    if _uses_autocast(x):
        h = _compose_gru(x, h, w_ih, w_hh, b_ih, b_hh, (x._sizes[0],), False)[1]
        return h.squeeze(0) if single else h
    b_ih, b_hh = _fill_missing_bias(b_ih, b_hh, w_hh)
    h = gru_layer(x, h, w_ih, w_hh, b_ih, b_hh, sizes=(x._sizes[0],), reverse=False, keep=_needs_grad(x, h, w_ih, w_hh, b_ih, b_hh))[1]
    return h.squeeze(0) if single else h


def _plain_cell(name, relu):
    def cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        """Computes one step of a plain RNN: (B, I), (B, H) -> (B, H)."""
        x, (h,), single = _cell_input(name, input, (hx,), w_ih, w_hh)
        b_ih, b_hh = _fill_missing_bias(b_ih, b_hh, w_hh)
        h = _rnn_cell(x, h, w_ih, w_hh, b_ih, b_hh, relu=relu, sizes=(x._sizes[0],), reverse=False,
                      keep=_needs_grad(x, h, w_ih, w_hh, b_ih, b_hh))[1]
        return h.squeeze(0) if single else h
    cell.__name__ = name
    return register_op(method=False, name=name, autocast="lower")(cell)


rnn_tanh_cell = _plain_cell("rnn_tanh_cell", False)
rnn_relu_cell = _plain_cell("rnn_relu_cell", True)
