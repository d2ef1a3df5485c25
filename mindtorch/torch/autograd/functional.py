"""torch.autograd.functional: Jacobians, Hessians and their products, by reverse mode."""
import numpy as np

from mindtorch.core.grad_mode import enable_grad
from mindtorch.core.tensor import Tensor, wrap

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _tuple(x):
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _fresh(inputs, create_graph):
    # view_as keeps the link to the caller's graph where that is wanted.
    return tuple((t.view_as(t) if t.requires_grad else t.detach().requires_grad_()) if create_graph else
                 t.detach().requires_grad_() for t in inputs)


def _call(func, inputs, was_tensor_name="outputs"):
    out = func(*inputs)
    single = isinstance(out, Tensor)
    outs = _tuple(out)
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"The {was_tensor_name} of the user-provided function must be Tensors, got {type(o).__name__}")
    return outs, single


def _grads(outs, inputs, vs, create_graph):
    from mindtorch.torch.autograd import grad
    need = [(o, v) for o, v in zip(outs, vs) if o.requires_grad]
    if not need:
        return [None] * len(inputs)
    return list(grad([o for o, _ in need], inputs, [v for _, v in need], create_graph=create_graph, retain_graph=True,
                     allow_unused=True))


def _ones(t):
    return wrap(np.ones_like(t._a))


def _zeros(t):
    return wrap(np.zeros_like(t._a))


def _fill(gs, inputs, strict, what):
    out = []
    for i, (g, t) in enumerate(zip(gs, inputs)):
        if g is None:
            if strict:
                raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in "
                                   f"strict mode ({what}).")
            g = _zeros(t)
        out.append(g)
    return out


def _check_v(v, like, what):
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the user-provided function {what} a single Tensor with a single "
                               "element.")
        return (_ones(like[0]),)
    v = _tuple(v)
    if len(v) != len(like):
        raise RuntimeError(f"v is of invalid length: should be {len(like)} but got {len(v)}.")
    for a, b in zip(v, like):
        if a.shape != b.shape:
            raise RuntimeError(f"v has an invalid size: should be {b.shape} but got {a.shape}.")
    return v


def _done(x, create_graph):
    return x if create_graph else x.detach()


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, v^T J)."""
    with enable_grad():
        single_in = isinstance(inputs, Tensor)
        ins = _fresh(_tuple(inputs), create_graph)
        outs, single = _call(func, ins)
        v = _check_v(v, outs, "returns")
        gs = _fill(_grads(outs, ins, v, create_graph), ins, strict, "vjp")
    outs = tuple(_done(o, create_graph) for o in outs)
    gs = tuple(_done(g, create_graph) for g in gs)
    return (outs[0] if single else outs), (gs[0] if single_in else gs)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, J v), by differentiating v^T J with respect to v."""
    with enable_grad():
        ins = _fresh(_tuple(inputs), create_graph)
        v = _check_v(v, ins, "takes")
        outs, single = _call(func, ins)
        us = tuple(_zeros(o).requires_grad_() for o in outs)
        gs = _grads(outs, ins, us, True)
        gs = [_zeros(t) if g is None else g for g, t in zip(gs, ins)]
        js = _grads(gs, us, v, create_graph)
        js = _fill(js, outs, strict, "jvp")
    outs = tuple(_done(o, create_graph) for o in outs)
    js = tuple(_done(j, create_graph) for j in js)
    return (outs[0] if single else outs), (js[0] if single else js)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Jacobian of func at inputs: output shape + input shape, nested in tuples as torch nests it."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    with enable_grad():
        single_in = isinstance(inputs, Tensor)
        ins = _fresh(_tuple(inputs), create_graph)
        outs, single = _call(func, ins)
        result = []
        for o in outs:
            rows = [[] for _ in ins]
            flat = o.reshape(-1)
            for j in range(flat.numel()):
                if o.requires_grad:
                    gs = _grads((flat[j],), ins, (wrap(np.ones((), flat._a.dtype)),), create_graph)
                else:
                    gs = [None] * len(ins)
                for k, g in enumerate(_fill(gs, ins, strict, "jacobian")):
                    rows[k].append(g)
            from mindtorch.core.table import TABLE
            stack = TABLE["stack"].fn
            cols = tuple(_done((stack(r) if r else t.new_zeros((0,) + tuple(t.shape))).reshape(tuple(o.shape) + tuple(t.shape)),
                               create_graph) for r, t in zip(rows, ins))
            result.append(cols[0] if single_in else cols)
    return result[0] if single else tuple(result)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Hessian of a scalar function."""
    single_in = isinstance(inputs, Tensor)

    def gradient(*ins):
        out = func(*ins)
        if not isinstance(out, Tensor) or out.numel() != 1:
            raise RuntimeError("The function given to hessian should return a single Tensor with a single element")
        gs = _fill(_grads((out.squeeze(),), ins, (wrap(np.ones((), out._a.dtype)),), True), ins, strict, "hessian")
        return gs[0] if single_in else tuple(gs)

    return jacobian(gradient, inputs, create_graph=create_graph, strict=strict)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, v^T H)."""
    with enable_grad():
        single_in = isinstance(inputs, Tensor)
        ins = _fresh(_tuple(inputs), create_graph)
        v = _check_v(v, ins, "takes")
        outs, single = _call(func, ins)
        gs = _fill(_grads(outs, ins, [_ones(o) for o in outs], True), ins, strict, "vhp")
        hs = _fill(_grads(gs, ins, v, create_graph), ins, strict, "vhp")
    out = _done(outs[0], create_graph)
    hs = tuple(_done(h, create_graph) for h in hs)
    return out, (hs[0] if single_in else hs)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, H v); the Hessian is symmetric, so this is vhp."""
    return vhp(func, inputs, v, create_graph, strict)
