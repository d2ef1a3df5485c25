"""Lowerings of recurrent layers, unrolled over time (see rules.py)."""
from mindtorch.backend.errors import LoweringError
from mindtorch.backend.export.rules import lowering, size
from mindtorch.backend.export.nn import linear


def _lstm_step(k, z, state, n):
    h, c = state
    i, f, g, o = (k.slice(z, 1, j * n, (j + 1) * n) for j in range(4))
    c = k.add(k.mul(k.unary("sigmoid", f), c), k.mul(k.unary("sigmoid", i), k.unary("tanh", g)))
    return k.mul(k.unary("sigmoid", o), k.unary("tanh", c)), c


def _layer(k, xs, state, weights, kind, reverse, nonlinearity="tanh"):
    """Unrolls one direction of one layer: xs is a list of (N, I), one per step. Returns (list of
    (N, H), last state)."""
    w_ih, w_hh, b_ih, b_hh = (*weights, None, None)[:4]
    n = size(w_hh.shape[1])
    out = [None] * len(xs)
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        zx, zh = linear(k, xs[t], w_ih, b_ih), linear(k, state[0], w_hh, b_hh)
        if kind == "lstm":
            state = _lstm_step(k, k.add(zx, zh), state, n)
        elif kind == "gru":
            (rx, ux, nx), (rh, uh, nh) = ([k.slice(z, 1, j * n, (j + 1) * n) for j in range(3)] for z in (zx, zh))
            r, u = k.unary("sigmoid", k.add(rx, rh)), k.unary("sigmoid", k.add(ux, uh))
            new = k.unary("tanh", k.add(nx, k.mul(r, nh)))
            state = (k.add(new, k.mul(u, k.sub(state[0], new))),)
        else:
            state = (k.unary(nonlinearity, k.add(zx, zh)),)
        out[t] = state[0]
    return out, state


def _network(kind, nonlinearity="tanh"):
    def f(k, args, *rest):
        if len(args) != 9 or not isinstance(args[2], (tuple, list)) or not isinstance(args[3], bool):
            raise LoweringError("packed sequences")
        x, states, params, has_biases, layers, dropout, train, bidirectional, batch_first = args
        if train and dropout:
            raise LoweringError("dropout: call eval() first")
        states = list(states) if isinstance(states, (tuple, list)) else [states]
        per = 4 if has_biases else 2
        directions = 2 if bidirectional else 1
        if len(params) != per * layers * directions:
            raise LoweringError("proj_size")
        time = 1 if batch_first else 0
        steps = size(x.shape[time])

        def at(t, dim, i):
            y = k.slice(t, dim, i, i + 1)
            return k.reshape(y, (*t.shape[:dim], *t.shape[dim + 1:]))
        xs = [at(x, time, i) for i in range(steps)]
        last = [[] for _ in states]
        for layer in range(layers):
            outs = []
            for d in range(directions):
                j = layer * directions + d
                ys, end = _layer(k, xs, tuple(at(s, 0, j) for s in states), params[j * per:(j + 1) * per], kind, d == 1, nonlinearity)
                outs.append(ys)
                for into, s in zip(last, end):
                    into.append(s)
            xs = outs[0] if directions == 1 else [k.concat([a, b], 1) for a, b in zip(*outs)]

        def stacked(items, dim):
            return k.concat([k.reshape(y, (*y.shape[:dim], 1, *y.shape[dim:])) for y in items], dim)
        return [stacked(xs, time), *(stacked(s, 0) for s in last)]
    return f


lowering("lstm")(_network("lstm"))
lowering("gru")(_network("gru"))
lowering("rnn_tanh")(_network("rnn"))
lowering("rnn_relu")(_network("rnn", "relu"))


def _cell(kind, nonlinearity="tanh"):
    def f(k, x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        state = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        batched = x.ndim == 2
        if not batched:
            x, state = k.reshape(x, (1, x.shape[0])), tuple(k.reshape(s, (1, s.shape[0])) for s in state)
        weights = (w_ih, w_hh) if b_ih is None else (w_ih, w_hh, b_ih, b_hh)
        _, state = _layer(k, [x], state, weights, kind, False, nonlinearity)
        return [s if batched else k.reshape(s, s.shape[1:]) for s in state]
    return f


lowering("lstm_cell")(_cell("lstm"))
lowering("gru_cell")(_cell("gru"))
lowering("rnn_tanh_cell")(_cell("rnn"))
lowering("rnn_relu_cell")(_cell("rnn", "relu"))
