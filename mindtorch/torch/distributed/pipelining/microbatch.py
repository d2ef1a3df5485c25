"""torch.distributed.pipelining.microbatch: splits batches into microbatches and merges their
results."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["TensorChunkSpec", "split_args_kwargs_into_chunks", "merge_chunks"]


class TensorChunkSpec:
    """Spec of a tensor that is split along `split_dim`."""

    def __init__(self, split_dim):
        self.split_dim = split_dim

    def __repr__(self):
        return f"torch.distributed.pipelining.microbatch.TensorChunkSpec({self.split_dim})"

    def __str__(self):
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims):
        """Returns specs for positional arguments, from a tuple of dimensions."""
        return tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims):
        """Returns specs for keyword arguments, from a dict of dimensions."""
        return tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """Spec of a value that every microbatch receives unchanged."""


def split_tensor(tensor, spec, chunks):
    """Splits a tensor into chunks. AssertionError if its size along the split dimension is smaller
    than `chunks`."""
    if tensor.shape[spec.split_dim] < chunks:
        raise AssertionError(f"Tensor size {tensor.shape[spec.split_dim]} is smaller than num_chunks")
    return torch.tensor_split(tensor, chunks, spec.split_dim)


def _split(values, specs, chunks):
    leaves, tree = tree_flatten(values)
    if specs is None:
        flat = [TensorChunkSpec(0) if is_tensor(v) else _Replicate() for v in leaves]
    else:
        flat = tree_flatten(specs)[0]
        if len(flat) != len(leaves):
            raise AssertionError(f"expected one chunk spec per argument, got {len(flat)} specs for {len(leaves)} arguments")
    for v, s in zip(leaves, flat):
        if is_tensor(v) and not isinstance(s, (TensorChunkSpec, _Replicate)):
            raise AssertionError(f"Expected TensorChunkSpec, got {type(s)}")
    columns = [split_tensor(v, s, chunks) if is_tensor(v) and isinstance(s, TensorChunkSpec) else [v] * chunks for v, s in zip(leaves, flat)]
    return [tree_unflatten([c[i] for c in columns], tree) for i in range(chunks)]


def split_args_kwargs_into_chunks(args, kwargs, chunks, args_chunk_spec=None, kwargs_chunk_spec=None):
    """Returns (list of positional arguments, list of keyword arguments), one entry per microbatch.
    Tensors are split along dimension 0 or as the specs say. Other values are repeated.

    If a tensor has a smaller size along its split dimension than `chunks`, the number of
    microbatches is that size.
    """
    kwargs = kwargs or {}
    leaves = [*zip(tree_flatten(args)[0], tree_flatten(args_chunk_spec)[0] if args_chunk_spec is not None else [TensorChunkSpec(0)] * len(tree_flatten(args)[0])),
              *zip(tree_flatten(kwargs)[0], tree_flatten(kwargs_chunk_spec)[0] if kwargs_chunk_spec is not None else [TensorChunkSpec(0)] * len(tree_flatten(kwargs)[0]))]
    chunks = min([chunks, *[v.shape[s.split_dim] for v, s in leaves if is_tensor(v) and isinstance(s, TensorChunkSpec)]])
    return [tuple(a) for a in _split(tuple(args), args_chunk_spec, chunks)], _split(dict(kwargs), kwargs_chunk_spec, chunks)


def merge_chunks(chunks, chunk_spec):
    """Merges the results of the microbatches: concatenates tensors along dimension 0 or as the spec
    says, and takes the first of other values."""
    flat = [tree_flatten(c) for c in chunks]
    specs = [TensorChunkSpec(0)] * len(flat[0][0]) if chunk_spec is None else tree_flatten(chunk_spec)[0]
    for chunk, (leaves, _) in zip(chunks, flat):
        if len(leaves) != len(specs):
            raise ValueError(f"Chunk {chunk} did not match chunk spec {chunk_spec}")
    merged = []
    for values, spec in zip(zip(*[leaves for leaves, _ in flat]), specs):
        if isinstance(spec, TensorChunkSpec) and is_tensor(values[0]):
            merged.append(torch.cat(list(values), spec.split_dim))
        else:
            merged.append(values[0])
    return tree_unflatten(merged, flat[0][1])
