"""In-place writes, with and without grad, through views of views.

A view's `_array` is a strided NumPy view of its base's memory, so a write without grad is a plain
memory write. With grad the write becomes a node. For a write to a tensor that is not a view, the
history of the result replaces the tensor's own. For a write to a view, the *base* gets a CopySlices
node, whose backward zeroes the written region in the base's gradient and passes that region on as
the gradient of the value. Every live view of the base then gets a new history from it.

A region is identified by its geometry alone (shape, strides and offset in bytes inside the base's
memory), so views of any kind, also of another dtype (real, imag, view_as_real), are handled in the
same way.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.cpu.copies import MANY as _MANY, fill as _fill, store as _store
from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.indexing import put as _put_arrays
from mindtorch.backend.cpu.memory import dense, offset_of, on_storage, overlaps_itself, root, strided  # noqa: F401
from mindtorch.backend.cpu.pointwise import fill_where as _fill_where
from mindtorch.backend.cpu.as_strided import pick as _pick
from mindtorch.backend.device import GeometryArray, storage_array as home_array
from mindtorch.backend.interface import Array, Sizes, Strides, NpDtype
from mindtorch.backend.mindspore.private import native_recording
from mindtorch.backend.strides import contiguous_strides
from mindtorch.core.tensor.dtypes import cpp_names
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import conj_neg_bits, storage_impl, tensor_wrappers
from mindtorch.core.device import device_dispatch
from mindtorch.core.mindspore import grad as mindspore_grad
from mindtorch.core.tensor.conj_neg_bits import ConjNegBits, plain
from mindtorch.core.dispatch.deterministic import MODE, filler
from mindtorch.core.autograd.grad_mode import mode, no_grad
from mindtorch.core.tensor.stride_rules import STRIDED, like
from mindtorch.core.autograd.graph import _DualOut, hooks_here
from mindtorch.core.dispatch.primitives import HOST, Node, PrimitiveFunction, new_node, _Out, primitive
from mindtorch.core.tensor.tensor import (  # noqa: F401
    ScalarOperand, Tensor, VersionCounter, shallow_copy, bump_version, check_inplace_on_view, creation_meta_message,
    replace_memory, set_storage, version_counter, wrap_array, is_tensor)

#: (shape, strides in bytes, offset in bytes, dtype) of a view in its base's memory
Region: TypeAlias = tuple[Sizes, Strides, int, NpDtype]

_copy = np.copyto


def may_share(a: Array, b: Array) -> bool:
    """True if two arrays may share memory."""
    if a.__class__ is not GeometryArray:
        if a.flags.owndata and b.flags.owndata and a is not b:
            return False  # 0.1 us; np.may_share_memory takes 0.3 us
        return b.__class__ is not GeometryArray and np.may_share_memory(a, b)
    return b.__class__ is GeometryArray and np.may_share_memory(np.ndarray.view(a, np.ndarray), np.ndarray.view(b, np.ndarray))


def _elsewhere(x, o):
    """True if two tensors, at least one of them on a device, share no memory.

    Addresses are not sufficient for this: they are reused. A tensor with a lazy conjugate or
    negative bit is read as a copy, or written after all operands have been read, so it never
    overlaps.
    """
    return (o._handle.__class__ is ConjNegBits or x._handle.__class__ is ConjNegBits or o._handle is None or x._handle is None
            or home_array(o._array) is not home_array(x._array))


# ------------------------------------------------------------------ geometry
def geometry(view: Tensor, base: Tensor) -> Region:
    """Returns the region (shape, strides, offset, dtype) of `view` inside the memory of `base`.

    Strides and offset are in bytes.
    """
    v, b = plain(view)._array, plain(base)._array
    # An array without elements may be at any address.
    return v.shape, v.strides, address(v) - address(b) if v.size else 0, v.dtype


def base_geometry(x: Tensor) -> tuple[Sizes, Strides, NpDtype]:
    """Returns (shape, strides in bytes, dtype) of a base; nodes save this instead of the base."""
    a = x._array
    return a.shape, a.strides, a.dtype




def _zeros_of_region(g, region):
    """Returns zeros with the shape and dtype of a region."""
    return hooks.new_full(g, size=region[0], value=0, np_dtype=region[3])


#: Reads the values of a region.
read_region: PrimitiveFunction = primitive("read_region", "a, *, base, region", lambda ctx, grad: scatter_region(grad, base=ctx.base, region=ctx.region),
                                           raw=True,
                                           node="AsStridedBackward0")
#: Returns zeros like the base, with the values of a region added into them.
scatter_region: PrimitiveFunction = primitive("scatter_region", "value, *, base, region", lambda ctx, grad: read_region(grad, base=ctx.base, region=ctx.region),
                                              raw=True,
                                              node="AsStridedScatterBackward0", layout=like)
#: Returns a copy of the base with a region replaced.
copy_slices: PrimitiveFunction = primitive("copy_slices", "a, value, *, base, region",
                                           lambda ctx, grad: copy_slices(grad, _zeros_of_region(grad, ctx.region), base=ctx.base, region=ctx.region),
                                           lambda ctx, grad: read_region(grad, base=ctx.base, region=ctx.region), raw=True, node="CopySlices")
copy_slices.prim.node_class.__name__ = "CopySlices"


# ------------------------------------------------------------------ moving a tensor to other memory
def storage_extent(x: Tensor) -> tuple[int, int]:
    """Returns (offset of the first element of `x`, size of its storage), in bytes."""
    a = plain(x)._array
    return offset_of(a), root(a).nbytes


def storage_id(x: Tensor) -> int:
    """Returns an id that distinguishes storages while they are alive."""
    x = plain(x)
    return id(home_array(x._array)) if x._handle is not None else id(root(x._array))


def set_storage_strided(t: Tensor, source: Tensor, size: Sizes, strides: Strides, offset: int) -> None:
    """Moves `t` into the storage of `source`; strides and offset are in bytes.

    `t` also gets the conjugate and negative bits of `source`.
    """
    if source._handle is not None:
        if source._handle.__class__ is ConjNegBits:
            return _with_its_bits(set_storage_strided, t, source, size, strides, offset)
        return set_storage(t, device_dispatch.strided_view(source, size, strides, offset))
    replace_memory(t, on_storage(source._array, size, strides, offset))


def set_storage_within(t: Tensor, source: Tensor, size: Sizes, strides: Strides, offset: int) -> None:
    """Moves `t` into the part of its storage that `source` covers; the offset counts from there.

    Raises ValueError if the region exceeds it.
    """
    if source._handle is not None:
        if source._handle.__class__ is ConjNegBits:
            return _with_its_bits(set_storage_within, t, source, size, strides, offset)
        home, have = storage_extent(source)
        if 0 not in size and home + offset + source._np_dtype.itemsize + sum([(n - 1) * s for n, s in zip(size, strides)]) > have:
            raise ValueError(f"a region of shape {list(size)} exceeds its storage of {have} bytes")
        return set_storage(t, device_dispatch.strided_view(source, size, strides, home + offset))
    replace_memory(t, strided(source._array, size, strides, offset))


def _with_its_bits(set_within, t, source, size, strides, offset):
    h = source._handle
    of = shallow_copy(h.of)
    set_within(of, h.of, size, strides, offset)
    hooks.bits_set_memory(t, of, h.conj, h.neg)


def set_empty_storage(t: Tensor) -> None:
    """Gives `t` its own storage, without elements."""
    if t._handle.__class__ is ConjNegBits:
        h = t._handle
        of = shallow_copy(h.of)
        set_empty_storage(of)
        return hooks.bits_set_memory(t, of, h.conj, h.neg)
    if t._handle is not None:
        return set_storage(t, device_dispatch.host_to_device(np.empty(0, t._np_dtype), t._device))
    replace_memory(t, np.empty(0, t._np_dtype))


def restride(t: Tensor, strides: Sequence[int]) -> None:
    """Sets other strides (in elements) on a tensor; the elements stay where they are in memory."""
    a = t._array
    STRIDED.unusual_strides = True
    set_storage_strided(t, t, a.shape, tuple([s * a.itemsize for s in strides]), offset_of(a))
    bump_version(t)


def resize_there(t: Tensor, shape: Sizes) -> None:
    """resize_ of a device tensor.

    The tensor stays on its storage if that is large enough. Otherwise it gets a larger one with the
    old values first and zeros after them.
    """
    if t._handle.__class__ is ConjNegBits:
        h = t._handle
        of = shallow_copy(h.of)
        hooks.resize_host(of, shape)
        hooks.bits_set_memory(t, of, h.conj, h.neg)
        return bump_version(t)
    k, want = t._np_dtype.itemsize, math.prod(shape)
    home, have = storage_extent(t)
    strides = tuple([s * k for s in contiguous_strides(shape)])
    if home + want * k <= have:
        set_storage_strided(t, t, shape, strides, home)
    else:
        new = device_dispatch.host_to_device(np.zeros(want, t._np_dtype), t._device)
        n_kept = (have - home) // k
        if MODE.filling and n_kept < want:
            fill(device_dispatch.strided_view(new, (want - n_kept,), (k,), n_kept * k), filler(t._np_dtype))
        if n_kept:
            device_dispatch.write(device_dispatch.strided_view(new, (n_kept,), (k,), 0), device_dispatch.strided_view(t, (n_kept,), (k,), home))
        set_storage(t, device_dispatch.strided_view(new, shape, strides, 0))
    bump_version(t)


# ------------------------------------------------------------------ checks before a write
def expanded_dims(x: Tensor) -> list[int]:
    """Returns the dimensions with size > 1 and stride 0, such as `expand` creates."""
    a = x._array
    return [] if a.flags.c_contiguous or not a.size else [d for d, (n, s) in enumerate(zip(a.shape, a.strides)) if n > 1 and s == 0]


def check_inplace(x: Tensor, writing_grad: bool, same: bool = False) -> None:
    """Raises PyTorch's errors before a write to `x`.

        writing_grad  the new value requires grad
        same          all elements get the same value, so overlapping elements are allowed
    """
    a = x._array
    if mode.on and (x._requires_grad_ or writing_grad):
        b = x._base
        if b is not None:
            if x._creation_meta is not None:
                raise RuntimeError(creation_meta_message(x, "is being"))
            if x._requires_grad_ and b._requires_grad_ and b._grad_fn_ is None:
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place "
                                   "operation.")
        if x._requires_grad_ and x._grad_fn_ is None:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if not a.flags.c_contiguous and not same and overlaps_itself(a):
        for n, s in zip(a.shape, a.strides):
            if s == 0 and n > 1:
                raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a "
                                   "single "
                                   "memory location. Please clone() the tensor before performing the operation.")
        raise NotImplementedError(
            f"in-place write to a {x.dtype} tensor on device {x._device} whose elements overlap in memory (shape "
            f"{list(a.shape)}, "
            f"strides {[s // a.itemsize for s in a.strides]}; from unfold or as_strided) is not supported: which "
            "element would be "
            "written last is undefined")
    if (not a.flags.writeable if x._handle is None else a.frozen) and x._device.type != "meta":      # type: ignore[attr-defined]
        del a  # drop this reference: `memory.written` counts the references to the array
        if x._handle.__class__ is ConjNegBits:
            if storage_impl.on_write(x._handle.of):
                return check_inplace(conj_neg_bits.rebuilt(x), writing_grad, same)
        elif storage_impl.on_write(x):
            return
        raise RuntimeError("this tensor's memory is read-only (it was made from a read-only array); clone() it before writing")
    if x._inference and not mode.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed.You can make a "
                           "clone to "
                           "get a normal tensor before doing inplace update.")


def assert_no_partial_overlap(x: Tensor, others: Iterable[object]) -> None:
    """Raises RuntimeError if an operand partially overlaps the written memory.

    PyTorch's elementwise loops make this check.
    """
    a = x._array
    for o in others:
        if o is x or o.__class__ is not Tensor and not is_tensor(o) or (x._handle is not None or o._handle is not None) and _elsewhere(x, o):
            continue
        b = o._array
        if b is a or not may_share(a, b) or not a.size or not b.size or not dense(a) or not dense(b):
            continue
        # Both are dense and overlap: only exactly the same elements are allowed.
        if a.ndim != b.ndim or address(a) != address(b) or a.nbytes != b.nbytes or a.strides != b.strides and _differ(a, b):
            raise _overlap_error()


def assert_no_overlap(x: Tensor, others: Iterable[object]) -> None:
    """Raises RuntimeError if an operand overlaps the written memory at all.

    scatter and similar ops make this check.
    """
    a = x._array
    for o in others:
        if o.__class__ is tuple or o.__class__ is list:
            assert_no_overlap(x, o)
        elif o is x:
            raise _overlap_error()
        elif is_tensor(o):
            if (x._handle is not None or o._handle is not None) and _elsewhere(x, o):
                continue
            b = o._array
            if a.size and b.size and may_share(a, b) and dense(a) and dense(b):
                raise _overlap_error()


def _unchecked(x: Tensor, others: Iterable[object]) -> None:
    """No check, for ops that read their operands before they write."""


def _overlap_error() -> RuntimeError:
    return RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to "
                        "a single "
                        "memory location. Please clone() the tensor before performing the operation.")


#: Value of an op's `overlap` field -> check of operands that share memory with the written tensor.
OVERLAPS: dict[str | None, Callable[[Tensor, Iterable[object]], None]] = {"assert_no_partial_overlap": assert_no_partial_overlap,
                                                                          "assert_no_overlap": assert_no_overlap, "unchecked": _unchecked}


def _differ(a, b):
    """True if the strides differ.

    Broadcast dimensions of size 1 get the stride 0 from NumPy; these are ignored.
    """
    return a.shape != b.shape or any(s != t and (n != 1 or s and t) for n, s, t in zip(a.shape, a.strides, b.strides))


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


def check_cast(src: NpDtype, dst: NpDtype) -> None:
    """Raises RuntimeError if dtype `src` cannot be cast to dtype `dst` (PyTorch's canCast)."""
    if src is not dst and _CATEGORY[src.kind] > _CATEGORY[dst.kind]:
        raise RuntimeError(f"result type {scalar_type_name(src)} can't be cast to the desired output type {scalar_type_name(dst)}")


def scalar_type_name(d: NpDtype) -> str:
    """Returns PyTorch's scalar type name of a dtype: Float, Long, ..."""
    return cpp_names(d).scalar


# ------------------------------------------------------------------ writing
#
# This is the complete interface of writes to a device. Each function stores into the memory of its
# first tensor, whatever its strides, and bumps its version. These functions neither record nor
# check anything: `check_inplace` is called before, and `assign` sets the history.
#
#     store(x, r)                       a result of x's shape, with a dtype that `check_cast` allows
#     copy(x, src)                      any tensor that broadcasts to x, cast by PyTorch's rules
#     fill(x, value)                    a 0-dim tensor of x's dtype
#     zero(x)
#     fill_where(x, value, mask)        likewise, where the mask is True
#     put(x, value, indices, dims)      the elements of x that index tensors select
#     copy_at(x, key, value, apart)     the region that a basic index selects, if it is contiguous
def store(x: Tensor, r: Tensor) -> None:
    """Stores a result of x's shape in x's dtype."""
    if x._handle is None:
        value = r._array if r._handle is None else device_dispatch.to_host(r)
        if value is x._array:  # the kernel wrote into `x` itself
            bump_version(x)
        else:
            write(x, value)
    else:
        _to_device(x, r)


def _to_device(x: Tensor, r: Tensor | ScalarOperand) -> None:
    device_dispatch.write(x, r)
    bump_version(x)


def write(x: Tensor, value: Array) -> None:
    """Stores an array into the memory of `x`, with a cast, and bumps the version."""
    a = x._array
    if value.dtype is not a.dtype:
        if value.dtype.kind == "V" and a.dtype.kind != "V":
            value = value.astype(np.float32)
        elif a.dtype.kind == "V" and value.dtype.kind != "V":
            value = (value.real if value.dtype.kind == "c" else value).astype(np.float32).astype(a.dtype)
        elif value.dtype.kind == "c" and a.dtype.kind != "c":
            value = value.real
    if x._device.type != "meta":
        _copy(a, value, casting="unsafe")
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1


def copy(x: Tensor, src: Tensor) -> None:
    """Stores a tensor that broadcasts to x, cast by PyTorch's rules."""
    if x._handle is not None:
        return _to_device(x, src)
    a, b = x._array, src._array if src._handle is None else device_dispatch.to_host(src)
    _store(a, b if b.dtype is a.dtype or b.dtype == a.dtype else cast_array(b, a.dtype))
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1


def fill(x: Tensor, value: Tensor | ScalarOperand) -> None:
    """Stores a 0-dim tensor of x's dtype in every element."""
    if x._handle is not None:
        return _to_device(x, value)
    _fill(x._array, value._array if value._handle is None else device_dispatch.to_host(value))
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1


def zero(x: Tensor) -> None:
    """Stores 0 in every element."""
    if x._handle is not None:
        return _to_device(x, ScalarOperand(0, x._np_dtype))
    a = x._array
    if a.dtype.kind != "V" and a.nbytes < _MANY:
        a.fill(0)  # 0.1 us; an assignment takes 0.4 us
    else:
        _fill(a, np.zeros((), a.dtype))
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1


def fill_where(x: Tensor, value: Tensor | ScalarOperand, mask: Tensor) -> None:
    """Stores a 0-dim tensor of x's dtype where the mask, which broadcasts to x, is True."""
    if x._handle is not None:
        if x._handle.__class__ is ConjNegBits:
            return fill_where(x._handle.of, hooks.bits_flipped(x, value), mask)
        device_dispatch.write_by(x, "fill_where", _fill_where, value, mask)
        return bump_version(x)
    _fill_where(x._array, value._array if value._handle is None else device_dispatch.to_host(value), mask._array)
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1


def put(x: Tensor, value: Tensor, indices: Sequence[Tensor], dims: tuple[int, ...]) -> None:
    """Stores a tensor of x's dtype at the elements that index tensors at `dims` select."""
    if x._handle is not None:
        if x._handle.__class__ is ConjNegBits:
            return put(x._handle.of, hooks.bits_flipped(x, value), indices, dims)
        device_dispatch.write_by(x, "put", _put_arrays, value, *indices, dims=dims)
        return bump_version(x)
    _put_arrays(x._array, value._array if value._handle is None else device_dispatch.to_host(value), *[i._array for i in indices], dims=dims)
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1


def copy_at(x: Tensor, key: Any, value: Tensor | ScalarOperand, apart: bool = False) -> bool:
    """Writes to the region of a basic index, with a cast by PyTorch's rules.

    Returns False without writing if the fast path does not apply. `apart` means that the value is
    known not to share memory with x. No tensor is created for the region, which saves 2 us.
    """
    if x._handle is not None:
        return _copy_there(x, key, value)
    a, b = x._array, value._array if value._handle is None else device_dispatch.to_host(value)
    part = _pick(a, key=key)
    flags = part.flags
    if not flags.c_contiguous or not flags.writeable or x._inference or not (apart or not may_share(part, b)):
        return False
    if b.ndim > part.ndim or b.dtype is not a.dtype:
        b = b.reshape(trimmed(b.shape, part.shape))
        if b.dtype != a.dtype:
            b = cast_array(b, a.dtype)
    try:
        _store(part, b)
    except ValueError:
        raise _too_large(value._sizes, part.shape) from None
    v = x._version_counter
    if v is None:
        v = version_counter(x)
    v.v += 1
    return True


def _copy_there(x, key, value):
    """Like `copy_at`, for tensors on a device."""
    a = x._array
    if tensor_wrappers.is_wrapped(x) or x._handle.__class__ is ConjNegBits or value._handle.__class__ is ConjNegBits:
        return False
    if not a.flags.c_contiguous or a.frozen or x._inference or value._handle is not None and not _elsewhere(x, value):
        return False
    part, handle = device_dispatch.region(x, key)
    have, sizes = value._sizes, part.shape
    if have != sizes and have:
        lead = len(sizes) - len(have)
        if lead < 0:
            return False  # leading dimensions of size 1, or an error
        if any([n != 1 and n != sizes[lead + i] for i, n in enumerate(have)]):
            raise _too_large(have, sizes)
    device_dispatch.write_to(handle, part.dtype, value, x._device)
    bump_version(x)
    return True


def trimmed(have: Sizes, shape: Sizes) -> Sizes:
    """Returns the shape of a value without the leading size-1 dimensions that the region lacks."""
    i, ndim = 0, len(shape)
    while len(have) - i > ndim and have[i] == 1:
        i += 1
    if len(have) - i > ndim:
        raise RuntimeError(f"expand(torch.Tensor{{{list(have)}}}, size={list(shape)}): the number of sizes provided "
                           f"({ndim}) must be greater "
                           f"or equal to the number of dimensions in the tensor ({len(have)})")
    return have[i:]


def _too_large(have, want):
    lead = len(want) - len(have)
    for i, n in enumerate(have):
        if n != 1 and n != want[lead + i]:
            return RuntimeError(f"The expanded size of the tensor ({want[lead + i]}) must match the existing size "
                                f"({n}) at non-singleton "
                                f"dimension {lead + i}.  Target sizes: {list(want)}.  Tensor sizes: {list(have)}")
    return RuntimeError(f"a value of shape {list(have)} cannot be written to a region of shape {list(want)}")


def fill_by(x: Tensor, name: str, constants: dict[str, Any], *operands: Tensor) -> None:
    """Runs the kernel `name` with `x`, of any strides, as its output.

    `operands` are optional tensors.
    """
    if x._handle is not None:
        if x._handle.__class__ is ConjNegBits:
            resolved = hooks.bits_resolved(x)
            fill_by(resolved, name, constants, *operands)
            device_dispatch.write(x, resolved)
        else:
            device_dispatch.write_by(x, name, HOST[name], *operands, **constants)
    elif x._device.type != "meta":
        if operands:
            HOST[name](x._array, *[o._array for o in operands], **constants)
        else:
            HOST[name](x._array, **constants)
    bump_version(x)


def new_nodes(root: Node, since: int) -> list[Node]:
    """Returns the nodes below `root` that were created after sequence number `since`."""
    seen, stack, out = set(), [root], []
    while stack:
        n = stack.pop()
        if n in seen or n._sequence_number < since:
            continue
        seen.add(n)
        out.append(n)
        for e in n._next_edges:
            if e.__class__ is tuple:
                stack.append(e[0])
    return out


def assign(x: Tensor, r: Tensor, since: int, args: Iterable[object] = ()) -> Tensor:
    """Updates `x` in place with the result tensor `r`.

    The nodes of `r` were created after sequence number `since`. `args` are the other arguments of
    the op. If one of them shares memory with x and was saved for backward, the saved value is
    overwritten too (an error in backward, as in PyTorch). The old value of x itself is preserved.
    """
    xa, ra = x._array, r._array
    if ra.shape != xa.shape:
        raise RuntimeError(f"output with shape {list(xa.shape)} doesn't match the broadcast shape {list(ra.shape)}")
    check_cast(ra.dtype, xa.dtype)
    if r._fw_grad and x._version_counter is not None:
        for t in r._fw_grad.values():
            if t is not None and t._grad_fn_ is not None:
                copy_saved_before_write(x._version_counter, t, since)
    if not (mode.on and (x._requires_grad_ or r._requires_grad_)) or xa.dtype.kind not in "fcV":
        store(x, r)
        if hooks.tangent_write is not None:
            hooks.tangent_write(x, r, since)
        return x
    check_inplace(x, r._requires_grad_, True)  # Overlaps were checked before the op ran.
    if ra.dtype != xa.dtype:
        r = hooks.cast(r, xa.dtype)
    ver = version_counter(x)
    fresh: list[Node] = []
    if r._grad_fn_ is not None:
        fresh = new_nodes(r._grad_fn_, since)
        twice = any(o is x for o in args)
        shared = twice or any(is_tensor(o) and o._version_counter is ver for o in args)
        for n in fresh:
            if n._saved:
                for k, s in n._saved.items():
                    if s.__class__ is tuple and s[1] is ver:
                        # The old value of x must survive the write. If x was passed a second time
                        # as another operand, that saved value does not survive, as in PyTorch.
                        if not shared or s[0] is x and not (twice and n._prim is not None and k != n._prim.inputs[0]):
                            n._saved[k] = _copy_saved(s)
    if r is x or r._array is xa:
        ver.v += 1
    else:
        store(x, r)
    if hooks.tangent_write is not None:
        hooks.tangent_write(x, r, since)
    # exp_() and similar ops save their result, which is now x itself: later writes to x make it
    # stale.
    for n in fresh:
        if n._saved:
            for k, s in n._saved.items():
                if isinstance(s, _Out) and s._array is r._array:
                    n._saved[k] = _Out(x, s.idx) if x._fw_grad is None else _DualOut(_Out(x, s.idx), x._fw_grad)
    if x._base is not None and fresh and x._grad_fn_ is not None and x._grad_fn_._tensor_hooks:
        _around_hooks(x, fresh)
    rebase(x, r if r._grad_fn_ is None or r._grad_fn_._sequence_number >= since else _identity(r))
    return x


def computed(x: Tensor, fn: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Calls fn(x, ...), whose result `assign` will write to `x`.

    Saved-tensor hooks of this thread get copies of the values that the write will change.
    """
    if not hooks_here.pairs:
        return fn(x, *args, **kwargs)
    outer, hooks_here.overwritten = hooks_here.overwritten, (version_counter(x), _copied)
    try:
        return fn(x, *args, **kwargs)
    finally:
        hooks_here.overwritten = outer


def _copied(x):
    return _copy_saved((x,))[0]


def copy_saved_before_write(ver: VersionCounter, r: Tensor, since: int) -> None:
    """Copies saved tensors that are about to be overwritten.

    These are the ones with counter `ver` in the nodes of `r` created since `since`.
    """
    for n in new_nodes(r._grad_fn_, since):
        saved = n._saved or {}
        for k, s in saved.items():
            if s.__class__ is tuple and s[1] is ver:
                saved[k] = _copy_saved(s)


def _around_hooks(x, fresh):
    """Routes the gradient of a view's old value to the base through a new node.

    Hooks on the view belong to its former history, which receives no gradient, as in PyTorch.
    """
    base, old = x._base, (x._grad_fn_, x._output_nr)
    node = _reading(x, base, _edge(base))
    for n in fresh:
        if old in n._next_edges:
            n._next_edges = [(node, 0) if e == old else e for e in n._next_edges]


def _copy_saved(s):
    """Returns a copy of a saved tensor, made before its memory is overwritten."""
    old = s[0]
    if old._handle is None:
        c = wrap_array(old._array.copy())
    else:
        with no_grad():
            c = _identity(old)
    if old._fw_grad:
        for level, t in old._fw_grad.items():
            c._fw_grad = {**(c._fw_grad or {}), level: t if t is None else _identity(t)}
    c._grad_fn_, c._output_nr, c._requires_grad_ = old._grad_fn_, old._output_nr, old._requires_grad_
    v = version_counter(c)
    return (c, v, v.v)


def _edge(x):
    """Returns the gradient edge of `x`: a node's output, a leaf, or None."""
    if not x._requires_grad_:
        return None
    if x._creation_meta is not None:
        check_inplace_on_view(x)
    if x._grad_fn_ is not None:
        return x._grad_fn_, x._output_nr
    return None if x._view_without_history else x


def rebase(x: Tensor, r: Tensor) -> None:
    """Gives `x`, which has just been modified, the history of `r` (equal to its new value)."""
    base = x._base
    if base is not None and (x._handle.__class__ is ConjNegBits or base._handle.__class__ is ConjNegBits):
        r = hooks.bits_related(x, base, r)
    if base is None:
        if r._grad_fn_ is None:
            # `r` is a leaf or a constant: the history of x is a copy node.
            node, i = (_identity(r)._grad_fn_, 0) if r._requires_grad_ else (_constant_node(x), 0)
        else:
            node, i = r._grad_fn_, r._output_nr
        base = x
        if native_recording():
            mindspore_grad.link_write(_overwrite_grads, x, r)
    else:
        a = base._array
        node, i = new_node(copy_slices.prim.node_class), 0
        node._prim = copy_slices.prim
        node._next_edges = [_edge(base), _edge(r)]
        node._input_metadata = ((a.shape, a.dtype),)
        node._attrs = {"base": base_geometry(base), "region": geometry(x, base)}
        if native_recording():
            mindspore_grad.link_write(functools.partial(_slices, node._attrs), base, r)
    _move(base, node, i)
    if base._views:
        refresh_views(base)


def _overwrite_grads(g):
    """Returns (gradient of the old value, gradient of the new value) of an overwritten tensor.

    MindSpore's autograd requires a tensor for both, so the first one is zeros.
    """
    return _zeros(g), g


def _zeros(g):
    return hooks.new_full(g, size=g._sizes, value=0, np_dtype=g._np_dtype)


def _slices(kw, g):
    """Like `_overwrite_grads`, for a tensor of which a region was overwritten."""
    return copy_slices(g, _zeros_of_region(g, kw["region"]), **kw), read_region(g, **kw)


def _region(kw, g):
    """Returns the gradients of a view's history before a write to its base, and of the base."""
    return _zeros(g), scatter_region(g, **kw)


def _move(t, node, i):
    """Makes output `i` of `node` the history of `t`; retain_grad moves along."""
    if t._retain and t._grad_fn_ is not None and t._grad_fn_._retains_grad:
        ref = t._grad_fn_._retains_grad.pop(t._output_nr, None)
        if ref is not None:
            if node._retains_grad is None:
                node._retains_grad = {}
            node._retains_grad[i] = ref
    t._grad_fn_, t._output_nr, t._requires_grad_ = node, i, True
    if t._view_without_history:
        t._view_without_history = False


class _Constant(Node):
    __slots__ = ()


_Constant.__name__ = "CopyBackwards"


class _Overwritten:
    """Backward rule of a tensor overwritten by a value without history.

    The former history receives zeros (not None), as in PyTorch.
    """

    inputs = ()

    @staticmethod
    def backward(node, gs):
        if node._next_edges[0] is None:
            return [None]
        shape, dtype = node._input_metadata[0]
        return [hooks.new_full(gs[0], size=shape, value=0, np_dtype=dtype)]


_OVERWRITTEN = _Overwritten()


def _constant_node(x):
    n = new_node(_Constant)
    n._prim, n._next_edges, n._input_metadata = _OVERWRITTEN, [_edge(x)], ((x._array.shape, x._array.dtype),)
    return n


_identity = primitive("copies", "a", lambda ctx, grad: grad, raw=True, node="CopyBackwards", layout=like, aten="clone.default")


def _reading(v, base, edge, base_meta=None):
    """Returns a node that reads the view `v` from its base, whose gradient edge is `edge`."""
    node = new_node(read_region.prim.node_class)
    node._prim = read_region.prim
    node._next_edges = [edge]
    node._input_metadata = ((v._array.shape, v._array.dtype),)
    node._attrs = {"base": base_meta or base_geometry(base), "region": geometry(v, base)}
    return node if v._handle.__class__ is not ConjNegBits and base._handle.__class__ is not ConjNegBits else hooks.bits_turning(node, v, base)


def reread_view(x: Tensor) -> None:
    """Updates the history of a view from its base, after its region in the base has changed."""
    if x._base is not None and x._requires_grad_ and x._grad_fn_ is not None and x._creation_meta is None:
        _move(x, _reading(x, x._base, _edge(x._base)), 0)


def refresh_views(base: Tensor) -> None:
    """Sets the history of every live view of `base` from the base's current history."""
    live = []
    base_meta = base_geometry(base)
    for ref in base._views:             # type: ignore[union-attr]
        v = ref()
        if v is None:
            continue
        live.append(ref)
        if v._creation_meta is not None:
            v._requires_grad_ = True  # from now on its use with grad is an error (`check_inplace_on_view`)
            continue
        node = _reading(v, base, (base._grad_fn_, base._output_nr), base_meta)
        if native_recording():
            mindspore_grad.link_write(functools.partial(_region, node._attrs), v, base)
        _move(v, node, 0)
    base._views[:] = live               # type: ignore[index]
