"""Random programs of views, in-place writes and pure ops, run on real PyTorch and on mindtorch side
by side.

A program is generated while it runs: the state of real PyTorch at each step (shapes, strides,
memory) decides what can come next, and the same call is made on both sides. All live tensors are
compared after every step, and the gradients at the end.
"""
import warnings

import numpy as np
import torch as real

import mindtorch.torch as mine

FLOATS = ("float32", "float64", "complex64")


class On:
    """mindtorch with factory functions that create their tensors on a given device."""

    MAKERS = frozenset("tensor from_numpy ones zeros arange full rand randn eye linspace empty".split())

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        f = getattr(mine, name)
        if name == "from_numpy":
            return lambda a: f(a).to(self.device)
        return (lambda *args, **kwargs: f(*args, **{"device": self.device, **kwargs})) if name in self.MAKERS else f


class Differs(AssertionError):
    """The two sides disagree; `kind` is value, gradient, exception or nature (shape, strides, requires_grad, ...)."""

    def __init__(self, kind, text, log):
        super().__init__(f"{kind}: {text}\n" + "\n".join(log))
        self.kind = kind


class Stop(Exception):
    """Raised if PyTorch wrote a part before it failed: the memory contents are undefined from there
    on."""


class Skip(Exception):
    """Raised for a step that is undefined behavior in PyTorch; another step is chosen."""


class Pair:
    """A named live tensor on both sides."""

    __slots__ = ("r", "m", "name")

    def __init__(self, r, m, name):
        self.r, self.m, self.name = r, m, name


# ------------------------------------------------------------------ memory of real tensors
def places(t):
    """Returns the addresses of all elements of a real tensor (with repeats)."""
    at = np.zeros(tuple(t.shape), np.int64)
    for ax, (n, s) in enumerate(zip(t.shape, t.stride())):
        at = at + (np.arange(n) * s * t.element_size()).reshape([n if i == ax else 1 for i in range(t.dim())])
    return (at + t.data_ptr()).reshape(-1)


def overlaps_itself(t):
    p = places(t)
    return len(np.unique(p)) != p.size


def dense(t):
    """Like PyTorch's is_non_overlapping_and_dense."""
    expect = 1
    for s, n in sorted((s, n) for n, s in zip(t.shape, t.stride()) if n != 1):
        if s != expect:
            return False
        expect *= n
    return True


def meets(a, b):
    """True if two real tensors share memory without being exactly the same elements."""
    pa, pb = places(a), places(b)
    if not pa.size or not pb.size:
        return False
    spread = np.arange(max(a.element_size(), 1))
    ca = set((pa[:, None] + spread).reshape(-1).tolist())
    cb = set((pb[:, None] + np.arange(max(b.element_size(), 1))).reshape(-1).tolist())
    if not ca & cb:
        return False
    return not (a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype)


def _apart(a, b):
    """True if two real tensors share no memory."""
    return not meets(a, b) and not (a is b or a.numel() and a.data_ptr() == b.data_ptr())


def check_defined(dst, *operands, name=""):
    """Raises Skip if PyTorch neither defines the result of the write nor rejects it."""
    if name.startswith(("index_", "masked_")) and any(s == 0 and n > 1 for s, n in zip(dst.stride(), dst.shape)):
        raise Skip  # PyTorch only warns that the result is undefined; mindtorch raises
    if 0 not in dst.stride() or not any(s == 0 and n > 1 for s, n in zip(dst.stride(), dst.shape)):
        if overlaps_itself(dst):
            raise Skip
    for x in operands:
        if isinstance(x, real.Tensor) and meets(dst, x) and not (dense(dst) and dense(x)):
            raise Skip


# ------------------------------------------------------------------ comparing
def array(t):
    t = t.detach().cpu()
    return np.array(t.resolve_conj().numpy() if hasattr(t, "resolve_conj") else t.numpy())


def same(a, b, rtol):
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    with np.errstate(all="ignore"):
        if a.dtype.kind == "c":
            # Complex division by zero yields inf or nan, depending on the compiler.
            odd = ~np.isfinite(a)
            if not np.array_equal(odd, ~np.isfinite(b)):
                return False
            a, b = np.where(odd, 0, a), np.where(odd, 0, b)
        return bool(np.all((np.abs(a - b) <= rtol + rtol * np.abs(a)) | (a == b) | (np.isnan(a) & np.isnan(b)) |
                           (np.abs(a) > 1e30) & (np.abs(b) > 1e30)))


def quality(t):
    strides = tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()
    try:
        leaf = t.is_leaf
    except RuntimeError:
        # a view whose creation forbids an in-place write: reading its history raises
        leaf = "overtaken"
    return (str(t.dtype), tuple(t.shape), strides, t.requires_grad, leaf)


class Program:
    """A random program; `run()` raises `Differs` where the two sides diverge."""

    def __init__(self, seed, steps=14, device=None):
        self.device, self.mine = device, mine if device is None else On(device)
        self.rng = np.random.RandomState(seed)
        self.seed, self.steps = seed, steps
        self.live, self.leaves, self.log, self.names = [], [], [], 0
        self.refused = 0

    # ---- choosing
    def pick(self, items):
        return items[self.rng.randint(len(items))]

    def chance(self, p):
        return self.rng.rand() < p

    def tensor(self, ok=lambda t: True):
        found = [p for p in self.live if ok(p.r)]
        if not found:
            raise Skip
        return self.pick(found)

    def numbers(self, shape, dtype):
        a = np.round(self.rng.uniform(-2, 2, shape), 3)
        if dtype.startswith("complex"):
            return (a + 1j * np.round(self.rng.uniform(-2, 2, shape), 3)).astype(dtype)
        if dtype == "bool":
            return a > 0
        return np.asarray(a * 3 if dtype == "int64" else a).astype(dtype)

    # ---- running one call on both sides
    def both(self, text, fn, new=True, write=False):
        """Runs fn(T, side) on real PyTorch and on mindtorch; the results become live tensors.
        side(pair) returns the tensor of the current side."""
        self.log.append(text)
        out = []
        before = [array(p.r) for p in self.live] if write else None
        for T, side in ((real, lambda p: p.r), (self.mine, lambda p: p.m)):
            try:
                out.append((fn(T, side), None))
            except Exception as e:
                out.append((None, e))
        (r, er), (m, em) = out
        if (er is None) != (em is None) or er is not None and not isinstance(em, type(er)) and not isinstance(er, type(em)):
            raise Differs("exception", f"{er!r} / {em!r}", self.log)
        if er is not None:
            self.refused += 1
            if before is not None and any(not same(a, array(p.r), 0) for a, p in zip(before, self.live)):
                raise Stop
            self.log[-1] += f"    # {type(er).__name__}"
            return None
        if not new:
            return True
        rs, ms = (list(r), list(m)) if isinstance(r, (tuple, list)) else ([r], [m])
        if len(rs) != len(ms):
            raise Differs("nature", f"{len(rs)} / {len(ms)} results", self.log)
        made = []
        for a, b in zip(rs, ms):
            known = next((p for p in self.live if p.r is a), None)
            if known is not None:
                if known.m is not b:
                    raise Differs("nature", "one side returned its argument, the other a new tensor", self.log)
                continue
            self.names += 1
            made.append(Pair(a, b, f"t{self.names}"))
        self.live += made
        if made:
            self.log[-1] = ", ".join(p.name for p in made) + " = " + text
        if len(self.live) > 14:
            del self.live[: len(self.live) - 14]
        return made

    def compare(self):
        for p in self.live:
            qr, qm = quality(p.r), quality(p.m)
            if qr != qm:
                raise Differs("nature", f"{p.name}: {qr} / {qm}", self.log)
            base = next((q for q in self.live if q.r is p.r._base), None) if p.r._is_view() else None
            if base is not None and p.m._base is not base.m:
                raise Differs("nature", f"{p.name} is a view of {base.name} on one side only", self.log)
            a, b = array(p.r), array(p.m)
            if not same(a, b, 2e-4):
                raise Differs("value", f"{p.name}:\n{a}\n{b}", self.log)

    def run(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                self.new_leaf()
            done = 0
            while done < self.steps:
                step = self.pick(STEPS)
                off = self.chance(0.15)
                before = len(self.log)
                try:
                    if off:
                        with real.no_grad(), mine.no_grad():
                            step(self)
                    else:
                        step(self)
                except Skip:
                    continue
                except Stop:
                    return self
                for i in range(before, len(self.log)):
                    self.log[i] = ("with no_grad(): " if off else "") + self.log[i]
                done += 1
                self.compare()
            self.gradients()
        return self

    def gradients(self):
        """Runs backward() on a weighted sum of everything that requires grad and compares the
        gradients of the leaves."""
        parts = [p for p in self.live if p.r.requires_grad]
        weights = [self.numbers(tuple(p.r.shape), "float64") for p in parts]

        def loss(T, side):
            total = 0
            for p, w in zip(parts, weights):
                t = side(p)
                if t.is_complex():
                    total = total + (t.imag.double() * T.tensor(w)).sum()
                    t = t.real
                total = total + (t.double() * T.tensor(w)).sum()
            if parts:
                total.backward()

        if not self.both("loss.backward()", loss, new=False):
            return  # failed in backward, on both sides
        for p in self.leaves:
            g, h = p.r.grad, p.m.grad
            if (g is None) != (h is None):
                raise Differs("gradient", f"{p.name}.grad: {g} / {h}", self.log)
            if g is not None and not same(array(g), array(h), 2e-3):
                raise Differs("gradient", f"{p.name}.grad:\n{array(g)}\n{array(h)}", self.log)

    # ---- steps
    def new_leaf(self):
        shape = self.pick([(4,), (2, 3), (3, 3), (2, 3, 2), (3, 1), (1, 4), (), (0, 2), (4, 2), (2, 2, 2, 1)])
        dtype = self.pick(["float32"] * 6 + ["float64", "complex64", "complex64", "int64", "bool"])
        a = self.numbers(shape, dtype)
        grad = dtype in FLOATS and self.chance(0.6)
        how = self.pick(["plain", "plain", "from_numpy", "transposed", "strided"])
        buffers = [np.array(a) for _ in range(2)]

        def make(T, side):
            b = buffers[0] if T is real else buffers[1]
            if how == "from_numpy":
                t = T.from_numpy(b)
            elif how == "transposed" and a.ndim >= 2:
                t = T.from_numpy(np.asfortranarray(b))
            elif how == "strided" and a.ndim and a.size and self.device is not None:
                # A copy to a device is contiguous, so the strides are set on the device.
                wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
                wide[..., ::2] = a
                t = T.tensor(wide)
                t.as_strided_(a.shape, [s // a.itemsize for s in wide[..., ::2].strides])
            elif how == "strided" and a.ndim and a.size:
                wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
                wide[..., ::2] = a
                t = T.from_numpy(wide[..., ::2])
            else:
                t = T.tensor(b)
            return t.requires_grad_() if grad else t

        made = self.both(f"{how} {dtype}{list(shape)}{' grad' if grad else ''}", make)
        self.leaves += made
        if grad and self.chance(0.7):
            p = made[0]
            self.even(self.both(f"{p.name} * 1", lambda T, side: side(p) * 1))
        return made

    def view(self):
        p = self.tensor()
        text, fn = VIEWS[self.rng.randint(len(VIEWS))](self, p.r)
        self.both(f"{p.name}.{text}", lambda T, side: fn(side(p), T))

    def operand(self, t, same_dtype=False):
        """Returns a scalar, a live tensor whose shape fits `t`, or a new constant."""
        if self.chance(0.3):
            return self.number(t)
        if isinstance(t, real.Tensor) and (same_dtype or self.chance(0.8)):
            # Operands of another dtype are saved for backward after the cast, so a later write to
            # them goes undetected.
            same_dtype = True
        fits = [p for p in self.live if (not same_dtype or p.r.dtype == t.dtype) and _fits(p.r.shape, t.shape)]
        if fits and self.chance(0.8):
            return self.pick(fits)
        shape = self.pick([tuple(t.shape), tuple(t.shape)[-1:], ()])
        return Const(self.numbers(shape, _name(t)))

    def number(self, t):
        if t.dtype == real.bool:
            return bool(self.chance(0.5))
        if t.dtype == real.int64:
            return int(self.rng.randint(-3, 4))
        if t.is_complex():
            return float(self.pick([0.5, 2.0, -1.5, 1.0, 3.0]))
        return float(self.pick([0.5, 2.0, -1.5, 0.0, 1.0, 3.0]))

    def write(self):
        p = self.tensor()
        text, fn, operands = WRITES[self.rng.randint(len(WRITES))](self, p.r)
        check_defined(p.r, *[x.r for x in operands if isinstance(x, Pair)], name=text)
        _no_history_of_integers(p.r, *[x.r for x in operands if isinstance(x, Pair)])
        self.both(f"{p.name}.{text}", lambda T, side: fn(side(p), T, lambda x: _value(x, T, side)), write=True)

    def setitem(self):
        p = self.tensor()
        text, key, advanced = self.key(p.r)
        try:
            part = p.r[key(real)]
        except Exception:
            part = p.r
        value = self.operand(part, advanced)
        if isinstance(value, Pair):
            if not _apart(p.r, value.r) and value.r.shape != part.shape:
                raise Skip  # expanded operands escape PyTorch's check
            _no_history_of_integers(part, value.r)
            if meets(p.r, value.r) and (advanced or not dense(part) or not dense(value.r)):
                raise Skip
            if advanced and not _apart(p.r, value.r) and not (dense(p.r) and dense(value.r)):
                raise Skip
        if not advanced:
            check_defined(part)
        elif overlaps_itself(p.r):
            raise Skip

        def fn(T, side):
            side(p)[key(T)] = _value(value, T, side)

        self.both(f"{p.name}[{text}] = {_text(value)}", fn, new=False)

    def getitem(self):
        p = self.tensor()
        text, key, _ = self.key(p.r)
        self.even(self.both(f"{p.name}[{text}]", lambda T, side: side(p)[key(T)]))

    def key(self, t):
        """Returns (text, T -> index, True if advanced) of a random index."""
        items, texts, advanced = [], [], False
        left, repeated = t.dim(), False
        if t.dim() and self.chance(0.12):
            mask = self.rng.rand(*t.shape) < 0.5
            return f"mask{mask.astype(int).tolist()}", (lambda T: T.tensor(mask)), True
        for n in t.shape:
            if self.chance(0.25):
                break
            kind = self.pick(["int", "slice", "slice", "full", "new", "list", "tensor", "mask"])
            if kind == "int" and n:
                i = int(self.rng.randint(-n, n))
                items.append(lambda T, i=i: i)
                texts.append(str(i))
            elif kind == "slice":
                a, b, s = int(self.rng.randint(0, n + 1)), int(self.rng.randint(0, n + 2)), int(self.pick([1, 1, 2]))
                items.append(lambda T, k=slice(a, b, s): k)
                texts.append(f"{a}:{b}:{s}")
            elif kind in ("list", "tensor") and n:
                # With repeated indices the result of a write would depend on the order.
                idx = self.rng.permutation(n)[: self.rng.randint(1, n + 1)]
                if advanced:
                    idx = idx[:1]
                items.append((lambda T, i=idx.tolist(): i) if kind == "list" else (lambda T, i=idx: T.tensor(i)))
                texts.append(f"{kind}{idx.tolist()}")
                advanced = True
            elif kind == "mask" and not advanced:
                m = self.rng.rand(n) < 0.5
                items.append(lambda T, m=m: T.tensor(m))
                texts.append(f"mask{m.astype(int).tolist()}")
                advanced = True
            else:
                items.append(lambda T: slice(None))
                texts.append(":")
                if kind == "new":
                    items.append(lambda T: None)
                    texts.append("None")
            left -= 1
        if self.chance(0.2) and left:
            items.append(lambda T: Ellipsis)
            texts.append("...")
        if len(items) == 1 and self.chance(0.6) and not texts[0].startswith("list"):
            return texts[0], items[0], advanced
        return ", ".join(texts) + ",", (lambda T: tuple(i(T) for i in items)), advanced

    def pure(self):
        p = self.tensor()
        text, fn, operands = PURE[self.rng.randint(len(PURE))](self, p.r)
        made = self.both(f"{p.name}.{text}", lambda T, side: fn(side(p), T, lambda x: _value(x, T, side)))
        self.even(made)

    def even(self, made):
        """Clones to contiguous the new results whose strides differ: the memory format of an op on
        operands of different formats is not an aliasing property."""
        for q in made or ():
            if q.r.stride() != q.m.stride() and q.r.shape == q.m.shape and not q.r._is_view():
                q.r, q.m = q.r.clone(memory_format=real.contiguous_format), q.m.clone(memory_format=mine.contiguous_format)
                self.log[-1] += ".clone(contiguous)"

    def join(self):
        p = self.tensor(lambda t: t.dim() > 0)
        others = [q for q in self.live if q.r.shape == p.r.shape]
        chosen = [p] + [self.pick(others) for _ in range(self.rng.randint(0, 3))]
        name = self.pick(["cat", "stack", "hstack", "vstack"])
        dim = int(self.rng.randint(p.r.dim()))
        args = (dim,) if name in ("cat", "stack") else ()
        self.both(f"{name}({', '.join(q.name for q in chosen)})", lambda T, side: getattr(T, name)([side(q) for q in chosen], *args))

    def out(self):
        name = self.pick(["add", "mul", "sub", "sin", "exp"])
        dst, a = self.tensor(), self.tensor()
        operands = [a]
        if name in ("add", "mul", "sub"):
            operands.append(self.tensor(lambda t: _fits(t.shape, a.r.shape)))
        if dst.r.shape != a.r.shape:
            raise Skip  # resizing is deprecated and leaves stale views behind
        check_defined(dst.r, *[x.r for x in operands])
        self.both(f"{name}({', '.join(q.name for q in operands)}, out={dst.name})",
                  lambda T, side: getattr(T, name)(*[side(q) for q in operands], out=side(dst)))

    def history(self):
        p = self.tensor()
        what = self.pick(["detach", "detach", "data", "detach_", "requires_grad_", "clone", "contiguous", "backward"])
        if what == "data":
            self.both(f"{p.name}.data", lambda T, side: side(p).data)
        elif what == "requires_grad_":
            if any(q.r._base is p.r for q in self.live):
                raise Skip
            if not p.r.requires_grad and not p.r._is_view() and p.r.is_floating_point():
                self.leaves.append(p)
            else:
                raise Skip
            self.both(f"{p.name}.requires_grad_()", lambda T, side: side(p).requires_grad_())
        elif what == "detach_" and p is not self.live[-1]:
            # detaching a saved tensor later is an error in PyTorch; in mindtorch its values are
            # still correct
            raise Skip
        elif what == "backward":
            self.both(f"{p.name}.sum().backward(retain_graph=True)", lambda T, side: _real_part(side(p)).sum().backward(retain_graph=True),
                      new=False)
        else:
            self.both(f"{p.name}.{what}()", lambda T, side: getattr(side(p), what)())


def _real_part(t):
    return t.real if t.is_complex() else t


def _no_history_of_integers(dst, *operands):
    """Raises Skip where PyTorch itself is wrong.

    - Integer tensors get a history if something that requires grad is copied into them.
    - Real values that fill a complex tensor get complex gradients.
    """
    if dst.is_complex() and any(isinstance(x, real.Tensor) and x.requires_grad and not x.is_complex() for x in operands):
        raise Skip
    if not (dst.is_floating_point() or dst.is_complex()) and any(isinstance(x, real.Tensor) and x.requires_grad for x in operands):
        raise Skip


class Const:
    """A constant operand."""

    def __init__(self, a):
        self.a = a


def _value(x, T, side):
    if isinstance(x, Pair):
        return side(x)
    return T.tensor(x.a) if isinstance(x, Const) else x


def _text(x):
    return x.name if isinstance(x, Pair) else f"tensor{list(x.a.shape)}" if isinstance(x, Const) else repr(x)


def _name(t):
    return str(t.dtype).rpartition(".")[2]


def _fits(small, big):
    small, big = tuple(small), tuple(big)
    return len(small) <= len(big) and all(s == 1 or s == b for s, b in zip(reversed(small), reversed(big)))


# ---------------------------------------- view ops: (program, real tensor) -> (text, call(t, T))
def _dim(p, t):
    return int(p.rng.randint(-t.dim(), t.dim())) if t.dim() else p.pick([0, -1])


def _v(make):
    VIEWS.append(make)
    return make


VIEWS = []


@_v
def v_view(p, t):
    n = t.numel()
    shapes = [(-1,), (n,), tuple(t.shape), tuple(t.shape) + (1,), (1, -1)]
    if n and n % 2 == 0:
        shapes += [(2, -1), (-1, 2), (n // 2, 2)]
    s = p.pick(shapes)
    name = p.pick(["view", "reshape"])
    return f"{name}{s}", lambda x, T: getattr(x, name)(s)


@_v
def v_order(p, t):
    name = p.pick(["transpose", "permute", "movedim", "t", "T", "mT", "swapaxes", "H", "adjoint"])
    if name in ("T", "H", "mT"):
        if t.is_complex() and name == "H":
            raise Skip
        return name, lambda x, T: getattr(x, name)
    if name == "adjoint":
        if t.is_complex():
            raise Skip
        return "adjoint()", lambda x, T: x.adjoint()
    if name == "t":
        return "t()", lambda x, T: x.t()
    if name == "permute":
        order = [int(i) for i in p.rng.permutation(t.dim())]
        return f"permute({order})", lambda x, T: x.permute(order)
    a, b = _dim(p, t), _dim(p, t)
    return f"{name}({a}, {b})", lambda x, T: getattr(x, name)(a, b)


@_v
def v_squeeze(p, t):
    d = _dim(p, t)
    name = p.pick(["squeeze", "unsqueeze", "squeeze_all"])
    if name == "squeeze_all":
        return "squeeze()", lambda x, T: x.squeeze()
    return f"{name}({d})", lambda x, T: getattr(x, name)(d)


@_v
def v_select(p, t):
    d = _dim(p, t)
    n = t.shape[d] if t.dim() else 1
    i = int(p.rng.randint(-n, n)) if n else 0
    return f"select({d}, {i})", lambda x, T: x.select(d, i)


@_v
def v_narrow(p, t):
    d = _dim(p, t)
    n = t.shape[d] if t.dim() else 1
    a = int(p.rng.randint(0, n + 1))
    k = int(p.rng.randint(0, n - a + 1))
    return f"narrow({d}, {a}, {k})", lambda x, T: x.narrow(d, a, k)


@_v
def v_expand(p, t):
    s = tuple(int(p.pick([2, 3])) if n == 1 and p.chance(0.7) else int(p.pick([n, -1])) for n in t.shape)
    if p.chance(0.3):
        s = (int(p.pick([1, 2])), *s)
    name = p.pick(["expand", "broadcast_to", "expand_as"])
    if name == "expand_as":
        want = tuple(n if m == -1 else m for m, n in zip(s[-t.dim():] if t.dim() else (), t.shape))
        return f"expand_as({want})", lambda x, T: x.expand_as(T.zeros(want))
    return f"{name}({s})", lambda x, T: getattr(x, name)(s)


@_v
def v_multi(p, t):
    d = _dim(p, t)
    name = p.pick(["chunk", "split", "split_sizes", "tensor_split", "unbind", "unbind", "hsplit", "vsplit", "broadcast_tensors"])
    if name == "unbind":
        return f"unbind({d})", lambda x, T: x.unbind(d)
    if name == "broadcast_tensors":
        return "broadcast_tensors", lambda x, T: T.broadcast_tensors(x, T.zeros(1))[0]
    if name in ("hsplit", "vsplit"):
        return f"{name}(1)", lambda x, T: getattr(x, name)(1)
    k = int(p.pick([1, 2]))
    if name == "split_sizes":
        n = t.shape[d] if t.dim() else 1
        sizes = [k, n - k] if n >= k else [n]
        return f"split({sizes}, {d})", lambda x, T: x.split(sizes, d)
    return f"{name}({k}, {d})", lambda x, T: getattr(x, name)(k, d)


@_v
def v_diagonal(p, t):
    off = int(p.pick([0, 1, -1]))
    a, b = _dim(p, t), _dim(p, t)
    return f"diagonal({off}, {a}, {b})", lambda x, T: x.diagonal(off, a, b)


@_v
def v_unfold(p, t):
    d = _dim(p, t)
    n = t.shape[d] if t.dim() else 1
    size = int(p.rng.randint(0, n + 1))
    step = int(p.pick([1, 2]))
    return f"unfold({d}, {size}, {step})", lambda x, T: x.unfold(d, size, step)


@_v
def v_flatten(p, t):
    if p.chance(0.5):
        name = p.pick(["flatten", "ravel", "view_as_self", "alias", "atleast_2d", "atleast_3d"])
        if name == "alias":
            return "[...]", lambda x, T: x[...]
        if name == "view_as_self":
            return "view_as(self)", lambda x, T: x.view_as(x)
        if name.startswith("atleast"):
            return name, lambda x, T: getattr(T, name)(x)
        return f"{name}()", lambda x, T: getattr(x, name)()
    a, b = sorted((_dim(p, t) % max(t.dim(), 1), _dim(p, t) % max(t.dim(), 1)))
    return f"flatten({a}, {b})", lambda x, T: x.flatten(a, b)


@_v
def v_unflatten(p, t):
    d = _dim(p, t)
    s = p.pick([(1, -1), (-1, 1), (2, -1)])
    return f"unflatten({d}, {s})", lambda x, T: x.unflatten(d, s)


@_v
def v_strided(p, t):
    n = t.numel()
    if not n or not dense(t) or t._is_view() and t.numel() != t._base.numel():
        # PyTorch: a region beyond the parent's has a gradient after a write to the parent, none
        # before
        raise Skip
    size, stride = p.pick([((n,), (1,)), ((2, 2), (1, 1)), ((2,), (2,)), ((2, 2), (2, 1)), ((), ()), ((3,), (0,))])
    offset = p.pick([None, None, 0, 1])
    if offset is not None:
        offset = t.storage_offset() + offset
    return f"as_strided({size}, {stride}, {offset})", lambda x, T: x.as_strided(
        size, stride, None if offset is None else x.storage_offset() + offset - t.storage_offset())


@_v
def v_parts(p, t):
    if t.is_complex():
        name = p.pick(["real", "imag", "view_as_real"])
        return name, lambda x, T: T.view_as_real(x) if name == "view_as_real" else getattr(x, name)
    if t.dim() and t.shape[-1] == 2 and t.is_floating_point() and t.numel():
        return "view_as_complex", lambda x, T: T.view_as_complex(x)
    raise Skip


# ---------------------------------------- in-place ops: -> (text, call(t, T, val), operands)
WRITES = []


def _w(make):
    WRITES.append(make)
    return make


UNARY = ("abs neg exp tanh sin cos sigmoid sqrt square reciprocal floor ceil round trunc frac sign sgn erf log1p expm1 relu "
         "atan asinh sinh exp2 rsqrt nan_to_num deg2rad logical_not zero positive_ tan log cosh acos asin atanh lgamma erfc conj_physical "
         "sinc digamma log2 log10 i0 angle_ bitwise_not").split()
BINARY = ("add sub mul div true_divide floor_divide remainder fmod atan2 hypot pow maximum_ eq ne lt le gt ge logical_and logical_or "
          "logical_xor copysign xlogy fmax_ bitwise_and bitwise_or bitwise_xor nextafter_ heaviside gcd lcm").split()


COMPARISONS = ("eq_", "ne_", "lt_", "le_", "gt_", "ge_")
TENSORS_ONLY = tuple(n + "_" for n in "atan2 hypot logical_and logical_or logical_xor heaviside gcd lcm ldexp".split())


@_w
def w_unary(p, t):
    name = p.pick(UNARY) + "_"
    if not hasattr(real.Tensor, name) or name == "logical_not_" and t.requires_grad or name in ("asinh_", "atanh_") and t.requires_grad:
        raise Skip
    return f"{name}()", lambda x, T, val: getattr(x, name)(), []


@_w
def w_binary(p, t):
    name = p.pick(BINARY) + "_"
    if name.startswith("logical") and t.requires_grad:
        # PyTorch overwrites the values but leaves the history as it was, so the gradient is wrong
        raise Skip
    if not hasattr(real.Tensor, name):
        raise Skip
    o = p.operand(t)
    if name in COMPARISONS and isinstance(o, Pair) and o.r.requires_grad:
        raise Skip  # in PyTorch the (bool-valued) result then requires grad
    if name in TENSORS_ONLY and not isinstance(o, (Pair, Const)):
        raise Skip
    return f"{name}({_text(o)})", lambda x, T, val: getattr(x, name)(val(o)), [o]


@_w
def w_arith(p, t):
    name = p.pick(["add", "sub", "mul", "mul", "div"]) + "_"
    o = p.operand(t)
    return f"{name}({_text(o)})", lambda x, T, val: getattr(x, name)(val(o)), [o]


@_w
def w_operator(p, t):
    import operator
    name = p.pick(["iadd", "isub", "imul", "itruediv"])
    o = p.operand(t)
    return f"{name}({_text(o)})", lambda x, T, val: getattr(operator, name)(x, val(o)), [o]


@_w
def w_clamp(p, t):
    name = p.pick(["clamp_", "clamp_min_", "clamp_max_"])
    args = (-0.5, 1.0) if name == "clamp_" else (0.25,)
    return f"{name}{args}", lambda x, T, val: getattr(x, name)(*args), []


@_w
def w_three(p, t):
    name = p.pick(["addcmul_", "addcdiv_", "lerp_"])
    if name == "addcdiv_" and t.is_complex():
        raise Skip  # complex division by zero yields inf or nan, depending on the compiler
    a, b = p.operand(t, True), p.operand(t, True)
    if not isinstance(a, (Pair, Const)) or not isinstance(b, (Pair, Const)):
        raise Skip
    return f"{name}({_text(a)}, {_text(b)})", lambda x, T, val: getattr(x, name)(val(a), val(b)), [a, b]


@_w
def w_fill(p, t):
    name = p.pick(["fill_", "zero_", "fill_diagonal_", "copy_", "copy_", "fill_tensor"])
    if name == "zero_":
        return "zero_()", lambda x, T, val: x.zero_(), []
    if name == "copy_":
        o = p.operand(t)
        if not isinstance(o, (Pair, Const)):
            raise Skip
        return f"copy_({_text(o)})", lambda x, T, val: x.copy_(val(o)), [o]
    if name == "fill_tensor":
        o = p.tensor(lambda q: q.dim() == 0 and q.dtype == t.dtype)
        return f"fill_({_text(o)})", lambda x, T, val: x.fill_(val(o)), [o]
    k = p.number(t)
    return f"{name}({k})", lambda x, T, val: getattr(x, name)(k), []


@_w
def w_masked(p, t):
    mask = p.rng.rand(*t.shape) < 0.5
    if p.chance(0.5):
        k = p.number(t)
        if p.chance(0.3):
            k = p.tensor(lambda q: q.dim() == 0)
        return f"masked_fill_(mask, {_text(k)})", lambda x, T, val: x.masked_fill_(T.tensor(mask), val(k)), [k]
    o = p.operand(t, True)
    if not isinstance(o, (Pair, Const)) or isinstance(o, Pair) and (meets(t, o.r) or t.data_ptr() == o.r.data_ptr()):
        raise Skip
    if (o.r.numel() if isinstance(o, Pair) else o.a.size) < np.sum(mask):
        raise Skip  # PyTorch writes the available elements before it raises
    return f"masked_scatter_(mask, {_text(o)})", lambda x, T, val: x.masked_scatter_(T.tensor(mask), val(o)), [o]


@_w
def w_index(p, t):
    if not t.dim():
        raise Skip
    d = int(p.rng.randint(t.dim()))
    n = t.shape[d]
    if not n:
        raise Skip
    idx = p.rng.permutation(n)[: p.rng.randint(1, n + 1)]
    name = p.pick(["index_fill_", "index_add_", "index_copy_", "index_add_twice"])
    if name == "index_fill_":
        k = p.number(t)
        return f"index_fill_({d}, {idx.tolist()}, {k})", lambda x, T, val: x.index_fill_(d, T.tensor(idx), k), []
    if name == "index_add_twice":
        idx, name = np.concatenate((idx, idx[:1])), "index_add_"
    want = tuple(t.shape[:d]) + (len(idx),) + tuple(t.shape[d + 1:])
    fits = [q for q in p.live if q.r.shape == want and q.r.dtype == t.dtype and _apart(t, q.r)]
    o = p.pick(fits) if fits else Const(p.numbers(want, _name(t)))
    return f"{name}({d}, {idx.tolist()}, {_text(o)})", lambda x, T, val: getattr(x, name)(d, T.tensor(idx), val(o)), [o]


@_w
def w_scatter(p, t):
    if not t.dim() or not t.numel():
        raise Skip
    d = int(p.rng.randint(t.dim()))
    name = p.pick(["scatter_", "scatter_add_", "scatter_value", "scatter_reduce_", "put_", "index_put_", "index_put_add"])
    if name in ("put_", "index_put_", "index_put_add"):
        if name == "put_":
            at = p.rng.permutation(t.numel())[:2]
            src = p.numbers(at.shape, _name(t))
            add = bool(p.chance(0.5))
            return f"put_({at.tolist()}, accumulate={add})", lambda x, T, val: x.put_(T.tensor(at), T.tensor(src), add), []
        n = t.shape[0]
        at = p.rng.permutation(n)[: p.rng.randint(1, n + 1)]
        add = name == "index_put_add"
        if add:
            at = np.concatenate((at, at[:1]))
        want = (len(at),) + tuple(t.shape[1:])
        fits = [q for q in p.live if _fits(q.r.shape, want) and q.r.dtype == t.dtype and _apart(t, q.r)]
        o = p.pick(fits) if fits else Const(p.numbers(want, _name(t)))
        return f"index_put_({at.tolist()}, {_text(o)}, {add})", lambda x, T, val: x.index_put_((T.tensor(at),), val(o), add), [o]
    # A permutation along d at every other coordinate, so no element is written twice.
    index = np.argsort(p.rng.rand(*t.shape), axis=d)
    if name == "scatter_value":
        k = p.number(t)
        return f"scatter_({d}, index, {k})", lambda x, T, val: x.scatter_(d, T.tensor(index), k), []
    fits = [q for q in p.live if q.r.shape == t.shape and q.r.dtype == t.dtype and _apart(t, q.r)]
    o = p.pick(fits) if fits else Const(p.numbers(tuple(t.shape), _name(t)))
    if name == "scatter_reduce_":
        how = p.pick(["sum", "prod", "mean", "amax", "amin"])
        if how == "prod" and t.is_complex():
            raise Skip  # PyTorch's gradient lacks the conjugate
        whole = bool(p.chance(0.5))
        return (f"scatter_reduce_({d}, index, {_text(o)}, {how}, include_self={whole})",
                lambda x, T, val: x.scatter_reduce_(d, T.tensor(index), val(o), how, include_self=whole), [o])
    return f"{name}({d}, index, {_text(o)})", lambda x, T, val: getattr(x, name)(d, T.tensor(index), val(o)), [o]


@_w
def w_triangle(p, t):
    name = p.pick(["tril_", "triu_"])
    if any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape)):
        raise Skip  # PyTorch writes to expanded tensors here; mindtorch raises
    return f"{name}()", lambda x, T, val: getattr(x, name)(), []


@_w
def w_scan(p, t):
    name = p.pick(["cumsum_", "cumprod_"])
    d = _dim(p, t)
    if t.dtype == real.bool:
        raise Skip
    return f"{name}({d})", lambda x, T, val: getattr(x, name)(d), []


@_w
def w_random(p, t):
    name = p.pick(["uniform_", "normal_", "bernoulli_", "random_"])
    seed = int(p.rng.randint(1000))
    if p.device is not None:
        raise Skip  # a device has its own generator
    if overlaps_itself(t) or not dense(t):
        raise Skip

    def fn(x, T, val):
        T.manual_seed(seed)
        return getattr(x, name)(*((0, 5) if name == "random_" else ()))

    return f"{name}()", fn, []


@_w
def w_matrix(p, t):
    if t.dim() != 2 or not t.is_floating_point() or not t.numel():
        raise Skip
    n, m = t.shape
    a, b = p.numbers((n, 2), _name(t)), p.numbers((2, m), _name(t))
    return "addmm_(const, const)", lambda x, T, val: x.addmm_(T.tensor(a), T.tensor(b)), []


# ------------------------------------------------------------------ pure ops
PURE = []


def _p(make):
    PURE.append(make)
    return make


@_p
def p_unary(p, t):
    name = p.pick("neg sin tanh exp sigmoid square clone abs contiguous conj_physical cos relu".split())
    if name == "conj_physical" and not t.is_complex() or name == "sigmoid" and t.is_complex() or name == "relu" and t.isnan().any():
        raise Skip
    return f"{name}()", lambda x, T, val: getattr(x, name)(), []


@_p
def p_binary(p, t):
    name = p.pick(["add", "mul", "sub", "div", "mul"])
    o = p.operand(t)
    return f"{name}({_text(o)})", lambda x, T, val: getattr(x, name)(val(o)), [o]


@_p
def p_reduce(p, t):
    if not t.is_contiguous():
        raise Skip
    name = p.pick(["sum", "mean", "cumsum", "sum_all"])
    if name == "sum_all":
        return "sum()", lambda x, T, val: x.sum(), []
    d = _dim(p, t)
    return f"{name}({d})", lambda x, T, val: getattr(x, name)(d), []


@_p
def p_index(p, t):
    if not t.dim() or not t.shape[0]:
        raise Skip
    idx = p.rng.randint(0, t.shape[0], size=3)
    name = p.pick(["index_select", "getitem", "take", "gather", "masked_select", "repeat_interleave", "flip", "roll"])
    if name == "index_select":
        return f"index_select(0, {idx.tolist()})", lambda x, T, val: x.index_select(0, T.tensor(idx)), []
    if name == "getitem":
        return f"[{idx.tolist()}]", lambda x, T, val: x[T.tensor(idx)], []
    if name == "take":
        return f"take({idx.tolist()})", lambda x, T, val: x.take(T.tensor(idx % max(t.numel(), 1))), []
    if name == "gather":
        index = np.argsort(p.rng.rand(*t.shape), axis=0)
        return "gather(0, index)", lambda x, T, val: x.gather(0, T.tensor(index)), []
    if name == "masked_select":
        mask = p.rng.rand(*t.shape) < 0.5
        return "masked_select(mask)", lambda x, T, val: x.masked_select(T.tensor(mask)), []
    if name == "repeat_interleave":
        return "repeat_interleave(2, 0)", lambda x, T, val: x.repeat_interleave(2, 0), []
    return f"{name}", lambda x, T, val: x.flip(0) if name == "flip" else x.roll(1, 0), []


@_p
def p_where(p, t):
    mask = p.rng.rand(*t.shape) < 0.5
    o = p.operand(t, True)
    if p.chance(0.5):
        k = p.number(t)
        return f"masked_fill(mask, {k})", lambda x, T, val: x.masked_fill(T.tensor(mask), k), []
    return f"where(mask, {_text(o)})", lambda x, T, val: x.where(T.tensor(mask), val(o)), [o]


@_p
def p_scatter_views(p, t):
    if not t.dim() or not t.shape[0] or t.is_complex():
        raise Skip  # PyTorch rejects complex gradients here
    name = p.pick(["select_scatter", "slice_scatter", "diagonal_scatter"])
    if name == "select_scatter":
        src = Const(p.numbers(tuple(t.shape[1:]), _name(t)))
        return "select_scatter(const, 0, 0)", lambda x, T, val: x.select_scatter(val(src), 0, 0), []
    if name == "slice_scatter":
        src = Const(p.numbers((t.shape[0] - 1,) + tuple(t.shape[1:]), _name(t)))
        return "slice_scatter(const, 0, 1)", lambda x, T, val: x.slice_scatter(val(src), 0, 1), []
    if t.dim() < 2:
        raise Skip
    src = Const(p.numbers(tuple(t.detach().diagonal().shape), _name(t)))
    return "diagonal_scatter(const)", lambda x, T, val: x.diagonal_scatter(val(src)), []


STEPS = [Program.view] * 7 + [Program.write] * 8 + [Program.setitem] * 3 + [Program.getitem] * 3 + [Program.pure] * 4 + [
    Program.new_leaf, Program.join, Program.out, Program.history, Program.history]


def survey(seeds, steps=14, device=None):
    """Runs the programs of `seeds`. Returns (number that agree, rejected steps, {kind: [(seed,
    first line)]})."""
    good, refused, bad = 0, 0, {}
    for s in seeds:
        p = Program(s, steps, device)
        try:
            p.run()
            good += 1
        except Differs as d:
            bad.setdefault(d.kind, []).append((s, str(d)))
        refused += p.refused
    return good, refused, bad
