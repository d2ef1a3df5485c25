"""The recurrences behind RNN, LSTM and GRU, written on differentiable ops.

One linear map makes the input's share of the gates for the whole sequence; each step then adds the state's share.  What
does not depend on the step (sums of biases, the order of the gates) is done once, because a step costs what its number
of ops costs.  `weights` of one layer and direction: w_ih, w_hh, [b_ih, b_hh,] [w_hr].
"""
import mindtorch.torch as torch
from mindtorch.torch.nn import functional as F


class _Elman:
    """h = act(W x + U h + b)."""

    def __init__(self, weights, has_biases):
        w_ih, w_hh, *rest = weights
        self.w_ih, self.w = w_ih, w_hh.t()
        self.bias = rest[0] + rest[1] if has_biases else None

    def gates(self, x):
        """The input's share for all rows of x."""
        return F.linear(x, self.w_ih, self.bias)


class Tanh(_Elman):
    def step(self, gates, state):
        return (torch.tanh(torch.addmm(gates, state[0], self.w)),)


class Relu(_Elman):
    def step(self, gates, state):
        return (torch.relu(torch.addmm(gates, state[0], self.w)),)


class Lstm:
    """i, f, o = sigmoid(...), g = tanh(...); c = f c + i g; h = o tanh(c), or its projection."""

    def __init__(self, weights, has_biases):
        w_ih, w_hh, *rest = weights
        bias = None
        if has_biases:
            bias = rest.pop(0) + rest.pop(0)
        self.project = rest[0] if rest else None
        # From i, f, g, o to i, f, o, g, so that one sigmoid serves three gates.
        self.h = h = w_hh.shape[0] // 4

        def reorder(w):
            return torch.cat([w[:2 * h], w[3 * h:], w[2 * h:3 * h]])
        self.w_ih, self.w = reorder(w_ih), reorder(w_hh).t()
        self.bias = None if bias is None else reorder(bias)

    def gates(self, x):
        """The input's share for all rows of x."""
        return F.linear(x, self.w_ih, self.bias)

    def step(self, gates, state):
        h, c = state
        s, g = torch.addmm(gates, h, self.w).split((3 * self.h, self.h), -1)
        i, f, o = torch.sigmoid(s).chunk(3, -1)
        c = torch.addcmul(i * torch.tanh(g), f, c)
        h = o * torch.tanh(c)
        return (h if self.project is None else F.linear(h, self.project)), c


class Gru:
    """r, z = sigmoid(...); n = tanh(... + r (U h + b)); h = n + z (h - n)."""

    def __init__(self, weights, has_biases):
        w_ih, w_hh, *rest = weights
        self.h = w_hh.shape[0] // 3
        self.w_ih, self.w_hh = w_ih, w_hh
        self.b_ih, self.b_hh = rest[:2] if has_biases else (None, None)

    def gates(self, x):
        """The input's share for all rows of x."""
        return F.linear(x, self.w_ih, self.b_ih)

    def step(self, gates, state):
        h, = state
        sizes = 2 * self.h, self.h
        x_rz, x_n = gates.split(sizes, -1)
        h_rz, h_n = F.linear(h, self.w_hh, self.b_hh).split(sizes, -1)
        r, z = torch.sigmoid(x_rz + h_rz).chunk(2, -1)
        return (torch.lerp(torch.tanh(torch.addcmul(x_n, r, h_n)), h, z),)


CELLS = {"LSTM": Lstm, "GRU": Gru, "RNN_TANH": Tanh, "RNN_RELU": Relu}


def _padded_layer(cell, x, state, reverse):
    """A layer in one direction over x (L, N, I) -> output (L, N, H), final state."""
    gates = cell.gates(x).unbind(0)
    outs = []
    for g in reversed(gates) if reverse else gates:
        state = cell.step(g, state)
        outs.append(state[0])
    if reverse:
        outs.reverse()
    return torch.stack(outs), state


def _packed_layer(cell, x, batch_sizes, state, reverse):
    """A layer in one direction over packed data (sum of lengths, I); at step t the first batch_sizes[t] rows live."""
    gates = cell.gates(x).split(batch_sizes)
    outs = []
    if reverse:
        # The shortest sequences join last.
        start = state
        state = tuple(s[:batch_sizes[-1]] for s in start)
        for g, n in zip(reversed(gates), reversed(batch_sizes)):
            have = state[0].shape[0]
            if n > have:
                state = tuple(torch.cat([s, s0[have:n]]) for s, s0 in zip(state, start))
            state = cell.step(g, state)
            outs.append(state[0])
        outs.reverse()
        return torch.cat(outs), state
    finished = []
    for g, n in zip(gates, batch_sizes):
        if n < state[0].shape[0]:
            finished.append(tuple(s[n:] for s in state))
            state = tuple(s[:n] for s in state)
        state = cell.step(g, state)
        outs.append(state[0])
    finished.append(state)
    return torch.cat(outs), tuple(torch.cat(parts) for parts in zip(*reversed(finished)))


def run(mode, x, state, flat_weights, has_biases, num_layers, dropout, training, bidirectional, batch_first=False,
        batch_sizes=None):
    """All layers.  x (L, N, I), batch first, or packed; state: one or two tensors (layers * directions, N, H)
    -> (output, final states)."""
    make = CELLS[mode]
    if batch_sizes is None:
        if batch_first:
            x = x.transpose(0, 1)
        if x.shape[0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    else:
        batch_sizes = batch_sizes.tolist()
    directions = 2 if bidirectional else 1
    per = len(flat_weights) // (num_layers * directions)
    starts = list(zip(*(s.unbind(0) for s in state)))
    ends = []
    for layer in range(num_layers):
        outs = []
        for reverse in range(directions):
            k = layer * directions + reverse
            cell = make(flat_weights[k * per:(k + 1) * per], has_biases)
            if batch_sizes is None:
                out, end = _padded_layer(cell, x, starts[k], reverse)
            else:
                out, end = _packed_layer(cell, x, batch_sizes, starts[k], reverse)
            outs.append(out)
            ends.append(end)
        x = outs[0] if directions == 1 else torch.cat(outs, dim=-1)
        if dropout and training and layer < num_layers - 1:
            x = F.dropout(x, dropout, True)
    if batch_first and batch_sizes is None:
        x = x.transpose(0, 1)
    return x, tuple(torch.stack(s) for s in zip(*ends))
