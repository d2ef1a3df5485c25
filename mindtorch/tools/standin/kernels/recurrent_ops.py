"""Legacy recurrent ops (aclop): LSTM (DynamicRNN) and GRU (DynamicGRUV2), one direction, one layer,
time-major."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import op

USUAL = {"direction": "UNIDIRECTIONAL", "activation": "tanh", "time_major": True, "cell_depth": 1, "num_proj": 0, "keep_prob": 1}


def _usual(attributes, lengths, steps, order):
    """Rejects attributes that the functions below do not support."""
    for name, value in {**USUAL, "gate_order": order}.items():
        given = attributes.get(name, value)
        if given != value and given != "":
            raise NotImplementedError(f"{name}={given!r}")
    if attributes.get("cell_clip", -1) > 0 or attributes.get("use_peephole"):
        raise NotImplementedError("cell clipping or peephole connections")
    if lengths is not None and lengths.numel() and bool((lengths != steps).any()):
        raise NotImplementedError("sequences of different lengths")


def _lstm(x, weight, bias, h, c, forget):
    """Computes all steps. The weight's columns are the gates i, j (candidate), f and o; its rows
    are input, then state."""
    steps = []
    for now in x:
        i, j, f, o = (torch.cat((now, h), 1) @ weight + bias).chunk(4, 1)
        i, j, f, o = torch.sigmoid(i), torch.tanh(j), torch.sigmoid(f + forget), torch.sigmoid(o)
        c = f * c + i * j
        bounded = torch.tanh(c)
        h = o * bounded
        steps.append((h, h, c, i, j, f, o, bounded))
    return [torch.stack(values) for values in zip(*steps)]


def _state(t):
    """Returns an initial state, [1, batch, size] or [batch, size], as [batch, size]."""
    return t.float().reshape(-1, t.shape[-1])


@op("DynamicRNN")
def _rnn(inputs, outputs, attributes):
    x, weight, bias, lengths, h, c = inputs[:6]
    _usual(attributes, lengths, x.shape[0], "ijfo")
    return _lstm(x.float(), weight.float(), bias.float(), _state(h), _state(c), attributes.get("forget_bias", 0.0))


@op("DynamicRNNGrad")
def _rnn_gradient(inputs, outputs, attributes):
    """Inputs: x, weight, bias, y, first h and c, all h and c, gradients of y and of the last h and
    c, gates. Outputs: gradients of weight, bias, x, first h and c."""
    _usual(attributes, None, None, "ijfo")
    x, weight, bias, h, c = (inputs[k].float() for k in (0, 1, 2, 4, 5))
    with torch.enable_grad():
        wanted = [t.detach().clone().requires_grad_() for t in (weight, bias, x, h, c)]
        w, b, steps, first, cell = wanted
        y, _, cells, *_ = _lstm(steps, w, b, _state(first), _state(cell), attributes.get("forget_bias", 0.0))
        seeds = [inputs[8].float().reshape(y.shape), _state(inputs[9]), _state(inputs[10])]
        return torch.autograd.grad([y, y[-1], cells[-1]], wanted, seeds)


@op("DynamicGRUV2")
def _gru(inputs, outputs, attributes):
    """The weights' columns are reset, update, candidate. Outputs: y, h, then update, reset,
    candidate and the state's part of the candidate, for all steps."""
    x, weight, recurrent, bias, recurrent_bias, lengths, h = inputs[:7]
    _usual(attributes, lengths, x.shape[0], "rzh")
    if not attributes.get("reset_after", True):
        raise NotImplementedError("reset_after=False")
    h, steps = _state(h), []
    for now in x.float():
        r, z, n = (now @ weight.float() + bias.float()).chunk(3, 1)
        hr, hz, hn = (h @ recurrent.float() + recurrent_bias.float()).chunk(3, 1)
        r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        n = torch.tanh(n + r * hn)
        h = (1 - z) * n + z * h
        steps.append((h, h, z, r, n, hn))
    return [torch.stack(values) for values in zip(*steps)]


@op("DynamicGRUV2Grad")
def _gru_gradient(inputs, outputs, attributes):
    """Computes the gradient step by step backwards, from the forward op's saved outputs. Outputs:
    gradients of both weights, of both biases, of x and of the first state."""
    x, weight, recurrent, _, first, states, grad, last, update, reset, new, hidden, lengths = inputs[:13]
    _usual(attributes, lengths, x.shape[0], "rzh")
    before = torch.cat((_state(first)[None], states[:-1].float()))
    dh, inner, outer = _state(last), [], []
    for t in range(x.shape[0] - 1, -1, -1):
        z, r, n, hn, h = (v[t].float() for v in (update, reset, new, hidden, before))
        dh = dh + grad[t].float()
        dn = dh * (1 - z) * (1 - n * n)
        dz = dh * (h - n) * z * (1 - z)
        dr = dn * hn * r * (1 - r)
        inner.append(torch.cat((dr, dz, dn), 1))
        outer.append(torch.cat((dr, dz, dn * r), 1))
        dh = dh * z + outer[-1] @ recurrent.float().t()
    inner, outer = torch.stack(inner[::-1]), torch.stack(outer[::-1])
    return [torch.einsum("tbi,tbg->ig", x.float(), inner), torch.einsum("tbh,tbg->hg", before, outer), inner.sum((0, 1)), outer.sum((0, 1)),
            inner @ weight.float().t(), dh]
