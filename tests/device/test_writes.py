"""Writes on the npu device to full tensors, through views and indices, and from other devices and
dtypes: values, errors and version counts match PyTorch."""
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from _alias_programs import On
from mindtorch.core.device import device_dispatch

CASES = {}


def case(fn):
    """Registers `fn(T, P)`: `T` creates tensors on the device, `P` on the CPU."""
    CASES[fn.__name__] = fn
    return fn


def A(T):
    return T.arange(12.).view(3, 4)


@case
def get_cpu_index(T, P):
    return A(T)[P.tensor([2, 0])]


@case
def get_cpu_mask(T, P):
    return A(T)[P.tensor([True, False, True])]


@case
def get_cpu_full_mask(T, P):
    return A(T)[P.arange(12.).view(3, 4)>4]


@case
def get_cpu_mixed(T, P):
    return A(T)[1:, P.tensor([2, 0])]


@case
def get_cpu_0dim(T, P):
    return A(T)[P.tensor(1)]


@case
def set_cpu_index(T, P):
    x = A(T)
    x[P.tensor([2, 0])] = 1.
    return x


@case
def set_cpu_mask(T, P):
    x = A(T)
    x[P.tensor([True, False, True])] = 1.
    x[P.arange(12.).view(3, 4)>7] = -1
    return x


@case
def set_mask_cpu0(T, P):
    x = A(T)
    x[x>3] = P.tensor(2)
    return x


@case
def set_idx_cpu0(T, P):
    x = A(T)
    x[T.tensor([0, 1])] = P.tensor(2.)
    return x


@case
def set_basic_cpu(T, P):
    x = A(T)
    x[1] = P.arange(4)
    x[:, 1] = P.tensor([9, 8, 7])
    return x


@case
def set_basic_lead(T, P):
    x = A(T)
    x[1] = T.arange(4).view(1, 1, 4)
    return x


@case
def set_bad(T, P):
    x = A(T)
    x[1] = T.arange(3.)


@case
def set_dtypes(T, P):
    x = T.zeros(5, dtype=P.int64)
    x[:] = T.tensor([1.7, -2.7, float('nan') if 0 else 3, 1e5, -0.5])
    y = T.zeros(3, dtype=P.bool)
    y[:] = T.tensor([0., 0.5, float('nan')])
    z = T.zeros(2, dtype=P.bfloat16)
    z[...] = T.tensor([1.001, 3.14159])
    w = T.zeros(2, dtype=P.uint8)
    w[...] = T.tensor([-1., 300.]).to(P.int32)
    return x, y, z.float(), w


@case
def copy_b(T, P):
    x = A(T)
    x.copy_(T.arange(4))
    y = T.zeros(2, 3, 4)
    y.copy_(x)
    y[0].copy_(P.tensor(5))
    return x, y


@case
def copy_from_cpu(T, P):
    x = A(T)
    x.copy_(P.arange(12).view(3, 4).t().contiguous().t())
    x.t().copy_(P.arange(12.).view(4, 3))
    return x


@case
def copy_to_cpu(T, P):
    x = P.zeros(3, 4)
    x.copy_(A(T))
    x[0] = A(T)[2]
    x.t()[0].copy_(A(T)[0, :3])
    x[1:2, :] = 5
    return x


@case
def copy_grad_cross(T, P):
    w = P.ones(4, requires_grad=True)
    x = A(T)*1
    x[1].copy_(w*2)
    x.sum().backward()
    return w.grad, x


@case
def copy_grad_cross2(T, P):
    w = T.ones(4, requires_grad=True)
    x = P.zeros(3, 4)
    x.copy_(w*2)
    x[1] = w
    (x*x).sum().backward()
    return w.grad, x


@case
def set_grad_cross(T, P):
    w = P.ones(4, requires_grad=True)
    x = A(T)*1
    x[1] = w*2
    x.sum().backward()
    return w.grad, x


@case
def overlapping_copy(T, P):
    x = T.arange(6.)
    y = x.data
    y[1:].copy_(x[:5])


@case
def overlapping_copy_strided(T, P):
    x = T.arange(9.).view(3, 3)
    x.copy_(x.t())
    return x


@case
def overlapping_int(T, P):
    x = T.arange(6)
    x[::2] += x[::2].flip(0)
    x[1:].add_(1)
    return x


@case
def exp_refuses(T, P):
    T.zeros(3, 1).expand(3, 2).mul_(2)


@case
def exp_refuses2(T, P):
    T.zeros(3, 1).expand(3, 2)[0] = T.arange(2.)


@case
def exp_fill(T, P):
    x = T.zeros(3, 1)
    x.expand(3, 2).zero_().fill_(4)
    return x


@case
def out_args(T, P):
    o = T.empty(3, 4)
    P.add(A(T), 1, out=o)
    p = T.zeros(6, 4)
    P.mul(A(T), 2, out=p[::2])
    q = T.empty(0)
    P.sum(A(T), 0, out=q)
    r = T.zeros(4, 3)
    P.exp(A(T), out=r.t())
    s = T.zeros(3, 4, dtype=P.float64)
    P.add(A(T), A(T), out=s)
    return o, p, q, r, s


@case
def out_bad(T, P):
    P.add(A(T), 1.5, out=T.zeros(3, 4, dtype=P.int64))


@case
def index_put(T, P):
    x = A(T)
    x.index_put_((T.tensor([0, 1]), T.tensor([1, 1])), T.tensor([5., 6.]))
    x.index_put_((P.tensor([0, 0]),), T.tensor(1.), accumulate=True)
    x[T.tensor([2]), 1:3] = T.tensor([7., 8.])
    x[:, T.tensor([[3], [0]])] = -1.
    x[T.tensor([True, False, True]), 0] = T.tensor([50., 51.])
    return x


@case
def index_put_bad(T, P):
    x = A(T)
    x[T.tensor([3])] = 1.


@case
def index_put_bad2(T, P):
    x = A(T)
    x[T.tensor([1])] = T.tensor([1, 2, 3, 4])


@case
def masked(T, P):
    x = A(T)
    x.masked_fill_(x>8, 0)
    x.masked_fill_(T.tensor([True, False, False, False]), T.tensor(3.))
    x.t().masked_fill_(x.t()<2, P.tensor(7.))
    x.masked_scatter_(x==7, T.arange(12.)*10)
    return x


@case
def masked_bad(T, P):
    x = A(T)
    x.masked_fill_(x>1, T.tensor([1., 2.]))


@case
def fills(T, P):
    x = A(T)
    x[0].fill_(T.tensor(2))
    x[1].fill_(P.tensor(3.5))
    x.fill_diagonal_(9)
    x[2, 1:].zero_()
    y = T.zeros(2, dtype=P.complex64)
    y.fill_(1j)
    z = T.ones(3, dtype=P.bool)
    z.fill_(False)
    b = T.zeros(2, dtype=P.bfloat16)
    b.fill_(1.1)
    return x, P.view_as_real(y), z, b.float()


@case
def versions(T, P):
    x = A(T)
    v = x[0]
    a = [x._version]
    x.zero_()
    v.fill_(1)
    x[1:] = 2
    x[x>1] = 0
    x.t().add_(1)
    x.detach().mul_(2)
    P.add(x, 1, out=x)
    x.index_fill_(0, T.tensor([0]), 3)
    x.data.add_(1)
    return x._version, v._version, x


@case
def stats(T, P):
    bn = P.nn.BatchNorm1d(4)
    bn = bn.to(A(T).device)
    bn(A(T))
    bn.running_mean.mul_(2)
    return bn.running_mean, bn.running_var, bn.num_batches_tracked, bn.running_mean._version


@case
def opt_like(T, P):
    p = P.nn.Parameter(A(T))
    g = T.ones(3, 4)
    with P.no_grad():
        p.add_(g, alpha=-0.1)
        p.data.copy_(p*2)
        p.data.mul_(0.5)
        p[0].zero_()
        p.clamp_(0, 5)
    return p, p._version, p.is_leaf


def _network(T, P):
    net = P.nn.Linear(4, 3)
    with P.no_grad():
        net.weight.copy_(P.arange(12.).view(3, 4) - 5)
        net.bias.fill_(.5)
    return net.to(A(T).device)


@case
def ops_in_place_in_a_network(T, P):
    net = _network(T, P)
    h = P.relu_(net(A(T)))
    h = P.nn.functional.dropout(h * 2, 0.0, inplace=True)
    h = P.nn.functional.hardtanh_(h * 1, 0, 100.)
    h.add_(net.bias).mul_(0.5)
    h.sum().backward()
    return h, net.weight.grad, net.bias.grad


@case
def result_overwritten_that_backward_needs(T, P):
    h = P.relu_(_network(T, P)(A(T)))
    P.nn.functional.leaky_relu_(h, 0.1).mul_(2)
    P.nn.functional.elu(h, inplace=True).sum().backward()


@case
def stale(T, P):
    x = T.ones(3, requires_grad=True)
    y = x*2
    z = y.exp()
    z.add_(1)
    z.sum().backward()


@case
def stale2(T, P):
    w = T.ones(3, requires_grad=True)
    y = w*w
    w.data.mul_(2)
    y.sum().backward()
    return w.grad


@case
def grads_views(T, P):
    x = A(T).requires_grad_()
    y = x*1
    y[1:].t()[::2].mul_(3)
    y[:, 0] = x[0, 1]
    y.view(-1)[5:7].add_(x.view(-1)[:2])
    y.unfold(1, 2, 1)[0, 0].mul_(2)
    (y*A(T)).sum().backward()
    return y, x.grad


@case
def foreach(T, P):
    ps = [T.ones(3), T.zeros(2, 2)]
    P._foreach_add_(ps, [T.ones(3), T.ones(2, 2)], alpha=2)
    P._foreach_mul_(ps, 3.)
    P._foreach_zero_(ps[:1])
    P._foreach_addcdiv_(ps, ps, [T.ones(3), T.ones(2, 2)], 0.5)
    return ps


@case
def misc(T, P):
    x = A(T)
    x.t_().add_(1)
    x.squeeze_().unsqueeze_(0)
    y = A(T)
    y.tril_().index_add_(1, T.tensor([0, 0]), T.ones(3, 2)).scatter_(1, T.tensor([[1], [2], [3]]), 9.).cumsum_(0).clamp_min_(2).sub_(T.ones(4)).pow_(2).neg_()
    y.lerp_(T.zeros(3, 4), 0.5).addcmul_(y, y, value=.1)
    y.swapaxes_(0, 1)
    return x, y


@case
def meta_copy(T, P):
    x = A(T)
    x.copy_(P.empty(3, 4, device='meta'))


@case
def cpu_other(T, P):
    x = A(T)
    x.add_(P.tensor(2.))
    x.mul_(P.tensor(2))
    return x


@case
def write_overlap_half(T, P):
    x = T.arange(8., dtype=P.bfloat16)
    x[1:] = x[1:].clone()
    x.view(2, 4).t().copy_(T.arange(8.).view(4, 2))
    x.mul_(2)
    return x.float()


def _ran(fn, T, P):
    try:
        r = fn(T, P)
    except Exception as e:
        return type(e).__name__
    return [x.detach().cpu().numpy() if hasattr(x, "detach") else x for x in (r if isinstance(r, (tuple, list)) else (r,))]


@pytest.mark.parametrize("name", CASES)
def test_case(name, npu):
    want, got = _ran(CASES[name], real, real), _ran(CASES[name], On(npu), mine)
    assert isinstance(want, str) == isinstance(got, str), (want, got)
    if isinstance(want, str):
        assert want == got
        return
    for a, b in zip(want, got, strict=True):
        if isinstance(a, np.ndarray):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(b, a, 3e-6)
        else:
            assert a == b


def test_writes_stay_on_the_device(npu):
    """None of these falls back to the host, and a value that is already on the device is not
    copied."""
    x, y, i, m = (mine.arange(12.).view(3, 4).to(npu), mine.ones(3, 4).to(npu), mine.tensor([2, 0]).to(npu), mine.tensor([True, False, True]).to(npu))
    none = i[:0]
    device_dispatch.FALLBACKS.clear()
    before = device_dispatch.COPIES.up, device_dispatch.COPIES.down
    x.fill_(2.0)
    x.zero_()
    x[1] = 3
    x[:, 1] = y[:, 0]
    x.t()[1:3] = y[0, :3]
    x.copy_(y[0])
    x.copy_(mine.ones(3, 4, dtype=mine.int64, device=npu))
    x.t().copy_(y.t())
    x.add_(y, alpha=-0.5)
    x[0].mul_(2.0)
    x.masked_fill_(x > 1, 0.5)
    x[x > 0.7] = 4.0
    x[i] = y[:2]
    x[i, i] = 7.0
    x[none] = 1.0
    x[m] = 0.25
    mine.add(x, y, out=x)
    assert device_dispatch.FALLBACKS == {} and (device_dispatch.COPIES.up, device_dispatch.COPIES.down) == before


@pytest.mark.parametrize("write", [
    lambda x, T: x.__setitem__(T.tensor([0, 7]), 1.0), lambda x, T: x.index_put_((T.tensor([5]),), T.tensor(1.0)), lambda x, T: x.add_(T.ones(5)),
    lambda x, T: x.copy_(T.ones(2, 3, 4)), lambda x, T: x.__setitem__(0, T.ones(3)), lambda x, T: x.index_fill_(0, T.tensor([0, 9]), 1.0),
    lambda x, T: x.masked_fill_(T.ones(5) > 0, 1.0), lambda x, T: x.scatter_(0, T.tensor([[0, 1, 9, 0]]), 1.0),
    lambda x, T: x.index_add_(0, T.tensor([0, 9]), T.ones(2, 4)), lambda x, T: x[1:].copy_(x[:2]), lambda x, T: x.bitwise_and_(1)])
def test_failed_write_leaves_the_tensor_unchanged(write, npu):
    x = A(On(npu))
    with pytest.raises((RuntimeError, IndexError, NotImplementedError)):
        write(x, On(npu))
    assert x._version == 0 and x.cpu().tolist() == A(mine).tolist()
