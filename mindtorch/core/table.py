"""The op table: one declaration per op, from which torch.f, Tensor.f, Tensor.f_, `out=` and NumPy-style names come.

The declared Python function *is* the signature (names, order, defaults, keyword-only); a test compares it with torch's
schema.  Its body is the meaning, written on primitives and other ops.
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
from mindtorch.backend.strides import check_extent
from mindtorch.core import alias, devices, dispatch, layout, sparse
from mindtorch.core.determinism import MODE, fill_array
from mindtorch.core.dispatch import FLAGS
from mindtorch.core.stamp import EMPTY, function, parameters
from mindtorch.core.dtypes import as_np, of_np
from mindtorch.core.foreign import type_name
from mindtorch.core.grad_mode import mode
from mindtorch.core.records import TABLE, Op
from mindtorch.core.tape import HOST, saved_hooks, sequence
from mindtorch.core.tensor import Tensor, bump, replace_memory, wrap, taken


#: C++'s names of dtypes, which torch's errors for `out=` have
_SPELT = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char",
          "float16": "c10::Half", "bfloat16": "c10::BFloat16", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}


class Same:
    """`out=` has to have the result's dtype.

    said: the error, of {name}, {want} and {have}; also: names of dtypes that are taken as well; pairs: only several results together are looked at.
    """

    def __init__(self, said: str | None = None, also: tuple[str, ...] = (), pairs: bool = False) -> None:
        self.said, self.also, self.pairs = said, also, pairs

    def check(self, name: str, out: Any, r: Any) -> None:
        """RuntimeError if `out` is of another dtype than the result."""
        if isinstance(r, tuple):
            if isinstance(out, (tuple, list)) and len(out) == len(r):
                for a, b in zip(out, r):
                    self._one(name, a, b)
        elif not self.pairs:
            self._one(name, out, r)

    def _one(self, name, out, r):
        if taken(out) and out._stype != r._stype and out._stype.name not in self.also:
            if self.said is None:
                raise _other_dtype(r._stype, out._stype)
            raise RuntimeError(self.said.format(name=name, want=alias.title(r._stype), have=alias.title(out._stype)))


def _other_dtype(want, have):
    return RuntimeError(f"Expected out tensor to have dtype {_SPELT.get(want.name, want.name)}, but got {_SPELT.get(have.name, have.name)} instead")


def _asked(out, dtype):
    """The dtype that an op computes in which is given `out`: that one's, with which `dtype` has to agree."""
    if not taken(out):
        return dtype
    if dtype is not None and as_np(dtype) != out._stype:
        raise _other_dtype(as_np(dtype), out._stype)
    return of_np(out._stype)


def op(fn: Callable[..., Any] | None = None, *, name: str | None = None, ns: str = "", function: bool = True, method: bool | Callable[..., Any] | None = None,
       inplace: bool | str = False, out: bool | str | Same = False, aliases: str | tuple[str, ...] = (),
       autocast: str | Callable[..., str | None] | None = None, overlap: str | None = None,
       placement: str | None = None, capture: str | None = None, writes: tuple[str, object] | None = None,
       expanded: Callable[..., object] | None = None) -> Callable[..., Any]:
    """Declares an op.

    name      torch's name, if it differs from the function's (e.g. `sum` declared as `sum_`)
    ns        "", "nn.functional", "linalg", "special", "fft": where torch.<ns>.<name> lives
    function  False: only a Tensor method
    method    also Tensor.<name>; default: for ns ""; a function is the method's own form, where that takes more than the op (`x.squeeze(0, 1)`)
    inplace   also Tensor.<name>_; a ufunc under that name in the host's kernels updates the memory directly where no gradient is recorded, and one
              under <name>_scaled_ for `alpha=`; "own": what the body ends with may write to its first operand, which the body then does not read
    out       torch.<name> takes `out=`, of any dtype that the result may be cast to; "same" (or a `Same`, with torch's words for it): only of
              the result's dtype; "asked": an `out=` says by its dtype what `dtype=` would, and has to agree with that
    aliases   other public names of the same op ("multiply"; dotted ones "special.expit" go to their namespace)
    autocast  inside an autocast region: "lower", "float32" or "by_input" (core/autocast.py), or what gives one of them for the op's arguments
    overlap   what the in-place form checks of operands that share the memory that is written, or `out=` where there is no in-place form:
              "partial" (the default in place: elementwise ops may write exactly what they read), "apart" (not at all), "unchecked".
              `out=` of an op with an in-place form checks "partial", of any other nothing by default: its operands have been read by then
    placement how tensors spread over processes go through it (torch/distributed/tensor): "elementwise" (each element of the result comes from
              the same place of the operands: parts that lie alike are worked on as they are), "linear" (the same, and parts of a sum may be,
              too), "random" (draws numbers, as every process would for itself); default: on the whole
    capture   what a capture (torch.compile) has to know: "meta" (says nothing about values), "values" (hands values to Python, or takes them
              from there), "sizes" (the result's size depends on values); with a condition: "values of tensors", "sizes of tensors" (where a
              tensor is among the further arguments), "sizes if alone" (where there are none), "sizes unless told" (where no number is)
    writes    (parameter, value): writes to an operand besides what it returns, unless that parameter has that value
    expanded  writes in place to an expanded tensor, where torch does; default: the in-place form refuses one

    Returns the function as everybody calls it, also within ops: one that asks the dispatcher first.
    """
    if fn is None:
        return functools.partial(op, name=name, ns=ns, function=function, method=method, inplace=inplace, out=out,
                                 aliases=aliases, autocast=autocast, overlap=overlap, placement=placement, capture=capture, writes=writes, expanded=expanded)
    o = Op()
    base = name or fn.__name__.rstrip("_")
    if isinstance(aliases, str):
        aliases = tuple(aliases.split())
    o.name, o.ns, o.body, o.aliases = base, ns, fn, aliases
    o.method = (ns == "") if method is None else bool(method)
    o.inplace, o.out, o.main = inplace, Same() if out == "same" else out, o
    o.autocast = autocast
    o.overlap = overlap or ("partial" if inplace else None)
    o.placement, o.capture, o.writes, o.expanded = placement, capture, writes, expanded
    fn.__name__ = fn.__qualname__ = o.name
    o.fn = o.public = publish(o)
    if o.qualname in TABLE:
        raise ValueError(f"there is an op {o.qualname!r} already")
    TABLE[o.qualname] = o
    if not function:
        o.public = None
    names = [o.name] + [a for a in aliases if "." not in a]
    if o.method:
        own = method if callable(method) else fn
        m = dispatch.function(own, dispatch.Entry(own, o.qualname, o), method=True)       # (not the function: handlers tell them apart)
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
        if qualname in TABLE:
            raise ValueError(f"there is an op {qualname!r} already")
        TABLE[qualname] = _alias_row(o, qualname)
    return o.fn


def record_of(f: Any) -> Op | None:
    """The record of the op that a public function, method or in-place form belongs to; None if there is none.

    Methods written by hand (`Tensor.where`, `Tensor.squeeze_`) belong to the op whose name they have.
    """
    entry = dispatch.ENTRIES.get(f)
    if entry is None:
        return None
    if entry.op is not None:
        return entry.op
    name = entry.name.removeprefix("Tensor.")
    return TABLE.get(name) or TABLE.get(name.removesuffix("_"))


def publish(o: Op, legacy: Callable[..., Any] | None = None, usual: int | None = None) -> Callable[..., Any]:
    """An op's public function.

    legacy  makes a function that takes argument orders of old too out of one that does not; `usual` is how many positional
            arguments there are in the present order.
    """
    fn = o.body
    run = _with_out(o, fn) if o.out else fn
    if legacy is not None:
        run = legacy(run)
    return dispatch.function(fn, dispatch.Entry(run, o.qualname, o), out=run if o.out else None, ducks=o.ns != "nn.functional",
                             usual=usual, run=run)


def _alias_row(o: Op, qualname: str) -> Op:
    a = Op()
    a.ns, _, a.name = qualname.rpartition(".")
    for n in Op.__slots__:
        if n not in ("name", "ns", "aliases"):
            setattr(a, n, getattr(o, n))
    a.aliases = ()
    return a


@functools.lru_cache(None)
def _out_source(kinds, dtype):
    """Source of a function over parameters a0_, a1_, ... of these kinds that takes `out=` as well; dtype: the number of the one that `out` says, too."""
    params, call, names, seen_star = [], [], [], False
    for i, kind in enumerate(kinds):
        n = f"a{i}_"
        if kind == "keyword" and not seen_star:
            params.append("*")
        seen_star = seen_star or kind != ""
        params.append("*" + n if kind == "*" else n)
        names.append("*" + n if kind == "*" else n)
        call.append({"": n, "*": "*" + n, "keyword": f"{n}={n}"}[kind])
    told = call
    if dtype is not None:
        told = [*call[:dtype], call[dtype].removesuffix(f"a{dtype}_") + f"asked(out, a{dtype}_)", *call[dtype + 1:]]
    call, told, names = ", ".join(call), ", ".join(told), ", ".join(names)
    return (f"def with_out({', '.join([*params, *([] if seen_star else ['*']), 'out'])}):\n"
            f"    if out is None:\n        return fn({call})\n    return slow(op_, out, fn({told}), ({names},))\n")


def _with_out(o, fn):
    """The op's function with its own signature and `out=`."""
    scope = {"fn": fn, "slow": _slow, "op_": o, "asked": _asked}
    shape, given, defaults, kwdefaults, dtype = [], {}, [], {"out": None}, None
    for i, p in enumerate(parameters(fn)):
        if p.kind == "**":
            raise TypeError(f"op {o.name}: ** is not part of torch's signatures")
        shape.append(p.kind)
        given[f"a{i}_"] = p.name
        if p.name == "dtype" and o.out == "asked":
            dtype = i
        if p.default is not EMPTY:
            if p.kind == "keyword":
                kwdefaults[p.name] = p.default
            else:
                defaults.append(p.default)
    f = function(_out_source(tuple(shape), dtype), given, o.name, f"<op {o.qualname}>", scope, defaults, kwdefaults)
    f.__doc__, f.__module__ = fn.__doc__, fn.__module__
    return f


def _slow(o, out, r, given):
    if o.out.__class__ is Same:
        o.out.check(o.name, out, r)
    if o.inplace:
        check = None        # (what is written here is not the first operand, which is read like the others)
    elif o.overlap is None:
        check, given = None, ()        # not elementwise: the operands have been read by now
    else:
        check = alias.OVERLAPS[o.overlap]
    return store_out(o.name, out, r, given, check)


def store_out(name: str, out: Any, r: Any, given: Iterable[object] = (), check: Callable[..., None] | None = None) -> Any:
    """Writes a result into `out` by torch's rules: dtype must be castable, shape is resized (with a warning unless empty)."""
    if isinstance(out, (tuple, list)):
        if not isinstance(r, tuple) or len(out) != len(r):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type_name(out)}")
        done = [store_out(name, a, b, given, check) for a, b in zip(out, r)]
        return type(r)(done) if type(r) is tuple else type(r)(*done)
    if not taken(out):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type_name(out)}")
    if isinstance(r, tuple):
        raise RuntimeError(f"{name} does not support the out kwarg where it returns a tuple")
    if mode.on and (out._rg or r._rg):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of "
                           "the arguments requires grad.")
    if FLAGS.dual is not None and FLAGS.dual(out, r):
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= function")
    alias.check_cast(r._stype, out._stype)
    if out._dev is not r._dev and out._dev != r._dev:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {r._dev} and {out._dev}!")
    if out._sizes != r._sizes:
        if out._numel:
            warnings.warn(f"An output with one or more elements was resized since it had shape {list(out._sizes)}, which "
                          f"does not match the required output shape {list(r._sizes)}. This behavior is deprecated, and in "
                          "a future PyTorch release outputs will not be resized unless they have zero elements. You can "
                          "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
                          stacklevel=3)
        resize(out, r._sizes)
        if not r._contiguous or layout.STRIDED.odd and layout.strides_of(r._a) != layout.strides_of(out._a):
            _restride(out, r)
    alias.check_inplace(out, False)
    (check or alias.check_overlap)(out, given)
    alias.store(out, r)
    return out


def _restride(out, r):
    """An `out` that was resized takes the dense strides of the result."""
    a, strides = out._a, layout.strides_of(r._a)
    if layout.is_dense(r._sizes, strides):
        alias.stand_within(out, out, a.shape, tuple([s * a.itemsize for s in strides]), 0)


def resize(t: Tensor, shape: Sizes) -> Tensor:
    """resize_: keeps the storage where it is large enough, else moves to a larger one with the old values in front."""
    check_extent(shape)
    if t._h is not None:
        alias.resize_there(t, shape)
        return t
    n = int(np.prod(shape, dtype=np.int64))
    a = t._a
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    start = (a.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // a.itemsize
    if not root.flags.c_contiguous:
        # The storage's own order: its dimensions from the largest stride to the smallest.
        root = root.transpose(sorted(range(root.ndim), key=lambda i: -root.strides[i]))
    flat = root.reshape(-1).view(a.dtype)
    if flat.size - start >= n and root.flags.c_contiguous:
        new = flat[start:start + n].reshape(shape)
    else:
        buf = np.zeros(n, a.dtype)
        keep = min(n, flat.size - start)
        buf[:keep] = flat[start:start + keep]
        if MODE.filling:
            fill_array(buf[keep:])
        new = buf.reshape(shape)
    replace_memory(t, new)
    bump(t)
    return t


alias.resize_ = resize


def _inplace(o: Op) -> Callable[..., Any]:
    fn, name = o.fn, o.name + "_"        # (op is asked once more: autocast acts on it, not on the writing)
    ufunc, scaled = HOST.get(name), HOST.get(o.name + "_scaled_")
    kinds = "f" if o.name in ("add", "sub") else "fc"          # (Complex sums are more than NumPy's: see ops/elementwise/binary.py.)
    check_overlap = alias.OVERLAPS[o.overlap]
    owns, expanded = o.inplace == "own", o.expanded
    pointwise = o.placement in ("elementwise", "linear")

    def recorded(self, *args, **kwargs):
        """As where gradients are recorded: the new value is computed as a tensor of its own, which is then written."""
        alias.check_inplace(self, any_grad(args, kwargs))
        given = (*args, *kwargs.values()) if kwargs else args
        check_overlap(self, given)
        since = next(sequence)
        return alias.assign(self, alias.computed(self, fn, *args, **kwargs) if saved_hooks else fn(self, *args, **kwargs), since, given)

    def run(self, *args, **kwargs):
        try:
            if expanded is not None and not self._a.flags.c_contiguous and alias.expanded_dims(self):
                expanded(self, *args, **kwargs)
                return self
            if not (mode.on and (self._rg or any_grad(args, kwargs))):
                if ufunc is not None and not kwargs and len(args) == 1:
                    a, other = self._a, args[0]
                    try:
                        b = other._a
                        # Same dtype, no partial overlap possible (different storage), result shape is self's own.
                        ok = b.dtype is a.dtype and (b.shape == a.shape or _fits(b.shape, a.shape)) and (
                            other._ver is None or other._ver is not self._ver) and other._h is None
                    except AttributeError:
                        b = other
                        ok = a.dtype.kind == "f" and (b.__class__ is float or b.__class__ is int)
                    if ok and a.dtype.kind in kinds and a.itemsize != 2 and a.flags.writeable and not self._inference and (
                            a.flags.c_contiguous or not alias.overlaps_itself(a)):
                        write(ufunc, a, b)
                        v = self._ver
                        if v is None:
                            bump(self)
                        else:
                            v.v += 1
                        return self
                    a = b = None
                elif scaled is not None and kwargs and len(args) == 1 and _scales(self, args[0], kwargs) and scaled(self._a, args[0]._a, **kwargs):
                    bump(self)
                    return self
                alias.check_inplace(self, False)
                check_overlap(self, args)
                if self._h is not None and devices.in_place(self, name, args, kwargs):
                    return self
                if pointwise and self._numel >= _MANY and _by_pieces(self, fn, args, kwargs):
                    bump(self)
                    return self
                if owns and dispatch.unwatched() and not saved_hooks and self._h is None and self._dev.type == "cpu" and alias.wrote is None:
                    flags = self._a.flags
                    if flags.c_contiguous and flags.writeable and not self._tan:
                        return alias.assign(self, into(self._a, fn, self, *args, **kwargs), 0)
                r = fn(self, *args, **kwargs)
                return alias.assign(self, r, 0)
            return recorded(self, *args, **kwargs)
        except sparse.SparseUse:
            if name not in sparse.dispatch:
                raise
            return sparse.dispatch[name](self, *args, **kwargs)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"In-place version of `Tensor.{o.name}`."
    entry = dispatch.Entry(run, f"Tensor.{name}", None, True)
    entry.recorded = recorded
    return dispatch.function(run, entry, method=True)


#: elements from which on an elementwise op in place goes piece by piece, and elements of a piece: all at once needs a second array
_MANY, _PIECE = 1 << 20, 1 << 18


def _by_pieces(x, fn, args, kwargs):
    """fn(x, ...) written to x piece by piece; False, and nothing done, where x or an operand is not to be cut."""
    a = x._a
    if not (a.flags.c_contiguous and a.flags.writeable) or x._h is not None or x._dev.type != "cpu" or x._tan or saved_hooks or alias.wrote is not None \
            or not dispatch.unwatched():
        return False
    cut = []
    for v in (*args, *kwargs.values()):
        if v is x or not taken(v) or not v._sizes:
            continue
        if v.__class__ is not Tensor or v._h is not None or v._sizes != x._sizes or not v._contiguous:
            return False
        if address(v._a) != address(a) and alias.may_share(v._a, a):
            return False            # (a piece would read what another one has written)
        cut.append(v)
    flat, others = a.reshape(-1), {id(v): v._a.reshape(-1) for v in cut}
    for i in range(0, a.size, _PIECE):
        piece, part = wrap(flat[i:i + _PIECE]), {k: wrap(v[i:i + _PIECE]) for k, v in others.items()}
        part[id(x)] = piece
        alias.assign(piece, fn(piece, *[part.get(id(v), v) for v in args], **{k: part.get(id(v), v) for k, v in kwargs.items()}), 0)
    return True


def _scales(x, y, kwargs):
    """Whether x += alpha * y may be written element by element as it is computed: floats of one dtype, y apart from x's memory, nothing else to be told."""
    if kwargs.keys() != {"alpha"} or kwargs["alpha"].__class__ not in (float, int) or not isinstance(y, Tensor) or x._h is not None or y._h is not None:
        return False
    a, b = x._a, y._a
    return (b.dtype is a.dtype and a.dtype.kind == "f" and a.flags.writeable and not x._inference and alias.wrote is None
            and (y is x or not np.may_share_memory(a, b)) and (b.shape == a.shape or _fits(b.shape, a.shape))
            and (a.flags.c_contiguous or not alias.overlaps_itself(a)))


def _fits(b, a):
    if len(b) > len(a):
        return False
    for x, y in zip(reversed(b), reversed(a)):
        if x != y and x != 1:
            return False
    return True


def any_grad(args: Iterable[object], kwargs: Mapping[str, object] | None = None) -> bool:
    """True if a tensor among the arguments (also inside lists and tuples) requires grad."""
    for x in args:
        if taken(x):
            if x._rg:
                return True
        elif x.__class__ is list or x.__class__ is tuple:
            if any_grad(x):
                return True
    return bool(kwargs) and any_grad(kwargs.values())       # type: ignore[union-attr]


def inplace_method(name: str) -> Callable[..., Any]:
    """Decorator for in-place methods with a meaning of their own: body(self, ...) returns the new value as a tensor."""
    def deco(fn):
        o = Op()
        o.name, o.ns, o.body, o.fn, o.public, o.method, o.inplace, o.out, o.aliases = name, "", fn, fn, None, False, True, False, ()
        o.autocast = o.placement = o.capture = o.writes = o.expanded = None
        o.main = o
        o.overlap = "partial"
        setattr(Tensor, name + "_", _inplace(o))
        return fn
    return deco


def fresh(a: Any) -> Tensor:
    """Kernel result (array or NumPy scalar) -> Tensor."""
    return wrap(a if a.__class__ is np.ndarray else np.asarray(a))


sparse.dispatch["store_out"] = store_out
