"""Fused host kernels for optimizer steps, over NumPy arrays that share memory with the tensors.

A step of the facade's elementwise optimizers is one call of `run` for all parameters of a group.  Every kernel is a
short chain of in-place ufuncs without temporaries of its own:

- large arrays are worked through in blocks that stay in the second-level cache, so that a chain of a dozen ufuncs
  reads each array from memory once;
- small arrays are gathered into one flat scratch, updated there together and scattered back: a ufunc call costs
  0.2-0.4 us whatever it does, copying a small array 0.1 us.

Complex arrays are taken as pairs of reals, which is what torch does.  Very large arrays go to MindSpore's kernel where
that is faster: for Adam (1M elements: 0.4 ms instead of 1.3), not for momentum (0.7 against 0.4).
"""
import math
import threading
import weakref
from typing import Any

from mindtorch.backend.native import pool
from mindtorch.backend.cpu import threads
from mindtorch.backend.cpu.host import byte_bounds
from mindtorch.backend.mindspore.private import from_contiguous
from mindtorch.backend.mindspore.runtime import ms, np

__all__ = ["Layout", "layout", "run", "adadelta", "adagrad", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop",
           "rprop", "sgd"]

#: Elements worked on at a time: four arrays and two temporaries of float32 make 768 KB.
BLOCK = 32768
#: Arrays up to this size are packed: beyond it the copies cost more than the saved calls.
SMALL = 4096
#: Elements from which on threads share the rows out: 11 million with momentum 9.3 ms on one, 5 on two.
SHARED = 1 << 18
#: Elements from which MindSpore's kernel wins (2**18: 0.40 against 0.32 ms, 2**20: 0.40 against 1.29).
NATIVE = 1 << 19

_F4, _F8 = np.dtype(np.float32), np.dtype(np.float64)
_REAL = {_F4: _F4, _F8: _F8, np.dtype(np.complex64): _F4, np.dtype(np.complex128): _F8}

#: Layouts kept at a time: where gradients come and go, every combination has its own.
KEPT = 64


class _Temps(threading.local):
    # One pair for each thread: ufuncs release the interpreter lock.
    def __init__(self):
        self.of = {d: (np.empty(BLOCK, d), np.empty(BLOCK, d)) for d in (_F4, _F8)}


_temps = _Temps()


class _Part:
    """The arrays of one real dtype: which are updated where they lie, and where the others go in the scratch."""

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
        """`count` flat arrays, each with a list of views shaped like the packed arrays."""
        while len(self.columns) < count:
            flat = np.empty(self.total, self.dtype)
            self.columns.append((flat, [flat[o:o + n].view(d).reshape(s) for o, n, d, s in self.slots]))
        return self.columns


class Layout:
    """How `run` walks over a list of arrays.  `serial`: some share memory and have to be updated one after another."""

    __slots__ = ("parts", "serial", "total", "_refs")


_layouts: dict[Any, Any] = {}


def layout(arrays):
    """The Layout of `arrays`, or None if one has a dtype that the kernels do not take.

    Kept until one of the arrays dies or KEPT newer ones came.  RuntimeError if an array overlaps itself (an expanded
    tensor).
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
    """Permutation of the axes that makes `a` C-contiguous; None if it is, or if there is none."""
    if a.flags.c_contiguous:
        return None
    order = sorted(range(a.ndim), key=lambda d: -a.strides[d])
    return order if a.transpose(order).flags.c_contiguous else None


def run(lay, kernel, columns, written, consts, native=None):
    """Applies `kernel` to all rows of `columns` (lists of arrays; the first is what `lay` was made of).

    written  how many of the first columns the kernel changes, apart from the gradients in columns[-1].
    consts   for each row (options, numbers); rows with the same values should share one object.
    native   native(const, arrays) does the same for a large row of contiguous float32, or returns False.

    A kernel is called as kernel(numbers, *options, *one array of each column, t1, t2) with one-dimensional real arrays
    of equal length; `numbers` are 0-dimensional arrays of their dtype, t1 and t2 temporaries.
    """
    if kernel in _IN_C and not lay.serial and lay.total >= LEAST and (
            len({id(c) for c in consts}) == 1 and _IN_C[kernel](columns, *consts[0])):
        return
    with np.errstate(all="ignore"):
        if lay.serial:
            for part in lay.parts:
                for i in range(len(columns[0])):
                    if _REAL[columns[0][i].dtype] is part.dtype:
                        _all([_in_place([c[i] for c in columns], written, consts[i], part.dtype, None)], kernel, part.dtype)
            return
        for part in lay.parts:
            jobs = []
            for i, order in part.direct:
                arrays = [c[i] for c in columns]
                if native is not None and arrays[0].size >= NATIVE and part.dtype is _F4:
                    if all(a.dtype == _F4 and a.flags.c_contiguous for a in arrays) and native(consts[i], arrays):
                        continue
                jobs.append(_in_place(arrays, written, consts[i], part.dtype, order))
            _all(jobs, kernel, part.dtype)
            if part.packed:
                _together(kernel, part, columns, written, consts)


def _in_place(arrays, written, const, dtype, order):
    """(const, flat arrays, [(array, flat copy to be written back)]) of one row."""
    flats, back = [], []
    for k, a in enumerate(arrays):
        if order is not None:
            a = a.transpose(order)
        f, real = a.reshape(-1), _REAL.get(a.dtype)
        if real is not dtype:
            f = f.astype(dtype)             # state that somebody keeps in another precision
        if k < written and (real is not dtype or not a.flags.c_contiguous):
            back.append((a, f))             # f is a copy
        flats.append(f.view(dtype) if f.dtype.kind == "c" else f)
    return const, flats, back


def _all(jobs, kernel, dtype):
    """Runs the kernel over all rows; large ones are shared out between threads."""
    if sum(flats[0].size for _, flats, _ in jobs) < SHARED:
        for const, flats, _ in jobs:
            _blocks(kernel, const, flats, dtype)
    else:
        pieces = [(options, [np.array(x, dtype) for x in numbers], [f[start:start + BLOCK] for f in flats])
                  for (options, numbers), flats, _ in jobs for start in range(0, flats[0].size, BLOCK)]

        def part(start, stop):
            t1, t2 = _temps.of[dtype]
            for options, numbers, block in pieces[start:stop]:
                n = block[0].size
                kernel(numbers, *options, *block, t1[:n], t2[:n])
        threads.share(len(pieces), part)
    for _, _, back in jobs:
        for a, f in back:
            a[...] = f.reshape(a.shape)


def _together(kernel, part, columns, written, consts):
    packed = part.packed
    scratch = part.scratch(len(columns))
    for column, (_, views) in zip(columns, scratch):
        for i, v in zip(packed, views):
            v[...] = column[i]
    first = consts[packed[0]]
    for i in packed:
        if consts[i] is not first:
            for i, (o, n, _, _) in zip(packed, part.slots):
                _blocks(kernel, consts[i], [flat[o:o + n] for flat, _ in scratch[:len(columns)]], part.dtype)
            break
    else:
        _blocks(kernel, first, [flat for flat, _ in scratch[:len(columns)]], part.dtype)
    for column, (_, views) in zip(columns[:written], scratch):
        for i, v in zip(packed, views):
            column[i][...] = v


def _blocks(kernel, const, flats, dtype):
    options, numbers = const
    numbers = [np.array(x, dtype) for x in numbers]
    t1, t2 = _temps.of[dtype]
    n = flats[0].size
    if n <= BLOCK:
        kernel(numbers, *options, *flats, t1[:n], t2[:n])
        return
    for start in range(0, n, BLOCK):
        block = [f[start:start + BLOCK] for f in flats]
        n = block[0].size
        kernel(numbers, *options, *block, t1[:n], t2[:n])


# ------------------------------------------------------------------ kernels
# `g` is the gradient and stays as it is.  Names of numbers: wd weight decay, w? = 1 - beta.

add, sub, mul, div, sqrt, neg, absolute = np.add, np.subtract, np.multiply, np.divide, np.sqrt, np.negative, np.absolute
maximum, minimum, copyto = np.maximum, np.minimum, np.copyto


def _gradient(g, p, wd, maximize, decay, t):
    """The gradient that an algorithm sees: negated, with L2 decay added; in `t` unless it is `g` itself."""
    if decay:
        mul(p, wd, t)
        (sub if maximize else add)(t, g, t)
        return t
    if maximize:
        neg(g, t)
        return t
    return g


def _lerp(m, g, w, t):
    sub(g, m, t)
    mul(t, w, t)
    add(m, t, m)


def _second_moment(v, g, beta, w, t):
    mul(g, g, t)
    mul(t, w, t)
    mul(v, beta, v)
    add(v, t, v)


def sgd(c, maximize, decay, momentum, nesterov, first, p, *arrays):
    """numbers: -lr, weight decay, momentum, 1 - dampening."""
    lr, wd, mu, damp = c
    if not momentum:
        g, t1, t2 = arrays
        mul(_gradient(g, p, wd, maximize, decay, t1), lr, t2)
        add(p, t2, p)
        return
    b, g, t1, t2 = arrays
    d = _gradient(g, p, wd, maximize, decay, t1)
    if first:
        copyto(b, d)
    else:
        mul(d, damp, t2)
        mul(b, mu, b)
        add(b, t2, b)
    if nesterov:
        mul(b, mu, t2)
        add(t2, d, t2)
        mul(t2, lr, t2)
    else:
        mul(b, lr, t2)
    add(p, t2, p)


def adam(c, maximize, decay, decoupled, amsgrad, p, m, v, *arrays):
    """numbers: -lr / (1 - beta1^t), sqrt(1 - beta2^t), eps, weight decay (decoupled: 1 - lr * decay), 1 - beta1, beta2,
    1 - beta2."""
    size, root, eps, wd, w1, b2, w2 = c
    if amsgrad:
        x, g, t1, t2 = arrays
    else:
        g, t1, t2 = arrays
        x = v
    if decay and decoupled:
        mul(p, wd, p)
        decay = False
    d = _gradient(g, p, wd, maximize, decay, t1)
    _lerp(m, d, w1, t2)
    _second_moment(v, d, b2, w2, t2)
    if amsgrad:
        maximum(x, v, x)
    sqrt(x, t2)
    div(t2, root, t2)
    add(t2, eps, t2)
    mul(m, size, t1)
    div(t1, t2, t1)
    add(p, t1, p)


_ms_adam = None


def native_adam(const, arrays):
    """MindSpore's Adam on large arrays; False where it has no such option."""
    global _ms_adam
    maximize, decay, decoupled, amsgrad = const[0]
    if maximize or amsgrad or (decay and not decoupled):
        return False
    size, root, eps, wd, w1, b2, _ = const[1]
    p, m, v, g = arrays
    if decay:
        mul(p, np.array(wd, _F4), p)
    if _ms_adam is None:
        _ms_adam = ms.ops.Adam()
    # Its update is lr * m / (sqrt(v) + eps): the bias corrections go into lr and eps, and its own get powers of 0.
    zero = from_contiguous(np.zeros((), _F4))
    rate, b1, b2, eps = (from_contiguous(np.array(x, _F4)) for x in (-size * root, 1 - w1, b2, eps * root))
    out = _ms_adam(from_contiguous(p), from_contiguous(m), from_contiguous(v), zero, zero, rate, b1, b2, eps,
                   from_contiguous(g))
    out[0].asnumpy()            # waits, should launching be asynchronous
    return True


def adamax(c, maximize, decay, p, m, u, g, t1, t2):
    """numbers: -lr / (1 - beta1^t), eps, weight decay, 1 - beta1, beta2."""
    size, eps, wd, w1, b2 = c
    d = _gradient(g, p, wd, maximize, decay, t1)
    _lerp(m, d, w1, t2)
    absolute(d, t2)
    add(t2, eps, t2)
    mul(u, b2, u)
    maximum(u, t2, u)
    mul(m, size, t1)
    div(t1, u, t1)
    add(p, t1, p)


def nadam(c, maximize, decay, decoupled, p, m, v, g, t1, t2):
    """numbers: factors of the gradient and of the mean, 1 - beta2^t, eps, and the last four of adam's."""
    of_grad, of_mean, corr, eps, wd, w1, b2, w2 = c
    if decay and decoupled:
        mul(p, wd, p)
        decay = False
    d = _gradient(g, p, wd, maximize, decay, t1)
    _lerp(m, d, w1, t2)
    _second_moment(v, d, b2, w2, t2)
    div(v, corr, t2)
    sqrt(t2, t2)
    add(t2, eps, t2)
    mul(d, of_grad, t1)
    div(t1, t2, t1)
    add(p, t1, p)
    mul(m, of_mean, t1)
    div(t1, t2, t1)
    add(p, t1, p)


def radam(c, maximize, decay, decoupled, rectify, p, m, v, g, t1, t2):
    """numbers: 1 - beta1^t, lr, sqrt(1 - beta2^t), rectification, eps, and the last four of adam's."""
    corr, lr, root, rect, eps, wd, w1, b2, w2 = c
    if decay and decoupled:
        mul(p, wd, p)
        decay = False
    d = _gradient(g, p, wd, maximize, decay, t1)
    _lerp(m, d, w1, t2)
    _second_moment(v, d, b2, w2, t2)
    div(m, corr, t1)
    mul(t1, lr, t1)
    if rectify:
        sqrt(v, t2)
        add(t2, eps, t2)
        div(root, t2, t2)
        mul(t1, t2, t1)
        mul(t1, rect, t1)
    sub(p, t1, p)


def rmsprop(c, maximize, decay, centered, momentum, p, v, *arrays):
    """Columns p, square_avg, [grad_avg], [momentum_buffer], g.

    numbers: lr, alpha, 1 - alpha, eps, weight decay, momentum.
    """
    lr, al, w, eps, wd, mu = c
    g, t1, t2 = arrays[-3:]
    d = _gradient(g, p, wd, maximize, decay, t1)
    _second_moment(v, d, al, w, t2)
    if centered:
        a = arrays[0]
        _lerp(a, d, w, t2)
        mul(a, a, t2)
        sub(v, t2, t2)
        sqrt(t2, t2)
    else:
        sqrt(v, t2)
    add(t2, eps, t2)
    if momentum:
        b = arrays[1 if centered else 0]
        div(d, t2, t1)
        mul(b, mu, b)
        add(b, t1, b)
        mul(b, lr, t1)
    else:
        mul(d, lr, t1)
        div(t1, t2, t1)
    sub(p, t1, p)


def rprop(c, maximize, p, prev, size, g, t1, t2):
    """numbers: eta minus, eta plus, smallest and largest step."""
    shrink, grow, low, high = c
    if maximize:
        neg(g, t1)
    else:
        copyto(t1, g)
    mul(t1, prev, t2)
    # The product's sign decides; NaN counts as no sign, as it does for torch.
    turned = np.less(t2, 0)
    same = np.greater(t2, 0)
    t2.fill(1)
    copyto(t2, grow, where=same)
    copyto(t2, shrink, where=turned)
    mul(size, t2, size)
    minimum(maximum(size, low, size), high, size)
    copyto(t1, 0, where=turned)
    copyto(prev, t1)
    t2.fill(0)
    copyto(t2, 1, where=np.greater(t1, 0))
    copyto(t2, -1, where=np.less(t1, 0))
    mul(t2, size, t2)
    sub(p, t2, p)


def adagrad(c, maximize, decay, p, s, g, t1, t2):
    """numbers: -lr / (1 + (t - 1) * lr_decay), eps, weight decay."""
    size, eps, wd = c
    d = _gradient(g, p, wd, maximize, decay, t1)
    mul(d, d, t2)
    add(s, t2, s)
    sqrt(s, t2)
    add(t2, eps, t2)
    mul(d, size, t1)
    div(t1, t2, t1)
    add(p, t1, p)


def adadelta(c, maximize, decay, p, v, acc, g, t1, t2):
    """numbers: lr, rho, 1 - rho, eps, weight decay."""
    lr, rho, w, eps, wd = c
    d = _gradient(g, p, wd, maximize, decay, t1)
    _second_moment(v, d, rho, w, t2)
    # delta = sqrt(acc + eps) / sqrt(v + eps) * d, in t1
    add(v, eps, t2)
    sqrt(t2, t2)
    div(d, t2, t1)
    add(acc, eps, t2)
    sqrt(t2, t2)
    mul(t1, t2, t1)
    _second_moment(acc, t1, rho, w, t2)
    mul(t1, lr, t1)
    sub(p, t1, p)


def asgd(c, maximize, decay, average, p, ax, g, t1, t2):
    """numbers: eta, 1 - lambd * eta, mu, weight decay."""
    eta, keep, mu, wd = c
    d = _gradient(g, p, wd, maximize, decay, t1)
    mul(d, eta, t2)
    mul(p, keep, p)
    sub(p, t2, p)
    if average:
        sub(p, ax, t1)
        mul(t1, mu, t1)
        add(ax, t1, ax)
    else:
        copyto(ax, p)


def _sgd_in_c(columns, options, numbers):
    maximize, decay, momentum, nesterov, first = options
    return pool.update(pool.SGD, columns, (maximize, decay, (2 if first else 1) if momentum else 0, bool(momentum and nesterov)), numbers)


def _adam_in_c(columns, options, numbers):
    maximize, decay, decoupled, amsgrad = options
    return pool.update(pool.ADAM, columns, (maximize, (2 if decoupled else 1) if decay else 0, amsgrad, 0), numbers)


#: What is one pass in C where there is a compiler, bit for bit the same: 670,000 parameters with momentum 160 us on two cores
#: (NumPy in blocks 490, torch 190).
_IN_C = {sgd: _sgd_in_c, adam: _adam_in_c}
#: Elements from which on that is looked for.
LEAST = 1 << 12


def rectification(beta2, step):
    """RAdam's factor for the variance of the adaptive rate at `step`; None while it is not tractable."""
    longest = 2 / (1 - beta2) - 1
    power = beta2 ** step
    length = longest - 2 * step * power / (1 - power)
    if length <= 5.0:
        return None
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
