"""Records the inputs, outputs and gradients of a model's modules by hooks, in the same way under
PyTorch and under the facade.

It depends on neither of them and uses only what both provide, so that their records can be
compared. It needs NumPy and imports nothing of mindtorch, so it can be loaded by path in a process
that has only PyTorch.
"""
import ctypes
import dataclasses
import fnmatch
import functools
import json
import os
import sys
import zipfile
from collections.abc import Mapping

import numpy as np

VERSION = 1


@dataclasses.dataclass(slots=True)
class Held:
    """A tensor's values at one moment. `dtype` is torch's dtype name; bfloat16 values are stored as
    float32.

    If only statistics are stored (`Sketch`), `of` is the tensor's shape, `a` holds a few of its
    elements followed by `FUNCTIONALS` statistics, and `odd` the numbers of NaN and infinite
    elements.
    """

    a: np.ndarray
    dtype: str
    of: tuple | None = None
    odd: tuple = (0, 0)

    @property
    def shape(self):
        return self.a.shape if self.of is None else tuple(self.of)

    @property
    def size(self):
        return self.a.size if self.of is None else int(np.prod(self.of))


@dataclasses.dataclass(slots=True)
class Call:
    """One call of a module (kind 'module') or of a function (kind 'op'); calls are listed in the
    order in which they ended."""

    name: str
    type: str
    kind: str = "module"
    nth: int = 0  # number of earlier calls
    parent: int = -1  # number (`begun`) of the enclosing call, -1 for the outermost
    begun: int = 0
    depth: int = 0
    leaf: bool = True
    training: bool = True
    sampled: bool = True  # its tensors were recorded
    own: bool = False  # the class is torch's own, not the user's
    wants: list = dataclasses.field(default_factory=list)       # paths of inputs that require gradients
    inputs: dict = dataclasses.field(default_factory=dict)
    outputs: dict = dataclasses.field(default_factory=dict)
    grad_inputs: dict = dataclasses.field(default_factory=dict)
    grad_outputs: dict = dataclasses.field(default_factory=dict)
    # phase -> lines of a device's log, without those of nested calls
    launches: dict = dataclasses.field(default_factory=dict)

    @property
    def key(self):
        return self.name, self.kind, self.nth


def is_tensor(x):
    return hasattr(x, "detach") and hasattr(x, "requires_grad") and hasattr(x, "dtype") and hasattr(x, "shape")


def held(t):
    """Returns a copy of a tensor's values."""
    name = str(t.dtype).rpartition(".")[2]
    t = t.detach()
    if getattr(t, "is_sparse", False):
        t = t.to_dense()
    if getattr(t, "is_quantized", False):
        t = t.dequantize()
    if name == "bfloat16" or name.startswith("float8"):
        t = t.float()
    t = t.resolve_conj() if name.startswith("complex") else t
    return Held(np.array(t.cpu().numpy()), name)


#: number of statistics stored after the elements: min, max, mean, root mean square, random-sign
#: sums
FUNCTIONALS = 7


class Sketch:
    """Computes statistics of a tensor instead of storing its values: about 2 KB per tensor of any
    size.

    They are computed on the tensor's device, with memory for one chunk, and copied to the host at
    once: evenly spaced elements; their minimum, maximum, mean and root mean square; and three sums
    with fixed random signs, divided by the square root of the number of elements, which detect
    permuted values. No random number is consumed.
    """

    ELEMENTS, WIDTH, CHUNK, SUMS = 256, 1024, 1 << 22, FUNCTIONALS - 4

    def __init__(self, torch):
        self.torch, self._signs = torch, {}

    def _sign(self, n, like):
        key = n, str(like.dtype), str(like.device)
        if key not in self._signs:
            signs = np.random.RandomState(n).randint(0, 2, (self.SUMS, n)) * 2 - 1
            self._signs[key] = self.torch.from_numpy(signs.astype(np.float32)).to(like.dtype).to(like.device)
        return self._signs[key]

    def __call__(self, t):
        t = t.detach()
        if getattr(t, "is_sparse", False) or getattr(t, "is_quantized", False):
            return held(t)
        if t.numel() <= 2 * self.ELEMENTS:
            return held(t)
        torch, name, shape = self.torch, str(t.dtype).rpartition(".")[2], tuple(t.shape)
        with torch.no_grad():
            if name.startswith("complex"):
                t = torch.view_as_real(t.resolve_conj())
            floating = t.is_floating_point()
            flat = t.reshape(-1)
            n = flat.numel()
            wide = torch.float64 if flat.dtype is torch.float64 else torch.float32 if floating else torch.int64
            step = max(1, n // self.ELEMENTS)
            while step > 1 and any(np.gcd(step, s) > 1 for s in shape if s > 1):
                # (a step with a common factor of a dimension would sample only some of its indices)
                step -= 1
            rows = [self._partial(flat[i:i + self.CHUNK].to(wide), floating) for i in range(0, n, self.CHUNK)]
            got = torch.cat([flat[::step][:self.ELEMENTS].to(wide), *rows]).cpu().numpy()
        elements, rows = got[:-len(rows) * (6 + self.SUMS)], got[-len(rows) * (6 + self.SUMS):].reshape(len(rows), -1)
        least, greatest, total, square, nan, inf, *sums = rows.T
        if not floating:
            with np.errstate(over="ignore"):
                a = np.concatenate([elements, [least.min(), greatest.max(), total.sum(), square.sum()], [(s * np.arange(1, len(s) + 1)).sum() for s in sums]])
            return Held(a, name, shape)
        rows = rows.astype(np.float64)
        signs = np.random.RandomState(7).randint(0, 2, (self.SUMS, len(rows))) * 2 - 1
        sums = [float((s.astype(np.float64) * g).sum()) / n ** 0.5 for s, g in zip(sums, signs)]
        a = np.concatenate([elements.astype(np.float64), [least.min(), greatest.max(), rows[:, 2].sum() / n, (rows[:, 3].sum() / n) ** 0.5, *sums]])
        return Held(a, name, shape, (int(nan.sum()), int(inf.sum())))

    def _partial(self, x, floating):
        """Computes of one chunk: min, max, sum, sum of squares, counts of NaN and infinite
        elements, random-sign sums."""
        torch = self.torch
        nan = inf = x[:1] * 0 if not floating else None
        if floating:
            is_nan, is_inf = torch.isnan(x), torch.isinf(x)
            nan, inf = is_nan.to(x.dtype).sum().reshape(1), is_inf.to(x.dtype).sum().reshape(1)
            x = torch.where(is_nan | is_inf, torch.zeros((), dtype=x.dtype, device=x.device), x)
        rows = x.numel() // self.WIDTH
        head, tail = x[:rows * self.WIDTH].reshape(rows, self.WIDTH), x[rows * self.WIDTH:]
        across, down = self._sign(self.WIDTH, x), self._sign(self.CHUNK // self.WIDTH, x)
        sums = []
        for k in range(self.SUMS):
            s = (tail * across[k, :tail.numel()]).sum()
            if rows:
                s = s + ((head * across[k]).sum(1) * down[k, :rows]).sum()
            sums.append(s.reshape(1))
        total, square = (v[0] + v[1] if rows else v[1] for v in (
            [(f(head).sum(1).sum() if rows else None), f(tail).sum()] for f in (lambda v: v, lambda v: v * v)))
        return torch.cat([x.min().reshape(1), x.max().reshape(1), total.reshape(1), square.reshape(1), nan, inf, *sums])


class Sampled:
    """Selects the calls and parameters to record: modules whose name matches one of `patterns`, and
    every n-th call of those; the model itself always."""

    def __init__(self, patterns=(), every=1):
        self.patterns, self.every, self._seen = tuple(patterns), every, 0

    def fits(self, name):
        return not self.patterns or any(fnmatch.fnmatchcase(name, p) for p in self.patterns)

    def call(self, call):
        if not call.name:
            return True
        if not self.fits(call.name):
            return False
        self._seen += 1
        return (self._seen - 1) % self.every == 0

    def tensor(self, name):
        """True if a parameter or buffer belongs to a selected module."""
        return self.fits(name.rpartition(".")[0])


def tensors(x, path=""):
    """Returns [(path, tensor)] of all tensors in a nested value: containers, mappings, dataclasses.
    """
    if is_tensor(x):
        return [(path or "0", x)]
    if isinstance(x, Mapping):
        items = x.items()
    elif isinstance(x, (list, tuple)):
        items = enumerate(x)
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        items = ((f.name, getattr(x, f.name)) for f in dataclasses.fields(x))
    else:
        return []
    return [found for k, v in items for found in tensors(v, f"{path}.{k}" if path else str(k))]


def replaced(x, fn):
    """Returns the nested value with fn(tensor) for every tensor; only plain containers are rebuilt.
    """
    if is_tensor(x):
        return fn(x)
    if type(x) in (list, tuple):
        return type(x)(replaced(v, fn) for v in x)
    if type(x) is dict:
        return {k: replaced(v, fn) for k, v in x.items()}
    return x


def statistics(h):
    """Returns readable statistics of a `Held` tensor; all None if it has no elements."""
    a = h.a
    out = {"shape": list(a.shape), "dtype": h.dtype, "max": None, "min": None, "mean": None, "std": None, "norm": None,
           "zeros": None, "nan": 0, "inf": 0}
    if not a.size:
        return out
    if a.dtype.kind == "c":
        a = np.abs(a)
    if a.dtype.kind == "f":
        out["nan"], out["inf"] = int(np.isnan(a).sum()), int(np.isinf(a).sum())
    with np.errstate(all="ignore"):
        v = a.astype(np.float64)
        out.update(max=float(v.max()), min=float(v.min()), mean=float(v.mean()), std=float(v.std()),
                   norm=float(np.sqrt((v * v).sum())), zeros=float((v == 0).mean()))
    return out


class Recorder:
    """Hooks on every module of `net`. `calls` holds the calls recorded since the last `clear`.

        separate   also record the gradient that each call sends to each of its inputs, separately
                   from the gradients of other users of the same tensor. For this, calls receive
                   views of their inputs; values do not change
        keep       function that stores a tensor (`held`, or a `Sketch`)
        sampled    selects the calls to record (`Sampled`)
        log        the device's launch log (`Launches`): each call gets the kernels launched in it
        finished   called with every Call when it ends
        gradient   called with (Call, path) when a gradient of an output has arrived
    """

    def __init__(self, net, separate=False, finished=None, gradient=None, grads=True, log=None, keep=held,
                 sampled=None):
        self.held, self.sampled = keep, sampled or Sampled()
        self.net, self.separate, self.finished, self.gradient, self.grads = net, separate, finished, gradient, grads
        self.log = Launches() if log is None else log
        self.calls, self._stack, self._count, self._begun = [], [], {}, 0
        self.busy = 0  # > 0 while the recorder itself calls torch
        self._handles = []
        for name, m in net.named_modules():
            leaf = next(iter(m.children()), None) is None
            origin = type(m).__module__
            own = origin.startswith(("torch.nn.", "mindtorch.torch.nn."))
            self._handles.append(m.register_forward_pre_hook(self._before(name, leaf, own), with_kwargs=True))
            self._handles.append(m.register_forward_hook(self._after, with_kwargs=True))

    def clear(self):
        self.calls, self._stack, self._count, self._begun = [], [], {}, 0

    def remove(self):
        """Removes all hooks; the recorded data stays."""
        for h in self._handles:
            h.remove()
        self._handles = []

    def begin(self, name, type_, kind="module", **more):
        nth = self._count.get((name, kind), 0)
        self._count[name, kind] = nth + 1
        around = self._stack[-1][1] if self._stack else None
        call = Call(name, type_, kind, nth, around.begun if around else -1, self._begun, len(self._stack), **more)
        self._begun += 1
        return call

    def _before(self, name, leaf, own):
        def hook(module, args, kwargs):
            if module is self.net:
                del self._stack[:]  # an earlier forward may have ended with an exception
            self.busy += 1
            self.log.leave()
            call = None
            try:
                call = self.begin(name, type(module).__name__, leaf=leaf, own=own, training=module.training)
                call.sampled = self.sampled.call(call)
                self._stack.append((module, call))
                if not call.sampled:
                    return None
                call.inputs = {p: self.held(t) for p, t in _arguments(args, kwargs)}
                call.wants = [p for p, t in _arguments(args, kwargs) if t.requires_grad]
                if self.separate and not getattr(module, "inplace", False):
                    return self._separate(call, args, kwargs)
            finally:
                self.log.enter(call, "forward")
                self.busy -= 1
            return None
        return hook

    def _separate(self, call, args, kwargs):
        # A tensor that is passed twice must stay the same object: attention, for example, checks
        # whether query is key.
        views = {}
        for path, t in _arguments(args, kwargs):
            if id(t) not in views and t.requires_grad and not getattr(t, "is_sparse", False):
                view = t.view_as(t)
                if view.requires_grad:
                    view.register_hook(self._keep(call.grad_inputs, path, after=self._around(call)))
                    views[id(t)] = view
        return replaced(args, lambda t: views.get(id(t), t)), replaced(kwargs, lambda t: views.get(id(t), t))

    def _after(self, module, args, kwargs, output):
        while self._stack and self._stack[-1][0] is not module:
            self._stack.pop()  # calls that ended with a caught exception
        if self._stack:
            self.end(self._stack.pop()[1], output)

    def _around(self, call):
        return next((c for _, c in self._stack if c.begun == call.parent), None)

    def end(self, call, output):
        self.busy += 1
        self.log.leave()
        try:
            for path, t in tensors(output) if call.sampled else ():
                call.outputs[path] = self.held(t)
                if self.grads and t.requires_grad:
                    said = (lambda path=path: self.gradient(call, path)) if self.gradient else None
                    t.register_hook(self._keep(call.grad_outputs, path, said, call))
            self.calls.append(call)
            if self.finished:
                self.finished(call)
        finally:
            self.log.enter(self._stack[-1][1] if self._stack else None, "forward")
            self.busy -= 1

    def _keep(self, into, path, said=None, after=None):
        # after: the call whose backward continues after this gradient
        def hook(g):
            if g is None:
                return  # (no gradient arrived)
            self.busy += 1
            self.log.leave()
            try:
                h = self.held(g)
                into[path] = h if path not in into else dataclasses.replace(h, a=into[path].a + h.a)
                if said:
                    said()
            finally:
                self.log.enter(after, "backward")
                self.busy -= 1
        return hook

    @property
    def current(self):
        """Returns (module, Call) of the innermost running call, or None."""
        return self._stack[-1] if self._stack else None


class Launches:
    """Assigns a device's kernel launches to calls by offsets into its log; does nothing without a
    file.

        settled   called before the log is read: waits until everything has been launched
    """

    def __init__(self, path=None, settled=None):
        self.path, self.settled, self._open, self._parts = path, settled, None, []

    def here(self):
        self.settled()
        return os.path.getsize(self.path)

    def enter(self, call, phase):
        """Assigns launches from here on to this call (None: to no call)."""
        if self.path is not None:
            self._open = None if call is None else (call, phase, self.here())

    def leave(self):
        """Assigns launches from here on to no call."""
        if self.path is not None and self._open is not None:
            call, phase, start = self._open
            self._parts.append((call, phase, start, self.here()))
            self._open = None

    def hand_out(self):
        """Distributes the log lines to the calls."""
        if self.path is not None:
            for call, phase, start, end in self._parts:
                call.launches.setdefault(phase, []).extend(self.between(start, end))
            self._parts = []

    def between(self, start, end):
        """Returns [text] of the launches between two offsets of the log: kernel and arguments, and
        copies between host and device."""
        with open(self.path, "rb") as f:
            f.seek(start)
            lines = [json.loads(x) for x in f.read(end - start).splitlines()]
        out = []
        for said in lines:
            what = next((k for k in ("launch", "aclop", "copy") if k in said), None)
            if what:
                name = {"launch": "", "aclop": "aclop ", "copy": "copy "}[what] + said[what]
                args = said.get("args", f"{said['bytes']} bytes" if "bytes" in said else "")
                out.append(f"{name}  {args}".rstrip())
        return out


def _arguments(args, kwargs):
    return tensors(args) + tensors(kwargs)


# ------------------------------------------------------------------ functions and methods
_OPERATORS = ("add sub mul truediv floordiv mod pow matmul neg abs invert and or xor radd rsub rmul rtruediv rpow rmatmul "
              "iadd isub imul itruediv getitem").split()


def patch(torch, wrap, more=False):
    """Replaces torch's functions and Tensor methods by wrap(name, function). Returns a function
    that undoes this, whose `names` are the replaced names.

    `more`: also in-place methods and casts. References that were taken from torch's modules earlier
    are not replaced.
    """
    undo, names = [], set()

    def put(holder, attribute, name):
        fn, mine = getattr(holder, attribute), attribute in vars(holder)
        original = vars(holder).get(attribute)
        becomes_sequence = attribute == "__getitem__" and not mine
        if becomes_sequence:
            if not _can_clear_items():
                return
            undo.append(lambda: _clear_items(holder))
        names.add(name)
        setattr(holder, attribute, wrap(name, fn))
        undo.append(lambda: setattr(holder, attribute, original) if mine else delattr(holder, attribute))
        if becomes_sequence:
            _clear_items(holder)

    F, Tensor = torch.nn.functional, torch.Tensor
    shared = [n for n in dir(torch) if n[0] != "_" and hasattr(Tensor, n) and _is_function(getattr(torch, n))]
    for n in dir(F):
        if n[0] != "_" and n.islower() and _is_function(getattr(F, n)):
            put(F, n, f"F.{n}")
    # A torch function that is also a method computes something from a tensor; these few accept
    # lists of tensors.
    for n in [*shared, "cat", "concat", "stack", "hstack", "vstack", "einsum", "bmm", "where"]:
        if hasattr(torch, n) and (n in shared or not hasattr(Tensor, n)):
            put(torch, n, f"torch.{n}")
    for n in [*shared, *(f"__{o}__" for o in _OPERATORS)]:
        if callable(getattr(Tensor, n, None)):
            put(Tensor, n, f"Tensor.{n}")
    if more:
        for n in [*"__setitem__ copy_ half float double bfloat16 to type type_as".split(), *(f"{n}_" for n in shared)]:
            if callable(getattr(Tensor, n, None)):
                put(Tensor, n, f"Tensor.{n}")

    def restore():
        while undo:
            undo.pop()()
    restore.names = names
    return restore


# A class that gets a __getitem__ from Python becomes a sequence for C, and stays one after the
# attribute is deleted, because sq_item of its PySequenceMethods stays set. PyTorch's Tensor is only
# a mapping. As a sequence it makes torch.tensor([tensor(1.), tensor(2.)]) fail, which then takes
# the length of each element.
# offsets in PyTypeObject and PySequenceMethods, CPython 3.10-3.12, 64-bit
_AS_SEQUENCE, _SQ_ITEM = 104, 24


def _item_slot(cls):
    """Returns the sq_item pointer of a class."""
    methods = ctypes.c_void_p.from_address(id(cls) + _AS_SEQUENCE).value
    return ctypes.c_void_p.from_address(methods + _SQ_ITEM)


@functools.cache
def _can_clear_items():
    """True if this interpreter stores sq_item where `_item_slot` looks for it."""
    if sys.implementation.name != "cpython" or not (3, 10) <= sys.version_info[:2] <= (3, 12) or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False

    class Probe:
        pass
    before = _item_slot(Probe).value
    Probe.__getitem__ = lambda self, i: i
    return before is None and _item_slot(Probe).value is not None


def _clear_items(cls):
    """Clears sq_item of a class, and of its subclasses that define no __getitem__."""
    _item_slot(cls).value = None
    for derived in type.__subclasses__(cls):
        if "__getitem__" not in vars(derived):
            _clear_items(derived)


def _is_function(x):
    return callable(x) and not isinstance(x, type) and not hasattr(x, "__path__")


# ------------------------------------------------------------------ one file
class Packer:
    """Packs nested values with `Held` tensors into one .npz: the structure as JSON, the arrays next
    to it."""

    def __init__(self):
        self.arrays = {}

    def plain(self, x):
        if isinstance(x, Held):
            key = f"a{len(self.arrays)}"
            self.arrays[key] = x.a
            return {"$": key, "dtype": x.dtype} if x.of is None else {"$": key, "dtype": x.dtype, "of": list(x.of), "odd": list(x.odd)}
        if isinstance(x, Call):
            return {"$call": {f: self.plain(getattr(x, f)) for f in Call.__slots__}}
        if isinstance(x, dict):
            return {str(k): self.plain(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return [self.plain(v) for v in x]
        if isinstance(x, np.generic):
            return x.item()
        return x


def save(path, value):
    """Writes a nested value with `Held` tensors and `Call`s to one file (with exactly this name).
    """
    p = Packer()
    text = json.dumps({"version": VERSION, "value": p.plain(value)})
    with open(path, "wb") as f:
        np.savez(f, **p.arrays, **{"mindtorch.json": np.array(text)})


def load(path):
    """Loads a file that `save` wrote. ValueError for other files."""
    with np.load(path, allow_pickle=False) as z:
        if "mindtorch.json" not in z.files:
            raise ValueError(f"{path} is not a record written by mindtorch")
        arrays = {k: z[k] for k in z.files}
    top = json.loads(str(arrays.pop("mindtorch.json")))
    if top["version"] != VERSION:
        raise ValueError(f"{path} has version {top['version']}, this mindtorch reads version {VERSION}")

    def back(x):
        if isinstance(x, dict):
            if "$" in x:
                return Held(arrays[x["$"]], x["dtype"], tuple(x["of"]) if "of" in x else None, tuple(x.get("odd", (0, 0))))
            if "$call" in x:
                return Call(**{k: back(v) for k, v in x["$call"].items()})
            return {k: back(v) for k, v in x.items()}
        if isinstance(x, list):
            return [back(v) for v in x]
        return x
    return back(top["value"])


def save_each(path, items):
    """Writes (name, Held) pairs one by one, with memory for only one."""
    names = []
    with zipfile.ZipFile(path, "w") as z:
        for name, h in items:
            with z.open(f"{len(names)}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, h.a, allow_pickle=False)
            names.append([name, h.dtype, list(h.a.shape)])
        z.writestr("names.json", json.dumps(names))


def load_each(path):
    """Returns ({name: shape} of a file that `save_each` wrote, an iterator of its (name, Held)
    pairs)."""
    with zipfile.ZipFile(path) as z:
        names = json.loads(z.read("names.json"))

    def each():
        with zipfile.ZipFile(path) as z:
            for i, (name, dtype, _) in enumerate(names):
                with z.open(f"{i}.npy") as f:
                    yield name, Held(np.lib.format.read_array(f, allow_pickle=False), dtype)
    return {name: shape for name, _, shape in names}, each()
