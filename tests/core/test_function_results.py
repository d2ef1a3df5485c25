"""Results of a custom Function: views of temporaries and of inputs, inputs that it modified in
place; and which writes to these are allowed. Compared with real PyTorch."""
import pytest
import torch as real

import mindtorch.torch as mt

FORWARD = {
    "view of a temporary": lambda T, ctx, x: (x * 3).view(-1), "view of a detached temporary": lambda T, ctx, x: (x.detach() * 3).view(-1),
    "view of the input": lambda T, ctx, x: x.view(-1), "row of the input": lambda T, ctx, x: x[0], "the input": lambda T, ctx, x: x,
    "the input, detached": lambda T, ctx, x: x.detach(), "two rows": lambda T, ctx, x: (x * 3).unbind(), "two": lambda T, ctx, x: (x * 2, x * 3),
    "one of two chunks": lambda T, ctx, x: (x * 3).chunk(2)[0], "expanded": lambda T, ctx, x: (x * 3).sum(0, keepdim=True).expand(2, 2),
    "one and its view": lambda T, ctx, x: (lambda t: (t, t.view(-1)))(x * 3), "one twice": lambda T, ctx, x: (lambda t: (t, t))(x * 3),
    "the input and another": lambda T, ctx, x: (x, x * 2), "view of an array": lambda T, ctx, x: T.from_numpy((x.detach() * 3).cpu().numpy()).view(-1),
    "written": lambda T, ctx, x: (x.mul_(2), ctx.mark_dirty(x))[0], "written, and another": lambda T, ctx, x: (x.mul_(2), ctx.mark_dirty(x), (x, x * 1))[2],
    "written, twice": lambda T, ctx, x: (x.mul_(2), ctx.mark_dirty(x), (x, x))[2], "written, not given back": lambda T, ctx, x: (x.mul_(2), ctx.mark_dirty(x), x * 1)[2],
    "written, its view": lambda T, ctx, x: (x.mul_(2), ctx.mark_dirty(x), x.view(-1))[2],
    "not differentiable": lambda T, ctx, x: (lambda t: (ctx.mark_non_differentiable(t), t)[1])((x * 3).view(-1)),
    "integers": lambda T, ctx, x: (x * 3).long().view(-1),
}
INPUT = {
    "leaf": lambda T: (T.ones(2, 2, requires_grad=True),) * 2, "result": lambda T: (lambda a: (a, a * 1))(T.ones(2, 2, requires_grad=True)),
    "view": lambda T: (lambda a: (a, (a * 1).view(2, 2)))(T.ones(2, 2, requires_grad=True)),
    "row": lambda T: (lambda a: (a, (a * 1)[0]))(T.ones(2, 2, 2, requires_grad=True)),
    "one of two rows": lambda T: (lambda a: (a, (a * 1).unbind()[0]))(T.ones(2, 2, 2, requires_grad=True)),
    "constant": lambda T: (T.ones(2, 2),) * 2, "view of a constant": lambda T: (lambda a: (a, a.view(2, 2)))(T.ones(2, 2)),
}


def unseen(T, write, y):
    with T.no_grad():
        write(y)


WRITES = {
    "none": lambda T, y: None, "fill_": lambda T, y: y.fill_(1), "add_": lambda T, y: y.add_(1), "unseen fill_": lambda T, y: unseen(T, lambda y: y.fill_(1), y),
    "unseen mul_": lambda T, y: unseen(T, lambda y: y.mul_(2), y), "unseen, to the base": lambda T, y: unseen(T, lambda y: (y if y._base is None else y._base).zero_(), y),
    "to a row": lambda T, y: y[0].zero_(), ".data": lambda T, y: y.data.zero_(), "detach_": lambda T, y: y.detach_(),
}


def run(T, forward, made, write, grad, last):
    class Fn(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return FORWARD[forward](T, ctx, x)

        @staticmethod
        def backward(ctx, *gs):
            return T.ones(2, 2) * sum(g.sum() for g in gs if g is not None)
    told = []
    try:
        leaf, x = INPUT[made](T)
        with T.set_grad_enabled(grad):
            y = Fn.apply(x)
        ys = y if isinstance(y, tuple) else (y,)
        told.append([(o._is_view(), o.requires_grad, o.is_leaf, o._base is x, o is x, o.grad_fn is None, o._version) for o in ys])
        WRITES[write](T, ys[-1 if last else 0])
        told.append([(o.tolist(), o._version) for o in ys])
        s = sum(o.sum() for o in ys if o.is_floating_point())
        if T.is_tensor(s) and s.requires_grad:
            s.backward()
        told.append(leaf.grad if leaf.grad is None else leaf.grad.tolist())
    except Exception as e:
        told.append(type(e).__name__)
    return told


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("forward", FORWARD)
def test_writes_to_function_results_match_torch(forward, grad):
    for made in INPUT:
        for write in WRITES:
            for last in (False, True):
                assert run(mt, forward, made, write, grad, last) == run(real, forward, made, write, grad, last), (made, write, last)
