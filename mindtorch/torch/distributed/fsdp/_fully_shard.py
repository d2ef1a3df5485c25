"""fully_shard: every rank stores a shard of each parameter. The full parameter exists while the
module's forward runs.

The parameters of one module are communicated together: one all-gather before its forward, and one
reduce-scatter of their gradients in the backward pass. The gather's autograd node does the
reduce-scatter. The tensors that the forward saves keep the full parameters alive until the backward
pass, so the lasting memory savings are in gradients and optimizer state.
"""
import functools
from dataclasses import dataclass

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.device.device import accelerator
from mindtorch.torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from mindtorch.torch.distributed.tensor._api import DTensor, _parameter, _Spec
from mindtorch.torch.distributed.tensor._utils import chunk
from mindtorch.torch.distributed.tensor.placement_types import Replicate, Shard

__all__ = ["fully_shard", "FSDPModule", "UnshardHandle", "MixedPrecisionPolicy", "OffloadPolicy", "CPUOffloadPolicy",
           "register_fsdp_forward_method", "share_comm_ctx"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """dtypes of the full parameters, of the gradient reduction and of the forward's outputs. None
    leaves a dtype unchanged."""

    param_dtype: object = None
    reduce_dtype: object = None
    output_dtype: object = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Leaves the parameters on their device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Stores the parameters in host memory. On CPU they are there in any case."""

    pin_memory: bool = True


class UnshardHandle:
    """The result of `FSDPModule.unshard(async_op=True)`."""

    def wait(self):
        """Returns at once: the gather has already finished."""


class _Managed:
    """One parameter: this rank's shard, and the (module, name) pairs under which it is registered.
    """

    def __init__(self, param, places):
        self.param, self.places = param, places
        self.full_shape = tuple(param.shape)


class _Gather(torch.autograd.Function):
    """Gathers full parameters from the shards. The backward averages the gradients over the ranks
    and shards them."""

    @staticmethod
    def forward(ctx, state, *parts):
        ctx.state = state
        ctx.set_materialize_grads(False)
        return tuple(state.gather(parts))

    @staticmethod
    def backward(ctx, *grads):
        return None, *ctx.state.scatter(grads)


class _State:
    """The FSDP state of one module: its managed parameters, mesh and policy."""

    def __init__(self, module, mesh, managed, policy, replicate):
        self.module, self.mesh, self.managed, self.policy, self.replicate = module, mesh, managed, policy, replicate
        self.group = mesh.get_group(0)
        self.size, self.rank = mesh.size(0), mesh.get_local_rank(0)
        self.synchronise, self.divide_by = True, None
        self.pending = None  # full gradients accumulated by backward passes without communication
        self.depth, self.wholes = 0, None
        self.kept_open = False
        for m in managed:
            whole = m.param.detach()
            if whole.device.type not in (mesh.device_type, "meta"):
                whole = whole.to(mesh.device_type)
            spec = _Spec(mesh, (Replicate() if replicate else Shard(0),), m.full_shape)
            part = whole if replicate or not m.full_shape else None
            if part is None:
                start, length = chunk(m.full_shape[0], self.size, self.rank)
                part = whole.narrow(0, start, length)
            elif not replicate:
                # a 0-d parameter cannot be sharded
                spec = _Spec(mesh, (Replicate(),), m.full_shape)
            new = _parameter(part.clone(), spec, m.param.requires_grad)
            for key, value in vars(m.param).items():
                if key not in ("_array", "_handle", "_device", "_version_counter", "_spec", "_requires_grad_", "_grad_") and not key.startswith("_acc"):
                    new.__dict__.setdefault(key, value)
            m.param = new
            self._place(m, new)

    @staticmethod
    def _place(m, value):
        for module, name in m.places:
            module._parameters[name] = value

    def _split(self, m):
        return m.param.placements[0].is_shard()

    # ---- communication
    def gather(self, parts):
        """Returns the full tensors, gathered from the shards of all ranks. Sends one message per
        dtype."""
        out, lots = [None] * len(parts), {}
        dtype = self.policy.param_dtype
        for i, (m, part) in enumerate(zip(self.managed, parts)):
            part = part.detach()
            if dtype is not None and part.is_floating_point():
                part = part.to(dtype)
            if not self._split(m):
                out[i] = part.clone()
                continue
            lots.setdefault(part.dtype, []).append((i, m, part))
        for kind, lot in lots.items():
            steps = [-(-m.full_shape[0] // self.size) * _row(m) for _, m, _ in lot]
            there = lot[0][2].device
            mine = torch.zeros(sum(steps), dtype=kind, device=there)
            at = 0
            for (_, _, part), step in zip(lot, steps):
                mine[at:at + part.numel()] = part.reshape(-1)
                at += step
            everybody = torch.empty(self.size, mine.numel(), dtype=kind, device=there)
            dist.all_gather_into_tensor(everybody, mine, group=self.group)
            at = 0
            for (i, m, _), step in zip(lot, steps):
                n = torch.Size(m.full_shape).numel()
                out[i] = everybody[:, at:at + step].reshape(-1)[:n].view(m.full_shape).clone()
                at += step
        return out

    def scatter(self, grads):
        """Returns this rank's shards of the full gradients, averaged over all ranks. An entry is
        None where there is nothing to accumulate (synchronization is off, or the parameter needs no
        gradient)."""
        if self.pending is not None:
            grads = [p if g is None else g if p is None else p + g.to(p.dtype) for g, p in zip(grads, self.pending)]
            self.pending = None
        if not self.synchronise:
            self.pending = [None if g is None else g.detach().clone() for g in grads]
            return [None] * len(grads)
        out, lots = [None] * len(grads), {}
        for i, (m, g) in enumerate(zip(self.managed, grads)):
            if not m.param.requires_grad:
                continue
            kind = self.policy.reduce_dtype or (m.param.dtype if g is None else g.dtype)
            # Other ranks may have used a parameter that this rank did not use: contribute zeros.
            g = torch.zeros(m.full_shape, dtype=kind, device=m.param.device) if g is None else g.detach().to(kind)
            lots.setdefault((kind, self._split(m)), []).append((i, m, g))
        by = self.divide_by or self.size
        for (kind, split), lot in sorted(lots.items(), key=lambda one: str(one[0])):
            if not split:
                flat = torch.cat([g.reshape(-1) for _, _, g in lot]) / by
                dist.all_reduce(flat, group=self.group)
                at = 0
                for i, m, g in lot:
                    out[i] = flat[at:at + g.numel()].view(g.shape).to(m.param.dtype).clone()
                    at += g.numel()
                continue
            steps = [-(-m.full_shape[0] // self.size) * _row(m) for _, m, _ in lot]
            there = lot[0][2].device
            whole = torch.zeros(self.size, sum(steps), dtype=kind, device=there)
            at = 0
            for (_, _, g), step in zip(lot, steps):
                flat = torch.zeros(self.size * step, dtype=kind, device=there)
                flat[:g.numel()] = g.reshape(-1)
                whole[:, at:at + step] = flat.view(self.size, step)
                at += step
            whole.div_(by)
            mine = torch.empty(sum(steps), dtype=kind, device=there)
            dist.reduce_scatter_tensor(mine, whole.view(-1), group=self.group)
            at = 0
            for (i, m, _), step in zip(lot, steps):
                part = m.param._local_tensor
                out[i] = mine[at:at + part.numel()].view(part.shape).to(m.param.dtype).clone()
                at += step
        return out

    # ---- around the forward
    def open(self):
        """Puts the full parameters into the modules."""
        self.depth += 1
        if self.depth > 1:
            return
        parts = [m.param.to_local() for m in self.managed]
        self.wholes = _Gather.apply(self, *parts) if self.managed else ()
        for m, whole in zip(self.managed, self.wholes):
            self._place(m, whole)

    def close(self):
        """Puts the shards back into the modules."""
        if self.depth == 0:
            return
        self.depth -= 1
        if self.depth == 0:
            for m in self.managed:
                self._place(m, m.param)
            self.wholes = None

    def before(self, module, args, kwargs):
        self.open()
        p = self.policy
        if p.param_dtype is not None and p.cast_forward_inputs:
            return _cast(args, p.param_dtype), _cast(kwargs, p.param_dtype)
        return None

    def after(self, module, args, output):
        self.close()
        return output if self.policy.output_dtype is None else _cast(output, self.policy.output_dtype)


def _row(m):
    n = 1
    for s in m.full_shape[1:]:
        n *= s
    return n


def _cast(value, dtype):
    if is_tensor(value):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: _cast(v, dtype) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(v, dtype) for v in value)
    return value


class FSDPModule:
    """Methods that a module gains from `fully_shard`."""

    def _states(self, recurse=True):
        modules = self.modules() if recurse else (self,)
        return [m.__dict__["_fsdp_state"] for m in modules if "_fsdp_state" in m.__dict__]

    def unshard(self, async_op=False):
        """Gathers this module's own parameters until `reshard`. Results computed from them have
        gradients."""
        state = self.__dict__["_fsdp_state"]
        if not state.kept_open:
            state.kept_open = True
            state.open()
        return UnshardHandle() if async_op else None

    def reshard(self):
        """Frees the full parameters that `unshard` gathered."""
        state = self.__dict__["_fsdp_state"]
        if state.kept_open:
            state.kept_open = False
            state.close()

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """With False, backward passes accumulate full gradients on this rank. The next backward
        pass with True adds them in."""
        for s in self._states(recurse):
            s.synchronise = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """No effect: the mesh has one dimension."""

    def set_is_last_backward(self, is_last_backward):
        """No effect: gradients are complete at the end of each backward pass."""

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        """No effect: modules always return to the shards after their forward."""

    def set_reshard_after_backward(self, reshard_after_backward, *, recurse=True):
        """No effect: see `set_reshard_after_forward`."""

    def set_modules_to_forward_prefetch(self, modules):
        """No effect: each module gathers when its forward begins."""

    def set_modules_to_backward_prefetch(self, modules):
        """No effect: the backward pass gathers nothing."""

    def set_gradient_divide_factor(self, factor):
        """Sets the divisor of the summed gradients (default: the number of ranks)."""
        for s in self._states(False):
            s.divide_by = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_unshard_in_backward(self, unshard_in_backward):
        """No effect: the backward pass gathers nothing."""


def _own_parameters(module, ignored):
    """Returns the parameters that belong to no `fully_shard`ed submodule, with the modules and
    names that hold them."""
    found, order = {}, []
    stack = [module]
    seen = set()
    while stack:
        m = stack.pop(0)
        if m in seen:
            continue
        seen.add(m)
        for name, p in m._parameters.items():
            if p is None or p in ignored:
                continue
            if isinstance(p, DTensor):
                raise NotImplementedError(f"fully_shard of a module whose parameter '{name}' is a DTensor already (split by tensor "
                                          "parallelism, or shared with a module that is fully_shard'ed) is not supported")
            if id(p) not in found:
                found[id(p)] = _Managed(p, [])
                order.append(found[id(p)])
            found[id(p)].places.append((m, name))
        stack = [c for c in m.children() if "_fsdp_state" not in c.__dict__] + stack
    return order


@functools.lru_cache(None)
def _sharded_class(cls):
    return type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})


def fully_shard(module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy=None, offload_policy=None,
                ignored_params=None, _replicate=False):
    """Shards the module's parameters over the ranks of a mesh, along dimension 0. Apply it to
    submodules first.

    Parameters become DTensors on the mesh's device. Without a mesh, that is the accelerator if
    there is one, else the CPU. Optimizers and state_dict() see the DTensors; the full parameters
    exist during the forward. Gradients are averaged over the ranks. `reshard_after_forward` is
    accepted without effect: the module always returns to the shards.
    """
    if isinstance(module, (list, tuple)):
        raise NotImplementedError("fully_shard of a list of modules is not supported: call it on each module")
    if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        raise ValueError(f"fully_shard does not support containers that do not implement forward: {module}")
    if "_fsdp_state" in module.__dict__:
        raise ValueError(f"Each distinct module must only be fully_shard'ed once: {type(module).__name__}")
    if shard_placement_fn is not None:
        raise NotImplementedError("fully_shard with shard_placement_fn is not supported: parameters are split along dimension 0")
    if mesh is None:
        mesh = init_device_mesh((accelerator() or ("cpu",))[0], (dist.get_world_size(),))
    if not isinstance(mesh, DeviceMesh) or mesh.ndim != 1:
        raise NotImplementedError(f"fully_shard on {mesh} is not supported: expected a 1-D mesh")
    managed = _own_parameters(module, set(ignored_params or ()))
    for b in module.buffers():
        if b.device.type not in (mesh.device_type, "meta"):
            b.data = b.data.to(mesh.device_type)
    state = _State(module, mesh, managed, mp_policy or MixedPrecisionPolicy(), _replicate)
    module.__dict__["_fsdp_state"] = state
    module.register_forward_pre_hook(state.before, prepend=True, with_kwargs=True)
    module.register_forward_hook(state.after, always_call=True)
    module.__class__ = _sharded_class(type(module))
    return module


def register_fsdp_forward_method(module, method_name):
    """Makes another method of a `fully_shard`ed module gather the parameters as forward does."""
    if "_fsdp_state" not in module.__dict__:
        return
    state, method = module.__dict__["_fsdp_state"], getattr(module, method_name)

    @functools.wraps(method)
    def gathered(*args, **kwargs):
        changed = state.before(module, args, kwargs)
        args, kwargs = changed or (args, kwargs)
        output = None
        try:
            output = method(*args, **kwargs)
        finally:
            output = state.after(module, args, output)
        return output
    object.__setattr__(module, method_name, gathered)


def share_comm_ctx(modules):
    """No effect: there are no streams to share."""
