"""The recurrences behind RNN, LSTM and GRU, written on differentiable ops.

One linear map makes the input's share of the gates for the whole sequence; each step then adds the state's share.
`weights` of one layer and direction: w_ih, w_hh, [b_ih, b_hh,] [w_hr].
"""
import mindtorch.torch as torch
from mindtorch.torch.nn import functional as F


def lstm_step(gates, state, w_hh, b_hh, w_hr=None):
    """One LSTM step: `gates` (N, 4H) from the input, state (h, c) -> (h, c)."""
    h, c = state
    i, f, g, o = (gates + F.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if w_hr is None else F.linear(h, w_hr)), c


def gru_step(gates, state, w_hh, b_hh, w_hr=None):
    """One GRU step: `gates` (N, 3H) from the input, state (h,) -> (h,)."""
    h, = state
    ir, iz, inew = gates.chunk(3, -1)
    hr, hz, hnew = F.linear(h, w_hh, b_hh).chunk(3, -1)
    r = torch.sigmoid(ir + hr)
    z = torch.sigmoid(iz + hz)
    n = torch.tanh(inew + r * hnew)
    return (n + z * (h - n),)


def tanh_step(gates, state, w_hh, b_hh, w_hr=None):
    """One Elman step with tanh: state (h,) -> (h,)."""
    return (torch.tanh(gates + F.linear(state[0], w_hh, b_hh)),)


def relu_step(gates, state, w_hh, b_hh, w_hr=None):
    """One Elman step with relu: state (h,) -> (h,)."""
    return (torch.relu(gates + F.linear(state[0], w_hh, b_hh)),)


STEPS = {"LSTM": lstm_step, "GRU": gru_step, "RNN_TANH": tanh_step, "RNN_RELU": relu_step}


def _split(weights, has_biases):
    w_ih, w_hh, *rest = weights
    b_ih, b_hh = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)
    return w_ih, w_hh, b_ih, b_hh, rest[0] if rest else None


def _padded_layer(step, x, state, weights, has_biases, reverse):
    """A layer in one direction over x (L, N, I) -> output (L, N, H), final state."""
    w_ih, w_hh, b_ih, b_hh, w_hr = _split(weights, has_biases)
    gates = F.linear(x, w_ih, b_ih).unbind(0)
    outs = []
    for g in reversed(gates) if reverse else gates:
        state = step(g, state, w_hh, b_hh, w_hr)
        outs.append(state[0])
    if reverse:
        outs.reverse()
    return torch.stack(outs), state


def _packed_layer(step, x, batch_sizes, state, weights, has_biases, reverse):
    """A layer in one direction over packed data (sum of lengths, I); at step t the first batch_sizes[t] rows live."""
    w_ih, w_hh, b_ih, b_hh, w_hr = _split(weights, has_biases)
    gates = F.linear(x, w_ih, b_ih).split(batch_sizes)
    outs = []
    if reverse:
        # The shortest sequences join last.
        start = state
        state = tuple(s[:batch_sizes[-1]] for s in start)
        for g, n in zip(reversed(gates), reversed(batch_sizes)):
            have = state[0].shape[0]
            if n > have:
                state = tuple(torch.cat([s, s0[have:n]]) for s, s0 in zip(state, start))
            state = step(g, state, w_hh, b_hh, w_hr)
            outs.append(state[0])
        outs.reverse()
        return torch.cat(outs), state
    finished = []
    for g, n in zip(gates, batch_sizes):
        if n < state[0].shape[0]:
            finished.append(tuple(s[n:] for s in state))
            state = tuple(s[:n] for s in state)
        state = step(g, state, w_hh, b_hh, w_hr)
        outs.append(state[0])
    finished.append(state)
    return torch.cat(outs), tuple(torch.cat(parts) for parts in zip(*reversed(finished)))


def run(mode, x, state, flat_weights, has_biases, num_layers, dropout, training, bidirectional, batch_first=False,
        batch_sizes=None):
    """All layers.  x (L, N, I), batch first, or packed; state: one or two tensors (layers * directions, N, H)
    -> (output, final states)."""
    step = STEPS[mode]
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
            weights = flat_weights[k * per:(k + 1) * per]
            if batch_sizes is None:
                out, end = _padded_layer(step, x, starts[k], weights, has_biases, reverse)
            else:
                out, end = _packed_layer(step, x, batch_sizes, starts[k], weights, has_biases, reverse)
            outs.append(out)
            ends.append(end)
        x = outs[0] if directions == 1 else torch.cat(outs, dim=-1)
        if dropout and training and layer < num_layers - 1:
            x = F.dropout(x, dropout, True)
    if batch_first and batch_sizes is None:
        x = x.transpose(0, 1)
    return x, tuple(torch.stack(s) for s in zip(*ends))
