"""torch._higher_order_ops.associative_scan."""
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._higher_order_ops._operators import operator
from mindtorch.torch._higher_order_ops.scan import _dimension
from mindtorch.torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["associative_scan", "associative_scan_op", "generic_associative_scan"]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """Inclusive scan of the tensors in xs (a pytree) along `dim` with an associative function
    (pytree, pytree) -> pytree of single slices.

    Evaluated as a tree: about 2 log2(n) levels, with one call of the function for all pairs of a
    level. combine_mode "pointwise" and "generic" are equivalent; PyTorch supports "pointwise" only
    on CUDA.
    """
    leaves, spec = tree_flatten(xs)
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError("Dim must be an int, but got " + str(type(dim)))
    if not isinstance(reverse, bool):
        raise RuntimeError("Reverse must be a bool, but got " + str(type(reverse)))
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if not all(is_tensor(t) for t in leaves):
        raise ValueError("xs leaves must be a Tensor")
    if any(t.is_sparse for t in leaves):
        raise ValueError("xs leaves must dense Tensors, consider using `to_dense()`")
    dim = _dimension(dim, leaves[0].ndim)
    if any(t.ndim <= dim or not t.shape[dim] for t in leaves):
        raise ValueError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    leaves = [t.movedim(dim, 0) for t in leaves]
    if reverse:
        leaves = [t.flip([0]) for t in leaves]
    from mindtorch.torch.func import vmap
    pairs = vmap(combine_fn, in_dims=(0, 0), out_dims=0)
    found = generic_associative_scan(lambda *both: pairs(tree_unflatten(both[:len(leaves)], spec), tree_unflatten(both[len(leaves):], spec)), leaves)
    if reverse:
        found = [t.flip([0]) for t in found]
    return tree_unflatten([t.movedim(0, dim) for t in found], spec)


def generic_associative_scan(operator, leaves, dim=0, additional_inputs=()):
    """Like `associative_scan`, with operator(*lefts, *rights, *additional_inputs) combining entire
    stacks of slices."""
    def combined(lefts, rights):
        made = tree_leaves(operator(*lefts, *rights, *additional_inputs))
        if len(made) != len(leaves):
            raise RuntimeError(f"combine_fn must return {len(leaves)} tensors, as many as each of its operands has, but it returned {len(made)}")
        return made

    def part(tensors, start, stop=None, step=1):
        at = (slice(None),) * dim + (slice(start, stop, step),)
        return [t[at] for t in tensors]

    def scanned(tensors):
        n = tensors[0].shape[dim]
        if n < 2:
            return list(tensors)
        # Combines neighboring pairs and scans the results, which are the elements at odd indices.
        # Each other element follows from its predecessor.
        odd = scanned(combined(part(tensors, 0, n - 1, 2), part(tensors, 1, None, 2)))
        first = part(tensors, 0, 1)
        if n > 2:
            rest = combined(part(odd, 0, (n - 1) // 2), part(tensors, 2, None, 2))
            first = [OPS["cat"].public([a, b], dim) for a, b in zip(first, rest)]
        return [_in_turn(a, b, dim) for a, b in zip(first, odd)]
    return scanned(list(leaves))


def _in_turn(even, odd, dim):
    """Interleaves the slices of two tensors. The first may have one more slice."""
    n = odd.shape[dim]
    pairs = even.narrow(dim, 0, n).unsqueeze(dim + 1), odd.unsqueeze(dim + 1)
    r = OPS["cat"].public(list(pairs), dim + 1).flatten(dim, dim + 1)
    return r if even.shape[dim] == n else OPS["cat"].public([r, even.narrow(dim, n, 1)], dim)


@operator("associative_scan")
def associative_scan_op(combine_fn, xs, additional_inputs=()):
    """Like `associative_scan`, over a flat list along the first dimension: combine_fn(*lefts,
    *rights, *additional_inputs) of single slices."""
    found = associative_scan(lambda a, b: list(combine_fn(*a, *b, *additional_inputs)), list(xs), 0)
    return tuple(found)
