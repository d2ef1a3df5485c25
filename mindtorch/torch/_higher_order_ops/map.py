"""torch._higher_order_ops.map."""
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._higher_order_ops._operators import operator
from mindtorch.torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["map", "map_impl"]


def map(f, xs, *args):
    """Applies f to slices along the first dimension of the tensors in xs (a pytree), with further
    arguments, and stacks the results."""
    leaves, spec = tree_flatten(xs)
    if not leaves or not all(is_tensor(t) for t in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    sizes = [t.shape for t in leaves]
    if any(not s for s in sizes) or not sizes[0][0]:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(s[0] != sizes[0][0] for s in sizes):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {sizes}.")
    return stacked([f(tree_unflatten([t[i] for t in leaves], spec), *args) for i in range(sizes[0][0])])


def stacked(results):
    """Stacks the tensors of equal pytrees along a new first dimension. None stays None."""
    flat = [tree_flatten(r) for r in results]
    spec = flat[0][1]
    if any(s != spec for _, s in flat):
        raise RuntimeError("the results of the steps differ in their structure")
    columns = zip(*[leaves for leaves, _ in flat])
    return tree_unflatten([None if c[0] is None else OPS["stack"].public(list(c)) for c in columns], spec)


@operator("map_impl")
def map_impl(f, xs, pos_args=()):
    """Like `map`, over flat lists: f(*slices, *pos_args) returns a tuple."""
    return map(lambda slices, *args: tuple(f(*slices, *args)), list(xs), *pos_args)
