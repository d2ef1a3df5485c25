"""MindSpore's ways to train PyTorch-style models, as functions of a device and of whether
MindSpore's graph mode or `ms.jit` is on. Each returns lists of numbers."""
import mindspore as ms
import numpy as np

#: number of eager kernel launches of sessions (torch._dynamo.utils.counters["mindspore"]["eager"])
#: before each step; the caller sets `COUNTERS`
SEEN, COUNTERS = [], {}
ROWS = [(np.random.RandomState(i).randn(6).astype(np.float32), np.int32(i % 3)) for i in range(24)]


def net(torch, device):
    nn = torch.nn
    m = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    for i, p in enumerate(m.parameters()):
        p.data.copy_(torch.from_numpy(np.random.RandomState(i).randn(*p.shape).astype(np.float32) * 0.5))
    return m.to(device)


def batches(torch, device, n=8):
    for i in range(n):
        SEEN.append(COUNTERS.get("eager", 0))
        rows = ROWS[4 * (i % 6):4 * (i % 6) + 4]
        yield torch.from_numpy(np.stack([x for x, _ in rows])).to(device), torch.from_numpy(np.array([y for _, y in rows], np.int64)).to(device)


def dataset():
    return ms.dataset.GeneratorDataset(ROWS, ["x", "y"], shuffle=False).batch(4)


def numbers(*tensors):
    return [t.detach().cpu().numpy() if hasattr(type(t), "_is_mindtorch_tensor") else t.asnumpy() for t in tensors]


class Losses(ms.train.Callback):
    """Callback that records the loss of each step."""

    def __init__(self):
        self.seen = []

    def on_train_step_end(self, run_context):
        SEEN.append(COUNTERS.get("eager", 0))
        out = run_context.original_args().net_outputs
        self.seen.append(float((out[0] if isinstance(out, (tuple, list)) else out).asnumpy()))


def jitted_step(torch, device, graph, make=None):
    """A jitted function with `value_and_grad` and a mindtorch optimizer."""
    m, crit = net(torch, device), torch.nn.CrossEntropyLoss()
    opt = (make or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)))(m.parameters())
    fn = ms.value_and_grad(lambda x, y: (lambda z: (crit(z, y), z))(m(x)), None, opt.parameters, has_aux=True)

    def step(x, y):
        (loss, _), gradients = fn(x, y)
        opt(gradients)
        return loss

    step = ms.jit(step) if graph else step
    return [[float(step(x, y)) for x, y in batches(torch, device)], *numbers(*m.parameters(), *m.buffers())]


def adam_step(torch, device, graph):
    return jitted_step(torch, device, graph, lambda p: torch.optim.AdamW(p, lr=0.01))


def torch_step(torch, device, graph):
    """A PyTorch-style training step in a function under `ms.jit`."""
    m, crit = net(torch, device), torch.nn.CrossEntropyLoss()
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = crit(m(x), y)
        loss.backward()
        opt.step()
        return loss

    step = ms.jit(step) if graph else step
    return [[float(step(x, y)) for x, y in batches(torch, device)], *numbers(*m.parameters(), *m.buffers())]


def assigned_rate(torch, device, graph):
    """The learning rate is a Parameter that `ops.assign` changes between steps of a compiled
    function."""
    m, crit = net(torch, device), torch.nn.CrossEntropyLoss()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    fn = ms.value_and_grad(lambda x, y: crit(m(x), y), None, opt.parameters)

    def step(x, y):
        loss, gradients = fn(x, y)
        opt(gradients)
        return loss

    step, losses = ms.jit(step) if graph else step, []
    for i, (x, y) in enumerate(batches(torch, device)):
        losses.append(float(step(x, y)))
        rate = 0.1 / (i + 2)
        if graph and ms.get_context("mode") == ms.GRAPH_MODE:
            ms.ops.assign(opt.param_groups[0]["lr"], rate)
        else:
            opt.param_groups[0]["lr"] = rate
    return [losses, *numbers(*m.parameters())]


def native_optimizer(torch, device, graph):
    """A MindSpore optimizer on a mindtorch module, in a compiled function."""
    m, crit = net(torch, device), torch.nn.CrossEntropyLoss()
    opt = ms.nn.Momentum(m.trainable_params(), 0.1, 0.9)
    fn = ms.value_and_grad(lambda x, y: crit(m(x), y), None, opt.parameters)

    def step(x, y):
        loss, gradients = fn(x, y)
        opt(gradients)
        return loss

    step = ms.jit(step) if graph else step
    return [[float(step(x, y)) for x, y in batches(torch, device)], *numbers(*m.parameters(), *m.buffers())]


def through_ops(torch, device, graph):
    """MindSpore ops mixed with mindtorch ops, with gradients of arguments and weights."""
    m = net(torch, device)
    fn = ms.value_and_grad(lambda x: ms.ops.exp(m(x) * 0.1).sum() + torch.tanh(x).sum(), 0, list(m.parameters()))

    def step(x):
        value, (of_x, of_weights) = fn(x)
        return value, ms.ops.clip_by_global_norm((of_x, *of_weights), 1.0)

    step = ms.jit(step) if graph else step
    found = []
    for x, _ in batches(torch, device):
        value, gradients = step(x)
        found += numbers(value, *gradients)
    return found


def forward_only(torch, device, graph):
    """A Cell around a module, a module called again after its weights changed, and a function
    without gradients."""
    m = net(torch, device).eval()

    class Around(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = m

        def construct(self, x):
            return self.inner(x) * 2

    cell, f = Around(), lambda x: torch.softmax(m(x), 1)
    f, found = ms.jit(f) if graph else f, []
    for x, _ in batches(torch, device):
        found += numbers(cell(x), f(x))
        with torch.no_grad():
            m[0].weight.mul_(0.9)
    return found


def model(torch, device, graph, sink=False, optimizer=None, pure_torch_loss=False):
    """Runs train, eval and predict of `ms.Model`."""
    torch.set_default_device(device)  # the dataset yields MindSpore tensors, which have no device
    try:
        return _model(torch, device, sink, optimizer, pure_torch_loss)
    finally:
        torch.set_default_device("cpu")


def _model(torch, device, sink, optimizer, pure_torch_loss):
    m, seen = net(torch, device), Losses()
    loss = torch.nn.CrossEntropyLoss() if pure_torch_loss else ms.nn.CrossEntropyLoss()
    opt = (optimizer or (lambda p: ms.nn.Momentum(p, 0.1, 0.9)))(m.trainable_params())
    model = ms.Model(m, loss_fn=loss, optimizer=opt, metrics={"loss"})
    model.train(2, dataset(), callbacks=[seen], dataset_sink_mode=sink)
    found = [model.eval(dataset(), dataset_sink_mode=sink)["loss"], model.predict(ms.Tensor(ROWS[0][0][None])).asnumpy()]
    return [seen.seen, *found, *numbers(*m.parameters(), *m.buffers())]


def model_adam(torch, device, graph):
    return model(torch, device, graph, optimizer=lambda p: ms.nn.Adam(p, 0.01), pure_torch_loss=True)


FLOWS = {f.__name__: f for f in (jitted_step, adam_step, torch_step, assigned_rate, native_optimizer, through_ops, forward_only, model, model_adam)}
