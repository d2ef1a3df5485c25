"""torch.autograd.functional: Jacobians, Hessians and their products, by reverse mode."""
import numpy as np

from mindtorch.core.grad_mode import enable_grad
from mindtorch.core.foreign import type_name
from mindtorch.core.table import TABLE
from mindtorch.core.tensor import taken
from mindtorch.core.values import tensor_from

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _tuple(x):
    return (x,) if taken(x) else tuple(x)


def _inputs(x, name):
    if not isinstance(x, tuple):
        x = (x,)
    for t in x:
        if not taken(t):
            raise TypeError(f"The inputs given to {name} must be either a Tensor or a tuple of Tensors, not of {type_name(t)}")
    return x


def _fresh(inputs, create_graph):
    # view_as keeps the link to the caller's graph where that is wanted.
    return tuple((t.view_as(t) if t.requires_grad else t.detach().requires_grad_()) if create_graph else
                 t.detach().requires_grad_() for t in inputs)


def _call(func, inputs, name, strict):
    out = func(*inputs)
    single = not isinstance(out, tuple)
    outs = (out,) if single else out
    for i, o in enumerate(outs):
        if not taken(o):
            raise TypeError(f"The outputs of the user-provided function given to {name} must be either a Tensor or a tuple of Tensors, not "
                            f"of {type_name(o)}")
        if strict and not o.requires_grad:
            raise RuntimeError(f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
                               "differentiable manner from the input when running in strict mode.")
    return outs, single


def _call_scalar(func, inputs, name, strict):
    outs, single = _call(func, inputs, name, strict)
    if not single:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outs


def _check_strategy(strategy):
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')


def _grads(outs, inputs, vs, create_graph):
    from mindtorch.torch.autograd import grad
    need = [(o, v) for o, v in zip(outs, vs) if o.requires_grad]
    if not need:
        return [None] * len(inputs)
    return list(grad([o for o, _ in need], inputs, [v for _, v in need], create_graph=create_graph, retain_graph=True,
                     allow_unused=True))


def _ones(t):
    return TABLE["ones_like"].body(t)


def _zeros(t):
    return TABLE["zeros_like"].body(t)


def _fill(gs, inputs, strict, what, varying=False):
    """The gradients with zeros for None; in strict mode None is an error, and so are constants where they have to vary."""
    out = []
    for i, (g, t) in enumerate(zip(gs, inputs)):
        if g is None:
            if strict:
                raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in "
                                   f"strict mode ({what}).")
            g = _zeros(t)
        elif strict and varying and not g.requires_grad:
            raise RuntimeError(f"The derivative of the user-provided function is independent of input {i}. This is not allowed in strict "
                               f"mode when create_graph=True ({what}).")
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
        single_in = not isinstance(inputs, tuple)
        ins = _fresh(_inputs(inputs, "vjp"), create_graph)
        outs, single = _call(func, ins, "vjp", strict)
        v = _check_v(v, outs, "returns")
        gs = _fill(_grads(outs, ins, v, create_graph), ins, strict, "vjp", create_graph)
    outs = tuple(_done(o, create_graph) for o in outs)
    gs = tuple(_done(g, create_graph) for g in gs)
    return (outs[0] if single else outs), (gs[0] if single_in else gs)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, J v), by differentiating v^T J with respect to v."""
    with enable_grad():
        ins = _fresh(_inputs(inputs, "jvp"), create_graph)
        v = _check_v(v, ins, "takes")
        outs, single = _call(func, ins, "jvp", strict)
        us = tuple(_zeros(o).requires_grad_() for o in outs)
        gs = _grads(outs, ins, us, True)
        gs = _fill(gs, ins, strict, "jvp")
        js = _grads(gs, us, v, create_graph)
        js = _fill(js, outs, strict, "jvp", create_graph)
    outs = tuple(_done(o, create_graph) for o in outs)
    js = tuple(_done(j, create_graph) for j in js)
    return (outs[0] if single else outs), (js[0] if single else js)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Jacobian of func at inputs: output shape + input shape, nested in tuples as torch nests it.

    vectorize and strategy say how torch computes it; here it is computed row by row in reverse mode.
    """
    _check_strategy(strategy)
    return _jacobian(func, inputs, create_graph, strict, create_graph)


def _jacobian(func, inputs, create_graph, strict, varying):
    """`varying`: in strict mode the Jacobian may not be constant."""
    with enable_grad():
        single_in = not isinstance(inputs, tuple)
        ins = _fresh(_inputs(inputs, "jacobian"), create_graph)
        outs, single = _call(func, ins, "jacobian", strict)
        result = []
        for o in outs:
            rows = [[] for _ in ins]
            flat = o.reshape(-1)
            for j in range(flat.numel()):
                if o.requires_grad:
                    gs = _grads((flat[j],), ins, (tensor_from(np.ones((), flat._stype), flat),), create_graph)
                else:
                    gs = [None] * len(ins)
                for k, g in enumerate(_fill(gs, ins, strict, "jacobian", varying)):
                    rows[k].append(g)
            from mindtorch.core.table import TABLE
            stack = TABLE["stack"].fn
            cols = tuple(_done((stack(r) if r else t.new_zeros((0,) + tuple(t.shape))).reshape(tuple(o.shape) + tuple(t.shape)),
                               create_graph) for r, t in zip(rows, ins))
            result.append(cols[0] if single_in else cols)
    return result[0] if single else tuple(result)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Hessian of a scalar function; vectorize and outer_jacobian_strategy as in `jacobian`."""
    _check_strategy(outer_jacobian_strategy)
    single_in = not isinstance(inputs, tuple)

    def gradient(*ins):
        out, = _call_scalar(func, ins, "hessian", strict)
        gs = _fill(_grads((out.squeeze(),), ins, (tensor_from(np.ones((), out._stype), out),), True), ins, strict, "hessian", True)
        return gs[0] if single_in else tuple(gs)

    # (Whether a Hessian is constant cannot be told from its history: that of x ** 2 has none here, and has some in torch.)
    return _jacobian(gradient, inputs, create_graph, strict, False)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, v^T H) of a scalar function."""
    return _times_hessian("vhp", func, inputs, v, create_graph, strict)


def _times_hessian(name, func, inputs, v, create_graph, strict):
    with enable_grad():
        single_in = not isinstance(inputs, tuple)
        ins = _fresh(_inputs(inputs, name), create_graph)
        v = _check_v(v, ins, "takes")
        outs = _call_scalar(func, ins, name, strict)
        gs = _fill(_grads(outs, ins, [_ones(o) for o in outs], True), ins, strict, name, True)
        hs = _fill(_grads(gs, ins, v, create_graph), ins, strict, name)
    out = _done(outs[0], create_graph)
    hs = tuple(_done(h, create_graph) for h in hs)
    return out, (hs[0] if single_in else hs)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, H v); the Hessian is symmetric, so this is vhp."""
    return _times_hessian("hvp", func, inputs, v, create_graph, strict)
