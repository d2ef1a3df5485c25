"""NumPy interface of scan_gather.c: scans, gather, scatter and sorting. Without a compiler every
function returns None, as it does for a dtype without a kernel, and the caller uses NumPy. Gather
and scatter, scans and order statistics are used at any size (2 us); for the rest cpu/large.py
decides the minimum size.

CPU time on one core in ms, C / NumPy / PyTorch, for 1733x1731 float32 unless stated otherwise:
cumsum along rows 2.1 / 8.6 / 3.1, columns 5.0 / 6.9 / 19; cummax 4.2 / 26 / 3.1; gather along rows
4.8 / 6.4 / 2.4 to 3.4; scatter_add 6.1 / 9.3 / 3.6; index_add of columns 6.0 / 9.5 / 4.6, rows 2.3
/ 5.1 / 3.5; an embedding's gradient (40001 rows of 65) 2.4 / 8.5 / 3.8; sort of 3 million float64
260 / 526 / 310, int64 67 / 261 / 60; topk of 50 of them 0.8 / 32 / 32; unique with inverse of 3
million int64 96 / 523 / 86; randperm of 3 million 40 / 477 / 80. Std along rows 0.5 / 14 / 17. For
(8, 33, 113, 111) float32: group_norm 1.4 / 3.3 / 1.6; resampling by 1.7 bilinear 13 / 46 / 15,
bicubic 26 / 119 / 97; adaptive_max_pool2d to 7, forward and backward 6.7 / 31 / 5.2.
"""
import ctypes
import functools

import numpy as np

from mindtorch.backend.cpu._numpy_private import header
from mindtorch.backend.cpu.host import address as at
from mindtorch.backend.c_kernels import build, thread_pool

_P, _L, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
_SCANNED = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int64): "i64"}
_SORTED = {**_SCANNED, np.dtype(np.int32): "i32", np.dtype(np.uint8): "u8", np.dtype(np.bool_): "u8"}
_I64 = np.dtype(np.int64)
_ARGUMENTS = {"mt_scan": [_P, _P, _I, _I, _I], "mt_extremes": [_P, _P, _P, _I, _I]}
_ROWS = {"mt_taps": [_P] * 4 + [_L] * 5 + [_I], "mt_sums": [_P] * 4 + [_L, _L, _I, ctypes.c_double], "mt_combined": [_P] * 6 + [_L, _L],
         "mt_addends": [_P] * 3 + [_L] * 3 + [ctypes.c_double]}
_ORDERS = {"mt_order": [_P, _P, _P, _L, _L, _I], "mt_best": [_P, _P, _P, _L, _L, _L, _I], "mt_top": [_P, _P, _P, _I], "mt_ranked": [_P, _P, _P, _I, _L]}


@functools.cache
def _lib():
    found, threads = build.scan_gather(), thread_pool.lib()
    if found is None or threads is None:
        return None
    build.declare(found, {f"{n}_{t}": a for n, a in _ARGUMENTS.items() for t in _SCANNED.values()}, (), direct=True)
    rows = {f"{n}_{t}": a for n, a in _ROWS.items() for t in ("f32", "f64")}
    build.declare(found, rows, [n for n in rows if n.startswith(("mt_taps", "mt_sums"))], direct=True)
    orders = {f"{n}_{t}": a for n, a in _ORDERS.items() for t in _SORTED.values()}
    found.mt_multiply_add.argtypes, found.mt_multiply_add.restype = [_P, _P, _L, ctypes.c_double, ctypes.c_double], None
    build.declare(found, {"mt_shuffled": [_P, _P, _L]}, ("mt_shuffled",))
    moves = {name: [_I, _I, _I, _P, _P, _P] for name in ("mt_move", "mt_move_rows")}
    build.declare(found, {**orders, **moves}, {*orders, *moves}, direct=True)
    searched = {f"mt_searched_{t}": [_P, _P, _P, _L, _L, _L, _I] for t in _SORTED.values()}
    build.declare(found, {**searched, "mt_counted": [_P, _P], "mt_nonzero": [_P, _P, _L, _L, _L]}, ("mt_nonzero",), direct=True)
    found.mt_largest.argtypes, found.mt_largest.restype = [_P], ctypes.c_uint64
    found.mt_use(threads.mt_share)
    return found


def _ready():
    return _lib() if thread_pool.ready() is not None else None


@functools.cache
def _typed(name):
    """Returns {dtype: function} for a function name."""
    lib = _lib()
    return {} if lib is None else {d: getattr(lib, f"{name}_{t}") for d, t in (_SORTED if name in _ORDERS else _SCANNED).items()}


def _sizes(shape, axis):
    """Returns the numbers of elements before, along and after an axis."""
    outer = inner = 1
    for n in shape[:axis]:
        outer *= n
    for n in shape[axis + 1:]:
        inner *= n
    return outer, shape[axis], inner


# ------------------------------------------------------------------ scans
def scan(a, axis, times, back=False):
    """Computes cumulative sums (`times`: products) of a along an axis, from its end if `back`;
    float32 in double precision."""
    f = _typed("mt_scan").get(a.dtype)
    if f is None or not thread_pool.ready_for(a.size):
        return None
    if not a.flags.c_contiguous:
        a = np.ascontiguousarray(a)
    r = np.empty(a.shape, a.dtype)
    f(header(a), header(r), axis, times, back)
    return r


def extremes(a, axis, least):
    """Returns (cumulative maximum, or minimum if `least`, along an axis; its last index)."""
    f = _typed("mt_extremes").get(a.dtype)
    if f is None or not thread_pool.ready_for(a.size):
        return None
    if not a.flags.c_contiguous:
        a = np.ascontiguousarray(a)
    r, where = np.empty(a.shape, a.dtype), np.empty(a.shape, _I64)
    f(header(a), header(r), header(where), axis, least)
    return r, where


# ------------------------------------------------------------------ gather and scatter
GATHER, PUT, ADD = range(3)
_ADDED: dict[object, int] = {np.dtype(f"{s}{n}"): n for s in "iu" for n in (1, 2, 4, 8)}
_ADDED.update({np.dtype(np.float32): 260, np.dtype(np.float64): 264})


def _move(name, what, a, index, axis, line):
    global _moves
    if _moves is None:
        lib = _lib()
        _moves = {} if lib is None else {"mt_move": lib.mt_move, "mt_move_rows": lib.mt_move_rows}
    dtype = a.dtype
    kind = _ADDED.get(dtype) if what == ADD else dtype.itemsize if dtype.kind != "O" else None
    f = _moves.get(name)
    if kind is None or f is None or line.dtype is not dtype and line.dtype != dtype or index.dtype is not _I64 and index.dtype != _I64 \
            or not thread_pool.ready_for(max(line.size, index.size)):
        return None
    done = f(what, kind, axis, header(a), header(line), header(index))
    return None if done < 0 else not done


_moves: dict[str, object] | None = None


def move(what, a, index, axis, line):
    """GATHER: line[...] = a at the coordinates of the loop, with that of `axis` replaced by
    `index`; PUT, ADD: the reverse, a write or an addition.

    Any strides. index is no larger than a, except along the axis; line is no smaller than index, or
    0-dim. Returns True; False if an index was out of bounds (part of the work is done then); None
    if there is no kernel.
    """
    return _move("mt_move", what, a, index, axis, line)


def rows(what, a, index, axis, line):
    """Like `move`, with a 1D index: line[..., k, ...] is a[..., index[k], ...]; a and line are
    C-contiguous."""
    return _move("mt_move_rows", what, a, index, axis, line)


def add_to_rows(table, places, rows, times):
    """Computes table[places[k]] += times * rows[k] for each k in order, on C-contiguous arrays; all
    indices must be in bounds. None if there is no kernel."""
    t = _SCANNED.get(table.dtype)
    if t not in ("f32", "f64") or rows.dtype != table.dtype or at(table) % table.itemsize or at(rows) % table.itemsize or (lib := _ready()) is None:
        return None
    getattr(lib, "mt_addends_" + t)(at(table), at(places), at(rows), len(table), table[:1].size, places.size, times)
    return True


# ------------------------------------------------------------------ random numbers
def shuffled(steps):
    """Returns 0..n-1 after swapping elements i and i + steps[i] for each i in order (steps:
    uint32)."""
    lib = _ready()
    if lib is None or steps.dtype != np.uint32:
        return None
    steps, r = np.ascontiguousarray(steps), np.empty(steps.size + 1, _I64)
    return None if lib.mt_shuffled(at(r), at(steps), r.size) else r


def multiply_add(x, y, z):
    """Computes x * y + z of a contiguous float64 array with one rounding (FMA)."""
    lib = _ready()
    if lib is None:
        return None
    r = np.empty(x.shape, x.dtype)
    lib.mt_multiply_add(at(x), at(r), x.size, y, z)
    return r


# ------------------------------------------------------------------ sorting
#
# Row lengths: from `_DIGITS` on, a radix sort is faster than a comparison sort. `_WORDS` is the
# limit for float32, for which NumPy's vectorized sort of key and index in one word is faster at any
# length. Up to `_FEW` (as in scan_gather.c), an insertion sort is used (16 rows of 16: 3 us vs
# NumPy 8 us).
_DIGITS, _WORDS, _FEW = 512, 1 << 62, 48


def orders(dtype, n):
    """True if `order` is faster than NumPy for rows of n."""
    return n < 1 << 32 and dtype in _SORTED and (n <= _FEW or n >= (_WORDS if dtype.kind == "f" and dtype.itemsize == 4 else _DIGITS))


def finds(dtype, n, k):
    """True if `best` is faster than NumPy for k elements of rows of n."""
    return n < 1 << 32 and dtype in _SORTED and 0 < 8 * k <= n


def order(a, down, values=True):
    """Returns (sorted rows, sorting indices) of a contiguous matrix that `orders` accepts: stable,
    nan is the largest."""
    f = _typed("mt_order").get(a.dtype)
    if f is None or not thread_pool.ready_for(a.size):
        return None
    r, places = np.empty(a.shape, a.dtype) if values else None, np.empty(a.shape, _I64)
    failed = f(at(a), None if r is None else at(r), at(places), *a.shape, down)
    return None if failed else (r, places)


def best(a, k, down):
    """Returns (the k largest (down) or smallest elements of each row of a matrix, their indices);
    equal elements stay in order."""
    if (lib := _ready()) is None:
        return None
    r, places = np.empty((len(a), k), a.dtype), np.empty((len(a), k), _I64)
    failed = getattr(lib, "mt_best_" + _SORTED[a.dtype])(at(a), at(r), at(places), *a.shape, k, down)
    return None if failed else (r, places)


PLACE, MEDIAN, SKIPPING = range(3)


def top(a, k, down, first=False):
    """Returns (the k largest (down) or smallest elements along the last axis of a C-contiguous
    array, their indices), sorted. None if there is no kernel, or if some of them and the next one
    are equal (with `first` the first of the equal ones is returned)."""
    f = _typed("mt_top").get(a.dtype)
    if f is None or k > _FEW or thread_pool.ready_for(a.size) is False:
        return None
    shape = a.shape[:-1] + (k,)
    r, places = np.empty(shape, a.dtype), np.empty(shape, _I64)
    status = f(header(a), header(r), header(places), down)
    return None if status < 0 or status and not first else (r, places)


def ranked(a, how, k, keepdim):
    """Returns (one element of each row of the last axis of a C-contiguous array, its index).

    PLACE: the element at rank k; MEDIAN: the lower median; SKIPPING: the lower median without nans.
    None if there is no kernel, or if ties or nans leave a choice.
    """
    f = _typed("mt_ranked").get(a.dtype)
    if f is None or thread_pool.ready() is None:
        return None
    shape = a.shape[:-1] + (1,) if keepdim else a.shape[:-1]
    r, places = np.empty(shape, a.dtype), np.empty(shape, _I64)
    return None if f(header(a), header(r), header(places), how, k) else (r, places)


# ------------------------------------------------------------------ counts and indices
def counted(a, least):
    """Counts the occurrences of each value in a 1D array; the result has at least `least` elements,
    else largest value + 1. None if there is no kernel, or a value is negative. (65536 values below
    64: 35 us, NumPy 66 us, PyTorch 49 us.)"""
    if a.dtype != _I64 or (lib := _ready()) is None:
        return None
    a = np.ascontiguousarray(a)
    most = lib.mt_largest(header(a))
    if most >= 1 << 62:
        return None
    r = np.zeros(max(least, most + 1 if a.size else 0), _I64)
    lib.mt_counted(header(a), header(r))
    return r


def nonzero(mask, apart=False):
    """Returns the coordinates of the true elements of a bool array, one row each (`apart`: one
    array per dimension); None if there is no kernel."""
    if (lib := _ready()) is None or not mask.ndim:
        return None
    mask, count, n = np.ascontiguousarray(mask), int(np.count_nonzero(mask)), mask.ndim
    r = np.empty((n, count) if apart else (count, n), _I64)
    return None if lib.mt_nonzero(header(mask), at(r), count, 1 if apart else n, count if apart else 1) else r


def searched(rows, x, right):
    """Returns the insertion index of each value of x in the sorted rows (one row, or with x's
    leading dimensions), before equal elements or (right) after them; None if there is no kernel."""
    t = _SORTED.get(x.dtype)
    if t is None or rows.dtype != x.dtype or (lib := _lib()) is None or not thread_pool.ready_for(x.size):
        return None
    r, n = np.empty(x.shape, _I64), rows.shape[-1]
    if not (rows.flags.c_contiguous and x.flags.c_contiguous):
        rows, x = np.ascontiguousarray(rows), np.ascontiguousarray(x)
    count, width = (1, x.size) if rows.ndim == 1 else (x.size // max(1, x.shape[-1]), x.shape[-1])
    getattr(lib, "mt_searched_" + t)(header(rows), header(x), header(r), count, n, width, right)
    return r


# ------------------------------------------------------------------ weighted sums of taps
_REAL = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}


def _real(dtype):
    return _REAL.get(dtype) if _ready() is not None else None


def taps(a, index, weight, axis, back=None):
    """Computes weighted sums of elements of a along an axis: index, weight [taps, out]. `back`: the
    adjoint, with this many elements along the axis."""
    kind = _real(a.dtype)
    if kind is None:
        return None
    a, index, weight = np.ascontiguousarray(a), np.ascontiguousarray(index), np.ascontiguousarray(weight, a.dtype)
    outer, n, inner = _sizes(a.shape, axis)
    count, out = index.shape
    r = np.empty((*a.shape[:axis], out if back is None else back, *a.shape[axis + 1:]), a.dtype)
    outside = getattr(_lib(), "mt_taps_" + kind)(at(a), at(r), at(index), at(weight), outer, n if back is None else back, inner, out, count, back is not None)
    return None if outside else r


# ------------------------------------------------------------------ rows
PLAIN, PRODUCT, CENTRED, SIZES = range(4)


def sums(a, what=PLAIN, other=None, times=1.0):
    """Returns sums over the rows of a contiguous matrix, multiplied by `times`: of its elements, of
    products with another matrix, of squares of (element - other[row]), or of absolute values."""
    kind = _real(a.dtype)
    if kind is None:
        return None
    r, second = np.empty(len(a), a.dtype), None if other is None else at(other)
    failed = getattr(_lib(), "mt_sums_" + kind)(at(a), second if what == PRODUCT else None, second if what == CENTRED else None, at(r), *a.shape, what, times)
    return None if failed else r


def combined(x, p, r, g=None, q=None):
    """Computes x * p[row] + g * q[row] + r[row] of contiguous matrices; without g: x * p[row] +
    r[row]."""
    y = np.empty(x.shape, x.dtype)
    g, q, p, r = [None if v is None else np.ascontiguousarray(v, x.dtype) for v in (g, q, p, r)]
    getattr(_lib(), "mt_combined_" + _REAL[x.dtype])(at(x), *[None if v is None else at(v) for v in (g, p, q, r)], at(y), *x.shape)
    return y
