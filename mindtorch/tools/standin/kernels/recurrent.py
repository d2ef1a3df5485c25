"""LSTM and GRU over whole sequences, as torch_npu launches them."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel


def _lstm_step(x, h, c, w_ih, w_hh, b_ih, b_hh):
    i, f, j, o = (x @ w_ih.t() + b_ih + h @ w_hh.t() + b_hh).chunk(4, -1)
    i, f, j, o = i.sigmoid(), f.sigmoid(), j.tanh(), o.sigmoid()
    c = f * c + i * j
    tanh_c = c.tanh()
    h = o * tanh_c
    return h, c, (i, j, f, o, h, c, tanh_c)


def _gru_step(x, h, _, w_ih, w_hh, b_ih, b_hh):
    a, b = (x @ w_ih.t() + b_ih).chunk(3, -1), (h @ w_hh.t() + b_hh).chunk(3, -1)
    r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
    n = (a[2] + r * b[2]).tanh()
    h = (1 - z) * n + z * h
    return h, None, (r, z, n, b[2], h)


def _direction(step, x, h, c, weights, backward):
    """Runs one layer in one direction over (T, B, I). Returns the outputs, the last states, and each
    intermediate result over time."""
    steps = range(x.shape[0] - 1, -1, -1) if backward else range(x.shape[0])
    found = [None] * x.shape[0]
    for t in steps:
        h, c, found[t] = step(x[t], h, c, *weights)
    return torch.stack([f[4] for f in found]), h, c, [torch.stack(column) for column in zip(*found)]


def _layers(step, x, params, states, has_bias, layers, dropout, train, bidirectional, batch_first, gates):
    """Returns (outputs, last h, last c, lists of intermediate results)."""
    if dropout and train:
        raise NotImplementedError("dropout between the layers of a recurrent kernel")
    x = x.transpose(0, 1) if batch_first else x
    each, directions = 4 if has_bias else 2, 2 if bidirectional else 1
    hidden = params[1].shape[1]
    lasts_h, lasts_c, lists = [], [], [[] for _ in range(gates)]
    for layer in range(layers):
        outputs = []
        for d in range(directions):
            k = layer * directions + d
            weights = params[k * each:(k + 1) * each] + ([] if has_bias else [0.0, 0.0])
            h, c = (x.new_zeros(x.shape[1], hidden) if s is None else s[k] for s in states)
            y, h, c, found = _direction(step, x, h, c, weights, d == 1)
            outputs.append(y)
            lasts_h.append(h)
            lasts_c.append(c)
            for column, value in zip(lists, found):
                column.append(value)
        x = torch.cat(outputs, -1)
    return x.transpose(0, 1) if batch_first else x, torch.stack(lasts_h), lasts_c, lists


_ATTRIBUTES = "batch_sizes, has_bias:bool, layers:int, dropout:double, train:bool, bidirectional:bool, batch_first:bool"


def _no_packed(batch_sizes):
    if batch_sizes is not None:
        raise NotImplementedError("packed sequences in a recurrent kernel")


@kernel("LSTM", f"x, params:tensors, hx:tensors, {_ATTRIBUTES}, out!, hy!, cy!, i:tensors!, j:tensors!, f:tensors!, o:tensors!, h:tensors!, c:tensors!, "
                "tanh_c:tensors!")
def _lstm(x, params, hx, batch_sizes, *rest):
    _no_packed(batch_sizes)
    attributes, receivers = rest[:6], rest[9:]
    out, h, c, lists = _layers(_lstm_step, x, params, hx or (None, None), *attributes, gates=7)
    return out, h, torch.stack(c), *[None if r is None else found for r, found in zip(receivers, lists)]


@kernel("GRU", f"x, params:tensors, hx, {_ATTRIBUTES}, out!, hy!, r:tensors!, z:tensors!, n:tensors!, hn:tensors!, h:tensors!")
def _gru(x, params, hx, batch_sizes, *rest):
    _no_packed(batch_sizes)
    attributes, receivers = rest[:6], rest[8:]
    out, h, _, lists = _layers(_gru_step, x, params, (hx, None), *attributes, gates=5)
    return out, h, *[None if r is None else found for r, found in zip(receivers, lists)]


# ------------------------------------------------------------------ gradients, from the saved results of each step
def _lstm_backward_step(dh, dc, saved, before, w_ih, w_hh):
    i, j, f, o, _, _, tanh_c = saved
    _, c = before
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    dz = torch.cat((dc * j * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - j * j), dh * tanh_c * o * (1 - o)), -1)
    return dz, dz, dz @ w_hh, dc * f


def _gru_backward_step(dh, dc, saved, before, w_ih, w_hh):
    r, z, n, hn, _ = saved
    h, _ = before
    dn = dh * (1 - z) * (1 - n * n)
    dr, dz = dn * hn * r * (1 - r), dh * (h - n) * z * (1 - z)
    of_input, of_state = torch.cat((dr, dz, dn), -1), torch.cat((dr, dz, dn * r), -1)
    return of_input, of_state, of_state @ w_hh + dh * z, dc


def _direction_backward(step, x, gy, dh, dc, h0, c0, lists, weights, backward):
    """Returns the gradients of (x, h0, c0, weights) of one layer in one direction."""
    w_ih, w_hh = weights[:2]
    steps, h_list, c_list = x.shape[0], lists[4], lists[5] if len(lists) > 5 else None
    order = range(steps - 1, -1, -1) if backward else range(steps)
    inputs, states, befores = [None] * steps, [None] * steps, [None] * steps
    for place in reversed(range(steps)):
        t = order[place]
        earlier = order[place - 1] if place else None
        before = (h0, c0) if earlier is None else (h_list[earlier], None if c_list is None else c_list[earlier])
        dz, ds, dh, dc = step(dh + gy[t], dc, [column[t] for column in lists], before, w_ih, w_hh)
        inputs[t], states[t], befores[t] = dz, ds, before[0]
    dz, ds, before = torch.stack(inputs), torch.stack(states), torch.stack(befores)
    of_weights = [dz.flatten(0, 1).t() @ x.flatten(0, 1), ds.flatten(0, 1).t() @ before.flatten(0, 1)]
    if len(weights) > 2:
        of_weights += [dz.sum((0, 1)), ds.sum((0, 1))]
    return dz @ w_ih, dh, dc, of_weights


def _layers_backward(step, x, states, params, gy, gh, gc, lists, has_bias, layers, dropout, bidirectional, batch_first):
    """Returns (gradient of x, of h0, of c0, of the parameters)."""
    if dropout:
        raise NotImplementedError("dropout between the layers of a recurrent kernel")
    x, gy = (x.transpose(0, 1), gy.transpose(0, 1)) if batch_first else (x, gy)
    each, directions = 4 if has_bias else 2, 2 if bidirectional else 1
    hidden = params[1].shape[1]
    of_h, of_c, of_params = [None] * (layers * directions), [None] * (layers * directions), [None] * len(params)
    zero = x.new_zeros(x.shape[1], hidden)
    for layer in reversed(range(layers)):
        source = x if not layer else torch.cat([lists[4][(layer - 1) * directions + d] for d in range(directions)], -1)
        of_source = 0
        for d in range(directions):
            k = layer * directions + d
            weights = params[k * each:(k + 1) * each]
            of_x, of_h[k], of_c[k], of_params[k * each:(k + 1) * each] = _direction_backward(
                step, source, gy[..., d * hidden:(d + 1) * hidden], zero if gh is None else gh[k], zero if gc is None else gc[k],
                zero if states[0] is None else states[0][k], zero if states[1] is None else states[1][k], [column[k] for column in lists], weights, d == 1)
            of_source = of_source + of_x
        gy = of_source
    return gy.transpose(0, 1) if batch_first else gy, torch.stack(of_h), torch.stack(of_c), of_params


@kernel("LstmBackward", "x, hx:tensors, params:tensors, gy, gh, gc, i:tensors, j:tensors, f:tensors, o:tensors, h:tensors, c:tensors, tanh_c:tensors, "
                        f"{_ATTRIBUTES}, mask:bools, gx!, gh0!, gc0!, of_params:tensors!")
def _lstm_backward(x, hx, params, gy, gh, gc, i, j, f, o, h, c, tanh_c, batch_sizes, has_bias, layers, dropout, train, bidirectional, batch_first, *_):
    _no_packed(batch_sizes)
    return _layers_backward(_lstm_backward_step, x, hx or (None, None), params, gy, gh, gc, (i, j, f, o, h, c, tanh_c), has_bias, layers, dropout,
                            bidirectional, batch_first)


@kernel("GRUBackward", "x, params:tensors, hx, gy, gh, r:tensors, z:tensors, n:tensors, hn:tensors, h:tensors, batch_sizes, has_bias:bool, layers:int, "
                       "bidirectional:bool, batch_first:bool, gx!, gh0!, of_params:tensors!")
def _gru_backward(x, params, hx, gy, gh, r, z, n, hn, h, batch_sizes, has_bias, layers, bidirectional, batch_first, *_):
    _no_packed(batch_sizes)
    gx, gh0, _, of_params = _layers_backward(_gru_backward_step, x, (hx, None), params, gy, gh, None, (r, z, n, hn, h), has_bias, layers, 0.0,
                                             bidirectional, batch_first)
    return gx, gh0, of_params
