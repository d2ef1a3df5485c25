"""torch._higher_order_ops.scan."""
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._higher_order_ops._operators import operator
from mindtorch.torch._higher_order_ops.map import stacked
from mindtorch.torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["scan", "scan_op"]


def _dimension(dim, ndim):
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, {max(ndim, 1) - 1}], but got {dim})")
    return dim % max(ndim, 1)


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """Runs carry, result = combine_fn(carry, slice of xs along dim) step by step and returns
    (carry, results), with the results stacked along `dim`.

    init and xs are pytrees of tensors. RuntimeError if the structure, shape or dtype of the carry
    changes.
    """
    leaves, spec = tree_flatten(xs)
    if not leaves:
        return init, []
    start, carried = tree_flatten(init)
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise RuntimeError("Dim must be an int, but got " + str(type(dim)))
    if not isinstance(reverse, bool):
        raise RuntimeError("Reverse must be a bool, but got " + str(type(reverse)))
    if not start:
        raise RuntimeError("scan() operator requires init leaves.")
    for what, tensors in (("init", start), ("xs", leaves)):
        for t in tensors:
            if not is_tensor(t):
                raise RuntimeError(f"All {what} leaves must be a Tensor but got {t}")
    dim = _dimension(dim, leaves[0].ndim)
    if any(t.ndim <= dim or not t.shape[dim] for t in leaves):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    n = leaves[0].shape[dim]
    if any(t.shape[dim] != n for t in leaves):
        raise RuntimeError(f"All xs leaves must have the same size along the scan dimension, but got {[t.shape[dim] for t in leaves]}")
    carry, out = init, []
    for i in reversed(range(n)) if reverse else range(n):
        r = combine_fn(carry, tree_unflatten([t.select(dim, i) for t in leaves], spec))
        if not isinstance(r, (tuple, list)) or len(r) != 2:
            raise RuntimeError(f"combine_fn of scan has to return (next carry, result), but got {r}")
        carry = r[0]
        _check_carry(start, carried, carry)
        out.append(r[1])
    if reverse:
        out.reverse()
    made = stacked(out)
    return carry, tree_map(lambda t: t.movedim(0, dim) if dim and is_tensor(t) and dim < t.ndim else t, made)


def _check_carry(start, spec, carry):
    leaves, now = tree_flatten(carry)
    if now != spec:
        raise RuntimeError(f"The tree structure of the inits and the carries are not identical!\nInits: {spec}\nCarries: {now}")
    for a, b in zip(start, leaves):
        if not is_tensor(b) or a.shape != b.shape or a.dtype != b.dtype:
            said = f"{b.dtype}, {list(b.shape)}" if is_tensor(b) else repr(b)
            raise RuntimeError(f"Expected init and carry to have same metadata, but found a difference: {a.dtype}, {list(a.shape)} and {said}")


@operator("scan")
def scan_op(combine_fn, init, xs, additional_inputs=()):
    """Like `scan`, over flat lists: combine_fn(*carry, *slices, *additional_inputs) returns the
    tensors of the carry, then the results."""
    n = len(init)

    def step(carry, x):
        r = tuple(combine_fn(*carry, *x, *additional_inputs))
        return list(r[:n]), r[n:]
    carry, out = scan(step, list(init), list(xs))
    return (*carry, *out)
