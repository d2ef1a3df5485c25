"""Runs PyTorch functions on DTensors."""
import threading

import mindtorch.torch as torch
from mindtorch.core.dispatch.op_registry import record_of
from mindtorch.core.tensor.tensor import Size, is_tensor
from mindtorch.torch import _function_protocol as protocol
from mindtorch.torch.distributed.tensor._api import DTensor, _dress, _FromLocal, _moved, _plain, _Spec
from mindtorch.torch.distributed.tensor.placement_types import Partial, Replicate, Shard

# The registration of an op says how it is computed (`@op(placement=...)`). The names below are
# methods and operators that are not in the op table.
_ELEMENTWISE = frozenset("""
 to float double half bfloat16 int long type type_as cpu zero_ fill_ copy_ detach detach_ requires_grad_
 __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__ __div__
 __pow__ __ipow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__""".split())
_LINEAR = frozenset(["to", "detach", "detach_"])
_RANDOM = frozenset("uniform_ exponential_ cauchy_ log_normal_ geometric_ random_".split())
_ABOUT_SHAPE = {"size": lambda t, dim=None: t.shape if dim is None else t.shape[dim],
                "dim": lambda t: len(t.shape), "ndimension": lambda t: len(t.shape), "numel": lambda t: Size(t.shape).numel(),
                "nelement": lambda t: Size(t.shape).numel(), "is_floating_point": lambda t: t.dtype.is_floating_point,
                "is_complex": lambda t: t.dtype.is_complex, "element_size": lambda t: t.dtype.itemsize,
                "__len__": lambda t: t.shape[0], "is_contiguous": lambda t, *a, **k: t._contiguous,
                "get_device": lambda t: -1 if t.device.index is None else t.device.index}

_ABOUT_ITSELF = frozenset("register_post_accumulate_grad_hook retain_grad data_ptr storage_offset stride is_shared share_memory_".split())


class _Replicates(threading.local):
    """Per thread: whether plain tensors next to DTensors count as replicated."""

    on = False


replicates = _Replicates()


def _walk(value, found):
    if is_tensor(value):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _walk(v, found)
    elif isinstance(value, dict):
        for v in value.values():
            _walk(v, found)


def _replaced(value, fn):
    if is_tensor(value):
        return fn(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(v, fn) for v in value))
    if type(value) in (list, tuple):
        return type(value)(_replaced(v, fn) for v in value)
    if isinstance(value, tuple):
        return value if isinstance(value, Size) else type(value)(_replaced(v, fn) for v in value)
    if type(value) is dict:
        return {k: _replaced(v, fn) for k, v in value.items()}
    return value


def call(func, args, kwargs):
    """Runs a PyTorch function that has a DTensor among its arguments."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = "property"
    first = args[0] if args else None
    if name in _ABOUT_SHAPE and isinstance(first, DTensor):
        return _ABOUT_SHAPE[name](*args, **kwargs)
    if name in _ABOUT_ITSELF and isinstance(first, DTensor):
        with protocol.Disabled():
            return func(*args, **kwargs)
    tensors = []
    _walk((args, kwargs), tensors)
    dtensors = [t for t in tensors if isinstance(t, DTensor)]
    mesh = dtensors[0].device_mesh
    if any(t.device_mesh != mesh for t in dtensors):
        raise RuntimeError(f"{name}: all DTensors must be on one mesh")
    if name == "backward":
        with protocol.Disabled():
            full = _moved(first, (Replicate(),) * mesh.ndim)
            return func(full, *_replaced(args[1:], _full), **_replaced(kwargs, _full))
    record = record_of(func)
    sharding = None if record is None else record.sharding
    if sharding == "random" or name in _RANDOM:
        raise NotImplementedError(f"{name} of a DTensor is not supported on device cpu: every rank would generate different values. "
                                  "Generate them before distribute_tensor")
    if name == "linear" and mesh.ndim == 1 and len(dtensors) == len(tensors):
        r = _linear(func, *args, **kwargs)
        if r is not None:
            return r
    outsiders = [t for t in tensors if not isinstance(t, DTensor)]
    if replicates.on and any(t.dim() for t in outsiders) and name != "copy_":
        same = (Replicate(),) * mesh.ndim
        args, kwargs = _replaced((args, kwargs), lambda t: t if isinstance(t, DTensor) or not t.dim() else DTensor.from_local(t, mesh, same, run_check=False))
        return call(func, args, kwargs)
    if any(t.dim() for t in outsiders) and name != "copy_":
        raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
                           "distributed operators!")
    writes = name[-1] == "_" and not name.endswith("__") or name in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__")
    layout = _layout([t for t in dtensors if len(t.shape)] or dtensors)
    elementwise = sharding in ("elementwise", "linear") or name in _ELEMENTWISE
    if elementwise and layout is not None and (name != "copy_" or isinstance(first, DTensor)):
        if name == "copy_" and outsiders and outsiders[0].dim():
            args = (first, first._shard_of(args[1]), *args[2:])
        if not any(p.is_partial() for p in layout.placements) or sharding == "linear" or name in _LINEAR:
            return _on_parts(func, args, kwargs, layout, writes)
    if writes:
        if isinstance(first, DTensor) and not first._requires_grad_:
            # The modified tensor must keep its placements.
            with protocol.Disabled():
                full = _full(first).clone()
                func(full, *_replaced(args[1:], _full), **_replaced(kwargs, _full))
                detached = first._local_tensor
                detached.copy_(first._shard_of(full)._local_tensor)
            return first
        raise NotImplementedError(f"{name} of DTensors with placements {[t.placements for t in dtensors]} is not supported on device cpu: "
                                  "redistribute them to equal placements first")
    with protocol.Disabled():
        r = func(*_replaced(args, _full), **_replaced(kwargs, _full))
    if name in ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__"):
        return r
    same = (Replicate(),) * mesh.ndim
    return _replaced(r, lambda t: t if isinstance(t, DTensor) else _dress(_fresh(t, tensors), _Spec(mesh, same, t.shape)))


def _linear(func, input, weight, bias=None):
    """Computes the two splits of tensor parallelism on the local parts. Returns None for any other
    case."""
    mesh, last = weight.device_mesh, len(input.shape) - 1
    shape = (*input.shape[:-1], weight.shape[0])
    x, w = input.placements[0], weight.placements[0]
    if x.is_replicate() and w.is_shard(0) and (bias is None or bias.placements[0].is_shard(0)):
        local = _plain(input)
        with protocol.Disabled():
            if local._requires_grad_:
                # Every rank has the gradient of only some outputs: the input's gradient is the sum
                # over the ranks.
                local = _FromLocal.apply(local, input._spec, (Partial(),))
            r = func(local, _plain(weight), None if bias is None else _plain(bias))
        return _dress(r, _Spec(mesh, (Shard(last),), shape))
    if x.is_shard(last) and w.is_shard(1) and (bias is None or bias.placements[0].is_replicate()):
        with protocol.Disabled():
            r = _dress(func(_plain(input), _plain(weight)), _Spec(mesh, (Partial(),), shape))
        return r if bias is None else r.redistribute(placements=(Replicate(),)) + _as_row(bias, shape)
    return None


def _as_row(bias, shape):
    """Returns a replicated bias expanded to the shape of the tensor that it is added to."""
    with protocol.Disabled():
        local = _plain(bias).expand(shape)
    return _dress(local, _Spec(bias.device_mesh, bias.placements, shape))


def _fresh(t, given):
    """Returns `t` as a new object if it is one of the arguments: `_dress` would otherwise change
    the argument's class."""
    return _plain_view(t) if any(t is g for g in given) else t


def _plain_view(t):
    with protocol.Disabled():
        return t.view(t.shape)


def _layout(dtensors):
    """Returns the spec shared by all tensors, or None if they differ."""
    spec = dtensors[0]._spec
    return spec if all(t._spec.alike(spec) for t in dtensors[1:]) else None


def _full(t):
    return _moved(t, (Replicate(),) * t.device_mesh.ndim) if isinstance(t, DTensor) else t


def _on_parts(func, args, kwargs, spec, writes):
    def part(t):
        if not isinstance(t, DTensor):
            return t
        return _full(t) if len(t.shape) == 0 and len(spec.shape) else _plain(t)

    first = args[0]
    with protocol.Disabled():
        if writes and isinstance(first, DTensor):
            rest, more = _replaced(args[1:], part), _replaced(kwargs, part)
            if first._requires_grad_ and first._grad_fn_ is None and torch.is_grad_enabled():
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
            if first._grad_fn_ is not None and torch.is_grad_enabled():
                raise NotImplementedError(f"{func.__name__} of a DTensor that has a history is not supported on device cpu")
            name = func.__name__
            if name in ("requires_grad_", "detach_"):
                func(first, *rest, **more)
            else:
                func(first._local_tensor, *rest, **more)
            return first
        r = func(*_replaced(args, part), **_replaced(kwargs, part))
    return _replaced(r, lambda t: _dress(_fresh(t, [first]) if is_tensor(first) else t, spec))


DTensor._call = staticmethod(call)
