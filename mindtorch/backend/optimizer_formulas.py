"""Update formulas of the elementwise optimizers, defined once over an array namespace `xp`.

`update(xp, options, scalars, gradient, parameter, *states)`: the names under which `options` and
`scalars` are unpacked tell their meaning. A device may have a kernel that updates all parameters of
a group at once, under the names of `STEPS` (core/device/fused_optim.py).

Two namespaces implement the functions used here: backend/cpu/optimizer.py derives a chain of NumPy
calls from the formulas; torch/optim/_spaces.py has tensor ops, in place and recorded for backward.
A function whose name ends in _ overwrites its first operand and returns the new value. The
functions are as coarse as PyTorch's ops (lerp, addcdiv); intermediate rounding is up to the
namespace.

Names of scalars: lr, size: factor of the update direction; wd: weight decay (decoupled: the factor
1 - lr * decay); w, w1, w2: 1 - beta.
"""

from collections.abc import Callable
from typing import Any

#: name of the kernel -> update
STEPS: dict[str, Callable[..., Any]] = {}


def _step(update):
    STEPS[update.__name__ + "_step"] = update
    return update


@_step
def sgd(xp, options, scalars, g, p, b=None):
    maximize, decay, momentum, nesterov, first = options
    lr, wd, mu, damp = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    if momentum:
        b = xp.start_(b, d) if first else xp.decay_add_(b, mu, d, damp)
        d = xp.add_scaled(d, b, mu) if nesterov else b
    xp.sub_scaled_(p, d, lr)
    return b


@_step
def adam(xp, options, scalars, g, p, m, v, largest=None):
    maximize, decay, decoupled, amsgrad = options
    size, root, eps, wd, w1, b2, w2 = scalars
    if decay and decoupled:
        xp.mul_(p, wd)
    d = xp.gradient(g, p, wd, maximize, decay and not decoupled)
    mean = xp.lerp_(m, d, w1)
    square = xp.moment_(v, d, b2, w2)
    if amsgrad:
        square = xp.maximum_(largest, v)
    xp.sub_div_(p, mean, xp.plus(xp.div(xp.sqrt(square), root), eps), size)


@_step
def adamax(xp, options, scalars, g, p, m, u):
    maximize, decay = options
    size, eps, wd, w1, b2 = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    mean = xp.lerp_(m, d, w1)
    xp.sub_div_(p, mean, xp.decay_maximum_(u, b2, d, eps), size)


@_step
def nadam(xp, options, scalars, g, p, m, v):
    maximize, decay, decoupled = options
    of_grad, of_mean, corr, eps, wd, w1, b2, w2 = scalars
    if decay and decoupled:
        xp.mul_(p, wd)
    d = xp.gradient(g, p, wd, maximize, decay and not decoupled)
    mean = xp.lerp_(m, d, w1)
    scale = xp.plus(xp.sqrt(xp.div(xp.moment_(v, d, b2, w2), corr)), eps)
    xp.sub_div_(p, d, scale, of_grad)
    xp.sub_div_(p, mean, scale, of_mean)


@_step
def radam(xp, options, scalars, g, p, m, v):
    maximize, decay, decoupled, rectify = options
    corr, lr, root, rect, eps, wd, w1, b2, w2 = scalars
    if decay and decoupled:
        xp.mul_(p, wd)
    d = xp.gradient(g, p, wd, maximize, decay and not decoupled)
    mean = xp.lerp_(m, d, w1)
    square = xp.moment_(v, d, b2, w2)
    change = xp.mul(xp.div(mean, corr), lr)
    if rectify:
        change = xp.mul(xp.mul(change, xp.div(root, xp.plus(xp.sqrt(square), eps))), rect)
    xp.sub_(p, change)


@_step
def rmsprop(xp, options, scalars, g, p, v, *states):
    """states: the mean of the gradients (if centered), the momentum buffer (with momentum)."""
    maximize, decay, centered, momentum = options
    lr, alpha, w, eps, wd, mu = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    square = xp.moment_(v, d, alpha, w)
    if centered:
        square = xp.sub_square(square, xp.lerp_(states[0], d, w))
    scale = xp.plus(xp.sqrt(square), eps)
    if momentum:
        xp.sub_scaled_(p, xp.decay_add_div_(states[-1], mu, d, scale), lr)
    else:
        xp.sub_div_(p, d, scale, lr)


@_step
def rprop(xp, options, scalars, g, p, before, size):
    maximize, = options
    shrink, grow, low, high = scalars
    d = xp.gradient(g, p, None, maximize, False)
    # The sign of the product decides. NaN counts as no sign, as in PyTorch.
    product = xp.mul(d, xp.retained(before))
    turned = xp.less(product, 0)
    size = xp.clamped_mul_(size, xp.by_sign(product, turned, grow, shrink), low, high)
    d = xp.zero_where(d, turned)
    xp.sub_signed_(p, d, size)
    xp.copy_(before, d)


@_step
def adagrad(xp, options, scalars, g, p, total):
    maximize, decay = options
    size, eps, wd = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    xp.sub_div_(p, d, xp.plus(xp.sqrt(xp.add_square_(total, d)), eps), size)


@_step
def adadelta(xp, options, scalars, g, p, v, acc):
    maximize, decay = options
    lr, rho, w, eps, wd = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    square = xp.moment_(v, d, rho, w)
    change = xp.mul_rms_ratio(d, xp.retained(acc), square, eps)
    xp.moment_(acc, change, rho, w)
    xp.sub_scaled_(p, change, lr)


@_step
def asgd(xp, options, scalars, g, p, average):
    maximize, decay, averaging = options
    eta, keep, mu, wd = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    xp.mul_(p, keep)
    xp.sub_scaled_(p, d, eta)
    if averaging:
        xp.towards_(average, p, mu)
    else:
        xp.copy_(average, p)
