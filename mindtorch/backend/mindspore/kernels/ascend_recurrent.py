"""LSTM and GRU layers on Ascend: one launch forward and one backward, by the kernels' names
(`mindtorch/backend/mindspore/aclnn.py`). Without them, and in graphs, the steps of `rnn.py` and
`gru.py` run.
"""
from mindtorch.backend.mindspore import aclnn
from mindtorch.backend.mindspore.kernels import gru, rnn
from mindtorch.backend.mindspore.kernels._call import STATE, dtype_of, is_contiguous, mint, ms, reshape, shape_of
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, empty, new_like

_FLOATS = "float32 float64 float16 bfloat16"


class _Saved:
    """What a gradient needs beside its operands."""

    def __init__(self, x, states, gates, reverse):
        self.turned, self.states, self.gates = x if reverse else None, states, gates

    def inputs(self, x, steps, n):
        """Returns the layer's inputs in the order of its steps."""
        return _rows(x, steps, n, shape_of(x)[1]) if self.turned is None else self.turned


def _in_time(x, reverse):
    """Returns x, reversed in its first dimension if `reverse`."""
    return mint.flip(x, (0,)) if reverse else x


def _rows(x, *shape):
    return x.view(shape) if is_contiguous(x) else reshape(x, shape)


def _covered(x, h0, sizes, w_hr=None):
    """True if the kernels cover a layer: sequences of equal length, float32 or float16, no graph."""
    return STATE.on is None and w_hr is None and len(set(sizes)) == 1 and shape_of(h0)[0] == sizes[0] and dtype_of(x) in (ms.float32, ms.float16)


def _forward(launch, gates, x, states, weights, sizes, reverse, keep, results):
    """Runs a layer. Returns (outputs, last states, saved)."""
    steps, n, hidden = len(sizes), sizes[0], shape_of(states[0])[1]
    x = _in_time(_rows(x, steps, n, shape_of(x)[1]), reverse)
    # (copies, because the gradient needs the values of now)
    states = [_rows(copy(s) if keep else s, 1, n, hidden) for s in states]
    saved = [[empty((steps, n, hidden), dtype_of(x))] for _ in range(gates)] if keep else [None] * gates
    hx = states[0] if len(states) == 1 else states
    y, *last = launch(x, [w for w in weights if w is not None], hx, None, int(weights[2] is not None), 1, 0.0, int(keep), 0, 0, *saved,
                      outputs=(new_like(x, (steps, n, hidden)), *[new_like(x, (1, n, hidden))] * results))
    r = _in_time(y, reverse).view((steps * n, hidden)), *[s.view((n, hidden)) for s in last]
    return r, _Saved(x, states, saved, reverse)


def _weight_gradients(weights):
    return [empty(shape_of(w), dtype_of(w)) for w in weights if w is not None]


# ------------------------------------------------------------------ LSTM
@ascend("lstm lstm_cell", only=_FLOATS)
def _lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse, keep):
    launch = aclnn.find("LSTM", "tlltiidiii" + "ooo" + "l" * 7) if _covered(x, h0, sizes, w_hr) else None
    if launch is None or aclnn.find("LstmBackward", _LSTM_BACKWARD) is None:
        return rnn.lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes=sizes, reverse=reverse, keep=keep)
    r, saved = _forward(launch, 7, x, (h0, c0), (w_ih, w_hh, b_ih, b_hh), sizes, reverse, keep, 2)
    if not keep:
        return r
    work = saved.gates[0][0]
    work.recurrent = saved, (b_ih, b_hh)
    return *r, work


_LSTM_BACKWARD = "tlltttlllllllt" + "iidiii" + "B" + "ooo" + "l"


@ascend("lstm_backward")
def _lstm_backward(gy, gh, gc, x, w_ih, w_hh, w_hr, work, *, sizes, reverse, needs):
    if not hasattr(work, "recurrent"):
        return rnn.lstm_backward(gy, gh, gc, x, w_ih, w_hh, w_hr, work, sizes=sizes, reverse=reverse, needs=needs)
    saved, biases = work.recurrent
    steps, n, hidden = len(sizes), sizes[0], shape_of(gc)[1]
    weights = [w_ih, w_hh, *[b for b in biases if b is not None]]
    of_weights = _weight_gradients(weights)
    gy = _in_time(_rows(gy, steps, n, hidden), reverse)
    inputs = saved.inputs(x, steps, n)
    gx, gh0, gc0 = aclnn.find("LstmBackward", _LSTM_BACKWARD)(
        inputs, saved.states, weights, gy, _rows(gh, 1, n, hidden), _rows(gc, 1, n, hidden), *saved.gates, None, int(len(weights) > 2), 1, 0.0, 1, 0, 0, None,
        of_weights, outputs=(new_like(inputs), new_like(gy, (1, n, hidden)), new_like(gy, (1, n, hidden))))
    of_weights += [None] * (4 - len(of_weights))
    found = (_in_time(gx, reverse).view((steps * n, shape_of(x)[1])), gh0.view((n, hidden)), gc0.view((n, hidden)), *of_weights, None)
    return tuple([g if need else None for g, need in zip(found, (*needs, False)[:8])])


# ------------------------------------------------------------------ GRU
_GRU_BACKWARD = "tltttlllllt" + "iiii" + "oo" + "l"


@ascend("gru", only=_FLOATS)
def _gru(x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse, keep):
    launch = aclnn.find("GRU", "tlttiidiii" + "oo" + "l" * 5) if _covered(x, h0, sizes) else None
    if launch is None or aclnn.find("GRUBackward", _GRU_BACKWARD) is None:
        return gru.gru(x, h0, w_ih, w_hh, b_ih, b_hh, sizes=sizes, reverse=reverse, keep=keep)
    r, saved = _forward(launch, 5, x, (h0,), (w_ih, w_hh, b_ih, b_hh), sizes, reverse, keep, 1)
    if not keep:
        return r
    work = saved.gates[0][0]
    work.recurrent = saved, (b_ih, b_hh)
    return *r, work, None, None


@ascend("gru_backward")
def _gru_backward(gy, gh, x, w_ih, w_hh, work, before, inner, *, sizes, reverse, needs):
    if not hasattr(work, "recurrent"):
        return gru.gru_backward(gy, gh, x, w_ih, w_hh, work, before, inner, sizes=sizes, reverse=reverse, needs=needs)
    saved, biases = work.recurrent
    steps, n, hidden = len(sizes), sizes[0], shape_of(gh)[1]
    weights = [w_ih, w_hh, *[b for b in biases if b is not None]]
    of_weights = _weight_gradients(weights)
    gy, inputs = _in_time(_rows(gy, steps, n, hidden), reverse), saved.inputs(x, steps, n)
    gx, gh0 = aclnn.find("GRUBackward", _GRU_BACKWARD)(
        inputs, weights, saved.states[0], gy, _rows(gh, 1, n, hidden), *saved.gates, None, int(len(weights) > 2), 1, 0, 0, of_weights,
        outputs=(new_like(inputs), new_like(gy, (1, n, hidden))))
    of_weights += [None] * (4 - len(of_weights))
    found = _in_time(gx, reverse).view((steps * n, shape_of(x)[1])), gh0.view((n, hidden)), *of_weights
    return tuple([g if need else None for g, need in zip(found, needs)])
