"""Fused host kernels of optimizer steps, over NumPy arrays that share memory with the tensors.

One call of `run` performs a step of an elementwise optimizer for all parameters of a group.
`mindtorch/backend/optimizer_formulas.py` defines the update formulas. Here each formula becomes a short chain
of in-place ufuncs with two temporaries:

- large arrays are processed in blocks that stay in the L2 cache, so that a chain of a dozen ufuncs
  reads each array from memory once;
- small arrays are gathered into one flat scratch array, updated together and scattered back: a ufunc
  call costs 0.2-0.4 us regardless of size, copying a small array 0.1 us.

Complex arrays are processed as pairs of reals, as in PyTorch. Very large arrays use MindSpore's
kernel where it is faster. For Adam with 1M elements it is (0.4 ms vs 1.3 ms), for momentum it is
not (0.7 ms vs 0.4 ms).
"""
import functools
import threading
import weakref
from typing import Any

from mindtorch.backend import optimizer_formulas
from mindtorch.backend.cpu import kernel, threads
from mindtorch.backend.cpu.host import byte_bounds
from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.mindspore.private import from_contiguous
from mindtorch.backend.mindspore.runtime import ms, np

adam, sgd = optimizer_formulas.adam, optimizer_formulas.sgd

#: Elements per block: four float32 arrays and two temporaries take 768 KB.
BLOCK = 32768
#: Arrays up to this size are packed: above it the copies cost more than the saved calls.
SMALL = 4096
#: Minimum elements for sharing the rows between threads: momentum over 11 million takes 9.3 ms on
#: one thread, 5 ms on two.
SHARED = 1 << 18
#: Minimum elements for MindSpore's kernel. MindSpore vs the chain: 0.40 ms vs 0.32 ms at 2**18,
#: 0.40 ms vs 1.29 ms at 2**20.
NATIVE = 1 << 19

_F4, _F8 = np.dtype(np.float32), np.dtype(np.float64)
_REAL = {_F4: _F4, _F8: _F8, np.dtype(np.complex64): _F4, np.dtype(np.complex128): _F8}

#: Maximum number of cached layouts. When gradients appear and disappear, each combination has its
#: own.
KEPT = 64


class _Temps(threading.local):
    # One pair per thread: ufuncs release the interpreter lock.
    def __init__(self):
        self.of = {d: (np.empty(BLOCK, d), np.empty(BLOCK, d)) for d in (_F4, _F8)}


_temps = _Temps()


class _Part:
    """Arrays of one real dtype: those updated in place, and the slots of the others in the scratch
    array."""

    __slots__ = ("dtype", "direct", "packed", "slots", "total", "columns")

    def __init__(self, dtype):
        self.dtype, self.direct, self.packed, self.slots, self.total, self.columns = dtype, [], [], [], 0, []

    def add(self, i, a):
        n = a.size * (2 if a.dtype.kind == "c" else 1)
        if n <= SMALL:
            self.packed.append(i)
            self.slots.append((self.total, n, a.dtype, a.shape))
            self.total += n
        else:
            self.direct.append((i, _dense_order(a)))

    def scratch(self, count):
        """Returns `count` flat arrays, each with a list of views shaped like the packed arrays."""
        while len(self.columns) < count:
            flat = np.empty(self.total, self.dtype)
            self.columns.append((flat, [flat[o:o + n].view(d).reshape(s) for o, n, d, s in self.slots]))
        return self.columns


class Layout:
    """How `run` traverses a list of arrays.

    `serial`: some arrays share memory and must be updated one after another.
    """

    __slots__ = ("parts", "serial", "total", "_refs")


_layouts: dict[Any, Any] = {}


def layout(arrays):
    """Returns the cached `Layout` of `arrays`, or None if the kernels do not support one of the
    dtypes.

    A layout stays cached until one of its arrays is freed or KEPT newer layouts exist. Raises
    RuntimeError if an array overlaps itself (an expanded tensor).
    """
    key = tuple(map(id, arrays))
    known = _layouts.get(key)
    if known is not None:
        return known
    parts = {}
    for i, a in enumerate(arrays):
        real = _REAL.get(a.dtype)
        if real is None:
            return None
        if a.size and 0 in a.strides and any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape)):
            raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a "
                               "single memory location. Please clone() the tensor before performing the operation.")
        parts.setdefault(real, _Part(real)).add(i, a)
    new = Layout()
    new.parts, new.serial, new.total = list(parts.values()), _overlap(arrays), sum(a.size for a in arrays)
    if len(_layouts) >= KEPT:
        _layouts.pop(next(iter(_layouts)))
    drop = _forget(key)
    new._refs = [weakref.ref(a, drop) for a in arrays]
    _layouts[key] = new
    return new


def _forget(key):
    return lambda _: _layouts.pop(key, None)


def _overlap(arrays):
    spans = sorted(byte_bounds(a) for a in arrays if a.size)
    return any(low < high for (_, high), (low, _) in zip(spans, spans[1:]))


def _dense_order(a):
    """Returns the axis permutation that makes `a` C-contiguous, or None if it already is or there
    is none."""
    if a.flags.c_contiguous:
        return None
    order = sorted(range(a.ndim), key=lambda d: -a.strides[d])
    return order if a.transpose(order).flags.c_contiguous else None


def run(update, native, lay, columns, consts):
    """Applies an update to all rows of `columns`.

      columns  lists of arrays; `lay` is the layout of the first, the last holds the gradients.
      consts   (options, numbers) of each row; rows with the same values should share one object.
      native   native(const, arrays) updates one large row of contiguous float32, or returns False.
    """
    written = len(columns) - 1
    if update in _IN_C and not lay.serial and lay.total >= LEAST and (
            len({id(c) for c in consts}) == 1 and _IN_C[update](columns, *consts[0])):
        return
    with np.errstate(all="ignore"):
        if lay.serial:
            for part in lay.parts:
                for i in range(len(columns[0])):
                    if _REAL[columns[0][i].dtype] is part.dtype:
                        _all([_flat_job([c[i] for c in columns], written, consts[i], part.dtype, None)], update, part.dtype)
            return
        for part in lay.parts:
            jobs = []
            for i, order in part.direct:
                arrays = [c[i] for c in columns]
                if native is not None and arrays[0].size >= NATIVE and part.dtype is _F4:
                    if all(a.dtype == _F4 and a.flags.c_contiguous for a in arrays) and native(consts[i], arrays):
                        continue
                jobs.append(_flat_job(arrays, written, consts[i], part.dtype, order))
            _all(jobs, update, part.dtype)
            if part.packed:
                _together(update, part, columns, written, consts)


def _flat_job(arrays, written, const, dtype, order):
    """Returns (const, flat arrays, [(array, flat copy to write back)]) of one row."""
    flats, back = [], []
    for k, a in enumerate(arrays):
        if order is not None:
            a = a.transpose(order)
        f, real = a.reshape(-1), _REAL.get(a.dtype)
        if real is not dtype:
            f = f.astype(dtype)  # state that the caller keeps in another precision
        if k < written and (real is not dtype or not a.flags.c_contiguous):
            back.append((a, f))             # f is a copy
        flats.append(f.view(dtype) if f.dtype.kind == "c" else f)
    return const, flats, back


def _all(jobs, update, dtype):
    """Runs the chain over all rows; large totals are shared between threads."""
    if sum(flats[0].size for _, flats, _ in jobs) < SHARED:
        for const, flats, _ in jobs:
            _blocks(update, const, flats, dtype)
    else:
        blocks = [(_chain(update, options, len(flats), len(scalars)), [np.array(x, dtype) for x in scalars], [f[start:start + BLOCK] for f in flats])
                  for (options, scalars), flats, _ in jobs for start in range(0, flats[0].size, BLOCK)]

        def part(start, stop):
            t1, t2 = _temps.of[dtype]
            for chain, scalars, block in blocks[start:stop]:
                n = block[0].size
                chain(scalars, *block, t1[:n], t2[:n])
        threads.share(len(blocks), part)
    for _, _, back in jobs:
        for a, f in back:
            a[...] = f.reshape(a.shape)


def _together(update, part, columns, written, consts):
    packed = part.packed
    scratch = part.scratch(len(columns))
    for column, (_, views) in zip(columns, scratch):
        for i, v in zip(packed, views):
            v[...] = column[i]
    first, flats = consts[packed[0]], [flat for flat, _ in scratch[:len(columns)]]
    if consts.count(first) == len(consts):
        _blocks(update, first, flats, part.dtype)
    else:
        for i, (o, n, _, _) in zip(packed, part.slots):
            _blocks(update, consts[i], [flat[o:o + n] for flat in flats], part.dtype)
    for column, (_, views) in zip(columns[:written], scratch):
        for i, v in zip(packed, views):
            column[i][...] = v


def _blocks(update, const, flats, dtype):
    options, scalars = const
    chain = _chain(update, options, len(flats), len(scalars))
    scalars = [np.array(x, dtype) for x in scalars]
    t1, t2 = _temps.of[dtype]
    n = flats[0].size
    if n <= BLOCK:
        chain(scalars, *flats, t1[:n], t2[:n])
        return
    for start in range(0, n, BLOCK):
        block = [f[start:start + BLOCK] for f in flats]
        n = block[0].size
        chain(scalars, *block, t1[:n], t2[:n])


# ------------------------------------------------------------------ updates as chains of ufuncs
class _Chain:
    """Array namespace of `mindtorch/backend/optimizer_formulas.py` that records NumPy calls instead of
    executing them.

    Arrays and numbers are parameter names of the generated function. Temporaries are named "%..",
    masks "m..".
    """

    def __init__(self):
        self.calls, self.made = [], 0  # (function, operands, output, mask)

    def call(self, function, *operands, out=None, where=None):
        """Records function(*operands, out). Without `out` the result is a new temporary."""
        if out is None:
            self.made += 1
            out = f"%{self.made}"
        self.calls.append((function, operands, out, where))
        return out

    # ---- values
    def gradient(self, g, p, wd, maximize, decay):
        if decay:
            return self.call("subtract" if maximize else "add", self.call("multiply", p, wd), g)
        return self.call("negative", g) if maximize else g

    def retained(self, x):
        return x

    def mul(self, x, y):
        return self.call("multiply", x, y)

    def div(self, x, y):
        return self.call("divide", x, y)

    def sqrt(self, x):
        return self.call("sqrt", x)

    def plus(self, x, c):
        return self.call("add", x, c)

    def less(self, x, c, function="less"):
        self.made += 1
        return self.call(function, x, c, out=f"m{self.made}")

    def add_scaled(self, x, y, c):
        return self.call("add", self.call("multiply", y, c), x)

    def sub_square(self, x, y):
        return self.call("subtract", x, self.call("multiply", y, y))

    def mul_rms_ratio(self, d, x, y, eps):
        # Divide first: two temporaries suffice. The last bits differ from those of the tensor ops,
        # which start with x.
        part = self.call("divide", d, self.sqrt(self.plus(y, eps)))
        return self.mul(part, self.sqrt(self.plus(x, eps)))

    def by_sign(self, x, negative, above, below):
        positive = self.less(x, 0, "greater")
        r = self.call("copyto", 1)
        self.call("copyto", above, out=r, where=positive)
        return self.call("copyto", below, out=r, where=negative)

    def zero_where(self, x, mask):
        return self.call("copyto", 0, out=self.call("copyto", x), where=mask)

    # ---- states
    def start_(self, b, d):
        return self.call("copyto", d, out=b)

    def copy_(self, x, y):
        return self.call("copyto", y, out=x)

    def lerp_(self, m, d, w):
        return self.call("add", m, self.mul(self.call("subtract", d, m), w), out=m)

    def moment_(self, v, d, beta, w):
        return self.decay_add_(v, beta, self.mul(d, d), w)

    def add_square_(self, v, d):
        return self.call("add", v, self.mul(d, d), out=v)

    def maximum_(self, x, y):
        return self.call("maximum", x, y, out=x)

    def decay_maximum_(self, u, beta, d, eps):
        other = self.plus(self.call("absolute", d), eps)
        self.mul_(u, beta)
        return self.maximum_(u, other)

    def decay_add_(self, b, mu, d, c):
        part = self.mul(d, c)
        return self.call("add", self.mul_(b, mu), part, out=b)

    def decay_add_div_(self, b, mu, d, by):
        part = self.div(d, by)
        return self.call("add", self.mul_(b, mu), part, out=b)

    def clamped_mul_(self, x, y, low, high):
        return self.call("minimum", self.maximum_(self.mul_(x, y), low), high, out=x)

    def towards_(self, average, p, w):
        return self.call("add", average, self.mul(self.call("subtract", p, average), w), out=average)

    # ---- the parameter
    def mul_(self, p, c):
        return self.call("multiply", p, c, out=p)

    def sub_(self, p, x):
        return self.call("subtract", p, x, out=p)

    def sub_scaled_(self, p, x, c):
        return self.sub_(p, self.mul(x, c))

    def sub_div_(self, p, x, y, c):
        return self.sub_(p, self.div(self.mul(x, c), y))

    def sub_signed_(self, p, x, y):
        sign = self.call("copyto", 0)
        self.call("copyto", 1, out=sign, where=self.less(x, 0, "greater"))
        self.call("copyto", -1, out=sign, where=self.less(x, 0))
        return self.sub_(p, self.mul(sign, y))


_CALLED = {n: getattr(np, n) for n in "add subtract multiply divide sqrt negative absolute maximum minimum less greater copyto".split()}
_chains: dict[tuple[Any, ...], Any] = {}           # (update, options) -> function


def _chain(update, options, columns, scalars):
    """Returns the generated function (numbers, *one array of each column, t1, t2) of an update.

    The function is a chain of in-place ufuncs over one-dimensional real arrays of equal length.
    `scalars` are 0-d arrays of the same dtype. Temporaries are stored in t1 and t2, each until its
    last use.
    """
    known = _chains.get((update, options))
    if known is not None:
        return known
    xp, constants, arrays = _Chain(), [f"c{i}" for i in range(scalars)], [f"a{i}" for i in range(columns - 1)]
    update(xp, options, constants, "g", *arrays)
    used = {x: i for i, (_, operands, out, where) in enumerate(xp.calls) for x in (*operands, out, where)}
    free, buffer_of, lines = ["t2", "t1"], {}, []
    for i, (function, operands, out, where) in enumerate(xp.calls):
        given = ", ".join([str(buffer_of.get(x, x)) for x in operands])
        free += [buffer_of[x] for x in set(operands) if x in buffer_of and used[x] == i]
        if out[0] == "%" and out not in buffer_of:
            buffer_of[out] = free.pop()
        into = buffer_of.get(out, out)
        if out[0] == "m":
            lines.append(f"{out} = {function}({given})")
        elif function == "copyto":
            lines.append(f"copyto({into}, {given}{'' if where is None else f', where={where}'})")
        else:
            lines.append(f"{function}({given}, {into})")
    scope = dict(_CALLED)
    head = f"def chain({', '.join(['scalars', *arrays, 'g', 't1', 't2'])}):\n    {', '.join(constants)}, = scalars\n    "
    exec(compile(head + "\n    ".join(lines), f"<{update.__name__} step>", "exec"), scope)
    made = _chains[update, options] = scope["chain"]
    return made


# ------------------------------------------------------------------ other kernels for some updates
_ms_adam = None


def _adam_of_mindspore(const, arrays):
    """Runs MindSpore's Adam on large arrays. Returns False for options that it does not support."""
    global _ms_adam
    maximize, decay, decoupled, amsgrad = const[0]
    if maximize or amsgrad or (decay and not decoupled):
        return False
    size, root, eps, wd, w1, b2, _ = const[1]
    p, m, v, g = arrays
    if decay:
        np.multiply(p, np.array(wd, _F4), p)
    if _ms_adam is None:
        _ms_adam = ms.ops.Adam()
    # Its update is lr * m / (sqrt(v) + eps). The bias corrections are folded into lr and eps, and
    # beta powers of 0 disable its own correction.
    zero = from_contiguous(np.zeros((), _F4))
    rate, b1, b2, eps = (from_contiguous(np.array(x, _F4)) for x in (size * root, 1 - w1, b2, eps * root))
    out = _ms_adam(from_contiguous(p), from_contiguous(m), from_contiguous(v), zero, zero, rate, b1, b2, eps,
                   from_contiguous(g))
    out[0].asnumpy()  # synchronizes, in case launches are asynchronous
    return True


def _sgd_in_c(columns, options, scalars):
    maximize, decay, momentum, nesterov, first = options
    lr, *rest = scalars
    return thread_pool.update(thread_pool.SGD, columns, (maximize, decay, (2 if first else 1) if momentum else 0, bool(momentum and nesterov)), (-lr, *rest))


def _adam_in_c(columns, options, scalars):
    maximize, decay, decoupled, amsgrad = options
    size, *rest = scalars
    return thread_pool.update(thread_pool.ADAM, columns, (maximize, (2 if decoupled else 1) if decay else 0, amsgrad, 0), (-size, *rest))


#: Updates with a one-pass C kernel (bit-equal), if a C compiler is available: 670,000 parameters
#: with momentum take 160 us on two cores vs 490 us with NumPy in blocks (PyTorch 190 us).
_IN_C = {optimizer_formulas.sgd: _sgd_in_c, optimizer_formulas.adam: _adam_in_c}
#: Minimum elements for trying the C kernel.
LEAST = 1 << 12


# ------------------------------------------------------------------ kernel table
kernel("optimizer_layout", layout)
for _name, _update in optimizer_formulas.STEPS.items():
    kernel(_name, functools.partial(run, _update, _adam_of_mindspore if _update is adam else None))
