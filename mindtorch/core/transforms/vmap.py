"""vmap: batched tensors, and the dispatcher layer that computes all slices at once.

A batched tensor has the geometry of one slice. Its handle is `BatchedHandle`: the tensor of all slices,
whose first dimension is the batch dimension, and the vmap level. A primitive with a batched operand
is computed by its batching rule (`Primitive.batch`, declared in mindtorch/ops/_vmap_rules) on the
tensors of all slices. A primitive without a rule is computed once per slice, and its results are
stacked. An op that reads values is computed slice by slice as a whole, unless it returns a value to
Python, like `item`.

Levels nest: the tensor of all slices may itself be batched by an outer vmap. Transforms inside a
vmap (func.grad, jvp) work on the batched tensors, which carry that history and those tangents.
Transforms around a vmap work on the tensors of all slices. A tensor from outside the vmap is the
same for all slices, and its history belongs to the outside.
"""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.device import GeometryArray, reserve_address_range, view_of
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch import dispatcher, primitives
from mindtorch.core.autograd import grad_mode
from mindtorch.core.transforms import functorch_levels
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.dispatch.primitives import PRIMITIVES, Primitive
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Tensor, shallow_copy, on_device, version_counter
from mindtorch.core.tensor.tensor_wrappers import BatchedHandle

RANDOM_ERROR = ("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on "
                "vmap or perform the randomness operation out of vmap")
_INPLACE = ("vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements than "
            "`self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try to use out-of-place operators "
            "instead of inplace arithmetic.")


_SAME = ("vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this is necessary for your "
         "usage, please file an issue with functorch.")


_FLOW = ("vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet: rewrite it with torch.where or "
         "torch.cond")


class _Thread(threading.local):
    depth = 0  # number of nested ops in progress
    since = 1  # node sequence number at which the outermost of them began, if it writes


_thread = _Thread()


class NeedsValues(RuntimeError):
    """Raised where the values of a slice are read: there are as many as slices."""


#: Called before the first level of the process is opened: the ops package declares its rules.
at_first: list[Callable[[], object]] = []


class VmapLevel(functorch_levels.TransformLevel):
    """An active vmap.

        outside  grad mode where the vmap began
        deep     True if something computed inside has history outside of the vmap
        marks    True for a vmap of the user, False for one that a transform uses (Jacobians)
    """

    __slots__ = ("outside", "deep", "marks")

    def __init__(self, size: int, randomness: str = "error", marks: bool = True) -> None:
        functorch_levels.TransformLevel.__init__(self, "vmap", size, randomness)
        self.outside, self.deep, self.marks = mode.on, False, marks

    def __enter__(self) -> VmapLevel:
        if at_first:
            # Imports, which may be repeated: another thread that enters now waits for them.
            for hook in list(at_first):
                hook()
            at_first.clear()
        if self.marks:
            functorch_levels.TransformLevel.__enter__(self)
        else:
            self.serial = next(functorch_levels._serials)
        dispatcher.enable_layer("primitives", "vmap")
        dispatcher.enable_layer("ops", "vmap")
        return self

    def __exit__(self, *exc: object) -> None:
        dispatcher.disable_layer("primitives", "vmap")
        dispatcher.disable_layer("ops", "vmap")
        if self.marks:
            functorch_levels.TransformLevel.__exit__(self, *exc)


# ------------------------------------------------------------------ tensors
def _slice_of(g, mapped):
    """Returns a meta array with the shape and strides of one slice of `g`."""
    k = g.itemsize
    return reserve_address_range(g.shape[1:], g.dtype, tuple([s // k for s in g.strides[1:]])) if mapped else reserve_address_range(g.shape, g.dtype,
            tuple([s // k for s in g.strides]))


def add_batch_dim(value: Any, mapped: bool, level: VmapLevel, geometry: Any = None) -> Tensor:
    """Returns the batched tensor for the slices of `value` along its first dimension.

    If not `mapped`, every slice is `value` itself.
    """
    return on_device(value._device, BatchedHandle(value, mapped, level), _slice_of(value._array, mapped) if geometry is None else geometry)


def _saved_slice(value, mapped, level):
    return SavedArray(_slice_of(value._array, mapped), BatchedHandle(value, mapped, level), getattr(value, "_device", None))


def level_of(x: Any) -> VmapLevel | None:
    """Returns the vmap level of a batched tensor, else None."""
    h = getattr(x, "_handle", None)
    return h.level if h.__class__ is BatchedHandle else None


def innermost() -> VmapLevel | None:
    """Returns the innermost vmap of this thread."""
    for level in reversed(functorch_levels.levels()):
        if level.__class__ is VmapLevel:
            return level
    return None


def lift(x: Tensor) -> Tensor:
    """Returns `x` for a transform that begins here.

    Inside a vmap, a tensor from outside is wrapped as a batched tensor with identical slices.
    """
    if not dispatch_state.primitives:
        return x
    level, x_level = innermost(), level_of(x)
    if level is None or x_level is not None and x_level.serial >= level.serial:
        return x
    return add_batch_dim(x, False, level)


def remove_batch_dim(x: Tensor, level: VmapLevel) -> tuple[Any, bool]:
    """Returns (tensor of all slices, True if its first dimension is the batch dimension).

    If x is the same for all slices, returns (x, False).
    """
    h = x._handle
    return (h.value, h.mapped) if h.__class__ is BatchedHandle and h.level is level else (x, False)


def detached(x: Any, level: VmapLevel) -> Tensor:
    """Detaches x, both inside of the vmap and in the tensor of all slices."""
    v, mapped = remove_batch_dim(x, level)
    t = add_batch_dim(v.detach(), mapped, level, x._array)
    t._version_counter = version_counter(x)
    return t


def unwrap_hidden(x: Any) -> Any:
    """Returns the tensor of all slices if a transform batched x (Jacobians), else None."""
    h = x._handle
    return h.value if h.__class__ is BatchedHandle and not h.level.marks else None


def with_history(*tensors: Any) -> bool:
    """True if one of these has history; for batched tensors, also if the tensor of all slices has.

    ScalarOperands (`ScalarOperand`) and None have none.
    """
    return any([getattr(x, "_requires_grad_", False) or getattr(x, "_handle",
                                                                None).__class__ is BatchedHandle and with_history(x._handle.value) for x in tensors])


def hides_history(x: Any) -> bool:
    """True if the tensor of all slices behind such a tensor has history."""
    h = unwrap_hidden(x)
    return h is not None and (h._requires_grad_ or hides_history(h))


def materialize_batch(x: Tensor, level: VmapLevel) -> Tensor:
    """Returns the tensor of all slices, batch dimension first; unbatched values are repeated."""
    v, mapped = remove_batch_dim(x, level)
    if mapped:
        return v
    with _Outside(level):
        return v.unsqueeze(0).repeat(level.size, *[1] * v.ndim)


class _Outside:
    """Context in which all slices are computed at once.

    Calls inside do not count as calls of the user. Grad mode is that of the code around the vmap.
    """

    __slots__ = ("level", "on", "inside")

    def __init__(self, level: VmapLevel) -> None:
        self.level = level

    def __enter__(self):
        self.on, self.inside = mode.on, functorch_levels.thread.inside
        functorch_levels.thread.inside = True
        if self.on and not self.level.outside:
            grad_mode._switch(False)

    def __exit__(self, *exc):
        functorch_levels.thread.inside = self.inside
        if mode.on is not self.on:
            grad_mode._switch(self.on)


# ------------------------------------------------------------------ the layer
def _random(prim, kw):
    return "generator" in prim.attrs and not (prim.name.startswith("scaled_dot") and kw["keep"] == 1)


def top(ins: Sequence[Any]) -> VmapLevel | None:
    """Returns the innermost vmap level of these operands."""
    level = None
    for x in ins:
        if x is not None:
            h = getattr(x, "_handle", None)
            if h.__class__ is BatchedHandle and (level is None or h.level.serial > level.serial):
                level = h.level
    return level


@dispatcher.register_layer("primitives", "vmap")
def _on_primitives(prim, args, kw, below):
    ins = tuple(args[0]) if prim.variadic else args
    level = top(ins)
    if "generator" in prim.attrs and _random(prim, kw):
        here = innermost()
        if here is not None and (level is None or here.serial > level.serial):
            level = here
    if level is None:
        return below(prim, args, kw)
    operands, mapped = [], []
    for x in ins:
        h = getattr(x, "_handle", None)
        batched = h.__class__ is BatchedHandle and h.level is level
        operands.append(h.value if batched else x)
        mapped.append(batched and h.mapped)
    with _Outside(level):
        outs, flags = _computed(prim, operands, mapped, dict(kw), level)
    return _linked(prim, ins, kw, outs, flags, level)


def _computed(prim, operands, mapped, kw, level):
    """Returns (results over all slices, for each whether it has a batch dimension)."""
    if "generator" in prim.attrs and _random(prim, kw):
        return _drawn(prim, operands, mapped, kw, level)
    if not any(mapped):
        outs = call(prim, operands, kw)
        return outs, (False,) * len(outs) if outs.__class__ is tuple else False
    rule = prim.batch
    if rule is not None:
        outs = rule(prim, operands, mapped, kw, level)
        if outs is not None:
            return outs, (True,) * len(outs) if outs.__class__ is tuple else True
    return run_per_slice(prim, operands, mapped, kw, level)


def call(prim: Primitive, operands: Sequence[Any], kw: dict[str, Any]) -> Any:
    """Calls a primitive with these operands."""
    return prim.function(list(operands), **kw) if prim.variadic else prim.function(*operands, **kw)


def _linked(prim, ins, kw, outs, flags, level):
    several = outs.__class__ is tuple
    geometries = [None]
    if prim.view or prim.shares:
        geometries = _view_geometries(prim, ins, kw)
    made, geometry = [], None
    for i, (t, m) in enumerate(zip(outs, flags) if several else ((outs, flags),)):
        if t is None:
            made.append(None)
            continue
        if t.__class__ is SavedArray:
            made.append(_saved_slice(t, m, level))
            continue
        if t._requires_grad_ and not level.deep:
            level.deep = True
        geometry = geometries[i] if geometries[0] is not None else None
        made.append(add_batch_dim(t, m, level, geometry))
    if mode.on and prim.grads:
        # The history outside of this vmap is on the tensor of all slices.
        ins = tuple([x if x is None or not x._requires_grad_ or level_of(x) is level else add_batch_dim(x, False, level) for x in ins])
    return primitives.link(prim, tuple(made) if several else made[0], ins, dict(kw))


def _view_geometries(prim, ins, kw):
    """Returns the geometry of a view's results, as views of the operand's geometry.

    (None,) if the host's view kernel cannot compute it.
    """
    a = ins[0]._array
    if a.__class__ is not GeometryArray or prim.name in ("as_strided", "complex_of_pairs", "real_pairs", "real_view", "imag_view", "view_dtype", "conj_view",
                                                         "neg_view"):
        return [None]
    try:
        r = prim.fwd(np.ndarray.view(a, np.ndarray), **kw)
    except Exception as e:
        e.__context__ = None
        raise e.with_traceback(None) from None
    return [view_of(a, v) for v in (r if r.__class__ is tuple else (r,))]


# ------------------------------------------------------------------ slice by slice
def slices(x: Any, level: VmapLevel) -> tuple[Any, ...]:
    """Returns the slices of a tensor of all slices; for an empty batch, one slice of zeros."""
    if x.__class__ is SavedArray:
        x = shallow_copy(x)
    if not level.size:
        return (hooks.new_full(x, size=x._sizes[1:], value=0, np_dtype=x._np_dtype),)
    return PRIMITIVES["unbind"](x, dim=0)


def stack_slices(parts: Sequence[Any], level: VmapLevel) -> Any:
    """Stacks the results of all slices; RuntimeError if their shapes differ."""
    first = parts[0]
    if first is None:
        return None
    is_saved = first.__class__ is SavedArray
    if is_saved:
        parts = [shallow_copy(p) for p in parts]
    if any([p._sizes != first._sizes for p in parts]):
        raise RuntimeError(f"vmap: an operation returned different shapes for different slices ({list(first._sizes)} and others): "
                           "it has a data-dependent output shape, which is not supported")
    if not level.size:
        p = parts[0]
        r = hooks.new_full(p, size=(0, *p._sizes), value=0, np_dtype=p._np_dtype)
    else:
        r = OPS["stack"].fn(list(parts), 0)
    return SavedArray(r._array, r._handle, r._device) if is_saved else r


def run_per_slice(prim: Primitive, operands: Sequence[Any], mapped: Sequence[bool], kw: dict[str, Any], level: VmapLevel,
                  before: Callable[[], object] | None = None) -> tuple[Any, Any]:
    """Computes a primitive slice by slice."""
    cut = [slices(v, level) if m else None for v, m in zip(operands, mapped)]
    rows = []
    for i in range(max(level.size, 1)):
        if before is not None:
            before()
        rows.append(call(prim, [v if c is None else c[i] for v, c in zip(operands, cut)], dict(kw)))
    if rows[0].__class__ is not tuple:
        return stack_slices(rows, level), True
    outs = tuple([stack_slices(col, level) for col in zip(*rows)])
    return outs, (True,) * len(outs)


# ------------------------------------------------------------------ random numbers
def _drawn(prim, operands, mapped, kw, level):
    """Computes a random primitive according to the vmap's `randomness`."""
    if level.randomness == "error":
        raise RuntimeError(RANDOM_ERROR)
    with functorch_levels.below(level):
        if level.randomness == "same":
            if not any(mapped):
                outs = call(prim, operands, kw)
                return outs, (False,) * len(outs) if outs.__class__ is tuple else False
            g = kw["generator"]
            at = g._dump_state()
            return run_per_slice(prim, operands, mapped, kw, level, lambda: g._load_state(at))
        if not prim.inputs:
            if "size" not in kw:
                return run_per_slice(prim, operands, mapped, kw, level)
            outs = prim.function(**{**kw, "size": (level.size, *kw["size"]), "stride": None})
            return outs, True
        rule = prim.batch
        if rule is not None:
            if not any(mapped):
                operands = [operands[0].expand((level.size, *operands[0]._sizes)), *operands[1:]]
                mapped = [True, *mapped[1:]]
            outs = rule(prim, operands, mapped, kw, level)
            if outs is not None:
                return outs, (True,) * len(outs) if outs.__class__ is tuple else True
        return run_per_slice(prim, operands, mapped, kw, level)


# ------------------------------------------------------------------ writes
#: kernel that writes into a tensor -> what computes the new values out of place: (tensor, operands, constants)
OUT_OF_PLACE: dict[str, Callable[..., Any]] = {}


def align_batch_dim(v: Any, mapped: bool, ndim: int) -> Any:
    """Inserts size-1 dimensions after the batch dimension; slices then have `ndim` dimensions."""
    if not mapped:
        return v
    if v.__class__ is SavedArray:
        v = shallow_copy(v)
    lead = ndim - (v.ndim - 1)
    return v if lead <= 0 else PRIMITIVES["slice"](v, key=(slice(None), *[None] * lead, ...))


def _write(x, r):
    h = x._handle
    level = h.level
    v, mapped = remove_batch_dim(r, level)
    if mapped and not h.mapped or level_of(v) is not None and level_of(v).serial > level.serial:
        raise RuntimeError(_INPLACE)
    with _Outside(level):
        if v.__class__ is ScalarOperand:
            h.value.fill_(v._array.item())
        else:
            v = align_batch_dim(v, mapped, x.ndim)
            if mode.on and (h.value._requires_grad_ or v._requires_grad_):
                # As in `core/tensor/inplace.py`: nodes recorded for the new values may have saved
                # the overwritten ones.
                v = v if v._np_dtype == h.value._np_dtype else v.to(h.value.dtype)
                inplace.check_inplace(h.value, v._requires_grad_)
                inplace.assign(h.value, v.expand(h.value._sizes), _thread.since, (v,))
            else:
                h.value.copy_(v)
        if h.value._requires_grad_:
            level.deep = True


def _write_by(x, name, kernel, operands, constants):
    h = x._handle
    level = h.level
    pairs = [(o, False) if o is None else remove_batch_dim(o, level) for o in operands]
    if not h.mapped and any([m for _, m in pairs]):
        raise RuntimeError(_INPLACE)
    random = "generator" in constants
    if random:
        if level.randomness == "error":
            raise RuntimeError(RANDOM_ERROR)
        if level.randomness == "different" and not h.mapped:
            raise RuntimeError(_SAME)
    with _Outside(level):
        if with_history(h.value, *[o for o, _ in pairs]):
            if name in OUT_OF_PLACE:
                return _write(x, OUT_OF_PLACE[name](x, *[o._array.item() if o.__class__ is ScalarOperand else o for o in operands], **constants))
            if not random:
                raise NotImplementedError(f"torch.vmap: the gradient, outside of the vmap, of an in-place {name} is not supported; use the out-of-place op")
        if random and level.randomness == "different" and not any([m for _, m in pairs]) and h.value._handle is None:
            kernel(h.value._array, *[None if o is None else device_dispatch.to_host(o) for o, _ in pairs], **constants)
            inplace.bump_version(h.value)
            return
        at = constants["generator"]._dump_state() if random and level.randomness == "same" else None
        cut = [slices(o, level) if m else None for o, m in pairs]
        for i, part in enumerate(slices(h.value, level) if h.mapped else (h.value,)):
            if at is not None:
                constants["generator"]._load_state(at)
            given = [o if c is None else c[i] for (o, _), c in zip(pairs, cut)]
            if part._handle is not None:
                device_dispatch.write_by(part, name, kernel, *given, **constants)
            else:
                kernel(part._array, *[None if o is None else device_dispatch.to_host(o) for o in given], **constants)
        inplace.bump_version(h.value)


def _values(t):
    raise NeedsValues("vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to rewrite "
                      "what you're doing with other operations: the values of a slice are not known while all slices are computed at once")



# ------------------------------------------------------------------ ops
#
# Op name -> rule(level, args, kwargs) that replaces the op as a whole, or returns NotImplemented to
# fall back.
RULES: dict[str, Callable[..., Any]] = {}
#: Ops that return values to Python; they raise and are never computed slice by slice.
_VALUE_QUERIES = frozenset("""item __bool__ __float__ __int__ __complex__ __index__ __array__ __contains__ __len__ tolist numpy is_nonzero equal allclose
 data_ptr __repr__ __format__ __str__ __reduce_ex__ __deepcopy__""".split())


#: Ops that write random numbers into a tensor.
_DRAWS = frozenset("bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_".split())


def _tensors(args, kwargs):
    for x in (*args, *kwargs.values()) if kwargs else args:
        if x.__class__ is list or x.__class__ is tuple:
            yield from _tensors(x, ())
        elif getattr(x, "_handle", None) is not None:
            yield x


@dispatcher.register_layer("ops", "vmap")
def _on_ops(entry, args, kwargs, below):
    name = entry.name.rpartition(".")[2]
    if name in _DRAWS and args and getattr(args[0], "_handle", None).__class__ is not BatchedHandle:
        here = innermost()
        if here is not None:
            if here.randomness != "same":
                raise RuntimeError(RANDOM_ERROR if here.randomness == "error" else _SAME)
    rule = RULES.get(name)
    if rule is not None:
        level = top(list(_tensors(args, kwargs)))
        if level is not None:
            r = rule(level, args, kwargs)
            if r is not NotImplemented:
                return r
    depth, _thread.depth = _thread.depth, _thread.depth + 1
    if not depth and mode.on and (name[-1] == "_" or kwargs.get("inplace")):
        _thread.since = next(primitives.sequence)
    try:
        return below(entry, args, kwargs)
    except NeedsValues as e:
        level = top(list(_tensors(args, kwargs)))
        if level is None:
            raise
        if name in _VALUE_QUERIES:
            if depth:
                raise
            raise RuntimeError(_FLOW if name == "__bool__" else str(e)) from None
        if name == "__setitem__" or name.endswith("_") and not name.endswith("__") or kwargs.get("out") is not None or kwargs.get("inplace"):
            raise RuntimeError(_INPLACE if level_of(args[0]) is not level else str(e)) from None
    finally:
        _thread.depth = depth
    # A slice may itself be batched by a vmap around this one.
    return op_per_slice(lambda *a, **k: _on_ops(entry, a, k, _run), args, kwargs, level)


def _run(entry, args, kwargs):
    return entry.run(*args, **kwargs)


def op_per_slice(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], level: VmapLevel) -> Any:
    """Computes an op slice by slice.

    Its results (a tensor, or a tuple or list of tensors) are batched again.
    """
    found: list[Any] = []

    def part(x, i):
        if x.__class__ is list or x.__class__ is tuple:
            return x.__class__([part(y, i) for y in x])
        if level_of(x) is not level:
            return x
        if x._handle.mapped:
            for t, s in found:
                if t is x:
                    return s[i]
            s = slices(x._handle.value, level)
            found.append((x, s))
            return s[i]
        return x._handle.value

    if mode.on and any([x._requires_grad_ and level_of(x) is level for x in _tensors(args,
            kwargs)]) or dispatch_state.dual is not None and dispatch_state.dual(*_tensors(args, kwargs)):
        raise NotImplementedError("torch.vmap: vmap over the gradient of a data-dependent op is not supported")
    depth, _thread.depth = _thread.depth, _thread.depth + 1
    with _Outside(level), functorch_levels.below(level) if level.marks else contextlib.nullcontext():
        try:
            rows = [fn(*[part(a, i) for a in args], **{k: part(v, i) for k, v in kwargs.items()}) for i in range(max(level.size, 1))]
        finally:
            _thread.depth = depth
        several = isinstance(rows[0], (tuple, list))
        if not all([isinstance(t, Tensor) for t in (rows[0] if several else rows[:1])]):
            raise NeedsValues(_FLOW)
        if not several:
            return add_batch_dim(stack_slices(rows, level), True, level)
        if any([len(r) != len(rows[0]) for r in rows]):
            raise RuntimeError("vmap: an operation returned a different number of results for different slices")
        outs = [add_batch_dim(stack_slices(col, level), True, level) for col in zip(*rows)]
    kind = type(rows[0])
    return kind(outs) if kind in (tuple, list) else kind(*outs) if hasattr(kind, "_fields") else kind(outs)
