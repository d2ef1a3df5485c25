"""Op table: one declaration per op, from which torch.f, Tensor.f, Tensor.f_, `out=` and NumPy-style
names are generated.

The declared Python function *is* the signature (names, order, defaults, keyword-only); a test
compares it with PyTorch's schema. Its body defines the op, written with primitives and other ops.
"""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from mindtorch.backend.cpu.copies import into
from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.pointwise import write
from mindtorch.backend.interface import Sizes
from mindtorch.backend.strides import broadcasts_to, check_extent
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace, stride_rules, sparse
from mindtorch.core.device import device_dispatch
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.dispatch.deterministic import MODE, fill_array
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.codegen import EMPTY, compile_template, parameters
from mindtorch.core.dispatch.generated_files import declaration
from mindtorch.core.tensor.dtypes import as_np, of_np, cpp_names
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_schema import CONDITIONS, OPS, OpSchema, parse_tags
from mindtorch.core.dispatch.primitives import HOST, saved_hooks, sequence
from mindtorch.core.tensor.tensor import Tensor, bump_version, replace_memory, wrap_array, is_tensor


class SameDtype:
    """Requires `out=` to have the result's dtype.

    message: error message with {name}, {want} and {have}; also: names of dtypes accepted as well;
    pairs: check only ops with several results.
    """

    def __init__(self, message: str | None = None, also: tuple[str, ...] = (), pairs: bool = False) -> None:
        self.message, self.also, self.pairs = message, also, pairs

    def check(self, name: str, out: Any, r: Any) -> None:
        """Raises RuntimeError if `out` has another dtype than the result."""
        if isinstance(r, tuple):
            if isinstance(out, (tuple, list)) and len(out) == len(r):
                for a, b in zip(out, r):
                    self._one(name, a, b)
        elif not self.pairs:
            self._one(name, out, r)

    def _one(self, name, out, r):
        if is_tensor(out) and out._np_dtype != r._np_dtype and out._np_dtype.name not in self.also:
            if self.message is None:
                raise _other_dtype(r._np_dtype, out._np_dtype)
            raise RuntimeError(self.message.format(name=name, want=inplace.scalar_type_name(r._np_dtype), have=inplace.scalar_type_name(out._np_dtype)))


def _other_dtype(want, have):
    return RuntimeError(f"Expected out tensor to have dtype {cpp_names(want).spelled}, but got {cpp_names(have).spelled} "
                        f"instead")


def _dtype_from_out(out, dtype):
    """Returns the dtype in which an op with `out` computes: the dtype of `out`.

    A `dtype` argument must agree with it.
    """
    if not is_tensor(out):
        return dtype
    if dtype is not None and as_np(dtype) != out._np_dtype:
        raise _other_dtype(as_np(dtype), out._np_dtype)
    return of_np(out._np_dtype)


def register_op(fn: Callable[..., Any] | None = None, *, name: str | None = None, ns: str = "", function: bool = True, method: bool | Callable[...,
        Any] | None = None,
       inplace: bool | str = False, out: bool | str | SameDtype = False, aliases: str | tuple[str, ...] = (),
       autocast: str | Callable[..., str | None] | None = None, overlap: str | None = None,
       tags: str = "", condition: str | None = None, aten: str | tuple[str, ...] | None = None,
       writes: tuple[str, object] | None = None, expanded: Callable[..., object] | None = None) -> Callable[..., Any]:
    """Declares an op.

        name      PyTorch's name, if it differs from the function's (e.g. `sum` declared as `sum_`)
        ns        "", "nn.functional", "linalg", "special", "fft": the namespace of
                  torch.<ns>.<name>
        function  False: only a Tensor method
        method    also Tensor.<name>; default: True for ns "". A function is the method's own form,
                  where the method accepts more than the op (`x.squeeze(0, 1)`)
        inplace   also Tensor.<name>_. A ufunc with that name among the host kernels updates the
                  memory directly where no gradient is recorded, and one named <name>_scaled_ does
                  so for `alpha=`. "own": the last kernel of the body may write to the op's first
                  operand, which the body does not read afterwards
        out       torch.<name> accepts `out=`, of any dtype to which the result can be cast. "same"
                  (or a `SameDtype` with PyTorch's error message): only of the result's dtype.
                  "dtype_from_out": the dtype of `out=` acts like `dtype=` and must agree with it
        aliases   other public names of the op ("multiply"; dotted ones such as "special.expit" go
                  to their namespace)
        autocast  in an autocast region: "lower", "float32" or "by_input" (core/dispatch/autocast.py), or a
                  function that returns one of them for the op's arguments
        overlap   overlap check of the in-place form against operands that share the written memory,
                  or of `out=` where there is no in-place form: a name of `inplace.OVERLAPS`.
                  "assert_no_partial_overlap" (in-place default): elementwise ops may write exactly
                  what they read. "assert_no_overlap": no shared memory. "unchecked". `out=` of an op with an in-place form checks
                  "assert_no_partial_overlap"; of any other op nothing by default, because its
                  operands have been read by then
        tags      space-separated names of `TAGS` (core/dispatch/op_schema.py). Sharding of
                  distributed tensors and torch.compile's capture follow from them
        condition of the tag "data_dependent_output" or "dynamic_output_shape", if only some calls
                  have it: a name of `CONDITIONS` (core/dispatch/op_schema.py)
        aten      aten's name, if it is not the op's. With an overload ("addr.default"): the op is
                  that single operator, as which dispatch modes see it. A tuple (name, *parameters)
                  if aten has another order of parameters
        writes    (parameter, value): modifies an operand in addition to its result, unless that
                  parameter has that value
        expanded  writes in place to an expanded tensor, where PyTorch does; default: the in-place
                  form raises an error for one

    Returns the public function, which ops use as well; it calls the dispatcher first.
    """
    if fn is None:
        return functools.partial(register_op, name=name, ns=ns, function=function, method=method, inplace=inplace, out=out,
                                 aliases=aliases, autocast=autocast, overlap=overlap, tags=tags, condition=condition, aten=aten, writes=writes,
                                 expanded=expanded)
    o = OpSchema()
    base = name or fn.__name__.rstrip("_")
    if isinstance(aliases, str):
        aliases = tuple(aliases.split())
    o.name, o.ns, o.body, o.aliases = base, ns, fn, aliases
    o.method = (ns == "") if method is None else bool(method)
    o.inplace, o.out, o.main = inplace, SameDtype() if out == "same" else out, o
    o.autocast = autocast
    o.overlap = overlap or ("assert_no_partial_overlap" if inplace else None)
    if condition is not None and condition not in CONDITIONS:
        raise ValueError(f"op {base!r}: unknown condition {condition!r}; the conditions are {', '.join(CONDITIONS)}")
    o.tags, o.condition, o.aten, o.writes, o.expanded = parse_tags(tags), condition, aten, writes, expanded
    fn.__name__ = fn.__qualname__ = o.name
    o.fn = o.public = publish(o)
    if o.qualname in OPS:
        raise ValueError(f"there is an op {o.qualname!r} already")
    OPS[o.qualname] = o
    if not function:
        o.public = None
    names = [o.name] + [a for a in aliases if "." not in a]
    if o.method:
        method_fn = method if callable(method) else fn
        # not `o.fn`: __torch_function__ handlers tell the two apart
        m = dispatcher.make_dispatcher(method_fn, dispatcher.DispatchEntry(method_fn, o.qualname, o), method=True)
        if not function:
            o.fn = m
        for n in names:
            setattr(Tensor, n, m)
    if inplace:
        f_ = _inplace(o)
        for n in names:
            setattr(Tensor, n + "_", f_)
    for a in aliases:
        qualname = a if "." in a or not ns else f"{ns}.{a}"
        if qualname in OPS:
            raise ValueError(f"there is an op {qualname!r} already")
        OPS[qualname] = _alias_row(o, qualname)
    return o.fn


def record_of(f: Any) -> OpSchema | None:
    """Returns the record of the op behind a public function, method or in-place form, or None.

    Handwritten methods (`Tensor.where`, `Tensor.squeeze_`) belong to the op of the same name.
    """
    entry = dispatcher.DISPATCH_ENTRIES.get(f)
    if entry is None:
        return None
    if entry.op is not None:
        return entry.op
    name = entry.name.removeprefix("Tensor.")
    return OPS.get(name) or OPS.get(name.removesuffix("_"))


def publish(o: OpSchema, legacy: Callable[..., Any] | None = None, n_positional: int | None = None) -> Callable[..., Any]:
    """Returns an op's public function.

    legacy: wraps a function so that it also accepts deprecated argument orders; `n_positional` is the
    number of positional arguments in the current order.
    """
    fn = o.body
    run = _with_out(o, fn) if o.out else fn
    if legacy is not None:
        run = legacy(run)
    return dispatcher.make_dispatcher(fn, dispatcher.DispatchEntry(run, o.qualname, o), out=run if o.out else None, may_override=o.ns != "nn.functional",
                                    n_positional=n_positional, run=run)


def _alias_row(o: OpSchema, qualname: str) -> OpSchema:
    a = OpSchema()
    a.ns, _, a.name = qualname.rpartition(".")
    for n in OpSchema.__slots__:
        if n not in ("name", "ns", "aliases"):
            setattr(a, n, getattr(o, n))
    a.aliases = ()
    return a


@functools.lru_cache(None)
def _out_source(kinds, dtype):
    """Returns the source of a function over parameters a0_, a1_, ... that accepts `out=`.

    kinds: kinds of the parameters. dtype: index of the parameter whose value `out` also determines.
    """
    params, call, names, seen_star = [], [], [], False
    for i, kind in enumerate(kinds):
        n = f"a{i}_"
        if kind == "keyword" and not seen_star:
            params.append("*")
        seen_star = seen_star or kind != ""
        params.append("*" + n if kind == "*" else n)
        names.append("*" + n if kind == "*" else n)
        call.append({"": n, "*": "*" + n, "keyword": f"{n}={n}"}[kind])
    call_with_dtype = call
    if dtype is not None:
        call_with_dtype = [*call[:dtype], call[dtype].removesuffix(f"a{dtype}_") + f"dtype_from_out(out, a{dtype}_)", *call[dtype + 1:]]
    call, call_with_dtype, names = ", ".join(call), ", ".join(call_with_dtype), ", ".join(names)
    return (f"def with_out({', '.join([*params, *([] if seen_star else ['*']), 'out'])}):\n"
            f"    if out is None:\n        return fn({call})\n    return slow(op_, out, fn({call_with_dtype}), ({names},))\n")


def _with_out(o, fn):
    """Returns the op's function with its own signature plus `out=`."""
    scope = {"fn": fn, "slow": _out_slow_path, "op_": o, "dtype_from_out": _dtype_from_out}
    shape, given, defaults, kwdefaults, dtype = [], {}, [], {"out": None}, None
    for i, p in enumerate(parameters(fn)):
        if p.kind == "**":
            raise TypeError(f"op {o.name}: ** is not part of torch's signatures")
        shape.append(p.kind)
        given[f"a{i}_"] = p.name
        if p.name == "dtype" and o.out == "dtype_from_out":
            dtype = i
        if p.default is not EMPTY:
            if p.kind == "keyword":
                kwdefaults[p.name] = p.default
            else:
                defaults.append(p.default)
    f = compile_template(_out_source(tuple(shape), dtype), given, o.name, "functions", f"{o.qualname} with out= from {declaration(fn)}:", scope, defaults,
                         kwdefaults)
    f.__doc__, f.__module__ = fn.__doc__, fn.__module__
    return f


def _out_slow_path(o, out, r, given):
    if o.out.__class__ is SameDtype:
        o.out.check(o.name, out, r)
    if o.inplace:
        check = None  # the written tensor is not the first operand, which is read like the others
    elif o.overlap is None:
        check, given = None, ()  # not elementwise: the operands have already been read
    else:
        check = inplace.OVERLAPS[o.overlap]
    return store_out(o.name, out, r, given, check)


def store_out(name: str, out: Any, r: Any, given: Iterable[object] = (), check: Callable[..., None] | None = None) -> Any:
    """Writes a result into `out` by PyTorch's rules.

    The result must be castable to the dtype of `out`. `out` is resized, with a warning unless it is
    empty.
    """
    if isinstance(out, (tuple, list)):
        if not isinstance(r, tuple) or len(out) != len(r):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type_name(out)}")
        done = [store_out(name, a, b, given, check) for a, b in zip(out, r)]
        return type(r)(done) if type(r) is tuple else type(r)(*done)
    if not is_tensor(out):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type_name(out)}")
    if isinstance(r, tuple):
        raise RuntimeError(f"{name} does not support the out kwarg where it returns a tuple")
    if mode.on and (out._requires_grad_ or r._requires_grad_):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of "
                           "the arguments requires grad.")
    if dispatch_state.dual is not None and dispatch_state.dual(out, r):
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= function")
    inplace.check_cast(r._np_dtype, out._np_dtype)
    if out._device is not r._device and out._device != r._device:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {r._device} and {out._device}!")
    if out._sizes != r._sizes:
        if out._numel:
            warnings.warn(f"An output with one or more elements was resized since it had shape {list(out._sizes)}, which "
                          f"does not match the required output shape {list(r._sizes)}. This behavior is deprecated, and in "
                          "a future PyTorch release outputs will not be resized unless they have zero elements. You can "
                          "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
                          stacklevel=3)
        resize(out, r._sizes)
        if not r._contiguous or stride_rules.STRIDED.unusual_strides and stride_rules.strides_of(r._array) != stride_rules.strides_of(out._array):
            _restride(out, r)
    inplace.check_inplace(out, False)
    (check or inplace.assert_no_partial_overlap)(out, given)
    inplace.store(out, r)
    return out


def _restride(out, r):
    """Gives a resized `out` the dense strides of the result."""
    a, strides = out._array, stride_rules.strides_of(r._array)
    if stride_rules.is_dense(r._sizes, strides):
        inplace.set_storage_within(out, out, a.shape, tuple([s * a.itemsize for s in strides]), 0)


def resize(t: Tensor, shape: Sizes) -> Tensor:
    """Implements resize_: keeps a storage that is large enough, else moves to a larger one.

    The old values come first in the new storage.
    """
    check_extent(shape)
    if t._handle is not None:
        inplace.resize_there(t, shape)
        return t
    n = int(np.prod(shape, dtype=np.int64))
    a = t._array
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    start = (a.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // a.itemsize
    if not root.flags.c_contiguous:
        # Use the storage's own order: dimensions from the largest stride to the smallest.
        root = root.transpose(sorted(range(root.ndim), key=lambda i: -root.strides[i]))
    flat = root.reshape(-1).view(a.dtype)
    if flat.size - start >= n and root.flags.c_contiguous:
        new = flat[start:start + n].reshape(shape)
    else:
        buf = np.zeros(n, a.dtype)
        n_kept = min(n, flat.size - start)
        buf[:n_kept] = flat[start:start + n_kept]
        if MODE.filling:
            fill_array(buf[n_kept:])
        new = buf.reshape(shape)
    replace_memory(t, new)
    bump_version(t)
    return t


def _inplace(o: OpSchema) -> Callable[..., Any]:
    # `o.fn` is dispatched again: autocast applies to the op, not to the write
    fn, name = o.fn, o.name + "_"
    ufunc, scaled = HOST.get(name), HOST.get(o.name + "_scaled_")
    # complex sums need more than NumPy's ufunc: see ops/elementwise/binary.py
    kinds = "f" if o.name in ("add", "sub") else "fc"
    check_overlap = inplace.OVERLAPS[o.overlap]
    owns, expanded = o.inplace == "own", o.expanded
    pointwise = "pointwise" in o.tags

    def recorded(self, *args, **kwargs):
        """In-place op while gradients are recorded: computes a new tensor, then writes it."""
        inplace.check_inplace(self, any_grad(args, kwargs))
        given = (*args, *kwargs.values()) if kwargs else args
        check_overlap(self, given)
        since = next(sequence)
        return inplace.assign(self, inplace.computed(self, fn, *args, **kwargs) if saved_hooks else fn(self, *args, **kwargs), since, given)

    def run(self, *args, **kwargs):
        try:
            if expanded is not None and not self._array.flags.c_contiguous and inplace.expanded_dims(self):
                expanded(self, *args, **kwargs)
                return self
            if not (mode.on and (self._requires_grad_ or any_grad(args, kwargs))):
                if ufunc is not None and not kwargs and len(args) == 1:
                    a, other = self._array, args[0]
                    try:
                        b = other._array
                        # Same dtype, no partial overlap (different storage), result has self's
                        # shape.
                        ok = b.dtype is a.dtype and (b.shape == a.shape or broadcasts_to(b.shape, a.shape)) and (
                            other._version_counter is None or other._version_counter is not self._version_counter) and other._handle is None
                    except AttributeError:
                        b = other
                        ok = a.dtype.kind == "f" and (b.__class__ is float or b.__class__ is int)
                    if ok and a.dtype.kind in kinds and a.itemsize != 2 and a.flags.writeable and not self._inference and (
                            a.flags.c_contiguous or not inplace.overlaps_itself(a)):
                        write(ufunc, a, b)
                        v = self._version_counter
                        if v is None:
                            bump_version(self)
                        else:
                            v.v += 1
                        return self
                    a = b = None
                elif scaled is not None and kwargs and len(args) == 1 and _scales(self, args[0], kwargs) and scaled(self._array, args[0]._array, **kwargs):
                    bump_version(self)
                    return self
                inplace.check_inplace(self, False)
                check_overlap(self, args)
                if self._handle is not None and device_dispatch.in_place(self, name, args, kwargs):
                    return self
                if pointwise and self._numel >= _MANY and _by_pieces(self, fn, args, kwargs):
                    bump_version(self)
                    return self
                if (owns and dispatcher.is_unobserved() and not saved_hooks and self._handle is None and self._device.type == "cpu"
                        and hooks.tangent_write is None):
                    flags = self._array.flags
                    if flags.c_contiguous and flags.writeable and not self._fw_grad:
                        return inplace.assign(self, into(self._array, fn, self, *args, **kwargs), 0)
                r = fn(self, *args, **kwargs)
                return inplace.assign(self, r, 0)
            return recorded(self, *args, **kwargs)
        except sparse.SparseUse:
            if name not in sparse.dispatch:
                raise
            return sparse.dispatch[name](self, *args, **kwargs)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"In-place version of `Tensor.{o.name}`."
    entry = dispatcher.DispatchEntry(run, f"Tensor.{name}", None, True)
    entry.recorded = recorded
    return dispatcher.make_dispatcher(run, entry, method=True, declared=o.body)


#: minimum size for computing an elementwise in-place op in pieces, and size of a piece; a single
#: pass needs a second array
_MANY, _PIECE = 1 << 20, 1 << 18


def _by_pieces(x, fn, args, kwargs):
    """Computes fn(x, ...) into x in pieces.

    Returns False, with nothing done, where x or an operand cannot be split.
    """
    a = x._array
    if not (a.flags.c_contiguous
            and a.flags.writeable) or x._handle is not None or x._device.type != "cpu" or x._fw_grad or saved_hooks or hooks.tangent_write is not None \
            or not dispatcher.is_unobserved():
        return False
    cut = []
    for v in (*args, *kwargs.values()):
        if v is x or not is_tensor(v) or not v._sizes:
            continue
        if v.__class__ is not Tensor or v._handle is not None or v._sizes != x._sizes or not v._contiguous:
            return False
        if address(v._array) != address(a) and inplace.may_share(v._array, a):
            return False  # a piece would read what another one has written
        cut.append(v)
    flat, others = a.reshape(-1), {id(v): v._array.reshape(-1) for v in cut}
    for i in range(0, a.size, _PIECE):
        piece, part = wrap_array(flat[i:i + _PIECE]), {k: wrap_array(v[i:i + _PIECE]) for k, v in others.items()}
        part[id(x)] = piece
        inplace.assign(piece, fn(piece, *[part.get(id(v), v) for v in args], **{k: part.get(id(v), v) for k, v in kwargs.items()}), 0)
    return True


def _scales(x, y, kwargs):
    """True if x += alpha * y can be written element by element as it is computed.

    Requires floats of one dtype and y apart from x's memory, and that no callback observes the
    write.
    """
    if kwargs.keys() != {"alpha"} or kwargs["alpha"].__class__ not in (float, int) or not isinstance(y,
                                                                                                     Tensor) or x._handle is not None or y._handle is not None:
        return False
    a, b = x._array, y._array
    return (b.dtype is a.dtype and a.dtype.kind == "f" and a.flags.writeable and not x._inference and hooks.tangent_write is None
            and (y is x or not np.may_share_memory(a, b)) and (b.shape == a.shape or broadcasts_to(b.shape, a.shape))
            and (a.flags.c_contiguous or not inplace.overlaps_itself(a)))


def any_grad(args: Iterable[object], kwargs: Mapping[str, object] | None = None) -> bool:
    """True if a tensor among the arguments (also in nested lists and tuples) requires grad."""
    for x in args:
        if is_tensor(x):
            if x._requires_grad_:
                return True
        elif x.__class__ is list or x.__class__ is tuple:
            if any_grad(x):
                return True
    return bool(kwargs) and any_grad(kwargs.values())       # type: ignore[union-attr]


def inplace_method(name: str) -> Callable[..., Any]:
    """Decorator for in-place methods without an op.

    The body (self, ...) returns the new value as a tensor.
    """
    def deco(fn):
        o = OpSchema()
        o.name, o.ns, o.body, o.fn, o.public, o.method, o.inplace, o.out, o.aliases = name, "", fn, fn, None, False, True, False, ()
        o.autocast = o.condition = o.aten = o.writes = o.expanded = None
        o.tags = frozenset()
        o.main = o
        o.overlap = "assert_no_partial_overlap"
        setattr(Tensor, name + "_", _inplace(o))
        return fn
    return deco


def fresh(a: Any) -> Tensor:
    """Converts a kernel result (array or NumPy scalar) to a Tensor."""
    return wrap_array(a if a.__class__ is np.ndarray else np.asarray(a))


sparse.dispatch["store_out"] = store_out
