"""torch.distributed.tensor.experimental: functions of local parts, and plain tensors mixed with
DTensors."""
import contextlib
import functools

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.tensor import _ops
from mindtorch.torch.distributed.tensor._api import DTensor
from mindtorch.torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]

refuse(globals(), "of torch.distributed.tensor.experimental, only implicit_replication and local_map are supported", "context_parallel register_sharding")


@contextlib.contextmanager
def implicit_replication():
    """Context manager: plain tensors next to DTensors count as replicated, with equal values on
    every rank."""
    before, _ops.replicates.on = _ops.replicates.on, True
    try:
        yield
    finally:
        _ops.replicates.on = before


def local_map(func=None, out_placements=None, in_placements=None, in_grad_placements=None, device_mesh=None, *, redistribute_inputs=False):
    """Wraps `func`, a function of local parts, so that it takes DTensors and returns DTensors with
    `out_placements`. Without `func`, returns a decorator.

      out_placements      placements of the result, or a tuple with one entry per result
                          (None for a non-tensor)
      in_placements       required placements of the arguments; ValueError for others, unless
                          redistribute_inputs
      in_grad_placements  placements of the gradients of the local parts
      device_mesh         mesh of the results (default: the first DTensor's mesh)

    Without a DTensor among the arguments, `func` is called directly.
    """
    if func is None:
        return functools.partial(local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements, device_mesh=device_mesh,
                                 redistribute_inputs=redistribute_inputs)

    @functools.wraps(func)
    def mapped(*args, **kwargs):
        leaves, tree = tree_flatten(args)
        if in_placements is not None and len(in_placements) != len(leaves):
            raise AssertionError(f"in_placements length {len(in_placements)} does not match the number of input args {len(leaves)}!")
        mesh, local = device_mesh, []
        for i, a in enumerate(leaves):
            if not isinstance(a, DTensor):
                if in_placements is not None and not is_tensor(a) and in_placements[i] is not None:
                    raise AssertionError(f"Non-Tensor input {a} expects None placements but received {in_placements[i]}!")
                local.append(a)
                continue
            mesh = a.device_mesh if mesh is None else mesh
            if in_placements is not None:
                wanted = _placements(in_placements[i], a)
                if a.placements != wanted:
                    if not redistribute_inputs:
                        raise ValueError(f"arg {i} in local_map has a mismatched placements: arg placements is {a.placements} but the input placements is {wanted}! "
                                         "If redistribute_inputs is wanted, set redistribute_inputs=True to local_map.")
                    a = a.redistribute(placements=wanted)
            local.append(a.to_local() if in_grad_placements is None else a.to_local(grad_placements=_placements(in_grad_placements[i], a)))
        out = func(*tree_unflatten(local, tree), **kwargs)
        if not any(isinstance(a, DTensor) for a in leaves):
            return out
        results, out_tree = tree_flatten(out)
        wanted = out_placements if isinstance(out_placements, tuple) else (out_placements,)
        if len(results) != len(wanted):
            raise AssertionError(f"local_map requires one PlacementType be provided for each output value, received {len(wanted)} out_placements but {len(results)} is "
                                 "expected!")
        return tree_unflatten([_spread(r, w, mesh) for r, w in zip(results, wanted)], out_tree)
    return mapped


def _placements(spec, arg):
    if spec is None:
        raise AssertionError(f"DTensor input {arg} expects placements but received None!")
    return tuple(spec)


def _spread(result, placements, mesh):
    if is_tensor(result):
        if isinstance(result, DTensor):
            raise AssertionError(f"torch.Tensor output expected but received {type(result)}: {result}")
        return DTensor.from_local(result, mesh, placements, run_check=False)
    if placements is not None:
        raise AssertionError(f"Non-tensor output {result} expects None placements but received {placements}!")
    return result
