"""Training steps that include MindSpore's own code: optimizers, loss scalers, clipping. Functions
of torch, a device, and whether they run under `ms.jit`."""
import mindspore as ms
import numpy as np
from mindspore.amp import DynamicLossScaler, StaticLossScaler, all_finite

from _graph_flows import batches, net, numbers

GROUPED = lambda ps: [{"params": ps[:2], "weight_decay": 0.1, "lr": 0.05}, {"params": ps[2:]}, {"order_params": ps}]         # noqa: E731
OPTIMIZERS = {
    "momentum": lambda ps: ms.nn.Momentum(ps, 0.1, 0.9),
    "nesterov": lambda ps: ms.nn.Momentum(ps, 0.1, 0.9, weight_decay=0.01, use_nesterov=True),
    "scaled": lambda ps: ms.nn.Momentum(ps, 0.1, 0.9, loss_scale=4.0),
    "groups": lambda ps: ms.nn.Momentum(GROUPED(ps), 0.1, 0.9),
    "table": lambda ps: ms.nn.Momentum(ps, ms.nn.cosine_decay_lr(0.01, 0.1, 8, 4, 2), 0.9),
    "schedule": lambda ps: ms.nn.Momentum(ps, ms.nn.ExponentialDecayLR(0.1, 0.5, 3), 0.9),
    "sgd": lambda ps: ms.nn.SGD(ps, 0.1),
    "sgd_momentum": lambda ps: ms.nn.SGD(ps, 0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "adam": lambda ps: ms.nn.Adam(ps, 0.01),
    "adam_decay": lambda ps: ms.nn.Adam(ps, 0.01, beta1=0.8, weight_decay=0.01),
    "adamw": lambda ps: ms.nn.AdamWeightDecay(ps, 0.01, weight_decay=0.1),
}


def trained(torch, device, compiled, make, between=None, inside=None):
    """Returns the losses, the weights and the optimizer state. `between(i, model, optimizer)` runs
    before each step. `inside(i, model, optimizer)` runs at its end, and its results are compared
    too."""
    m, crit = net(torch, device), torch.nn.CrossEntropyLoss()
    opt = make(m.trainable_params())
    fn = ms.value_and_grad(lambda x, y: crit(m(x), y), None, opt.parameters)

    def step(x, y, i):
        loss, gradients = fn(x, y)
        opt(gradients)
        return loss, inside(i, m, opt) if inside else 0

    step, out = ms.jit(step) if compiled else step, []
    for i, (x, y) in enumerate(batches(torch, device)):
        if between:
            between(i, m, opt)
        loss, more = step(x, y, i)
        out.append([float(loss), *np.ravel(more)])
    state = [p.asnumpy() for p in opt.get_parameters() if not hasattr(type(p), "_is_mindtorch_tensor")]
    return [*out, *numbers(*m.parameters(), *m.buffers()), *state]


def scaled(torch, device, compiled, dynamic=False):
    """A full training step: two losses, a loss scale, clipped and inspected gradients, an
    optimizer."""
    m, crit = net(torch, device), torch.nn.CrossEntropyLoss()
    opt = ms.nn.Momentum(m.trainable_params(), 0.1, 0.9)
    scaler = DynamicLossScaler(2.0 ** 4, 2, 3) if dynamic else StaticLossScaler(128.0)

    def forward(x, y):
        logits = m(x)
        a, b = crit(logits, y), 0.1 * (logits * logits).mean()
        return scaler.scale(a + b), a, b

    fn = ms.value_and_grad(forward, None, weights=opt.parameters, has_aux=True)

    def step(x, y):
        (loss, a, b), gradients = fn(x, y)
        loss, gradients = scaler.unscale(loss), scaler.unscale(gradients)
        gradients = ms.ops.clip_by_global_norm(gradients, 0.5)
        finite = all_finite(gradients)
        if finite:
            opt(gradients)
        if dynamic:
            scaler.adjust(finite)
        return loss, a, b

    step = ms.jit(step) if compiled else step
    return [*[[float(v) for v in step(x, y)] for x, y in batches(torch, device)], *numbers(*m.parameters()), scaler.scale_value.asnumpy()]
