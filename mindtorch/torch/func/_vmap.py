"""vmap: the function is called once for each slice, and its results are stacked."""
import functools

import numpy as np

from mindtorch.core import rng, transforms
from mindtorch.core.table import TABLE
from mindtorch.core.tensor import taken
from mindtorch.core.values import tensor_from, values as values_of
from mindtorch.torch.func._custom import VmapInfo, check_vmap_support, function_of, has_vmap_rule, mapped
from mindtorch.torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_map, tree_unflatten

_RANDOMNESS = ("error", "different", "same")


def _name(func):
    return getattr(func, "__name__", repr(func))


def _check_in_dims(in_dims, args, func):
    """(leaves of the arguments, the dim each is mapped over or None, structure of the arguments)."""
    name = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if isinstance(in_dims, bool) or not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{name}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
                         f"{type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
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
        if not taken(x):
            raise ValueError(f"{name}: Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor "
                             "arguments, please use None as the respective in_dim")
        n = x.ndim
        if not -n <= d < n:
            raise ValueError(f"{name}: Got in_dim={d} for some input, but that input is a Tensor of dimensionality {n} so expected in_dim "
                             f"to satisfy -{n} <= in_dim < {n}.")
        dims[i] = d % n
    return leaves, dims, spec


def _batch_size(leaves, dims):
    sizes = [x._sizes[d] for x, d in zip(leaves, dims) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(s != sizes[0] for s in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped "
                         "dimension")
    return sizes[0]


class _Randomness:
    """What random operations may do in the calls of one vmap."""

    def __init__(self, how):
        self.how = how
        self.state = (rng.default_generator.get_state(), rng.device_states()) if how == "same" else None

    def call(self, fn, args, kwargs):
        if self.how == "different":
            return fn(*args, **kwargs)
        if self.how == "same":
            rng.default_generator.set_state(self.state[0])
            rng.set_device_states(self.state[1])
            return fn(*args, **kwargs)
        r, random = drawing(fn, args, kwargs)
        if random:
            raise RuntimeError(RANDOM_ERROR)
        return r


RANDOM_ERROR = ("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on "
                "vmap or perform the randomness operation out of vmap")


def _mark():
    g = rng.default_generator
    return g._buf, g._pos, g._kept_normal, rng.device_states()


def drawing(fn, args, kwargs):
    """(fn(*args, **kwargs), whether it drew random numbers)."""
    before = _mark()
    r = fn(*args, **kwargs)
    after = _mark()
    return r, before[0] is not after[0] or before[1:] != after[1:]


def _results(func, call, size, out_dims):
    """Calls func for every slice and puts the results together along out_dims."""
    outs, spec = [], None
    for i in range(max(size, 1)):
        leaves, s = tree_flatten(call(i))
        if spec is None:
            spec = s
            dims = _out_dims(func, out_dims, spec)
            for x, d in zip(leaves, dims):
                if d is not None and not taken(x):
                    raise ValueError(f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(x)}. Did you mean "
                                     "to set out_dims= to None for output?")
        elif s != spec:
            raise ValueError(f"vmap({_name(func)}, ...): the function returned {s} for one slice and {spec} for another")
        outs.append(leaves)
    return tree_unflatten([_together(func, list(col), d, size) for col, d in zip(zip(*outs), dims)] if dims else [], spec)


def _out_dims(func, out_dims, spec):
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if any(isinstance(d, bool) or d is not None and not isinstance(d, int) for d in tree_flatten(out_dims)[0]):
        raise ValueError(f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
                         "representing where in the outputs the vmapped dimension should appear.")
    if dims is None and spec.is_leaf() and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)
    if dims is None:
        raise ValueError(f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
                         f"`outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}.")
    return dims


def _together(func, values, dim, size):
    if dim is None:
        first = values[0]
        for v in values[1:]:
            if taken(first):
                same = taken(v) and v._sizes == first._sizes and np.array_equal(values_of(v), values_of(first))
            else:
                same = v is first or v == first
            if not same:
                raise ValueError(f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when out_dim is None")
        return first
    n = values[0].ndim + 1
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{n}, {n - 1}], but got {dim})")
    if not size:
        shape = list(values[0]._sizes)
        shape.insert(dim % n, 0)
        return tensor_from(np.zeros(shape, values[0]._stype), values[0])
    return TABLE["stack"].fn(values, dim)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """The function over a further dimension: `in_dims` of the (nested) inputs, which then is `out_dims` of the outputs.

    Keyword arguments are given to every call as they are.  randomness says what random operations do: "error",
    "different" numbers or the "same" for every slice.  Slices are computed one after another, so chunk_size changes
    nothing.
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        leaves, dims, spec = _check_in_dims(in_dims, args, func)
        size = _batch_size(leaves, dims)
        function = function_of(func)
        if function is not None:
            check_vmap_support(function)
            if any([taken(x) for x in tree_flatten(kwargs)[0]]):
                raise NotImplementedError("torch.vmap: kwarg-only Tensor args of an autograd.Function are not supported; give them by position")
            if has_vmap_rule(function):
                return mapped(function, VmapInfo(size, randomness), leaves, dims, spec, lambda s: _out_dims(func, out_dims, s))
        slices = [_slices(x, d, size) for x, d in zip(leaves, dims)]
        mapped_over = [(k, s) for k, s in enumerate(slices) if s is not None]
        chance = _Randomness(randomness)
        level = transforms.Level("vmap", size, randomness)

        def call(i):
            if i == 1:
                level.listen(False)
            given = list(leaves)
            for k, s in mapped_over:
                t = given[k] = s[i]
                transforms.enter(level, t, leaves[k], dims[k])
            return chance.call(func, tree_unflatten(given, spec), kwargs)

        with level:
            r = _results(func, call, size, out_dims)
        return transforms.back(level, r) if taken(r) else tree_map(lambda t: transforms.back(level, t), r)

    return wrapped


def _slices(x, d, size):
    """Views of the slices along a dim; of nothing, one slice of zeros, for the shape of the results."""
    if d is None:
        return None
    if not size:
        shape = [n for i, n in enumerate(x._sizes) if i != d]
        return [tensor_from(np.zeros(shape, x._stype), x)]
    return x.unbind(d)
