"""Comparators for ops whose correct answer is not unique.

Results are first compared value by value. Where that fails, one of these comparators checks what
the op guarantees: the product of the factors equals the matrix, indices point at the returned
values, eigenvectors satisfy A v = w v. Each is called with (want, got, given): results and
arguments as NumPy arrays and plain values, where `given` is a pair (args, kwargs). It returns None,
or a description of the mismatch. Gradients are always compared by value: torch's own samples first
reduce the result to something that does not depend on the choice of sign, phase or order.
"""
import numpy as np

RTOL, ATOL = 1e-4, 1e-5


def _off(what, a, b, rtol=RTOL, atol=ATOL):
    """Returns None if two arrays are equal within tolerance, relative to the largest element."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return f"{what}: shape {a.shape}, expected {b.shape}"
    same = (a == b) | (a != a) & (b != b)  # equal infinities, and NaN in both
    a, b = np.where(same, 0, a), np.where(same, 0, b)
    big = float(np.abs(b).max()) if b.size else 0.0
    far = float(np.abs(a - b).max()) if b.size else 0.0
    return None if far <= atol + rtol * big else f"{what} is off by {far:.3g} of {big:.3g}"


def _wide(a):
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def _h(a):
    return np.conj(np.swapaxes(a, -1, -2))


def _unitary(what, q):
    q = _wide(q)
    return _off(f"{what}^H {what}", _h(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])), 0, 1e-3)


def _first(*found):
    return next((f for f in found if f), None)


# ------------------------------------------------------------------ choices among equal values
def _argument(given, position, name, default):
    args, kwargs = given
    return kwargs.get(name, args[position] if len(args) > position else default)


def _chosen(dim_at, distinct, indices_only=False):
    """Compares values exactly. Each index must point at its value, and where several elements are
    chosen no index may occur twice."""
    def compare(want, got, given):
        x, dim = given[0][0], _argument(given, dim_at, "dim", -1)
        if _argument(given, len(given[0]), "stable", False) is True:
            return "indices differ, although stable=True"
        if not indices_only and not isinstance(want, list):
            return "values differ"
        index = got if indices_only else got[1]
        chosen = want if indices_only else want[1]
        if index.shape != chosen.shape:
            return f"indices: shape {index.shape}, expected {chosen.shape}"
        if not x.ndim:
            return None if not index.any() else "an index is out of range"
        keep = index.ndim == x.ndim
        at, there = (i if keep else np.expand_dims(i, dim) for i in (index, chosen))
        if at.size and (at.min() < 0 or at.max() >= x.shape[dim]):
            return "an index is out of range"
        if distinct and at.size and (np.diff(np.sort(at, dim), axis=dim) == 0).any():
            return "an index occurs twice"
        # The expected value is the one at torch's index. NaN equals NaN.
        if not np.array_equal(np.take_along_axis(x, at, dim), np.take_along_axis(x, there, dim), equal_nan=x.dtype.kind in "fc"):
            return "indices point at other values"
        return None if indices_only else _off("values", got[0], want[0], 0, 0)
    return compare


# ------------------------------------------------------------------ factors

def _scaled(usv, h):
    u, s, v = map(_wide, usv)
    v = v if h else _h(v)
    k = s.shape[-1]
    return u[..., :k] * s[..., None, :], v[..., :k, :]


def _svd(h):
    """Compares the products U S V^H; U and V must have orthonormal columns."""
    def compare(want, got, given):
        if not isinstance(want, (list, tuple)) or not want[0].size or not want[2].size:
            return "values differ"
        (a, b), (c, d) = _scaled(got, h), _scaled(want, h)
        return _first(_off("S", got[1], want[1]), _off("U S V^H", a @ b, c @ d), _unitary("U", got[0]),
                      _unitary("V", _h(got[2]) if h else got[2]))
    return compare


def _qr(want, got, given):
    q, r = got
    if not want[0].size:
        return "values differ"
    k = min(q.shape[-1], r.shape[-2])
    return _first(_off("Q R", _wide(q)[..., :k] @ _wide(r)[..., :k, :], _wide(want[0])[..., :k] @ _wide(want[1])[..., :k, :]),
                  _unitary("Q", q), _off("R below its diagonal", np.tril(r, -1), np.zeros_like(r)))


def _plu(want, got, given):
    if len(want) != 3 or not want[0].size:
        return "values differ"
    ours, theirs = (_wide(p) @ _wide(lo) @ _wide(u) for p, lo, u in (got, want))
    return _first(_off("P L U", ours, theirs), _off("|L|", np.minimum(np.abs(got[1]), 1), np.abs(got[1])))


def _unpacked(lu, pivots):
    """Multiplies the factors packed in `lu` and undoes the row swaps of `pivots` (counted from 1).
    """
    lu = _wide(lu)
    m, n = lu.shape[-2:]
    k = min(m, n)
    a = (np.tril(lu, -1)[..., :k] + np.eye(m, k)) @ np.triu(lu)[..., :k, :]
    flat, swaps = a.reshape(-1, m, n).copy(), pivots.reshape(-1, pivots.shape[-1])
    for x, p in zip(flat, swaps, strict=True):
        for i in range(len(p) - 1, -1, -1):
            x[[i, p[i] - 1]] = x[[p[i] - 1, i]]
    return flat.reshape(a.shape)


def _lu_factor(want, got, given):
    if not want[0].size or got[1].shape != want[1].shape or got[1].min() < 1 or got[1].max() > want[0].shape[-2]:
        return "values or pivots differ"
    return _first(_off("P L U", _unpacked(*got[:2]), _unpacked(*want[:2])),
                  *(_off("info", a, b, 0, 0) for a, b in zip(got[2:], want[2:], strict=True)))


# ------------------------------------------------------------------ eigenvalues
def _matched(a, b):
    """Reorders `a` to match `b`: for each element of `b`, takes the nearest remaining element of
    `a`."""
    out, a = np.array(a), np.array(a)
    for row, left, to in zip(out.reshape(-1, a.shape[-1]), a.reshape(-1, a.shape[-1]), b.reshape(-1, a.shape[-1]), strict=True):
        left = list(left)
        for i, w in enumerate(to):
            row[i] = left.pop(int(np.argmin(np.abs(np.array(left) - w))))
    return out


def _eigenvalues(want, got, given):
    return _off("eigenvalues", _matched(got, want), want)


def _eig(want, got, given):
    """Checks that the eigenvalues agree up to their order, that each vector is an eigenvector of
    length one, and that the vectors span a space of the same rank as torch's."""
    (w, v), a = map(_wide, got), _wide(given[0][0])
    ranks = [np.linalg.matrix_rank(_wide(x), tol=1e-3) for x in (v, want[1])]
    return _first(_eigenvalues(want[0], w, given), _off("A V - V w", a @ v, v * w[..., None, :], 1e-4, 1e-4 * (1 + float(np.abs(a).max(initial=0)))),
                  _off("length of vectors", np.linalg.norm(v, axis=-2), np.ones(w.shape), 0, 1e-4),
                  None if np.array_equal(*ranks) else "the vectors are not independent")


def _eigh(want, got, given):
    (w, v), a = map(_wide, got), _wide(given[0][0])
    lower = str(_argument(given, 1, "UPLO", "L")).upper() == "L"
    a = np.tril(a) if lower else np.triu(a)
    a = a + _h(a) - np.eye(a.shape[-1]) * a.real  # the imaginary part of the diagonal is ignored
    return _first(_off("eigenvalues", w, want[0]), _unitary("V", v), _off("A V - V w", a @ v, v * w[..., None, :], 1e-4, 1e-4))


#: op -> (the property that must hold, as text; the comparator)
COMPARATORS = {
    "sort": ("sorted values; indices that gather them", _chosen(1, True)),
    "topk": ("values; indices that gather them", _chosen(2, True)),
    "argsort": ("indices that gather sorted values", _chosen(1, True, indices_only=True)),
    "kthvalue": ("value; an index that points at it", _chosen(2, False)),
    "mode": ("value; an index that points at it", _chosen(1, False)),
    "median": ("value; an index that points at it", _chosen(1, False)),
    "nanmedian": ("value; an index that points at it", _chosen(1, False)),
    "svd": ("S, U S V^H, orthonormal columns", _svd(False)),
    "linalg.svd": ("S, U S V^H, orthonormal columns", _svd(True)),
    "svd_lowrank": ("S, U S V^H, orthonormal columns", _svd(False)),
    "pca_lowrank": ("S, U S V^H, orthonormal columns", _svd(False)),
    "qr": ("Q R, Q unitary, R triangular", _qr),
    "linalg.qr": ("Q R, Q unitary, R triangular", _qr),
    "linalg.lu": ("P L U, |L| at most 1", _plu),
    "linalg.lu_factor": ("P L U", _lu_factor),
    "linalg.lu_factor_ex": ("P L U", _lu_factor),
    "lu": ("P L U", _lu_factor),
    "linalg.eigvals": ("eigenvalues up to their order", _eigenvalues),
    "linalg.eig": ("eigenvalues up to their order, A V = V w, independent vectors of length one", _eig),
    "linalg.eigh": ("eigenvalues, A V = V w, V unitary", _eigh),
}

#: op -> the reason why only shape, dtype and strides can be compared
SHAPE_ONLY = {name: "uninitialized memory" for name in (
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")}
