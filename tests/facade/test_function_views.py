"""Views that custom Functions create, return and modify, and the related errors, compared with
PyTorch."""
import pytest
import torch as real

import mindtorch.torch as mt

SIDES = (real, mt)


def _marked(ctx, x, *more):
    x.mul_(2)
    ctx.mark_dirty(x)
    return (x, *more) if more else x


def _recorded(T, x):
    with T.enable_grad():
        return (x * 3).view(-1)


#: forwards, as functions of (T, ctx, x, a tensor from outside the Function), and what they return
FORWARDS = {
    "view of a temporary": lambda T, ctx, x, out: (x * 3).view(-1),
    "view of a temporary, detached": lambda T, ctx, x, out: (x.detach() * 3).view(-1),
    "two views": lambda T, ctx, x, out: ((x * 3).view(-1), (x * 2).view(-1)),
    "views made at once": lambda T, ctx, x, out: tuple((x * 3).unbind()),
    "a view and none": lambda T, ctx, x, out: ((x * 3).view(-1), x * 2),
    "part of a chunk": lambda T, ctx, x, out: (x * 3).chunk(2)[0],
    "view of the input": lambda T, ctx, x, out: x.view(-1),
    "detached input": lambda T, ctx, x, out: x.detach(),
    "view from outside": lambda T, ctx, x, out: out.view(-1),
    "recorded inside": lambda T, ctx, x, out: _recorded(T, x),
    "no view": lambda T, ctx, x, out: x * 3,
    "written": lambda T, ctx, x, out: _marked(ctx, x),
    "written, and another": lambda T, ctx, x, out: _marked(ctx, x, x * 1),
    "written, and a mask": lambda T, ctx, x, out: _marked(ctx, x, x > 0),
}
GIVEN = {
    "result": lambda T, x, h: h,
    "view": lambda T, x, h: h[0:1],
    "leaf": lambda T, x, h: x,
    "view of a leaf": lambda T, x, h: x[0:1],
    "no gradient": lambda T, x, h: T.ones(2, 2),
    "view, no gradient": lambda T, x, h: T.ones(2, 2)[0:1],
    "one of several views": lambda T, x, h: h.unbind()[0],
    "view under no_grad": lambda T, x, h: _plain_view(T, h),
}


def _plain_view(T, h):
    with T.no_grad():
        return h[0:1]


def _whole(T, y, arg):
    y.mul_(2)


def _part(T, y, arg):
    y[0].mul_(2)


def _unrecorded(T, y, arg):
    with T.no_grad():
        y.fill_(1)


def _unrecorded_part(T, y, arg):
    with T.no_grad():
        y[0:1].fill_(1)


def _base(T, y, arg):
    if y._base is not None:
        y._base.mul_(2)


WRITES = [None, _whole, _part, _unrecorded, _unrecorded_part, lambda T, y, arg: y.detach().fill_(1), _base, lambda T, y, arg: arg.mul_(2)]


def outcome(T, forward, given, write, last):
    out = T.ones(2, 2)
    methods = {"forward": staticmethod(lambda ctx, x: FORWARDS[forward](T, ctx, x, out)),
               "backward": staticmethod(lambda ctx, *gs: sum(g for g in gs if g is not None))}
    try:
        x = T.ones(2, 2, requires_grad=True)
        arg = GIVEN[given](T, x, x * 1)
        made = type("Made", (T.autograd.Function,), methods).apply(arg)
        made = made if isinstance(made, tuple) else (made,)
        y = made[-1 if last else 0]
        if write is not None:
            write(T, y, arg)
        z = (y * 1.0).sum()
        if z.requires_grad:
            z.backward()
        return [(t._is_view(), t.requires_grad, t.grad_fn is None) for t in made], y.tolist(), None if x.grad is None else x.grad.tolist()
    except Exception as e:
        return type(e).__name__, str(e)[:75]  # PyTorch's message and ours differ after this point


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("forward", FORWARDS)
def test_views_returned_by_custom_functions(forward, given):
    for i, write in enumerate(WRITES):
        for last in (False, True):
            want = outcome(real, forward, given, write, last)
            assert outcome(mt, forward, given, write, last) == want, (i, last)


@pytest.mark.parametrize("name", ["edges", "vals", "kw", "prim", "seq", "hooks", "retain", "pre", "post", "freed", "meta", "metadata_", "saved", "attrs"])
def test_ctx_attributes_of_any_name_belong_to_the_user(name):
    def run(T):
        class Double(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                setattr(ctx, name, 3)
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                x, = ctx.saved_tensors
                return grad * x * getattr(ctx, name)

        x = T.arange(3.0, requires_grad=True)
        y = Double.apply(x)
        y.register_hook(lambda g: g * 2)
        y.sum().backward()
        return x.grad.tolist()

    assert run(mt) == run(real)
