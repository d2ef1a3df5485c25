"""Models of ascend_launches.py, hand-written with mindspore.mint.

They show the cost of a native MindSpore step on Ascend: forward, value_and_grad and an optimizer of
mint. Weights (copied by name), batches and losses are the same as in ascend_launches.py. Constants
(positions, causal masks, token types) are created once. Batch norms do not count their batches.
"""
import numpy as np

import mindspore as ms
from mindspore import mint

F = mint.nn.functional


def on_device(array):
    h = ms.Tensor(array)
    return mint.empty_like(h, device="Ascend").copy_(h)


# ------------------------------------------------------------------ models: (weights and buffers by torch's names, constants, batch) -> loss
def mlp(p, c, x, y):
    x = F.relu(F.linear(x, p["0.weight"], p["0.bias"]))
    return F.cross_entropy(F.linear(x, p["2.weight"], p["2.bias"]), y)


def lenet(p, c, x, y):
    x = F.max_pool2d(F.relu(F.conv2d(x, p["0.weight"], p["0.bias"], padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p["3.weight"], p["3.bias"])), 2).reshape((8, 400))
    x = F.relu(F.linear(x, p["7.weight"], p["7.bias"]))
    x = F.relu(F.linear(x, p["9.weight"], p["9.bias"]))
    return F.cross_entropy(F.linear(x, p["11.weight"], p["11.bias"]), y)


def _bn(p, x, name):
    return F.batch_norm(x, p[name + ".running_mean"], p[name + ".running_var"], p[name + ".weight"], p[name + ".bias"], True)


def cnn(p, c, x, y):
    x = F.max_pool2d(F.relu(_bn(p, F.conv2d(x, p["0.weight"], None, padding=1), "1")), 2)
    x = F.max_pool2d(F.relu(_bn(p, F.conv2d(x, p["4.weight"], None, padding=1), "5")), 2)
    x = F.adaptive_avg_pool2d(x, (2, 2)).reshape((4, 64))
    return F.cross_entropy(F.linear(x, p["10.weight"], p["10.bias"]), y)


def resnet(p, c, x, y):
    x = F.relu(_bn(p, F.conv2d(x, p["0.weight"], None, padding=1), "1"))
    for n, stride in ("3", 1), ("4", 2), ("5", 2):
        r = F.relu(_bn(p, F.conv2d(x, p[n + ".a.weight"], None, stride, 1), n + ".na"))
        r = _bn(p, F.conv2d(r, p[n + ".b.weight"], None, padding=1), n + ".nb")
        if stride > 1:
            x = _bn(p, F.conv2d(x, p[n + ".short.0.weight"], None, stride), n + ".short.1")
        x = F.relu(r + x)
    x = F.adaptive_avg_pool2d(x, (1, 1)).reshape((4, 32))
    return F.cross_entropy(F.linear(x, p["8.weight"], p["8.bias"]), y)


def _linear(p, x, name):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def _norm(p, x, name):
    return F.layer_norm(x, (32,), p[name + ".weight"], p[name + ".bias"])


def _attention(qkv, mask=None):
    """Computes attention with four heads from a fused projection of shape (4, 12, 96)."""
    q, k, v = [mint.transpose(a.reshape((4, 12, 4, 8)), 1, 2) for a in mint.split(qkv, 32, -1)]
    s = mint.matmul(q, mint.transpose(k, -1, -2)) * 8 ** -.5
    a = mint.matmul(F.softmax(s if mask is None else s + mask, -1), v)
    return mint.transpose(a, 1, 2).reshape((4, 12, 32))


def transformer(p, c, t, y):
    x = F.embedding(t, p["emb.weight"]) + p["pos"]
    for n, act in ("layers.0.", F.gelu), ("layers.1.", F.silu):
        x = x + _linear(p, _attention(_linear(p, _norm(p, x, n + "n1"), n + "qkv")), n + "proj")
        x = x + _linear(p, act(_linear(p, _norm(p, x, n + "n2"), n + "f1")), n + "f2")
    return F.cross_entropy(_linear(p, _norm(p, x, "norm"), "out").reshape((48, 50)), y)


def gpt(p, c, t, y):
    x = F.embedding(t, p["tok.weight"]) + F.embedding(c["places"], p["pos.weight"])
    for n in "blocks.0.", "blocks.1.":
        x = x + _linear(p, _attention(_linear(p, _norm(p, x, n + "n1"), n + "qkv"), c["order"]), n + "proj")
        x = x + _linear(p, F.gelu(_linear(p, _norm(p, x, n + "n2"), n + "mlp.0")), n + "mlp.2")
    return F.cross_entropy(F.linear(_norm(p, x, "norm"), p["tok.weight"]).reshape((48, 50)), y)


def bert(p, c, t, y):
    x = F.embedding(t, p["word.weight"], 0) + F.embedding(c["places"], p["pos.weight"]) + F.embedding(c["kinds"], p["kind.weight"])
    x = _norm(p, x, "norm")
    mask = mint.where(t == 0, c["never"], c["always"]).reshape((4, 1, 1, 12))
    for n in "encoder.layers.0.", "encoder.layers.1.":
        a = _attention(F.linear(x, p[n + "self_attn.in_proj_weight"], p[n + "self_attn.in_proj_bias"]), mask)
        x = _norm(p, x + _linear(p, a, n + "self_attn.out_proj"), n + "norm1")
        x = _norm(p, x + _linear(p, F.gelu(_linear(p, x, n + "linear1")), n + "linear2"), n + "norm2")
    return F.cross_entropy(_linear(p, mint.tanh(_linear(p, x[:, 0], "pool")), "out"), y)


def unet(p, c, x, y):
    a = F.conv2d(x, p["c1.weight"], p["c1.bias"], padding=1)
    a = F.leaky_relu(F.group_norm(a, 4, p["n1.weight"], p["n1.bias"]), 0.1)
    d = F.conv2d(a, p["c2.weight"], p["c2.bias"], 2, 1)
    d = F.gelu(F.group_norm(d, 4, p["n2.weight"], p["n2.bias"]))
    u = mint.cat((F.conv_transpose2d(d, p["up.weight"], p["up.bias"], 2), a), 1)
    u = F.leaky_relu(F.conv2d(u, p["c3.weight"], p["c3.bias"], padding=1), 0.1)
    u = F.conv2d(u, p["c4.weight"], p["c4.bias"])
    return F.smooth_l1_loss(u, y) + F.mse_loss(u, y)


def _constants():
    return {"places": np.arange(12), "kinds": np.zeros((4, 12), np.int64), "order": np.triu(np.full((12, 12), -np.inf, np.float32), 1),
            "never": np.full((), -np.inf, np.float32), "always": np.zeros((), np.float32)}


def _sgd(weights, **more):
    return mint.optim.SGD(weights, lr=0.05, momentum=0.9, **more)


_O = mint.optim
#: Model -> (forward, optimizer, maximum norm of the gradients or None).
MODELS = {
    "mlp": (mlp, _sgd, None),
    "lenet": (lenet, _sgd, None),
    "cnn_adam": (cnn, lambda w: _O.Adam(w, lr=1e-3), None),
    "cnn_adamw": (cnn, lambda w: _O.AdamW(w, lr=1e-3, weight_decay=0.05), None),
    "resnet": (resnet, lambda w: _sgd(w, weight_decay=1e-4), None),
    "transformer": (transformer, lambda w: _O.AdamW(w, lr=3e-3, weight_decay=0.01), None),
    "gpt": (gpt, lambda w: _O.AdamW(w, lr=3e-3, weight_decay=0.1), 1.0),
    "bert": (bert, lambda w: _O.AdamW(w, lr=1e-3), None),
    "unet": (unet, lambda w: _O.Adam(w, lr=2e-3), None),
}


def _clipped(grads, most):
    """Clips gradients by their total norm, on the device and without synchronization."""
    norm = mint.norm(mint.stack([mint.norm(g) for g in grads]))
    factor = mint.clamp(most / (norm + 1e-6), max=1.0)
    return tuple([mint.mul(g, factor) for g in grads])


def train(name, weights, buffers, batches, mark=lambda: None):
    """Trains one step per batch and returns the losses.

    `weights` and `buffers` are the initial arrays by name; a batch is a list of arrays. mark() is
    called as in ascend_launches.train.
    """
    forward, optimizer, most = MODELS[name]
    p = {k: ms.Parameter(on_device(v), name=k) for k, v in weights.items()}
    trained = list(p.values())
    p.update({k: ms.Parameter(on_device(v), name=k, requires_grad=False) for k, v in buffers.items()})
    c = {k: on_device(v) for k, v in _constants().items()}
    opt = optimizer(trained)
    step = ms.value_and_grad(lambda *batch: forward(p, c, *batch), None, opt.parameters)
    out = []
    for batch in batches:
        data = [on_device(b) for b in batch]
        mark()
        loss, grads = step(*data)
        opt(grads if most is None else _clipped(grads, most))
        mark()
        out.append(loss)
    return [float(v.asnumpy()) for v in out]
