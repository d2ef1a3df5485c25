"""torch.autograd.functional: Jacobians, Hessians and their products, by reverse mode (optionally
forward mode for the matrices)."""
from mindtorch.core.autograd import forward_ad
from mindtorch.core.autograd.grad_mode import enable_grad
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import set_requires_grad, is_tensor
from mindtorch.torch.autograd._columns import columns, units

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _ones(t):
    return OPS["ones_like"].public(t)


def _zeros(t):
    return OPS["zeros_like"].public(t)


# ------------------------------------------------------------------ inputs and outputs
def _tensors(x, what, name):
    """Returns (tuple of tensors, True if x was a tuple). Raises TypeError for other types."""
    several = isinstance(x, tuple)
    given = x if several else (x,)
    for i, t in enumerate(given):
        if not is_tensor(t):
            which = f"the value at index {i}" if several else f"the given {what}"
            raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but {which} has type {type(t)}.")
    return given, several


def _fresh(inputs, create_graph):
    # With create_graph, view_as keeps the connection to the caller's graph.
    return tuple((t.view_as(t) if t.requires_grad else t.detach().requires_grad_()) if create_graph else
                 t.detach().requires_grad_() for t in inputs)


def _call(func, inputs, name, strict):
    """Returns (outputs, True if they were a tuple)."""
    outs, several = _tensors(func(*inputs), "outputs of the user-provided function", name)
    if strict:
        for i, o in enumerate(outs):
            if not o.requires_grad:
                raise RuntimeError(f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
                                   "differentiable manner from the input when running in strict mode.")
    return outs, several


def _call_scalar(func, inputs, name, strict):
    outs, several = _call(func, inputs, name, strict)
    if several:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outs[0].reshape(()), outs[0]


def _vector(v, like, what, name, several):
    """Returns the vector as a tuple with the structure of `like`."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} a single Tensor with a single element.")
        return (_ones(like[0]),)
    v = tuple(t.detach() if not t.requires_grad else t for t in _tensors(v, "v", name)[0])
    if len(v) != len(like):
        if several:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(v, like)):
        if a.shape != b.shape:
            entry = f"Entry {i} in " if several else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {b.shape} but got {a.shape}.")
    return v


_OF_INPUT, _OF_OUTPUT = "the input to the user-provided function is", "the user-provided function returns"


def _done(x, create_graph):
    return x if create_graph else x.detach()


# ------------------------------------------------------------------ gradients
def _grads(outs, inputs, vs, create_graph):
    from mindtorch.torch.autograd import grad
    need = [(o, v) for o, v in zip(outs, vs) if o.requires_grad]
    if not need:
        return [None] * len(inputs)
    return list(grad([o for o, _ in need], inputs, [v for _, v in need], create_graph=create_graph, retain_graph=True, allow_unused=True))


_NOT = "This is not allowed in strict mode"
_HESSIAN = ("While computing the hessian, found that the jacobian of the user-provided function with respect to input {i} is independent of the input. "
            f"{_NOT}. You should ensure that your function is twice differentiable and that the jacobian depends on the inputs (this would be violated by a "
            "linear function for example).")


def _filled(gs, inputs, strict, missing, constant=None):
    """Replaces None gradients by zeros. In strict mode None raises the error `missing`, and a
    gradient without history `constant`."""
    out = []
    for i, (g, t) in enumerate(zip(gs, inputs)):
        if g is None:
            if strict and missing is not None:
                raise RuntimeError(missing.format(i=i))
            g = _zeros(t)
        if strict and constant is not None and not g.requires_grad:
            raise RuntimeError(constant.format(i=i))
        out.append(g)
    return out


_INDEPENDENT = "The output of the user-provided function is independent of input {i}. " + _NOT + "."
_CONSTANT = "The jacobian of the user-provided function is independent of input {i}. " + _NOT + " when create_graph=True."
_HESSIAN_INDEPENDENT = "The hessian of the user-provided function is independent of input {i}. " + _NOT + "."
_HESSIAN_CONSTANT = "The hessian of the user-provided function is independent of input {i}. " + _NOT + " when create_graph=True."


# ------------------------------------------------------------------ products
def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (outputs, v^T J); the product has the structure of the inputs. v is optional if the
    output has one element.

    strict: if an output does not depend on an input, raises RuntimeError instead of returning
    zeros.
    """
    with enable_grad():
        ins, several_in = _tensors(inputs, "inputs", "vjp")
        ins = _fresh(ins, create_graph)
        outs, several = _call(func, ins, "vjp", strict)
        v = _vector(v, outs, _OF_OUTPUT, "vjp", several)
        gs = _filled(_grads(outs, ins, v, create_graph), ins, strict, _INDEPENDENT, _CONSTANT if create_graph else None)
    outs = tuple(_done(o, create_graph) for o in outs)
    gs = tuple(_done(g, create_graph) for g in gs)
    return (outs if several else outs[0]), (gs if several_in else gs[0])


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (outputs, J v), both with the structure of the outputs, by differentiating v^T J with
    respect to v."""
    with enable_grad():
        ins, several_in = _tensors(inputs, "inputs", "jvp")
        ins = _fresh(ins, create_graph)
        v = _vector(v, ins, _OF_INPUT, "jvp", several_in)
        outs, several = _call(func, ins, "jvp", strict)
        us = tuple(_zeros(o).requires_grad_() for o in outs)
        gs = _filled(_grads(outs, ins, us, True), ins, strict, _INDEPENDENT)
        js = _filled(_grads(gs, us, v, create_graph), outs, strict, _INDEPENDENT, _CONSTANT if create_graph else None)
    outs = tuple(_done(o, create_graph) for o in outs)
    js = tuple(_done(j, create_graph) for j in js)
    return (outs if several else outs[0]), (js if several else js[0])


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (output, v^T H) of a scalar function; the product has the structure of the inputs."""
    return _times_hessian("vhp", func, inputs, v, create_graph, strict)


def _times_hessian(name, func, inputs, v, create_graph, strict):
    with enable_grad():
        ins, several = _tensors(inputs, "inputs", name)
        ins = _fresh(ins, create_graph)
        v = _vector(v, ins, _OF_INPUT, name, several)
        scalar, out = _call_scalar(func, ins, name, strict)
        gs = _filled(_grads((scalar,), ins, (_ones(scalar),), True), ins, strict, _INDEPENDENT, _HESSIAN)
        hs = _filled(_grads(gs, ins, v, create_graph), ins, strict, _HESSIAN_INDEPENDENT, _HESSIAN_CONSTANT if create_graph else None)
    hs = tuple(_done(h, create_graph) for h in hs)
    return _done(out, create_graph), (hs if several else hs[0])


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns (output, H v) of a scalar function. Same as vhp, because the Hessian is symmetric."""
    return _times_hessian("hvp", func, inputs, v, create_graph, strict)


# ------------------------------------------------------------------ matrices
def _construct_standard_basis_for(tensors, tensor_numels):
    """Returns the rows of the identity matrix over all elements of the tensors, split by tensor.

    Each result has shape (total number of elements, elements of its tensor) and its tensor's dtype.
    """
    total, before, chunks = sum(tensor_numels), 0, []
    for t, n in zip(tensors, tensor_numels):
        chunk = t.new_zeros(total, n)
        chunk.diagonal(-before).fill_(1)
        chunks.append(chunk)
        before += n
    return tuple(chunks)


def _check_strategy(name, create_graph, strict, vectorize, strategy):
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError('torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together '
                                      '(yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.')
        if strict:
            raise RuntimeError('torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please '
                               'either set `strict=False` or `strategy="reverse-mode"`.')
        if not vectorize:
            raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for `vectorize=True`.")
    if vectorize and strict:
        raise RuntimeError("torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set "
                           "`strict=False` or `vectorize=False`.")


def _known_strategy(strategy):
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Returns the Jacobian of func at inputs, of shape output shape + input shape.

    Tuples of outputs and of inputs give (nested) tuples. vectorize: one batched backward pass
    instead of one per row. strategy="forward-mode": one tangent per input element, in a single run
    of func.
    """
    _known_strategy(strategy)
    _check_strategy("jacobian", create_graph, strict, vectorize, strategy)
    if strategy == "forward-mode":
        return _by_tangents(func, inputs, "jacobian")
    return _jacobian(func, inputs, create_graph, strict, vectorize, "jacobian")


def _by_tangents(func, inputs, name):
    """Computes the Jacobian by forward mode."""
    ins, several_in = _tensors(inputs, "inputs", name)
    starts = [sum([t.numel() for t in ins[:i]]) for i in range(len(ins) + 1)]
    with forward_ad.OpenLevels(max(starts[-1], 1)) as levels:
        parts = [levels[a:b] for a, b in zip(starts, starts[1:])]
        duals = [t.detach() for t in ins]
        for t, part in zip(duals, parts):
            for v, u in zip(part, units(t)):
                forward_ad.attach(t, v, u)
        outs, several = _call(func, duals, name, False)
        rows = tuple(tuple(forward_ad.detach(columns(o, t, part)) for t, part in zip(duals, parts)) for o in outs)
    rows = tuple(row if several_in else row[0] for row in rows)
    return rows if several else rows[0]


def _jacobian(func, inputs, create_graph, strict, vectorize, name):
    with enable_grad():
        ins, several_in = _tensors(inputs, "inputs", name)
        ins = _fresh(ins, create_graph)
        outs, several = _call(func, ins, name, strict)
        result = _at_once(outs, ins, create_graph) if vectorize else _row_by_row(outs, ins, create_graph, strict, _CONSTANT if create_graph else None)
        result = tuple(tuple(_done(j, create_graph) for j in row) for row in result)
    result = tuple(row if several_in else row[0] for row in result)
    return result if several else result[0]


def _row_by_row(outs, ins, create_graph, strict, constant=None):
    stack, result = OPS["stack"].fn, []
    for k, o in enumerate(outs):
        missing = f"Output {k} of the user-provided function is independent of input {{i}}. {_NOT}."
        rows, flat = [[] for _ in ins], o.reshape(-1)
        for j in range(flat.numel()):
            e = flat[j]
            gs = _grads((e,), ins, (_ones(e),), create_graph)
            for column, g in zip(rows, _filled(gs, ins, strict, missing, constant)):
                column.append(g)
        result.append([(stack(r) if r else t.new_zeros((0, *t.shape))).view((*o.shape, *t.shape)) for r, t in zip(rows, ins)])
    return result


def _at_once(outs, ins, create_graph):
    from mindtorch.torch.autograd import grad
    sizes = [o.numel() for o in outs]
    empty = [[t.new_zeros((*o.shape, *t.shape)) for t in ins] for o in outs]
    need = [k for k, o in enumerate(outs) if o.requires_grad and o.numel()]
    if not need:
        return empty
    basis = _construct_standard_basis_for([outs[k] for k in need], [sizes[k] for k in need])
    vs = [b.view((-1, *outs[k].shape)) for b, k in zip(basis, need)]
    gs = grad([outs[k] for k in need], ins, vs, create_graph=create_graph, retain_graph=True, allow_unused=True, is_grads_batched=True)
    for i, g in enumerate(gs):
        if g is None:
            continue
        parts = g.split([sizes[k] for k in need], 0)
        for k, part in zip(need, parts):
            empty[k][i] = part.view((*outs[k].shape, *ins[i].shape))
    return empty


def _gradient_of(func, args, several):
    """Returns the gradient of a scalar function as a differentiable function of tensors that may
    have tangents."""
    with enable_grad():
        fresh = [forward_ad.copy_tangents(t, t.detach()) for t in args]
        for t in fresh:
            set_requires_grad(t, True)
        scalar, _ = _call_scalar(func, fresh, "hessian", False)
        gs = _filled(_grads((scalar,), fresh, (_ones(scalar),), False), fresh, False, None, None)
    return tuple(gs) if several else gs[0]


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Returns the Hessian of a scalar function, of shape input shape + input shape; a tuple of
    tuples for a tuple of inputs.

    vectorize and outer_jacobian_strategy are as in `jacobian`.
    """
    _known_strategy(outer_jacobian_strategy)
    _check_strategy("hessian", create_graph, strict, vectorize, outer_jacobian_strategy)
    ins, several = _tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy == "forward-mode":
        return _by_tangents(lambda *args: _gradient_of(func, args, several), inputs, "hessian")

    def gradient(*ins):
        scalar, _ = _call_scalar(func, ins, "hessian", strict)
        return tuple(_filled(_grads((scalar,), ins, (_ones(scalar),), True), ins, strict, None, _HESSIAN))

    # The autograd history does not tell whether a Hessian is constant: the Hessian of x ** 2 has no
    # history here, but has one in PyTorch.
    with enable_grad():
        fresh = _fresh(ins, create_graph)
        outs = gradient(*fresh)
        result = _at_once(outs, fresh, create_graph) if vectorize else _row_by_row(outs, fresh, create_graph, strict)
    result = tuple(tuple(_done(j, create_graph) for j in row) for row in result)
    return result if several else result[0][0]

