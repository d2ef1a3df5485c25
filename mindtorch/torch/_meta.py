"""Calls that receive or create meta tensors: they compute shapes, strides, dtypes and autograd
history, but no values."""
from mindtorch.core.tensor import inplace
from mindtorch.core.device import device as _device
from mindtorch.core.dispatch import meta
from mindtorch.core.dispatch.op_registry import OPS, record_of
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.tensor import Tensor, bump_version, is_tensor
from mindtorch.core.tensor.dtypes import default_np
from mindtorch.ops.creation.create import check_tensor, new_size, resolve_dtype
from mindtorch.ops.linalg.solve import LinAlgError

DEVICE = meta.DEVICE

# In-place methods that write without reading.
_FILLS = frozenset("""normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ fill_ zero_ fill_diagonal_""".split())

# Calls that need values. The first entry is the exception class, as in PyTorch.
_VALUES = {
    **dict.fromkeys(["__bool__", "__float__", "__int__", "__complex__", "__index__", "is_nonzero", "item", "__contains__"],
                    (RuntimeError, "Tensor.item() cannot be called on meta tensors")),
    **dict.fromkeys(["tolist"], (NotImplementedError, "Cannot copy out of meta tensor; no data!")),
    **dict.fromkeys(["numpy"], (TypeError, "can't convert meta device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                                "memory first.")),
    **dict.fromkeys([*[o.name for o in OPS.values() if "dynamic_output_shape" in o.tags and o.condition is None],
                     *"""equal allclose histc histogram histogramdd _unique2 _unique nonzero_static apply_ map_ map2_ multinomial ctc_loss
                     tensor_split_by_value""".split()],
                    (NotImplementedError, "'{name}' is not implemented on device meta: its result depends on values, which meta tensors "
                     "do not have")),
}

def _factories():
    """Returns the names of (functions that create tensors from sizes and values, those that take
    the size, dtype and device of a tensor). Both have a parameter `device`."""
    makers, like = set(), set()
    for o in OPS.values():
        code = o.body.__code__
        named = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        if "device" in named and o.ns in ("", "fft") and o.name not in ("normal", "sparse_coo_tensor"):
            (like if named[0] in ("input", "self") else makers).add(o.name)
    return frozenset(makers), frozenset(like)


# The functions of the first set create tensors on the device given by device= or on the default
# device, those of the second on the tensor's device.
_MAKERS, LIKE = _factories()
_SIZED = frozenset(["empty", "ones", "rand", "randn", "zeros"])

# Matrix products, and the operators of pointwise ops, that have no op record of their own.
_PRODUCTS = frozenset("mm bmm matmul __matmul__ addmm baddbmm".split())
_OPERATORS = frozenset("""__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
 __iadd__ __isub__ __imul__ __itruediv__""".split())


def _one_device(func, name):
    """True for a call whose operands must be on one device, except for scalars."""
    record = record_of(func)
    return name in _PRODUCTS or name in _OPERATORS or record is not None and "pointwise" in record.tags


def _tensors(args, found):
    for a in args:
        if is_tensor(a):
            found.append(a)
        elif a.__class__ is tuple or a.__class__ is list:
            _tensors(a, found)
    return found


def takes(func, args, kwargs):
    """True if this module handles a call."""
    name = func.__name__
    if meta.alive():
        for a in args:
            if is_tensor(a):
                if a._device is DEVICE or a._device == DEVICE:
                    return True
            elif a.__class__ is tuple or a.__class__ is list:
                if any(t._device == DEVICE for t in _tensors(a, [])):
                    return True
        for a in kwargs.values():
            if is_tensor(a) and a._device == DEVICE:
                return True
    if name in _MAKERS:
        d = kwargs.get("device")
        return (_device._default if d is None else _device.check(d)).type == "meta"
    if name in LIKE:
        d = kwargs.get("device")
        return d is not None and _device.check(d).type == "meta"
    return False


def call(func, original, args, kwargs):
    """Returns the result of a call, with meta tensors for tensors."""
    name = func.__name__
    if meta.state.on:
        return original(*args, **kwargs)
    if name in _MAKERS or name in LIKE:
        return _make(name, original, args, kwargs)
    if name in _VALUES:
        if name == "item" or name.startswith("__"):
            n = args[0].numel()
            if n != 1 and name == "item":
                raise RuntimeError(f"a Tensor with {n} elements cannot be converted to Scalar")
        error, text = _VALUES[name]
        raise error(text.format(name=name))
    if name in ("to", "cpu", "cuda", "npu", "type_as"):
        return _mark(_quietly(name, original, args, kwargs))
    if name in ("copy_", "__setitem__") or name.endswith("_") and name[0] != "_":
        if args and is_tensor(args[0]) and args[0]._device != DEVICE:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!" if name == "copy_" else
                                      f"'{name}' is not implemented for a tensor on device {args[0]._device} and one on device meta")
    if name in ("copy_", "__setitem__") and not (mode.on and any(t._requires_grad_ for t in _tensors((*args, *kwargs.values()), []))):
        return _overwrite(name, args, kwargs)
    if name in _FILLS:
        x = args[0]
        inplace.check_inplace(x, False, True)
        bump_version(x)
        return x
    if name == "repeat_interleave" and kwargs.get("output_size") is None and len(_tensors((*args, *kwargs.values()), [])) > 1:
        raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
    if name in ("where", "__getitem__", "index_put_", "__setitem__"):
        _no_masks(name, args)
    if _one_device(func, name):
        for t in _tensors(args, []):
            if t._device != DEVICE and t.ndim:
                raise RuntimeError(f"Tensor on device {t._device} is not on the expected device meta!")
    return _mark(_quietly(name, original, args, kwargs))


def _overwrite(name, args, kwargs):
    """copy_ and assignment to a region, without autograd history."""
    x, value = args[0], args[-1] if len(args) > 1 else kwargs.get("src", kwargs.get("other"))
    inplace.check_inplace(x, False, True)
    region = x._sizes if name == "copy_" else _quietly(name, Tensor.__getitem__, args[:2], {})._sizes
    given = value._sizes if is_tensor(value) else ()
    if name == "__setitem__":
        while len(given) > len(region) and given[0] == 1:
            given = given[1:]
    if len(given) > len(region) or any(n not in (1, m) for n, m in zip(reversed(given), reversed(region))):
        raise RuntimeError(f"The expanded size of the tensor {list(region)} must match the existing size {list(given)}")
    bump_version(x)
    return x if name == "copy_" else None


def _quietly(name, original, args, kwargs):
    try:
        with meta.running():
            return original(*args, **kwargs)
    except LinAlgError as e:
        raise NotImplementedError(f"'{name}' is not implemented on device meta: it reads values ({str(e)[:60]}...)") from None
    except ValueError as e:
        if "read-only" not in str(e):
            raise
        raise NotImplementedError(f"'{name}' is not implemented for tensors on device meta") from None


def _no_masks(name, args):
    if name == "where" and len(args) == 1:
        raise NotImplementedError(_VALUES["nonzero"][1].format(name="where"))
    if name == "__getitem__":
        key = args[1] if isinstance(args[1], tuple) else (args[1],)
        for k in key:
            if is_tensor(k) and k._device == DEVICE and k._np_dtype.kind == "b":
                raise NotImplementedError(_VALUES["nonzero"][1].format(name="indexing with a mask"))


def _make(name, original, args, kwargs):
    kwargs = dict(kwargs)
    device = kwargs.get("device")
    if name in LIKE:
        like = args[0] if args else kwargs.get("input", kwargs.get("self"))
        device = like._device if device is None else device
    target = _device._default if device is None else _device.check(device)
    if target.type != "meta":
        return original(*args, **kwargs)  # reads shapes only
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"'{name}' with out= is not implemented on device meta")
    if name in ("empty_strided", "new_empty_strided"):
        return original(*args, **{**kwargs, "device": target})
    kwargs["device"] = _device.cpu
    rg = kwargs.pop("requires_grad", False)
    generator = kwargs.pop("generator", None)
    with meta.computing():
        if name in _SIZED and kwargs.get("memory_format") is None:
            d = resolve_dtype(name, kwargs.get("dtype"), None, kwargs.get("layout"))
            return meta.make(new_size(name, args, kwargs.get("size")), default_np() if d is None else d, rg)
        if name in ("empty_like", "ones_like", "rand_like", "randn_like", "zeros_like") and kwargs.get("memory_format") is None:
            d = resolve_dtype(name, kwargs.get("dtype"), None, kwargs.get("layout"))
            check_tensor(name, like)
            return meta.on(meta.meta_array(like._sizes, like._np_dtype if d is None else d, like._array), rg)
        if name == "full" and kwargs.get("dtype") is not None and args:
            return meta.make(new_size(name, args[:1], None), kwargs["dtype"].np, rg)
        if name in ("as_tensor", "asarray", "tensor", "new_tensor") and any(t._device == DEVICE for t in _tensors(args[name == "new_tensor":], [])):
            first = _tensors(args, [])[-1]
            d = kwargs.get("dtype")
            made = first if d is None else first.to(d)
            return made.detach().requires_grad_(rg) if name in ("tensor", "new_tensor") else made
        else:
            if generator is not None:
                kwargs["generator"] = generator
            made = original(*args, **kwargs)
    return meta.on(made._array, rg)


def _mark(r):
    if is_tensor(r):
        return meta.turn(r)
    if isinstance(r, (tuple, list)):
        for x in r:
            if x is not None:
                _mark(x)
    elif isinstance(r, dict):
        for x in r.values():
            _mark(x)
    return r
