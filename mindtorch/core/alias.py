"""In-place writes, with and without grad, through views of views.

A view's `_a` is a strided NumPy view of its base's memory, so a write without grad is a plain
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
from mindtorch.backend.cpu.region import pick as _pick
from mindtorch.backend.device import Opaque, home_of as home_array
from mindtorch.backend.interface import Array, Sizes, Strides, Stype
from mindtorch.backend.mindspore.private import native_recording
from mindtorch.backend.strides import contiguous_strides
from mindtorch.core import bits, devices, memory, native, promote, wrapped
from mindtorch.core.bits import Bits, plain
from mindtorch.core.determinism import MODE, filler
from mindtorch.core.grad_mode import mode, no_grad
from mindtorch.core.layout import STRIDED, like
from mindtorch.core.nodes import _DualOut, hooks_here
from mindtorch.core.tape import HOST, Node, PrimitiveFunction, new_node, _Out, primitive
from mindtorch.core.tensor import Const, Tensor, Version, again, bump, check_fragile, fragile_message, replace_memory, stand_on, version, wrap, taken  # noqa: F401

#: (shape, strides in bytes, offset in bytes, dtype) of a view in its base's memory
Region: TypeAlias = tuple[Sizes, Strides, int, Stype]

_copy = np.copyto
#: Set by core.forward while tangents exist: (modified tensor, tensor equal to its new value,
#: sequence number from which that was computed).
wrote: Callable[[Tensor, Any, int], None] | None = None


def may_share(a: Array, b: Array) -> bool:
    """True if two arrays may share memory."""
    if a.__class__ is not Opaque:
        if a.flags.owndata and b.flags.owndata and a is not b:
            return False  # 0.1 us; np.may_share_memory takes 0.3 us
        return b.__class__ is not Opaque and np.may_share_memory(a, b)
    return b.__class__ is Opaque and np.may_share_memory(np.ndarray.view(a, np.ndarray), np.ndarray.view(b, np.ndarray))


def _elsewhere(x, o):
    """True if two tensors, at least one of them on a device, share no memory.

    Addresses are not sufficient for this: they are reused. A tensor with a lazy conjugate or
    negative bit is read as a copy, or written after all operands have been read, so it never
    overlaps.
    """
    return o._h.__class__ is Bits or x._h.__class__ is Bits or o._h is None or x._h is None or home_array(o._a) is not home_array(x._a)


# ------------------------------------------------------------------ geometry
def geometry(view: Tensor, base: Tensor) -> Region:
    """Returns the region (shape, strides, offset, dtype) of `view` inside the memory of `base`.

    Strides and offset are in bytes.
    """
    v, b = plain(view)._a, plain(base)._a
    # An array without elements may be at any address.
    return v.shape, v.strides, address(v) - address(b) if v.size else 0, v.dtype


def place_of(x: Tensor) -> tuple[Sizes, Strides, Stype]:
    """Returns (shape, strides in bytes, dtype) of a base; nodes save this instead of the base."""
    a = x._a
    return a.shape, a.strides, a.dtype


new_full: Callable[..., Tensor] = None  # type: ignore[assignment]        # set by ops/basic.py
resize_: Callable[[Tensor, Sizes], Tensor] = None  # type: ignore[assignment]        # set by core/table.py


def _nought(g, region):
    """Returns zeros with the shape and dtype of a region."""
    return new_full(g, size=region[0], value=0, stype=region[3])


#: Reads the values of a region.
read_region: PrimitiveFunction = primitive("read_region", "a, *, base, region", lambda c, g: scatter_region(g, base=c.base, region=c.region), raw=True,
                        node="AsStridedBackward0")
#: Returns zeros like the base, with the values of a region added into them.
scatter_region: PrimitiveFunction = primitive("scatter_region", "value, *, base, region", lambda c, g: read_region(g, base=c.base, region=c.region), raw=True,
                           node="AsStridedScatterBackward0", layout=like)
#: Returns a copy of the base with a region replaced.
copy_slices: PrimitiveFunction = primitive("copy_slices", "a, value, *, base, region",
                        lambda c, g: copy_slices(g, _nought(g, c.region), base=c.base, region=c.region),
                        lambda c, g: read_region(g, base=c.base, region=c.region), raw=True, node="CopySlices")
copy_slices.prim.node_class.__name__ = "CopySlices"


# ------------------------------------------------------------------ moving a tensor to other memory
def home_of(x: Tensor) -> tuple[int, int]:
    """Returns (offset of the first element of `x`, size of its storage), in bytes."""
    a = plain(x)._a
    return offset_of(a), root(a).nbytes


def root_of(x: Tensor) -> int:
    """Returns an id that distinguishes storages while they are alive."""
    x = plain(x)
    return id(home_array(x._a)) if x._h is not None else id(root(x._a))


def stand_in(t: Tensor, source: Tensor, size: Sizes, strides: Strides, offset: int) -> None:
    """Moves `t` into the storage of `source`; strides and offset are in bytes.

    `t` also gets the conjugate and negative bits of `source`.
    """
    if source._h is not None:
        if source._h.__class__ is Bits:
            return _with_its_bits(stand_in, t, source, size, strides, offset)
        return stand_on(t, devices.lying(source, size, strides, offset))
    replace_memory(t, on_storage(source._a, size, strides, offset))


def stand_within(t: Tensor, source: Tensor, size: Sizes, strides: Strides, offset: int) -> None:
    """Moves `t` into the part of its storage that `source` covers; the offset counts from there.

    Raises ValueError if the region exceeds it.
    """
    if source._h is not None:
        if source._h.__class__ is Bits:
            return _with_its_bits(stand_within, t, source, size, strides, offset)
        home, have = home_of(source)
        if 0 not in size and home + offset + source._stype.itemsize + sum([(n - 1) * s for n, s in zip(size, strides)]) > have:
            raise ValueError(f"a region of shape {list(size)} exceeds its storage of {have} bytes")
        return stand_on(t, devices.lying(source, size, strides, home + offset))
    replace_memory(t, strided(source._a, size, strides, offset))


def _with_its_bits(stand, t, source, size, strides, offset):
    h = source._h
    of = again(h.of)
    stand(of, h.of, size, strides, offset)
    bits.become(t, of, h.conj, h.neg)


def stand_alone(t: Tensor) -> None:
    """Gives `t` its own storage, without elements."""
    if t._h.__class__ is Bits:
        h = t._h
        of = again(h.of)
        stand_alone(of)
        return bits.become(t, of, h.conj, h.neg)
    if t._h is not None:
        return stand_on(t, devices.from_host(np.empty(0, t._stype), t._dev))
    replace_memory(t, np.empty(0, t._stype))


def restride(t: Tensor, strides: Sequence[int]) -> None:
    """Sets other strides (in elements) on a tensor; the elements stay where they are in memory."""
    a = t._a
    STRIDED.odd = True
    stand_in(t, t, a.shape, tuple([s * a.itemsize for s in strides]), offset_of(a))
    bump(t)


def resize_there(t: Tensor, shape: Sizes) -> None:
    """resize_ of a device tensor.

    The tensor stays on its storage if that is large enough. Otherwise it gets a larger one with the
    old values first and zeros after them.
    """
    if t._h.__class__ is Bits:
        h = t._h
        of = again(h.of)
        resize_(of, shape)
        bits.become(t, of, h.conj, h.neg)
        return bump(t)
    k, want = t._stype.itemsize, math.prod(shape)
    home, have = home_of(t)
    strides = tuple([s * k for s in contiguous_strides(shape)])
    if home + want * k <= have:
        stand_in(t, t, shape, strides, home)
    else:
        new = devices.from_host(np.zeros(want, t._stype), t._dev)
        keep = (have - home) // k
        if MODE.filling and keep < want:
            fill(devices.lying(new, (want - keep,), (k,), keep * k), filler(t._stype))
        if keep:
            devices.write(devices.lying(new, (keep,), (k,), 0), devices.lying(t, (keep,), (k,), home))
        stand_on(t, devices.lying(new, shape, strides, 0))
    bump(t)


# ------------------------------------------------------------------ checks before a write
def expanded_dims(x: Tensor) -> list[int]:
    """Returns the dimensions with size > 1 and stride 0, such as `expand` creates."""
    a = x._a
    return [] if a.flags.c_contiguous or not a.size else [d for d, (n, s) in enumerate(zip(a.shape, a.strides)) if n > 1 and s == 0]


def check_inplace(x: Tensor, writing_grad: bool, same: bool = False) -> None:
    """Raises PyTorch's errors before a write to `x`.

        writing_grad  the new value requires grad
        same          all elements get the same value, so overlapping elements are allowed
    """
    a = x._a
    if mode.on and (x._rg or writing_grad):
        b = x._base
        if b is not None:
            if x._fragile is not None:
                raise RuntimeError(fragile_message(x, "is being"))
            if x._rg and b._rg and b._gnode is None:
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place "
                                   "operation.")
        if x._rg and x._gnode is None:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if not a.flags.c_contiguous and not same and overlaps_itself(a):
        for n, s in zip(a.shape, a.strides):
            if s == 0 and n > 1:
                raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a "
                                   "single "
                                   "memory location. Please clone() the tensor before performing the operation.")
        raise NotImplementedError(
            f"in-place write to a {x.dtype} tensor on device {x._dev} whose elements overlap in memory (shape "
            f"{list(a.shape)}, "
            f"strides {[s // a.itemsize for s in a.strides]}; from unfold or as_strided) is not supported: which "
            "element would be "
            "written last is undefined")
    if (not a.flags.writeable if x._h is None else a.frozen) and x._dev.type != "meta":      # type: ignore[attr-defined]
        del a  # drop this reference: `memory.written` counts the references to the array
        if x._h.__class__ is Bits:
            if memory.written(x._h.of):
                return check_inplace(bits.renewed(x), writing_grad, same)
        elif memory.written(x):
            return
        raise RuntimeError("this tensor's memory is read-only (it was made from a read-only array); clone() it before writing")
    if x._inference and not mode.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed.You can make a "
                           "clone to "
                           "get a normal tensor before doing inplace update.")


def check_overlap(x: Tensor, others: Iterable[object]) -> None:
    """Raises RuntimeError if an operand partially overlaps the written memory.

    PyTorch's elementwise loops make this check.
    """
    a = x._a
    for o in others:
        if o is x or o.__class__ is not Tensor and not taken(o) or (x._h is not None or o._h is not None) and _elsewhere(x, o):
            continue
        b = o._a
        if b is a or not may_share(a, b) or not a.size or not b.size or not dense(a) or not dense(b):
            continue
        # Both are dense and overlap: only exactly the same elements are allowed.
        if a.ndim != b.ndim or address(a) != address(b) or a.nbytes != b.nbytes or a.strides != b.strides and _differ(a, b):
            raise _overlap_error()


def check_apart(x: Tensor, others: Iterable[object]) -> None:
    """Raises RuntimeError if an operand overlaps the written memory at all.

    scatter and similar ops make this check.
    """
    a = x._a
    for o in others:
        if o.__class__ is tuple or o.__class__ is list:
            check_apart(x, o)
        elif o is x:
            raise _overlap_error()
        elif taken(o):
            if (x._h is not None or o._h is not None) and _elsewhere(x, o):
                continue
            b = o._a
            if a.size and b.size and may_share(a, b) and dense(a) and dense(b):
                raise _overlap_error()


def _unchecked(x: Tensor, others: Iterable[object]) -> None:
    """No check, for ops that read their operands before they write."""


def _overlap_error() -> RuntimeError:
    return RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to "
                        "a single "
                        "memory location. Please clone() the tensor before performing the operation.")


#: Value of an op's `overlap` field -> check of operands that share memory with the written tensor.
OVERLAPS: dict[str | None, Callable[[Tensor, Iterable[object]], None]] = {"partial": check_overlap, "apart": check_apart, "unchecked": _unchecked}


def _differ(a, b):
    """True if the strides differ.

    Broadcast dimensions of size 1 get the stride 0 from NumPy; these are ignored.
    """
    return a.shape != b.shape or any(s != t and (n != 1 or s and t) for n, s, t in zip(a.shape, a.strides, b.strides))


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


def check_cast(src: Stype, dst: Stype) -> None:
    """Raises RuntimeError if dtype `src` cannot be cast to dtype `dst` (PyTorch's canCast)."""
    if src is not dst and _CATEGORY[src.kind] > _CATEGORY[dst.kind]:
        raise RuntimeError(f"result type {title(src)} can't be cast to the desired output type {title(dst)}")


_TITLES = {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char",
           "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble", "float16": "Half",
           "bfloat16": "BFloat16", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}


def title(d: Stype) -> str:
    """Returns PyTorch's scalar type name of a dtype: Float, Long, ..."""
    return _TITLES.get(d.name, d.name)


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
    if x._h is None:
        value = r._a if r._h is None else devices.values(r)
        if value is x._a:  # the kernel wrote into `x` itself
            bump(x)
        else:
            write(x, value)
    else:
        _to_device(x, r)


def _to_device(x: Tensor, r: Tensor | Const) -> None:
    devices.write(x, r)
    bump(x)


def write(x: Tensor, value: Array) -> None:
    """Stores an array into the memory of `x`, with a cast, and bumps the version."""
    a = x._a
    if value.dtype is not a.dtype:
        if value.dtype.kind == "V" and a.dtype.kind != "V":
            value = value.astype(np.float32)
        elif a.dtype.kind == "V" and value.dtype.kind != "V":
            value = (value.real if value.dtype.kind == "c" else value).astype(np.float32).astype(a.dtype)
        elif value.dtype.kind == "c" and a.dtype.kind != "c":
            value = value.real
    if x._dev.type != "meta":
        _copy(a, value, casting="unsafe")
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def copy(x: Tensor, src: Tensor) -> None:
    """Stores a tensor that broadcasts to x, cast by PyTorch's rules."""
    if x._h is not None:
        return _to_device(x, src)
    a, b = x._a, src._a if src._h is None else devices.values(src)
    _store(a, b if b.dtype is a.dtype or b.dtype == a.dtype else cast_array(b, a.dtype))
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def fill(x: Tensor, value: Tensor | Const) -> None:
    """Stores a 0-dim tensor of x's dtype in every element."""
    if x._h is not None:
        return _to_device(x, value)
    _fill(x._a, value._a if value._h is None else devices.values(value))
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def zero(x: Tensor) -> None:
    """Stores 0 in every element."""
    if x._h is not None:
        return _to_device(x, Const(0, x._stype))
    a = x._a
    if a.dtype.kind != "V" and a.nbytes < _MANY:
        a.fill(0)  # 0.1 us; an assignment takes 0.4 us
    else:
        _fill(a, np.zeros((), a.dtype))
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def fill_where(x: Tensor, value: Tensor | Const, mask: Tensor) -> None:
    """Stores a 0-dim tensor of x's dtype where the mask, which broadcasts to x, is True."""
    if x._h is not None:
        if x._h.__class__ is Bits:
            return fill_where(x._h.of, bits.turned(x, value), mask)
        devices.write_by(x, "fill_where", _fill_where, value, mask)
        return bump(x)
    _fill_where(x._a, value._a if value._h is None else devices.values(value), mask._a)
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def put(x: Tensor, value: Tensor, indices: Sequence[Tensor], dims: tuple[int, ...]) -> None:
    """Stores a tensor of x's dtype at the elements that index tensors at `dims` select."""
    if x._h is not None:
        if x._h.__class__ is Bits:
            return put(x._h.of, bits.turned(x, value), indices, dims)
        devices.write_by(x, "put", _put_arrays, value, *indices, dims=dims)
        return bump(x)
    _put_arrays(x._a, value._a if value._h is None else devices.values(value), *[i._a for i in indices], dims=dims)
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1


def copy_at(x: Tensor, key: Any, value: Tensor | Const, apart: bool = False) -> bool:
    """Writes to the region of a basic index, with a cast by PyTorch's rules.

    Returns False without writing if the fast path does not apply. `apart` means that the value is
    known not to share memory with x. No tensor is created for the region, which saves 2 us.
    """
    if x._h is not None:
        return _copy_there(x, key, value)
    a, b = x._a, value._a if value._h is None else devices.values(value)
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
    v = x._ver
    if v is None:
        v = version(x)
    v.v += 1
    return True


def _copy_there(x, key, value):
    """Like `copy_at`, for tensors on a device."""
    a = x._a
    if wrapped.is_wrapped(x) or x._h.__class__ is Bits or value._h.__class__ is Bits:
        return False
    if not a.flags.c_contiguous or a.frozen or x._inference or value._h is not None and not _elsewhere(x, value):
        return False
    part, handle = devices.region(x, key)
    have, sizes = value._sizes, part.shape
    if have != sizes and have:
        lead = len(sizes) - len(have)
        if lead < 0:
            return False  # leading dimensions of size 1, or an error
        if any([n != 1 and n != sizes[lead + i] for i, n in enumerate(have)]):
            raise _too_large(have, sizes)
    devices.write_to(handle, part.dtype, value, x._dev)
    bump(x)
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
    if x._h is not None:
        if x._h.__class__ is Bits:
            whole = bits.whole(x)
            fill_by(whole, name, constants, *operands)
            devices.write(x, whole)
        else:
            devices.write_by(x, name, HOST[name], *operands, **constants)
    elif x._dev.type != "meta":
        if operands:
            HOST[name](x._a, *[o._a for o in operands], **constants)
        else:
            HOST[name](x._a, **constants)
    bump(x)


def new_nodes(root: Node, since: int) -> list[Node]:
    """Returns the nodes below `root` that were created after sequence number `since`."""
    seen, stack, out = set(), [root], []
    while stack:
        n = stack.pop()
        if n in seen or n.seq < since:
            continue
        seen.add(n)
        out.append(n)
        for e in n.edges:
            if e.__class__ is tuple:
                stack.append(e[0])
    return out


def assign(x: Tensor, r: Tensor, since: int, args: Iterable[object] = ()) -> Tensor:
    """Updates `x` in place with the result tensor `r`.

    The nodes of `r` were created after sequence number `since`. `args` are the other arguments of
    the op. If one of them shares memory with x and was saved for backward, the saved value is
    overwritten too (an error in backward, as in PyTorch). The old value of x itself is preserved.
    """
    xa, ra = x._a, r._a
    if ra.shape != xa.shape:
        raise RuntimeError(f"output with shape {list(xa.shape)} doesn't match the broadcast shape {list(ra.shape)}")
    check_cast(ra.dtype, xa.dtype)
    if r._tan and x._ver is not None:
        for t in r._tan.values():
            if t is not None and t._gnode is not None:
                spare(x._ver, t, since)
    if not (mode.on and (x._rg or r._rg)) or xa.dtype.kind not in "fcV":
        store(x, r)
        if wrote is not None:
            wrote(x, r, since)
        return x
    check_inplace(x, r._rg, True)  # Overlaps were checked before the op ran.
    if ra.dtype != xa.dtype:
        r = promote._cast(r, xa.dtype)
    ver = version(x)
    fresh: list[Node] = []
    if r._gnode is not None:
        fresh = new_nodes(r._gnode, since)
        twice = any(o is x for o in args)
        shared = twice or any(taken(o) and o._ver is ver for o in args)
        for n in fresh:
            if n.vals:
                for k, s in n.vals.items():
                    if s.__class__ is tuple and s[1] is ver:
                        # The old value of x must survive the write. If x was passed a second time
                        # as another operand, that saved value does not survive, as in PyTorch.
                        if not shared or s[0] is x and not (twice and n.prim is not None and k != n.prim.inputs[0]):
                            n.vals[k] = _kept(s)
    if r is x or r._a is xa:
        ver.v += 1
    else:
        store(x, r)
    if wrote is not None:
        wrote(x, r, since)
    # exp_() and similar ops save their result, which is now x itself: later writes to x make it
    # stale.
    for n in fresh:
        if n.vals:
            for k, s in n.vals.items():
                if isinstance(s, _Out) and s._a is r._a:
                    n.vals[k] = _Out(x, s.idx) if x._tan is None else _DualOut(_Out(x, s.idx), x._tan)
    if x._base is not None and fresh and x._gnode is not None and x._gnode.hooks:
        _around_hooks(x, fresh)
    rebase(x, r if r._gnode is None or r._gnode.seq >= since else _identity(r))
    return x


def computed(x: Tensor, fn: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Calls fn(x, ...), whose result `assign` will write to `x`.

    Saved-tensor hooks of this thread get copies of the values that the write will change.
    """
    if not hooks_here.pairs:
        return fn(x, *args, **kwargs)
    outer, hooks_here.overwritten = hooks_here.overwritten, (version(x), _copied)
    try:
        return fn(x, *args, **kwargs)
    finally:
        hooks_here.overwritten = outer


def _copied(x):
    return _kept((x,))[0]


def spare(ver: Version, r: Tensor, since: int) -> None:
    """Copies saved tensors that are about to be overwritten.

    These are the ones with counter `ver` in the nodes of `r` created since `since`.
    """
    for n in new_nodes(r._gnode, since):
        vals = n.vals or {}
        for k, s in vals.items():
            if s.__class__ is tuple and s[1] is ver:
                vals[k] = _kept(s)


def _around_hooks(x, fresh):
    """Routes the gradient of a view's old value to the base through a new node.

    Hooks on the view belong to its former history, which receives no gradient, as in PyTorch.
    """
    base, old = x._base, (x._gnode, x._oi)
    node = _reading(x, base, _edge(base))
    for n in fresh:
        if old in n.edges:
            n.edges = [(node, 0) if e == old else e for e in n.edges]


def _kept(s):
    """Returns a copy of a saved tensor, made before its memory is overwritten."""
    old = s[0]
    if old._h is None:
        c = wrap(old._a.copy())
    else:
        with no_grad():
            c = _identity(old)
    if old._tan:
        for level, t in old._tan.items():
            c._tan = {**(c._tan or {}), level: t if t is None else _identity(t)}
    c._gnode, c._oi, c._rg = old._gnode, old._oi, old._rg
    v = version(c)
    return (c, v, v.v)


def _edge(x):
    """Returns the gradient edge of `x`: a node's output, a leaf, or None."""
    if not x._rg:
        return None
    if x._fragile is not None:
        check_fragile(x)
    if x._gnode is not None:
        return x._gnode, x._oi
    return None if x._orphan else x


def rebase(x: Tensor, r: Tensor) -> None:
    """Gives `x`, which has just been modified, the history of `r` (equal to its new value)."""
    base = x._base
    if base is not None and (x._h.__class__ is Bits or base._h.__class__ is Bits):
        r = bits.related(x, base, r)
    if base is None:
        if r._gnode is None:
            # `r` is a leaf or a constant: the history of x is a copy node.
            node, i = (_identity(r)._gnode, 0) if r._rg else (_constant_node(x), 0)
        else:
            node, i = r._gnode, r._oi
        base = x
        if native_recording():
            native.link_write(_whole, x, r)
    else:
        a = base._a
        node, i = new_node(copy_slices.prim.node_class), 0
        node.prim = copy_slices.prim
        node.edges = [_edge(base), _edge(r)]
        node.meta = ((a.shape, a.dtype),)
        node.kw = {"base": place_of(base), "region": geometry(x, base)}
        if native_recording():
            native.link_write(functools.partial(_slices, node.kw), base, r)
    _move(base, node, i)
    if base._views:
        refresh_views(base)


def _whole(g):
    """Returns (gradient of the old value, gradient of the new value) of an overwritten tensor.

    MindSpore's autograd requires a tensor for both, so the first one is zeros.
    """
    return _zeros(g), g


def _zeros(g):
    return new_full(g, size=g._sizes, value=0, stype=g._stype)


def _slices(kw, g):
    """Like `_whole`, for a tensor of which a region was overwritten."""
    return copy_slices(g, _nought(g, kw["region"]), **kw), read_region(g, **kw)


def _region(kw, g):
    """Returns the gradients of a view's history before a write to its base, and of the base."""
    return _zeros(g), scatter_region(g, **kw)


def _move(t, node, i):
    """Makes output `i` of `node` the history of `t`; retain_grad moves along."""
    if t._retain and t._gnode is not None and t._gnode.retain:
        ref = t._gnode.retain.pop(t._oi, None)
        if ref is not None:
            if node.retain is None:
                node.retain = {}
            node.retain[i] = ref
    t._gnode, t._oi, t._rg = node, i, True
    if t._orphan:
        t._orphan = False


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
        if node.edges[0] is None:
            return [None]
        shape, dtype = node.meta[0]
        return [new_full(gs[0], size=shape, value=0, stype=dtype)]


_OVERWRITTEN = _Overwritten()


def _constant_node(x):
    n = new_node(_Constant)
    n.prim, n.edges, n.meta = _OVERWRITTEN, [_edge(x)], ((x._a.shape, x._a.dtype),)
    return n


_identity = primitive("copies", "a", lambda c, g: g, raw=True, node="CopyBackwards", layout=like)


def _reading(v, base, edge, place=None):
    """Returns a node that reads the view `v` from its base, whose gradient edge is `edge`."""
    node = new_node(read_region.prim.node_class)
    node.prim = read_region.prim
    node.edges = [edge]
    node.meta = ((v._a.shape, v._a.dtype),)
    node.kw = {"base": place or place_of(base), "region": geometry(v, base)}
    return node if v._h.__class__ is not Bits and base._h.__class__ is not Bits else bits.turning(node, v, base)


def read_anew(x: Tensor) -> None:
    """Updates the history of a view from its base, after its region in the base has changed."""
    if x._base is not None and x._rg and x._gnode is not None and x._fragile is None:
        _move(x, _reading(x, x._base, _edge(x._base)), 0)


def refresh_views(base: Tensor) -> None:
    """Sets the history of every live view of `base` from the base's current history."""
    live = []
    place = place_of(base)
    for ref in base._views:             # type: ignore[union-attr]
        v = ref()
        if v is None:
            continue
        live.append(ref)
        if v._fragile is not None:
            v._rg = True  # from now on its use with grad is an error (`check_fragile`)
            continue
        node = _reading(v, base, (base._gnode, base._oi), place)
        if native_recording():
            native.link_write(functools.partial(_region, node.kw), v, base)
        _move(v, node, 0)
    base._views[:] = live               # type: ignore[index]
