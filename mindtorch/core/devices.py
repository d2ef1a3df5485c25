"""Tensors on devices other than the host: the layer of the dispatcher that picks their kernels, and how they come and go.

Such a tensor has its device's handle (`_h`); its `_a` is `Opaque`: it tells shape, element type and strides, and no values.  Views are worked out on
arrays without memory by the host's own view kernels, and made by the device's one `view`.
"""
from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.cpu.host import address
from mindtorch.backend.cpu.memory import on_storage
from mindtorch.backend.cpu.region import pick
from mindtorch.backend.cpu.basic import cast_array
from mindtorch.backend.device import Device, Lacking, Way, placed, home_of, view_of
from mindtorch.backend.errors import AcceleratorError
from mindtorch.backend.interface import Array, Handle, Sizes, Strides, Stype
from mindtorch.backend.kernels import TABLES
from mindtorch.backend.mindspore.private import grad_flag, pause, resume
from mindtorch.backend.strides import strides_of
from mindtorch.core import bits, device as _device, dispatch, tape, wrapped
from mindtorch.core.bits import Bits
from mindtorch.core.dtypes import F32, LOW
from mindtorch.core.grad_mode import INFERENCE, mode
from mindtorch.core.memory import living
from mindtorch.core.tensor import Const, Held, Tensor, blank, bump, on_device, wrap

#: name of a type -> Device
DEVICES: dict[str, Device] = _device.registered
#: type -> {primitive: its kernel and what that takes}
_WAYS: dict[str, dict[str, Way | None]] = {}


class _Fallback:
    """What happens where a device has no kernel: "warn" (once for each primitive), "error", or "silent"."""

    policy = "warn"


fallback = _Fallback()
#: (device type, primitive) -> how often it was computed on the host for want of a kernel
FALLBACKS: dict[tuple[str, str], int] = {}


class _Copies:
    """How many tensors were copied to a device, and from one."""

    __slots__ = ("up", "down")

    def __init__(self):
        self.up = self.down = 0


COPIES = _Copies()
#: held while a device computes or copies: MindSpore's calls of several threads at once end the process
ALONE = module_lock(globals(), "ALONE", threading.RLock)


def alone(f: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function wait until no other thread computes on a device, and raise what goes wrong there in torch's words."""
    @functools.wraps(f)
    def one_at_a_time(*args, **kwargs):
        with ALONE:
            try:
                return f(*args, **kwargs)
            except RuntimeError as e:
                reraise(e)
    return one_at_a_time


class _Doubt:
    """Results that a device may never have computed.

    Devices compute behind the caller's back, so an error is raised by a later op, when tensors have been given out whose memory nobody has filled: read, they
    would be numbers like any other.  So each result of a kernel knows in which window between two synchronisations it was asked for, and what belongs to a
    window that ended in an error is refused, as operand and to be read.  (Memory that was written in place keeps what it had; the error says that this may be
    wrong.)
    """

    __slots__ = ("now", "windows")
    #: of memory that could not be allocated
    NEVER = -1

    def __init__(self):
        self.now, self.windows = 1, set()

    def sure(self):
        """All that was asked for until now has been computed."""
        self.now += 1

    def cast(self, device):
        """It may not have been."""
        self.windows |= {self.now, self.NEVER}
        self.now += 1
        for t in living():          # (tensors that came from the host or were made without operands)
            if Tensor in type(t).__mro__ and t._h is not None and t._a.size and DEVICES.get(t._dev.type) is device and not device.address(t._h):
                t._when = self.NEVER

    def about(self, t):
        """Whether it is in doubt."""
        return t._when in self.windows

    def check(self, ins):
        """Refuses operands in doubt."""
        for x in ins:
            if x is not None and getattr(x, "_when", 0) in self.windows:
                raise AcceleratorError(f"NPU error: a tensor {x._stype.name}{list(x._sizes)} on device {x._dev} has no sure values: an op that was asked for "
                                       "since the synchronization before has failed, as was told. Compute it again; with ASCEND_LAUNCH_BLOCKING=1 "
                                       "nothing but the result of that op is missing")


doubt = _Doubt()


def explained(error: RuntimeError, dev: _device.device | None = None, doing: str = "") -> RuntimeError | None:
    """An error of a device's in torch's words, None for any other; once a device is found lost, all that it is asked for is refused."""
    for device in {d.type: d for d in DEVICES.values()}.values() if dev is None else (DEVICES[dev.type],):
        was = device.lost
        told = device.told(error, doing)
        if device.lost and not was:
            _lose(device)
        if told is not None:
            if device.behind and not device.lost:
                doubt.cast(device)
            return told
    return None


def _lose(device):
    def refuse(*args, **kwargs):
        raise device.gone()
    table = TABLES[device.type]
    table.update(dict.fromkeys(table, refuse))
    _WAYS[device.type].clear()


@alone
def wait(dev: _device.device) -> None:
    """Returns when a device has done all that it was asked for; raises what went wrong."""
    DEVICES[dev.type].wait()
    doubt.sure()


def settle(dev: _device.device) -> None:
    """Raises what went wrong until now with memory or refused kernels, before something is written to that cannot be had again; waits for no device.

    (Without it an optimizer would update parameters by gradients that nobody has computed, and the error would come afterwards.)
    """
    device = DEVICES.get(dev.type)
    if device is not None and (device.behind or device.lost):
        _settle(device)


@alone
def _settle(device):
    device.settle()
    doubt.sure()


def _asked(prim, ins):
    return f"primitive '{prim.name}' of {', '.join([f'{x._stype.name}{list(x._sizes)}' for x in ins if x is not None])}"


class _Within(threading.local):
    """Whether this thread computes a graph of host tensors on what stands for them: new tensors are made there (core/shadow.py, core/joint.py)."""

    on = False
    there = _device.shadow


WITHIN = _Within()
#: types of the devices that have been used in this process
USED: set[str] = set()


def register(device: Device) -> None:
    """Makes a `backend.device.Device` known: torch.device(device.type) exists from now on, under each of its names."""
    if device.type in DEVICES:
        raise ValueError(f"device {device.type} is registered already")
    table, ways = TABLES.setdefault(device.type, {}), _WAYS.setdefault(device.type, {})
    for name in device.names:
        TABLES[name], _WAYS[name] = table, ways
    _device.add_type(device, lambda: _want(device))


def unregister(device: Device) -> None:
    """Takes `register` back; tensors on the device can no longer be used."""
    _device.drop_type(device)
    for name in device.names:
        del TABLES[name], _WAYS[name]
    del _WAYS[device.type]
    if device.type in USED:
        USED.discard(device.type)
        dispatch.drop("primitives", "device")


def _want(device):
    # (Asked for by the first use: until then the primitives of host tensors ask nobody.)
    USED.add(device.type)
    dispatch.want("primitives", "device")


# ------------------------------------------------------------------ tensors
def tensor(dev: _device.device, handle: Handle) -> Tensor:
    """A Tensor on a handle of the device `dev` (a torch.device)."""
    return on_device(dev, handle, DEVICES[dev.type].face(handle))


def _geometry(t):
    """An array without memory of a tensor's shape and strides, for view kernels."""
    return np.ndarray.view(t._a, np.ndarray)


@alone
def to_host(t: Tensor | Held) -> Array:
    """The values of a device's tensor as a host array; a synchronisation."""
    if wrapped.is_wrapped(t):
        return wrapped.values(t) if wrapped.is_elsewhere(t) else wrapped.values_of_batched(t)
    if t._h.__class__ is Bits:
        return bits.values(t)
    COPIES.down += 1
    if doubt.windows:
        doubt.check((t,))
    a = DEVICES[t._dev.type].download(t._h)             # type: ignore[union-attr]
    doubt.now += 1          # (`doubt.sure`: it has waited for all before)
    return a


@alone
def from_host(array: Array, dev: _device.device) -> Tensor:
    """A tensor on the device `dev` with a host array's values, and its strides where those are dense."""
    return tensor(dev, _up(DEVICES[dev.type], array))


@alone
def same_memory(t: Tensor) -> Handle:
    """Another handle on all that `t` sees of its memory."""
    k = t._a.itemsize
    return DEVICES[t._dev.type].view(t._h, t._a.shape, tuple([s // k for s in t._a.strides]), 0, t._a.dtype)


def housed(t: Any, dev: _device.device | None) -> tuple[_device.device, Handle, Array] | None:
    """(device, handle, geometry) of a tensor that MindSpore made on a device, or that is to go to `dev`; None for one of the host's.

    MindSpore's tensors have no device: what is known is that of the facade's tensors they were computed from; else they count as made on the default one.
    """
    home = getattr(t, "_home", None) or dev or _device.get_default()
    if home.type not in DEVICES:
        return None
    h = DEVICES[home.type].taken(t)
    sizes, stype, strides = DEVICES[home.type].geometry(h)
    return home, h, placed(sizes, stype, strides)


def values(t: Tensor | Const | Held) -> Array:
    """The values of a tensor as a host array, to be read only (core/values.py)."""
    return t._a if t._h is None else to_host(t)


# ------------------------------------------------------------------ the layer
def _on_device(prim, args, kw, below):
    for x in args[0] if prim.variadic else args:
        if getattr(x, "_h", None) is not None:
            if prim.name == "to_device":
                break
            return run(prim, args, kw, x._dev)
    if prim.name == "to_device":
        return _moved(prim, args, kw, below)
    target = kw.get("device")
    if target is None or target.type not in DEVICES:
        if target is None or not WITHIN.on or target.type != "cpu":
            return below(prim, args, kw)
        target = WITHIN.there
        if "generator" in kw and not DEVICES[target.type].of_host:           # (the host's numbers)
            return from_host(below(prim, args, kw)._a, target)
        kw = {**kw, "device": target}
    return created(prim, args, kw, target, below)


def _bound(below):
    # (A call of MindSpore leaves the processor's caches cold: every Python function on the way here costs 1 us, not 0.1.)
    def layer(prim, args, kw):
        if args and not prim.variadic:
            x = args[0]
            if x.__class__ is Tensor and x._h is not None and prim.name != "to_device":
                with ALONE:
                    if not kw:
                        t = _as_before(prim, args, x._dev)
                        if t is not None:
                            return t
                    try:
                        return _anew(prim, args, kw, x._dev)
                    except RuntimeError as e:
                        reraise(e, x._dev, _asked(prim, args))
        return _on_device(prim, args, kw, below)
    return layer


_on_device.bound = _bound           # type: ignore[attr-defined]
dispatch.layer("primitives", "device")(_on_device)


@alone
def _moved(prim, args, kw, below):
    x, dev = args[0], kw["target"]
    if WITHIN.on and dev.type == "cpu":
        return x
    if x._h is None and dev.type not in DEVICES:
        return below(prim, args, kw)
    if dev.type in DEVICES and DEVICES[dev.type].of_host:
        DEVICES[dev.type].lacking("a tensor is moved that was not given")
    a = values(x)
    return tape.link(prim, from_host(a, dev) if dev.type in DEVICES else wrap(np.array(a) if x._h is None else a), args, kw)


def _way(name, dev, raw=False):
    ways = _WAYS[dev.type]
    try:
        return ways[name]
    except KeyError:
        fn = TABLES[dev.type].get(name)
        way = ways[name] = None if fn is None else Way(fn, DEVICES[dev.type], raw)
        return way


def by_hosts_kernels(t: Tensor) -> bool:
    """Whether the host's kernels compute what is asked of a tensor: on its own memory, or on what stands for it (core/joint.py)."""
    return t._h is None or t._dev is _device.recorded


def has(dev: _device.device, name: str) -> bool:
    """Whether a device other than the host has a kernel of its own of this name."""
    return dev.type in DEVICES and name in TABLES[dev.type] and not DEVICES[dev.type].of_host


def asked(kind: str) -> set[str]:
    """Names of the primitives that a device's kernels have been asked for in this process (views and copies to it are none)."""
    return {name for name, way in _WAYS.get(kind, {}).items() if way is not None}


@alone
def run(prim: tape.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device) -> Any:
    """One primitive on a device."""
    if not kw and not prim.variadic:
        t = _as_before(prim, args, dev)
        if t is not None:
            return t
    return _anew(prim, args, kw, dev)


def _anew(prim, args, kw, dev):
    ins = tuple(args[0]) if prim.variadic else args
    if prim.view or prim.shares:
        return _view(prim, ins, kw, dev)
    way = _WAYS[dev.type].get(prim.name) or _way(prim.name, dev, prim.raw)
    if way is None:
        return _fallen_back(prim, ins, kw, dev)
    device, widen, only = way.device, way.widen, way.only
    handles: list[Any] = []
    low, wanting = None, False
    for x in ins:
        if x is None:
            handles.append(None)
            continue
        h, a = x._h, x._a
        stype = a.dtype
        if x._rg:
            wanting = True
        if h is None:
            h = _foreign_operand(x, dev, device, way)
            if h.__class__ in _NUMBERS:
                if stype.itemsize == 2 and widen and stype in LOW and low is None:
                    low = stype
                handles.append(h)
                continue
        elif x._dev is not dev and x._dev != dev:
            raise _mixed(x._dev, dev)
        if not a.size and not way.empty:
            return _fallen_back(prim, ins, kw, dev, told=False)
        if stype.itemsize == 2 and widen and stype in LOW:
            low = stype
            h, stype = device.cast(h, F32), F32
        elif prim.elementwise and device.widens and not a.flags.c_contiguous and x._h is not None:
            h = device.cast(h, stype)       # (that target's own kernels walk through strided memory 60 times slower than a copy takes)
        if only is not None and stype not in only:
            return _fallen_back(prim, ins, kw, dev)
        handles.append(h)
    if doubt.windows:
        doubt.check(ins)
    paused = grad_flag() and pause()        # (MindSpore's tape, where it records for others: the primitive as a whole is given to it by `link`)
    try:
        r = way.fn(*handles, **kw)
        if low is not None:
            r = _narrowed(r, low, device)
    except Lacking:
        r = None
    except (ValueError, TypeError) as e:
        if not device.lacks(e):
            judge(e, lambda: prim.compute([None if x is None else values(x) for x in ins], _on_host(kw)))
        r = None
    except RuntimeError as e:
        reraise(e, dev, _asked(prim, ins))
    finally:
        if paused:
            resume()
    if r is None:
        return _fallen_back(prim, ins, kw, dev)
    if r.__class__ is tuple:
        return _several(prim, r, ins, kw, dev, device)
    t = blank()         # (as `tensor`)
    t._a, t._h, t._dev, t._when = device.face(r), r, dev, doubt.now
    if not kw and low is None and not prim.variadic:
        _learn(way, ins, handles, t._a.kind)
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return tape.record(prim, t, ins, kw) if wanting and mode.on and prim.grads else t


def _as_before(prim, args, dev):
    """The result of a kernel that has taken operands of these kinds before: nothing about them, nor the result, has to be asked again. None: not known."""
    way = _WAYS[dev.type].get(prim.name)
    if way is None or not way.known:
        return None
    n = len(args)
    if n == 1:
        x = args[0]
        h = x._h
        if h is None:
            return None
        found = way.known.get(x._a.kind)
        wanting, handles = x._rg, (h,)
    elif n == 2:
        x, y = args
        if x is None or y is None:
            return None
        h, k = x._h, y._h
        if h is None or k is None or x._dev is not dev and x._dev != dev or y._dev is not dev and y._dev != dev:
            return None
        found = way.known.get((x._a.kind, y._a.kind))
        wanting, handles = x._rg or y._rg, (h, k)
    else:
        kinds, handles, wanting = [], [], False
        for x in args:
            if x is None:
                kinds.append(None)
                handles.append(None)
                continue
            h = x._h
            if h is None or x._dev is not dev and x._dev != dev:
                return None
            kinds.append(x._a.kind)
            handles.append(h)
            wanting = wanting or x._rg
        found = way.known.get(tuple(kinds))
    if found is None or grad_flag():
        return None
    kind, fn = found
    if not kind.stock:
        return None
    if doubt.windows:
        doubt.check(args)
    try:
        r = fn(*handles)
    except (Lacking, ValueError, TypeError):        # (`run` finds it out once more, and says it)
        return None
    except RuntimeError as e:                       # (of a device that computes behind one's back: perhaps another op's, raised only once)
        reraise(e, dev, _asked(prim, args))
    t = blank()
    t._a = kind.stock.pop() if prim.elementwise and kind.stock else way.device.face(r)
    t._h, t._dev, t._when = r, dev, doubt.now
    if INFERENCE.ever and mode.inference:
        t._inference = True
    return tape.record(prim, t, args, {}) if wanting and mode.on and prim.grads else t


def _learn(way, ins, handles, kind):
    """Notes what kinds of operands a kernel has taken as they are."""
    if kind is None:
        return
    key = []
    for x, h in zip(ins, handles):
        if x is None:
            key.append(None)
        elif h is not x._h or x._a.kind is None:
            return
        else:
            key.append(x._a.kind)
    if len(way.known) > 256:
        way.known.clear()
    alike = way.alike is not None and len(key) == 2 and key[0] is key[1] and ins[0]._stype.kind in "fiu"
    way.known[tuple(key) if len(key) != 1 else key[0]] = kind, way.alike if alike else way.fn


_NUMBERS = frozenset((int, float, bool, complex))


def _narrowed(r, low, device):
    if r.__class__ is tuple:
        return tuple([None if h is None else _narrowed(h, low, device) for h in r])
    return device.cast(r, low) if device.geometry(r)[1] == F32 else r


def _several(prim, r, ins, kw, dev, device):
    outs = tuple([None if h is None else Held(device.face(h), h, dev) if i in prim.held else tensor(dev, h) for i, h in enumerate(r)])
    for t in outs:
        if t.__class__ is Tensor:
            t._when = doubt.now
    return tape.link(prim, outs, ins, kw)


def _foreign_operand(x, dev, device, way):
    """The handle, or number, of an operand that has none on the device."""
    c = x.__class__
    if c is Const:
        return _number(x._a) if way.numbers else device.constant(x._a)
    if device.of_host:
        device.lacking(f"a {x._stype.name} tensor of the host's is an operand that was not given")
    if c is not Held and x._foreign and x._dev.type == "cpu":
        # (MindSpore's own tensors have no device: they go to whom they meet.)
        x._dev, x._h, x._a = housed(x, dev)
        return x._h
    if c is not Held and (x.ndim or x._dev.type == "meta") and (not device.shadows or x._rg or x._dev.type != "cpu"):
        raise _mixed(dev, x._dev)
    if way.numbers and not x.ndim:      # (a tensor of no dimensions on the host counts as a number)
        return _number(x._a)
    COPIES.up += 1
    return device.upload(x._a)


def _number(a):
    v = a.item()
    return v if v.__class__ in _NUMBERS else float(v)       # (a bfloat16's is of a class of its own)


def reraise(e: RuntimeError, dev: _device.device | None = None, doing: str = "") -> NoReturn:
    """Raises an error that has been caught, in torch's words if it is the device's."""
    told = explained(e, dev, doing)
    if told is None:
        raise e
    try:
        raise told from e
    finally:
        told = None         # (or its own frame would keep it, and with it the operands)


def _mixed(one, other):
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!")


def _view(prim, ins, kw, dev):
    x, device = ins[0], DEVICES[dev.type]
    start = address(x._a)
    try:
        r = prim.fwd(_geometry(x), *[None if x is None else x._a for x in ins[1:]], **kw)
    except Exception as e:
        raise _without_arrays(e) from None
    if r.__class__ is not tuple:
        return tape.link(prim, _part(x, start, r, dev, device), ins, kw)
    return tape.link(prim, tuple([_part(x, start, v, dev, device) for v in r]), ins, kw)


def _without_arrays(e):
    """An error out of a view kernel without the frames that hold an array of unreadable memory: who prints what is in them would end the process."""
    e.__context__ = None
    return e.with_traceback(None)


def _part(t, start, view, dev, device):
    # start: the address of t's first element
    part = on_device(dev, _part_handle(t, start, view, device), view_of(t._a, view))
    part._when = t._when
    return part


def _part_handle(t, start, view, device):
    if doubt.windows:
        doubt.check((t,))
    k = view.itemsize
    sizes = view.shape
    handle, offset = t._h, 0 if 0 in sizes else address(view) - start
    if offset % k:
        # t begins between two elements of the part, which are larger (complex numbers, from their imaginary part): counted from where the memory begins.
        home = address(home_of(t._a))
        handle, offset = device.view(handle, (1,), (1,), (home - start) // t._a.itemsize, t._stype), address(view) - home
    return device.view(handle, sizes, tuple([s // k for s in view.strides]), offset // k, view.dtype)


@alone
def lying(t: Tensor, sizes: Sizes, strides: Strides, offset: int) -> Tensor:
    """A tensor of t's type anywhere in t's storage, without history: strides and offset in bytes, the offset from the storage's start."""
    if wrapped.is_batched(t):
        raise NotImplementedError("torch.vmap: the storage of a tensor that stands for slices cannot be used as such (set_, resize_, .data of another shape)")
    return _part(t, address(t._a), on_storage(t._a, sizes, strides, offset), t._dev, DEVICES[t._dev.type])


@alone
def region(t: Tensor, key: Any) -> tuple[Array, Handle]:
    """The part of a tensor that a basic index names: its geometry, as an array without memory, and its handle."""
    try:
        part = pick(_geometry(t), key=key)
    except Exception as e:
        raise _without_arrays(e) from None
    return part, _part_handle(t, address(t._a), part, DEVICES[t._dev.type])


@alone
def created(prim: tape.Primitive, args: tuple[Any, ...], kw: dict[str, Any], dev: _device.device, below: Callable[..., Any]) -> Any:
    """A primitive without operands: the device's own kernel, or the host's numbers sent there."""
    way = _way(prim.name, dev)
    if way is not None:
        try:
            r = way.fn(**kw)
        except Lacking:
            pass
        except TypeError as e:
            if not way.device.lacks(e):
                raise
        except RuntimeError as e:
            reraise(e, dev, f"primitive '{prim.name}' of {kw}")
        else:
            return tape.link(prim, tensor(dev, r), (), kw) if r.__class__ is not tuple else _several(prim, r, (), kw, dev, DEVICES[dev.type])
    made = below(prim, args, {**_on_host(kw), "device": _device.cpu})
    if made.__class__ is tuple:
        return tuple([None if t is None else from_host(t._a, dev) for t in made])
    return from_host(made._a, dev)


def _drawn_on_host(kw):
    """Whether a primitive's random numbers are to be the host's: not for want of a kernel."""
    return getattr(kw.get("generator"), "on_host", False)


def _on_host(kw):
    """A primitive's constants for the host's kernel: a device's generator becomes one of the host's."""
    draws = getattr(kw.get("generator"), "for_host", None)
    return kw if draws is None else {**kw, "generator": draws()}


def judge(error: Exception, by_host: Callable[[], object]) -> NoReturn:
    """Raises what is wrong with a call that a device's kernel has failed on.

    MindSpore refuses operands with errors of its own; the host says in torch's words what is wrong with them.  If it finds nothing, the kernel itself is wrong.
    The host must not hide that by computing in its place: only `Lacking`, and a target that says that it has no kernel of these dtypes, ask it to.
    """
    try:
        by_host()
    except Exception as e:
        raise e from error
    raise error


def goes_to_host(name: str, ins: Sequence[Tensor | Const | Held | None], dev: _device.device) -> None:
    """Counts, tells of or refuses what a device has no kernel for, as the policy says."""
    stypes = [x._stype.name for x in ins if x is not None and x.__class__ is not Held]
    device = DEVICES[dev.type]
    what = f"primitive '{name}' of {', '.join(stypes) or 'no operand'} has no kernel on device {device.type}"
    if fallback.policy == "error":
        raise NotImplementedError(what)
    key = device.type, name
    FALLBACKS[key] = FALLBACKS.get(key, 0) + 1
    if device.shadows or device.of_host:
        device.lacking(what)
    elif fallback.policy == "warn" and FALLBACKS[key] == 1:
        warnings.warn(f"{what}: it is computed on the host, with copies there and back", stacklevel=6)


def _fallen_back(prim, ins, kw, dev, told=True):
    device = DEVICES[dev.type]
    for x in ins:
        if x is not None and x._h is None and x.__class__ is not Const and x.__class__ is not Held and x._foreign and x._dev.type == "cpu":
            x._dev, x._h, x._a = housed(x, dev)
        if x is not None and (x._dev != dev if x._h is not None else x.__class__ is not Const and x.__class__ is not Held and x.ndim and not device.shadows):
            raise _mixed(dev, x._dev)
    if told and not _drawn_on_host(kw):
        goes_to_host(prim.name, ins, dev)
    r = prim.compute([None if x is None else values(x) for x in ins], _on_host(kw))
    if r.__class__ is tuple:
        return _several(prim, tuple([None if x is None else _up(device, x) for x in r]), ins, kw, dev, device)
    return tape.link(prim, tensor(dev, _up(device, r)), ins, kw)


def by_host(name: str, handles: Sequence[Any], kw: dict[str, Any], device: Device) -> Any:
    """What the host's kernel of this name makes of handles (and numbers): for a kernel that was put off and turns out to lack what it is asked for."""
    make = TABLES["cpu"].get(name)
    if make is None:
        raise Lacking
    FALLBACKS[device.type, name] = FALLBACKS.get((device.type, name), 0) + 1
    r = _by_host(make, handles, kw, device)
    if r.__class__ is tuple:
        return tuple([None if a is None else _up(device, a) for a in r])
    return _up(device, r)


def _by_host(make, handles, kw, device):
    return make(*[None if h is None else np.asarray(h) if h.__class__ in _NUMBERS else device.download(h) for h in handles], **_on_host(kw))


def judge_put_off(error: Exception, name: str, handles: Sequence[Any], kw: dict[str, Any], device: Device) -> NoReturn:
    """`judge` for a kernel that was put off."""
    make = TABLES["cpu"].get(name)
    if make is None:
        raise error
    judge(error, lambda: _by_host(make, handles, kw, device))


def _up(device, a):
    a = np.asarray(a)
    COPIES.up += 1
    if a.flags.c_contiguous:
        return device.upload(a)
    # (A result in another memory format keeps it.)
    order = sorted(range(a.ndim), key=lambda i: -a.strides[i])
    flat = a.transpose(order)
    if not flat.flags.c_contiguous:
        return device.upload(np.ascontiguousarray(a))
    return device.view(device.upload(flat), a.shape, strides_of(a), 0, a.dtype)


# ------------------------------------------------------------------ writes (core/alias.py)
def write(x: Tensor, r: Tensor | Const) -> None:
    """Stores the values of `r`, which broadcasts to x and may be of another dtype or a number of the host's, into x's memory."""
    if wrapped.is_wrapped(x):
        return wrapped.write(x, r) if wrapped.is_elsewhere(x) else wrapped.write_batched(x, r)
    if x._h.__class__ is Bits:
        return bits.write(x, r)
    if r._h.__class__ is Bits:
        r = bits.whole(r)
    if doubt.windows:
        doubt.check((r,))
        if x._when > 0 and x._base is None:
            x._when = 0
    write_to(x._h, x._stype, r, x._dev)


@alone
def write_to(handle: Handle, stype: Stype, r: Tensor | Const, dev: _device.device) -> None:
    """The same for a handle of `dev` and its element type."""
    device, h = DEVICES[dev.type], r._h
    if h is None:
        a = r._a
        if r.__class__ is Const or not a.ndim and r._dev.type != "meta":        # type: ignore[union-attr]
            if device.of_host and r.__class__ is not Const:
                device.lacking(f"a {r._stype.name} tensor of the host's is written that was not given")
            device.fill(handle, a if a.dtype is stype else cast_array(a, stype))
            return
        h = _sent(r, device)
    elif r._dev is not dev and r._dev != dev:       # type: ignore[union-attr]
        raise _mixed(dev, r._dev)                   # type: ignore[union-attr]
    device.write(handle, h)


def _sent(r, device):
    if device.of_host:
        device.lacking(f"a {r._stype.name} tensor of the host's is written that was not given")
    if r._dev.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    COPIES.up += 1
    return device.upload(np.ascontiguousarray(r._a).reshape(r._a.shape))


@alone
def in_place(x: Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Has the device's kernel `name` ("add_") compute in x's memory; False, and nothing done, where it has none or that needs more care.

    kernel(x, *args, **kwargs): tensors of x's element type and memory apart from x's that broadcast to it, or numbers that its type can hold.
    """
    if x._h.__class__ is Bits or wrapped.is_wrapped(x) or DEVICES[x._dev.type].of_host:
        return False            # (kernels of that name in the host's table give a new array)
    way = _way(name, x._dev)
    if way is None or not x._a.size or kwargs and not kwargs.keys() <= (way.fn.__kwdefaults__ or {}).keys():
        return False
    stype, handles = x._stype, []
    fractions = stype.kind in "fV"
    if not fractions and stype.kind != "i" or way.only is not None and stype not in way.only:
        return False
    for o in args:
        c = o.__class__
        if c is float and fractions or c is int and -1 << 24 <= o <= 1 << 24:
            handles.append(o)
        elif getattr(o, "_h", None) is not None and o._stype == stype and (o._dev is x._dev or o._dev == x._dev) and (
                home_of(o._a) is not home_of(x._a)) and _stretches(o._sizes, x._sizes):
            handles.append(o._h)
        else:
            return False
    for o in kwargs.values():
        if o is not None and not (o.__class__ is float and fractions or o.__class__ is int):
            return False
    try:
        way.fn(x._h, *handles, **kwargs)
    except Lacking:
        return False
    bump(x)
    return True


def _stretches(have, to):
    """Whether a shape broadcasts to another one that stays what it is."""
    return len(have) <= len(to) and all([a == b or a == 1 for a, b in zip(reversed(have), reversed(to))])


@alone
def write_by(x: Tensor, name: str, kernel: Callable[..., object], *operands: Any, **constants: object) -> None:
    """Has the device's kernel `name`, or else a host's, write into x's values: kernel(x, *operands, **constants)."""
    if wrapped.is_batched(x):
        return wrapped.write_batched_by(x, name, kernel, operands, constants)
    dev = x._dev
    way = _way(name, dev)
    if way is not None:
        device = DEVICES[dev.type]
        try:
            way.fn(x._h, *[None if o is None else o._h if o._h is not None else _foreign_operand(o, dev, device, way) for o in operands], **constants)
            return
        except Lacking:
            pass
    if not _drawn_on_host(constants):
        goes_to_host(name, (x, *operands), dev)
    a = values(x).copy("K")         # (random numbers are drawn in the order of memory)
    kernel(a, *[values(o) for o in operands], **_on_host(constants))
    write(x, wrap(a))


def cast(x: Any, stype: Any) -> Tensor:
    """A tensor in another element type."""
    return _ops["cast"](x, stype)


_ops: dict[str, Callable[..., Tensor]] = {}           # cast, expand: set by the ops floor
