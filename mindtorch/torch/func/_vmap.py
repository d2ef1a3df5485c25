"""torch._functorch.vmap: calls the function once, on batched tensors (`core/transforms/vmap.py`).

The helpers have PyTorch's names and are looked up when vmap runs, because libraries with their own
containers replace them.
"""
import functools
import importlib

from mindtorch.core.transforms import vmap as batching, functorch_levels
from mindtorch.core.device import rng
from mindtorch.core.transforms.vmap import RANDOM_ERROR  # noqa: F401
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import Tensor, is_tensor  # noqa: F401
from mindtorch.torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_map, tree_unflatten

__all__ = ["vmap"]
batching.at_first.append(lambda: importlib.import_module("mindtorch.torch.func._custom"))
_RANDOMNESS = ("error", "different", "same")


def _get_name(func):
    return getattr(func, "__name__", repr(func))


def _process_batched_inputs(in_dims, args, func):
    """Returns (number of slices, the dim over which each argument is mapped or None, leaves of the
    arguments, their structure)."""
    name = f"vmap({_get_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if isinstance(in_dims, bool) or not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{name}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
                         f"{type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({_get_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
                         "function with no inputs. The latter is unsupported.")
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(f"{name}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                         f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}.")
    for i, (x, d) in enumerate(zip(leaves, dims)):
        if d is None:
            continue
        if isinstance(d, bool) or not isinstance(d, int):
            raise ValueError(f"{name}: Got in_dim={d} for an input but in_dim must be either an integer dimension or None.")
        if not is_tensor(x):
            raise ValueError(f"{name}: Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor "
                             "arguments, please use None as the respective in_dim")
        n = x.ndim
        if not -n <= d < n:
            raise ValueError(f"{name}: Got in_dim={d} for some input, but that input is a Tensor of dimensionality {n} so expected in_dim "
                             f"to satisfy -{n} <= in_dim < {n}.")
        dims[i] = d % n
    return _validate_and_get_batch_size(dims, leaves), dims, leaves, spec


def _validate_and_get_batch_size(dims, leaves):
    """Returns the number of slices. ValueError unless it is equal for all arguments."""
    sizes = [x._sizes[d] for x, d in zip(leaves, dims) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(s != sizes[0] for s in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped "
                         "dimension")
    return sizes[0]


def _out_dims(func, out_dims, spec):
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if any(isinstance(d, bool) or d is not None and not isinstance(d, int) for d in tree_flatten(out_dims)[0]):
        raise ValueError(f"vmap({_get_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
                         "representing where in the outputs the vmapped dimension should appear.")
    if dims is None and spec.is_leaf() and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)
    if dims is None:
        raise ValueError(f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
                         f"`outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}.")
    return dims


def _add_batch_dim(tensor, in_dim, vmap_level):
    """Returns the batched tensor for the slices of a tensor along a dimension, at the vmap level of
    this number."""
    level, x = functorch_levels.numbered(vmap_level), tensor
    in_dim %= x.ndim
    with batching._Outside(level):
        t = batching.add_batch_dim(x.movedim(in_dim, 0) if in_dim else x, True, level)
    functorch_levels.enter(level, t, x, in_dim)
    return t


def _remove_batch_dim(tensor, vmap_level, batch_size, out_dim):
    """Returns the tensor of all slices, stacked along `out_dim`. A value that is equal for all
    slices is repeated."""
    level = functorch_levels.numbered(vmap_level)
    v, mapped = batching.remove_batch_dim(tensor, level)
    n = v.ndim + (not mapped)
    if not -n <= out_dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{n}, {n - 1}], but got {out_dim})")
    with batching._Outside(level):
        if not mapped:
            v = v.unsqueeze(0).expand(batch_size, *v._sizes)
        return v.movedim(0, out_dim) if out_dim % n else v


def _maybe_remove_batch_dim(name, batched_output, vmap_level, batch_size, out_dim):
    """Like `_remove_batch_dim`, for a result. It must be a tensor unless out_dim is None; with None
    a tensor must not be batched."""
    if not is_tensor(batched_output):
        if out_dim is None:
            return batched_output
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean to set out_dims= to None for output?")
    if out_dim is not None:
        return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
    v, mapped = batching.remove_batch_dim(batched_output, functorch_levels.numbered(vmap_level))
    if mapped:
        raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
    return v


def _create_batched_inputs(flat_in_dims, flat_args, vmap_level, args_spec):
    """Returns the arguments with batched tensors."""
    return tree_unflatten([x if d is None else _add_batch_dim(x, d, vmap_level) for x, d in zip(flat_args, flat_in_dims)], args_spec)


def _unwrap_batched(batched_outputs, out_dims, vmap_level, batch_size, func):
    """Returns the results with unbatched tensors."""
    leaves, spec = tree_flatten(batched_outputs)
    dims = _out_dims(func, out_dims, spec)
    return tree_unflatten([_maybe_remove_batch_dim(_get_name(func), x, vmap_level, batch_size, d) for x, d in zip(leaves, dims)], spec)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """Vectorizes a function over an additional dimension: `in_dims` of the (nested) inputs,
    `out_dims` of the outputs.

    Keyword arguments are passed unchanged. `randomness` selects the behaviour of random ops:
    "error", "different" or the "same" values for all slices. The function is called once, on
    batched tensors. Each op computes all slices at once, or `chunk_size` slices at a time.
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        try:
            size, dims, leaves, spec = _process_batched_inputs(in_dims, args, func)
            if chunk_size is not None and size > chunk_size:
                return _chunks(func, out_dims, randomness, kwargs, leaves, dims, spec, size, chunk_size)
            return _once(func, out_dims, randomness, kwargs, leaves, dims, spec, size)
        except Exception as e:
            hide_internal_frames(e)
            raise

    return wrapped


def _once(func, out_dims, randomness, kwargs, leaves, dims, spec, size):
    level = batching.VmapLevel(size, randomness)
    with level:
        number = len(functorch_levels.levels())
        r = _unwrap_batched(func(*_create_batched_inputs(dims, leaves, number, spec), **kwargs), out_dims, number, size, func)
    return functorch_levels.move_to_current(level, r) if is_tensor(r) else tree_map(lambda t: functorch_levels.move_to_current(level, t), r)


def _chunks(func, out_dims, randomness, kwargs, leaves, dims, spec, size, chunk_size):
    """Runs the function on `chunk_size` slices at a time."""
    parts = [None if d is None else x.split(chunk_size, d) for x, d in zip(leaves, dims)]
    rows, state = [], rng.default_generator.get_state() if randomness == "same" else None
    for i, start in enumerate(range(0, size, chunk_size)):
        if state is not None:
            rng.default_generator.set_state(state)
        given = [x if p is None else p[i] for x, p in zip(leaves, parts)]
        rows.append(tree_flatten(_once(func, out_dims, randomness, kwargs, given, dims, spec, min(chunk_size, size - start))))
    spec = rows[0][1]
    where = _out_dims(func, out_dims, spec)
    cat = OPS["cat"].fn
    return tree_unflatten([col[0] if d is None else cat(list(col), d) for col, d in zip(zip(*[r[0] for r in rows]), where)], spec)


# ------------------------------------------------------------------ random numbers
def _mark():
    g = rng.default_generator
    return g._buf, g._pos, g._cached_normal, rng.device_states()


def drawing(fn, args, kwargs):
    """Returns (fn(*args, **kwargs), whether it used random numbers)."""
    before = _mark()
    r = fn(*args, **kwargs)
    after = _mark()
    return r, before[0] is not after[0] or before[1:] != after[1:]
