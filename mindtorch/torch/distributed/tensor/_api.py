"""DTensor: a tensor of which every rank of a mesh stores a part.

The object is its local part, but reports the global shape: `_array`, gradients and hooks belong to the
local part. Elementwise operations on operands with equal placements run on the local parts. Every
other operation runs on the full tensors, gathered on every rank: correct for any operation, at the
cost of memory and communication.
"""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Parameter, Size, Tensor, detached, set_grad, is_tensor
from mindtorch.torch import _function_protocol as protocol
from mindtorch.torch.distributed.device_mesh import DeviceMesh, current_mesh
from mindtorch.torch.distributed.tensor._utils import compute_global_tensor_info, compute_local_shape, normalised, transformed
from mindtorch.torch.distributed.tensor.placement_types import Partial, Replicate

__all__ = ["DTensor", "distribute_tensor", "distribute_module", "ones", "empty", "full", "rand", "randn", "zeros"]

_part = primitive("to_local", "a", lambda ctx, grad: grad, node="ToTorchTensorBackward", view=True, raw=True)


class _Spec:
    """Mesh, placements and global shape."""

    __slots__ = ("mesh", "placements", "shape")

    def __init__(self, mesh, placements, shape):
        self.mesh, self.placements, self.shape = mesh, tuple(placements), Size(shape)

    device_mesh = property(lambda self: self.mesh)

    def alike(self, other):
        return self.placements == other.placements and self.shape == other.shape and self.mesh == other.mesh


def _gradient_placements(placements):
    """Returns the placements of a tensor's gradient: replicated where the tensor is partial."""
    return tuple(Replicate() if p.is_partial() else p for p in placements)


class _Redistribute(torch.autograd.Function):
    """Changes the placements of a local part. The backward redistributes its gradient back."""

    @staticmethod
    def forward(ctx, local, spec, placements):
        ctx.spec, ctx.placements = spec, placements
        return transformed(local, spec.mesh, spec.shape, spec.placements, placements)

    @staticmethod
    def backward(ctx, g):
        spec = ctx.spec
        g = transformed(g, spec.mesh, spec.shape, _gradient_placements(ctx.placements), _gradient_placements(spec.placements))
        return g, None, None


class _FromLocal(torch.autograd.Function):
    """Identity on the local part, for a gradient with different placements."""

    @staticmethod
    def forward(ctx, local, spec, placements):
        ctx.spec, ctx.placements = spec, placements
        return local.view(local.shape)

    @staticmethod
    def backward(ctx, g):
        spec = ctx.spec
        return transformed(g, spec.mesh, spec.shape, ctx.placements, _gradient_placements(spec.placements)), None, None


_ready = False


def _dress(local, spec, cls=None):
    """Turns the object `local` itself into a DTensor. It keeps its autograd history."""
    global _ready
    if not _ready:
        _ready = True
        protocol.activate()
    local.__class__ = cls or DTensor
    local._spec = spec
    return local


def _plain(t):
    """Returns a DTensor's local part as a separate tensor, with autograd history. Other values are
    returned unchanged."""
    if not isinstance(t, DTensor):
        return t
    if t._requires_grad_ and torch.is_grad_enabled():
        return _part(t)
    return detached(t)


class DTensor(Tensor):
    """A tensor distributed over a DeviceMesh
    (https://docs.pytorch.org/docs/stable/distributed.tensor.html).

    For each dimension of the mesh, `placements` says whether the tensor is split along it (Shard),
    repeated (Replicate), or the sum of the ranks' values (Partial).
    """

    def __new__(cls, local_tensor, spec, *, requires_grad=False):
        t = _dress(detached(local_tensor), spec)
        if requires_grad:
            t.requires_grad_(True)
        return t

    @staticmethod
    def from_local(local_tensor, device_mesh=None, placements=None, *, run_check=False, shape=None, stride=None, grad_placements=None):
        """Returns a DTensor whose part on this rank is `local_tensor`. Gradients flow to
        `local_tensor`.

        Without `shape`, the parts of all ranks are assumed to have equal sizes. With `run_check`,
        replicated parts are broadcast from the first rank.
        """
        mesh = device_mesh or current_mesh()
        placements = normalised(placements, mesh, local_tensor.dim())
        if shape is None:
            shape, _ = compute_global_tensor_info(local_tensor, mesh, placements)
        spec = _Spec(mesh, placements, shape)
        if run_check:
            local_tensor = _first_ranks(local_tensor.detach().clone(), mesh, [d for d, p in enumerate(placements) if p.is_replicate()])
        if grad_placements is not None:
            made = _FromLocal.apply(local_tensor, spec, normalised(grad_placements, mesh, len(spec.shape)))
        else:
            made = _part(local_tensor) if local_tensor._requires_grad_ and torch.is_grad_enabled() else detached(local_tensor)
        return _dress(made, spec)

    # ---- properties
    @property
    def shape(self):
        return self._spec.shape

    @property
    def device_mesh(self):
        """Returns the mesh."""
        return self._spec.mesh

    @property
    def placements(self):
        """Returns the tuple of placements, one per dimension of the mesh."""
        return self._spec.placements

    @property
    def _local_tensor(self):
        return detached(self)

    def _with_local(self, local):
        """Returns a DTensor with the same layout and another local part, without autograd history.
        """
        return _dress(detached(local), self._spec)

    def _as_parameter(self, requires_grad=True):
        return _parameter(self, self._spec, requires_grad)

    def _shard_of(self, full):
        """Returns a DTensor with the same layout whose global value is `full`, a full tensor on
        this rank."""
        if tuple(full.shape) != tuple(self.shape):
            raise RuntimeError(f"expected a full tensor of shape {tuple(self.shape)}, got {tuple(full.shape)}")
        spec = self._spec
        part = transformed(full.detach(), spec.mesh, spec.shape, (Replicate(),) * spec.mesh.ndim, spec.placements)
        return self._with_local(part.to(self.dtype).clone())

    @property
    def grad(self):
        g = Tensor.grad.fget(self)
        if g is not None and not isinstance(g, DTensor):
            g = _dress(g, _Spec(self._spec.mesh, _gradient_placements(self._spec.placements), self._spec.shape))
        return g

    @grad.setter
    def grad(self, value):
        if value is not None and not isinstance(value, DTensor):
            raise RuntimeError("assigned grad has data of a different type: the gradient of a DTensor is a DTensor")
        if value is not None and tuple(value.shape) != tuple(self.shape):
            raise RuntimeError(f"assigned grad has data of a different size: {tuple(value.shape)} instead of {tuple(self.shape)}")
        set_grad(self, value)

    @grad.deleter
    def grad(self):
        self._grad_ = None

    @property
    def data(self):
        return self._with_local(Tensor.data.__get__(_bare(self)))

    @data.setter
    def data(self, value):
        if not isinstance(value, DTensor) or not value._spec.alike(self._spec):
            raise NotImplementedError("DTensor.data can be set to a DTensor of the same layout only")
        Tensor.data.__set__(self, value._local_tensor)

    # ---- redistribution
    def to_local(self, *, grad_placements=None):
        """Returns this rank's part. Its gradient is assumed to have the tensor's placements, or
        `grad_placements`."""
        local = _plain(self)
        if grad_placements is not None and local._requires_grad_:
            return _FromLocal.apply(local, self._spec, normalised(grad_placements, self.device_mesh, len(self.shape)))
        return local

    def redistribute(self, device_mesh=None, placements=None, *, async_op=False, forward_dtype=None, backward_dtype=None):
        """Returns the tensor with other placements on the same mesh. All ranks of the mesh must
        call it."""
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("DTensor.redistribute to another mesh is not supported")
        if forward_dtype is not None or backward_dtype is not None:
            raise NotImplementedError("DTensor.redistribute with forward_dtype or backward_dtype is not supported")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        placements = normalised(placements, self.device_mesh, len(self.shape))
        for old, new in zip(self.placements, placements):
            if new.is_partial() and old != new:
                raise RuntimeError("Can not redistribute to Partial, redistributing to Partial is for internal use only!")
        if placements == self.placements:
            return self
        return _dress(_moved(self, placements), _Spec(self.device_mesh, placements, self.shape))

    def full_tensor(self, *, grad_placements=None):
        """Returns the full tensor on every rank. All ranks of the mesh must call it."""
        full = _moved(self, (Replicate(),) * self.device_mesh.ndim)
        if grad_placements is not None and full._requires_grad_:
            spec = _Spec(self.device_mesh, (Replicate(),) * self.device_mesh.ndim, self.shape)
            return _FromLocal.apply(full, spec, normalised(grad_placements, self.device_mesh, len(self.shape)))
        return full

    # ---- calls of PyTorch functions
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return cls._call(func, args, kwargs or {})

    # handler of `__torch_function__` calls; set by `_ops.py`, which imports this module
    _call = None

    def __repr__(self):
        if self._array is None:
            return "DTensor()"
        return f"DTensor(local_tensor={self._local_tensor!r}, device_mesh={self.device_mesh!r}, placements={self.placements!r})"

    __str__ = __repr__

    def __format__(self, spec):
        return format(repr(self), spec)

    def __len__(self):
        return self.shape[0]

    def __deepcopy__(self, memo):
        if self._grad_fn_ is not None:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                               "moment.")
        if id(self) not in memo:
            copy = detached(self).clone()
            memo[id(self)] = _parameter(copy, self._spec, self._requires_grad_) if is_tensor(self, Parameter) else \
                DTensor(copy, self._spec, requires_grad=self._requires_grad_)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        raise NotImplementedError("pickling a DTensor (torch.save) is not supported: save it with torch.distributed.checkpoint, or "
                                  "its full_tensor()")


class _DTensorParameter(DTensor, Parameter):
    """A DTensor that is a module's parameter."""

    requires_grad = Parameter.requires_grad


def _bare(t):
    """Returns a plain tensor on the same memory."""
    return detached(t)


def _moved(t, placements):
    """Returns the local part of a DTensor under other placements, with autograd history."""
    local = _plain(t)
    if placements == t.placements:
        return local
    if local._requires_grad_ and torch.is_grad_enabled():
        return _Redistribute.apply(local, t._spec, placements)
    return transformed(local, t.device_mesh, t.shape, t.placements, placements)


def _parameter(local, spec, requires_grad=True):
    """Returns a parameter whose part on this rank is `local`."""
    return _dress(Parameter(detached(local), requires_grad), spec, _DTensorParameter)


def _first_ranks(t, mesh, dims):
    """Broadcasts the tensor of the first rank along some dimensions of the mesh."""
    for d in dims:
        group = mesh.get_group(d)
        t = t.contiguous()
        dist.broadcast(t, src=dist.get_global_rank(group, 0), group=group)
    return t


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank=0):
    """Distributes a tensor that all ranks have over a mesh. The values are those of the mesh's
    first rank.

    With src_data_rank=None nothing is sent: the values are assumed to be equal on all ranks.
    """
    mesh = device_mesh or current_mesh()
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"device_mesh must be a DeviceMesh, not {type(mesh).__name__}")
    placements = normalised(placements, mesh, tensor.dim())
    if any(p.is_partial() for p in placements):
        raise RuntimeError(f"distribute_tensor expects Shard and Replicate placements, got {placements}")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}.")
        if tensor.placements != placements:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placements}. "
                             "do you want to call `redistribute` instead?")
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    full = tensor.detach()
    if full.device.type not in (mesh.device_type, "meta"):
        full = full.to(mesh.device_type)
    if src_data_rank is not None:
        if src_data_rank != 0:
            raise NotImplementedError(f"distribute_tensor with src_data_rank={src_data_rank} is not supported: use 0 or None")
        full = _first_ranks(full.clone(), mesh, range(mesh.ndim))
    spec = _Spec(mesh, placements, tensor.shape)
    part = transformed(full, mesh, spec.shape, (Replicate(),) * mesh.ndim, placements).clone()
    if is_tensor(tensor, Parameter):
        return _parameter(part, spec, tensor.requires_grad)
    return DTensor(part, spec, requires_grad=tensor.requires_grad)


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Converts all parameters and buffers of a module to DTensors: `partition_fn(name, submodule,
    mesh)` distributes some, the rest are replicated.

    `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` run before and after its
    forward.
    """
    mesh = device_mesh or current_mesh()
    for name, m in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, m, mesh)
        for key, p in m._parameters.items():
            if p is not None and not isinstance(p, DTensor):
                m.register_parameter(key, distribute_tensor(p, mesh))
        for key, b in m._buffers.items():
            if b is not None and not isinstance(b, DTensor):
                m._buffers[key] = distribute_tensor(b, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    return module


def _made(maker, size, dtype, requires_grad, device_mesh, placements):
    mesh = device_mesh or current_mesh()
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    placements = normalised(placements, mesh, len(shape))
    if any(isinstance(p, Partial) for p in placements):
        raise RuntimeError(f"a new DTensor must have Shard and Replicate placements, got {placements}")
    spec = _Spec(mesh, placements, shape)
    with torch.device(mesh.device_type):
        return DTensor(maker(compute_local_shape(spec.shape, mesh, placements), dtype), spec, requires_grad=requires_grad)


def ones(*size, dtype=None, layout=torch.strided, requires_grad=False, device_mesh=None, placements=None):
    """Returns a DTensor of ones."""
    return _made(lambda s, t: torch.ones(s, dtype=t), size, dtype, requires_grad, device_mesh, placements)


def zeros(*size, requires_grad=False, dtype=None, layout=torch.strided, device_mesh=None, placements=None):
    """Returns a DTensor of zeros."""
    return _made(lambda s, t: torch.zeros(s, dtype=t), size, dtype, requires_grad, device_mesh, placements)


def empty(*size, dtype=None, layout=torch.strided, requires_grad=False, device_mesh=None, placements=None):
    """Returns an uninitialized DTensor."""
    return _made(lambda s, t: torch.empty(s, dtype=t), size, dtype, requires_grad, device_mesh, placements)


def full(size, fill_value, *, dtype=None, layout=torch.strided, requires_grad=False, device_mesh=None, placements=None):
    """Returns a DTensor filled with one value."""
    return _made(lambda s, t: torch.full(s, fill_value, dtype=t), (size,), dtype, requires_grad, device_mesh, placements)


def _random(maker, size, dtype, requires_grad, device_mesh, placements):
    # Every rank samples the full tensor and the first rank's is broadcast: the values do not depend
    # on the placements.
    mesh = device_mesh or current_mesh()
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    t = distribute_tensor(maker(shape, dtype), mesh, placements)
    return t.requires_grad_(True) if requires_grad else t


def rand(*size, requires_grad=False, dtype=None, layout=torch.strided, device_mesh=None, placements=None):
    """Returns a DTensor of uniform random values, those of the mesh's first rank."""
    return _random(lambda s, t: torch.rand(s, dtype=t), size, dtype, requires_grad, device_mesh, placements)


def randn(*size, requires_grad=False, dtype=None, layout=torch.strided, device_mesh=None, placements=None):
    """Returns a DTensor of normal random values, those of the mesh's first rank."""
    return _random(lambda s, t: torch.randn(s, dtype=t), size, dtype, requires_grad, device_mesh, placements)
