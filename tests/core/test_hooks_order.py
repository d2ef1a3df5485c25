"""Order and timing of gradient hooks, against real PyTorch."""
import threading

import pytest
import torch as real

import mindtorch.torch as mt


def nets(T):
    """Returns {name: (module, input, how to call it)}."""
    nn = T.nn

    class Net(nn.Module):
        def __init__(self, forward, **parts):
            super().__init__()
            for k, v in parts.items():
                setattr(self, k, v)
            self.call = forward

        def forward(self, x):
            return self.call(self, x)

    def raw(n, forward):
        return Net(forward, **{f"p{i}": nn.Parameter(T.ones(3, 3)) for i in range(n)})

    shared = Net(lambda s, x: s.b(s.a(x)), a=nn.Linear(3, 3), b=nn.Linear(3, 3))
    shared.b.weight = shared.a.weight

    def mine(*shape):
        return T.ones(*shape) * .3

    def three(m, x):
        return m(x, x, x)

    return {
        "linear": (nn.Linear(3, 2), mine(4, 3)), "linear, 3-d": (nn.Linear(3, 2), mine(2, 4, 3)), "linear, 1-d": (nn.Linear(3, 2), mine(3)),
        "linear, input": (nn.Linear(3, 2), mine(4, 3).requires_grad_()), "no bias": (nn.Linear(3, 2, bias=False), mine(4, 3)),
        "bilinear": (nn.Bilinear(3, 3, 2), mine(4, 3), lambda m, x: m(x, x)), "conv1d": (nn.Conv1d(2, 3, 2), mine(1, 2, 5)),
        "conv2d": (nn.Conv2d(2, 3, 2), mine(1, 2, 5, 5)), "conv2d, input": (nn.Conv2d(2, 3, 2), mine(1, 2, 5, 5).requires_grad_()),
        "conv3d": (nn.Conv3d(2, 3, 2), mine(1, 2, 5, 5, 5)), "conv_transpose": (nn.ConvTranspose2d(2, 3, 2), mine(1, 2, 5, 5)),
        "groups": (nn.Conv2d(2, 4, 2, groups=2), mine(1, 2, 5, 5)), "batch_norm": (nn.BatchNorm2d(3), mine(4, 3, 2, 2)),
        "batch_norm, eval": (nn.BatchNorm1d(3).eval(), mine(4, 3)), "layer_norm": (nn.LayerNorm(3), mine(4, 3)),
        "layer_norm, input": (nn.LayerNorm(3), mine(4, 3).requires_grad_()), "group_norm": (nn.GroupNorm(2, 4), mine(2, 4, 3)),
        "instance_norm": (nn.InstanceNorm1d(3, affine=True), mine(2, 3, 4)), "prelu": (nn.PReLU(3), mine(2, 3).requires_grad_()),
        "embedding": (nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2)), T.tensor([1, 2])),
        "lstm": (nn.LSTM(3, 2), mine(4, 1, 3)), "lstm, two layers": (nn.LSTM(3, 2, 2, bidirectional=True), mine(4, 1, 3)),
        "gru": (nn.GRU(3, 2, 2), mine(4, 1, 3)), "rnn": (nn.RNN(3, 2), mine(4, 1, 3)), "lstm cell": (nn.LSTMCell(3, 2), mine(4, 3)),
        "gru cell": (nn.GRUCell(3, 2), mine(4, 3)), "rnn cell": (nn.RNNCell(3, 2), mine(4, 3)),
        "attention": (nn.MultiheadAttention(4, 2), mine(5, 1, 4), three),
        "attention, bias_kv": (nn.MultiheadAttention(4, 2, add_bias_kv=True), mine(5, 1, 4), three),
        "encoder": (nn.TransformerEncoderLayer(4, 2, 8, 0.), mine(5, 1, 4)),
        "encoder, norm first": (nn.TransformerEncoderLayer(4, 2, 8, 0., norm_first=True), mine(5, 1, 4)),
        "decoder": (nn.TransformerDecoderLayer(4, 2, 8, 0.), mine(5, 1, 4), lambda m, x: m(x, x)),
        "transformer": (nn.Transformer(4, 2, 1, 1, 8, 0.), mine(5, 1, 4), lambda m, x: m(x, x)),
        "mlp": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), mine(5, 3)),
        "cnn": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)), mine(2, 1, 6, 6)),
        "shared": (shared, mine(4, 3)),
        "residual": (Net(lambda s, x: s.n(x + s.b(s.a(x).relu())), a=nn.Linear(3, 3), b=nn.Linear(3, 3), n=nn.LayerNorm(3)), mine(4, 3)),
        "branches": (Net(lambda s, x: s.a(x) * s.b(x) + s.c(x), a=nn.Linear(3, 3), b=nn.Linear(3, 3), c=nn.Linear(3, 3)), mine(4, 3)),
        **{f"cat {n}": (raw(n, lambda s, x: T.cat(list(s.parameters()))), mine(1)) for n in range(1, 18)},
        "stack": (raw(4, lambda s, x: T.stack([s.p0, s.p1, s.p2, s.p3]).sum() + s.p0 * s.p1 + (s.p2 - s.p3) / s.p1), mine(1)),
        "products": (raw(4, lambda s, x: T.addmm(s.p2, s.p0, s.p1) + s.p0 @ s.p1 + s.p2 @ s.p1.t() + T.bmm(s.p3[None], s.p0[None])[0]), mine(1)),
        "elementwise": (raw(3, lambda s, x: T.addcmul(s.p2, s.p0, s.p1) + T.lerp(s.p0, s.p1, s.p2) + T.where(s.p0 > 0, s.p1, s.p2)), mine(1)),
        "diamond": (raw(3, lambda s, x: (lambda a, b: a * b + a)(s.p0 * s.p1, s.p1 * s.p2)), mine(1)),
        "in place": (raw(3, lambda s, x: s.p0.clone().mul_(s.p1).add_(s.p2)), mine(1)),
    }


def fired(net, how):
    module, x, call = (*net, lambda m, x: m(x))[:3]
    log = []
    for name, p in [*module.named_parameters(), *([("x", x)] if x.requires_grad else [])]:
        if how == "accumulated":
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append(name))
        else:
            p.register_hook(lambda g, name=name: log.append(name))
    out = call(module, x)
    while isinstance(out, tuple):
        out = out[0]
    out.sum().backward()
    return log


@pytest.mark.parametrize("how", ["accumulated", "gradient"])
def test_hooks_on_parameters_fire_in_torchs_order(how):
    ours = nets(mt)
    for name, net in nets(real).items():
        want = fired(net, how)
        assert want and want == fired(ours[name], how), name


# ------------------------------------------------------------------ which hooks fire
def both(f):
    want, got = f(real), f(mt)
    assert want == got
    return want


def test_hooks_fire_only_for_requested_gradients():
    def run(T):
        x, y = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
        log = []
        x.register_hook(lambda g: log.append("x"))
        y.register_hook(lambda g: log.append("y"))
        y.register_post_accumulate_grad_hook(lambda t: log.append("y accumulated"))
        z = (x * y).sum()
        T.autograd.grad(z, x, retain_graph=True)
        z.backward(inputs=[x], retain_graph=True)
        z.backward(inputs=[y])
        return log, x.grad.tolist(), y.grad.tolist()
    assert both(run)[0] == ["x", "x", "y", "y accumulated"]


def multi(T, mode, program):
    x, y, z = (T.full((2,), float(i), requires_grad=True) for i in (1, 2, 3))
    a, b = x * y, y * z
    log = []

    def note(grads):
        log.append([None if g is None else g.tolist() for g in (grads if isinstance(grads, (list, tuple)) else [grads])])

    handle = T.autograd.graph.register_multi_grad_hook((x, y, a, b), note, mode=mode)
    program(T, x, y, z, a, b, handle, log)
    return log


def retained(T, x, y, z, a, b, handle, log):
    for _ in range(3):
        (a * b).sum().backward(retain_graph=True)


def parts(T, x, y, z, a, b, handle, log):
    a.sum().backward(retain_graph=True)
    b.sum().backward(retain_graph=True)
    (a + b).sum().backward()


def asked(T, x, y, z, a, b, handle, log):
    (a * b).sum().backward(inputs=[x], retain_graph=True)
    (a * b).sum().backward(inputs=[a, z], retain_graph=True)
    (a * b).sum().backward(inputs=[y])


def removed(T, x, y, z, a, b, handle, log):
    (a * b).sum().backward(retain_graph=True)
    handle.remove()
    (a * b).sum().backward()


def failing(T, x, y, z, a, b, handle, log):
    def fail(g):
        raise ValueError("no")
    h = x.register_hook(fail)
    with pytest.raises(ValueError):
        (a * b).sum().backward(retain_graph=True)
    h.remove()
    (a * b).sum().backward()


def nested(T, x, y, z, a, b, handle, log):
    def inner(g):
        if len(log) < 3:
            log.append("inner")
            with T.enable_grad():
                (x * 2 + y).sum().backward()
            log.append("end")
    b.register_hook(inner)
    (a * b).sum().backward()


def context(T, x, y, z, a, b, handle, log):
    with handle:
        b.sum().backward(retain_graph=True)
    a.sum().backward()


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("program", [retained, parts, asked, removed, failing, nested, context])
def test_multi_tensor_hooks(mode, program):
    if program is nested and mode == "all":
        # PyTorch tracks only one backward pass at a time, so the outer one ends too early.
        assert multi(mt, mode, program) == ["inner", [[2, 2], [1, 1], None, None], "end", [[12, 12], [12, 12], [6, 6], [2, 2]]]
    else:
        assert both(lambda T: multi(T, mode, program))


@pytest.mark.parametrize("mode", ["all", "any"])
def test_multi_tensor_hooks_in_concurrent_threads(mode):
    """Runs two backward passes in concurrent threads, each stopped in the middle until the other
    arrives."""
    def run(T):
        x, y = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
        log, meet = [], threading.Barrier(2, timeout=20)

        class Meet(T.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t.clone()

            @staticmethod
            def backward(ctx, g):
                meet.wait()
                return g

        def note(grads):
            log.append([g.tolist() for g in grads] if mode == "all" else grads.tolist())

        T.autograd.graph.register_multi_grad_hook((x, y), note, mode=mode)
        threads = [threading.Thread(target=lambda k=k: (Meet.apply(x) * k + y * k).sum().backward()) for k in (2., 3.)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sorted(log)
    assert len(both(run)) == 2


def test_multi_tensor_hooks_reject_other_modes():
    for T in (real, mt):
        with pytest.raises(ValueError, match="mode"):
            T.autograd.graph.register_multi_grad_hook((T.ones(1, requires_grad=True),), print, mode="some")


def test_saved_indices_do_not_require_grad():
    """Checks that a result without a gradient, such as the indices of a sort, reaches the hook
    without requires_grad."""
    def packed(T):
        seen = []
        x = T.tensor([[3.0, 1.0, 2.0]]).requires_grad_()
        with T.autograd.graph.saved_tensors_hooks(lambda t: seen.append((t.dtype.is_floating_point, t.requires_grad)) or t, lambda t: t):
            y, i = x.sort()
        y[0, 0].backward()
        return sorted(set(seen)), x.grad.tolist()
    assert packed(mt) == packed(real)
