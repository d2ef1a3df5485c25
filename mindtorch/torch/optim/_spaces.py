"""Array namespaces of tensor ops for mindtorch/backend/optimizer_formulas.py: in place, and recorded for
backward."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor


def _number(x):
    return x.item() if is_tensor(x) else x


class InPlace:
    """Namespace that updates in place where possible, with PyTorch's fused ops."""

    steps = {}  # name of a step -> its update, where it differs from the one in backend/optimizer_formulas.py

    @staticmethod
    def gradient(g, p, wd, maximize, decay):
        """Returns the effective gradient: negated if `maximize`, with L2 weight decay added if
        `decay`."""
        if maximize:
            g = -g
        if not decay:
            return g
        return g + p * wd if is_tensor(wd) and wd.requires_grad else g.add(p, alpha=_number(wd))

    @staticmethod
    def retained(x):
        """Returns the value of a state that the update later modifies in place."""
        return x

    # ---- values
    @staticmethod
    def mul(x, y):
        return x * y

    @staticmethod
    def div(x, y):
        return x / y

    @staticmethod
    def sqrt(x):
        return x.sqrt()

    @staticmethod
    def plus(x, c):
        return x.add_(c)

    @staticmethod
    def less(x, c):
        return x < c

    @staticmethod
    def add_scaled(x, y, c):
        return x.add(y, alpha=c)

    @staticmethod
    def sub_square(x, y):
        return x.addcmul(y, y, value=-1)

    @staticmethod
    def mul_rms_ratio(d, x, y, eps):
        """Returns d * sqrt(x + eps) / sqrt(y + eps)."""
        return x.add(eps).sqrt_().div_(y.add(eps).sqrt_()).mul_(d)

    @staticmethod
    def by_sign(x, negative, above, below):
        """Returns `above` where x > 0, `below` where `negative` is True, and 1 elsewhere."""
        return torch.ones_like(x).masked_fill(x > 0, above).masked_fill(negative, below)

    @staticmethod
    def zero_where(x, mask):
        return x.masked_fill(mask, 0)

    # ---- states
    @staticmethod
    def start_(b, d):
        return d.detach().clone()

    @staticmethod
    def copy_(x, y):
        return x.copy_(y)

    @staticmethod
    def lerp_(m, d, w):
        return m.lerp_(d, w)

    @staticmethod
    def moment_(v, d, beta, w):
        return v.mul_(beta).addcmul_(d, d, value=w)

    @staticmethod
    def add_square_(v, d):
        return v.addcmul_(d, d, value=1)

    @staticmethod
    def maximum_(x, y):
        return x.copy_(x.maximum(y))

    @staticmethod
    def decay_maximum_(u, beta, d, eps):
        """Sets u to the larger of beta * u and |d| + eps."""
        return u.copy_(u.mul_(beta).maximum(d.abs().add_(eps)))

    @staticmethod
    def decay_add_(b, mu, d, c):
        return b.mul_(mu).add_(d, alpha=c)

    @staticmethod
    def decay_add_div_(b, mu, d, by):
        return b.mul_(mu).addcdiv_(d, by)

    @staticmethod
    def clamped_mul_(x, y, low, high):
        return x.copy_((x * y).clamp(low, high))

    @staticmethod
    def towards_(average, p, w):
        return average.add_(p.sub(average).mul_(w))

    # ---- the parameter
    @staticmethod
    def mul_(p, c):
        return p.mul_(c)

    @staticmethod
    def sub_(p, x):
        return p.add_(x, alpha=-1.0)

    @staticmethod
    def sub_scaled_(p, x, c):
        return p.addcmul_(x, c, value=-1) if is_tensor(c) and c.requires_grad else p.add_(x, alpha=-_number(c))

    @staticmethod
    def sub_div_(p, x, y, c):
        return p.addcdiv_(x, y, value=-_number(c))

    @staticmethod
    def sub_signed_(p, x, y):
        return p.addcmul_(x.sign(), y, value=-1)


class Lists(InPlace):
    """Namespace with the rounding of PyTorch's foreach ops (foreach=True).

    Multiplying a list by a scalar in place rounds the scalar to the precision of the tensors.
    """

    @staticmethod
    def moment_(v, d, beta, w):
        return Lists.mul_(v, beta).addcmul_(d, d, value=w)

    @staticmethod
    def decay_maximum_(u, beta, d, eps):
        return u.copy_(Lists.mul_(u, beta).maximum(d.abs().add_(eps)))

    @staticmethod
    def decay_add_(b, mu, d, c):
        return Lists.mul_(b, mu).add_(d, alpha=c)

    @staticmethod
    def decay_add_div_(b, mu, d, by):
        return Lists.mul_(b, mu).addcdiv_(d, by)

    @staticmethod
    def mul_(p, c):
        return torch._foreach_mul_([p], c)[0]


def _nadam(xp, options, scalars, g, p, m, v):
    maximize, decay, decoupled = options
    of_grad, of_mean, corr, eps, wd, w1, b2, w2 = scalars
    if decay and decoupled:
        xp.mul_(p, wd)
    d = xp.gradient(g, p, wd, maximize, decay and not decoupled)
    mean = xp.lerp_(m, d, w1)
    scale = xp.moment_(v, d, b2, w2).sqrt().div_(corr ** 0.5).add_(eps)
    xp.sub_div_(p, d, scale, of_grad)
    xp.sub_div_(p, mean, scale, of_mean)


def _radam(xp, options, scalars, g, p, m, v):
    maximize, decay, decoupled, rectify = options
    corr, lr, root, rect, eps, wd, w1, b2, w2 = scalars
    if decay and decoupled:
        xp.mul_(p, wd)
    d = xp.gradient(g, p, wd, maximize, decay and not decoupled)
    mean = xp.lerp_(m, d, w1)
    size = lr / corr
    scale = xp.moment_(v, d, b2, w2).sqrt().add_(eps).div_(-root * size * (rect if rectify else 0.0)).reciprocal_()
    p.addcmul_(mean, scale.add_(0.0 if rectify else -size))


def _adagrad(xp, options, scalars, g, p, total):
    maximize, decay = options
    size, eps, wd = scalars
    d = xp.gradient(g, p, wd, maximize, decay)
    root = xp.add_square_(total, d).sqrt().add_(eps)
    p.addcdiv_(xp.mul_(d, -size) if decay or maximize else d * -size, root)


def _asgd(xp, options, scalars, g, p, average):
    maximize, decay, _ = options
    eta, keep, mu, wd = scalars
    d = xp.gradient(g, p, wd, maximize, decay).add(p, alpha=(1 - keep) / eta)
    p.addcmul_(d, p.new_tensor(eta), value=-1)
    average.addcmul_(p.sub(average), p.new_tensor(mu))


#: steps that PyTorch computes differently over lists
Lists.steps = {"nadam_step": _nadam, "radam_step": _radam, "adagrad_step": _adagrad, "asgd_step": _asgd}


class Recorded(InPlace):
    """Namespace for differentiable=True: backward saves copies of the states, so the next step may
    modify them in place."""

    @staticmethod
    def retained(x):
        return x.clone()

    @staticmethod
    def plus(x, c):
        return x + c

    @staticmethod
    def sub_square(x, y):
        return x - y ** 2

    @staticmethod
    def mul_rms_ratio(d, x, y, eps):
        return (x + eps).sqrt() / (y + eps).sqrt() * d

    @staticmethod
    def lerp_(m, d, w):
        return m.copy_(m + (d - m) * w).clone()

    @staticmethod
    def moment_(v, d, beta, w):
        return v.copy_(v * beta + d * d * w).clone()

    @staticmethod
    def add_square_(v, d):
        return v.copy_(v + d * d).clone()

    @staticmethod
    def maximum_(x, y):
        return x.copy_(x.clone().maximum(y)).clone()

    @staticmethod
    def decay_maximum_(u, beta, d, eps):
        return u.copy_((u * beta).maximum(d.abs() + eps)).clone()

    @staticmethod
    def decay_add_div_(b, mu, d, by):
        return b.copy_(b * mu + d / by).clone()

    @staticmethod
    def clamped_mul_(x, y, low, high):
        return x.copy_((x * y).clamp(low, high)).clone()

    @staticmethod
    def sub_scaled_(p, x, c):
        return p.sub_(x * c)

    @staticmethod
    def sub_div_(p, x, y, c):
        return p.sub_(x / y * c)
