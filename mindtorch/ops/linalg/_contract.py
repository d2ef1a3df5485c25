"""Contractions: sums of products of two tensors over any dims, einsum, tensordot."""
import functools

from mindtorch.core.tensor.inplace import scalar_type_name
from mindtorch.core.dispatch.op_registry import register_op
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.ops.nn._fused import dim_of, check_tensor_arg
from mindtorch.ops.basic import conj


def contract(a, b, la, lb, lo):
    """Returns the sum of products of two tensors over the labels that are not in `lo`. Sizes of 1
    broadcast."""
    sa, sb = dict(zip(la, a._sizes)), dict(zip(lb, b._sizes))
    for k in sa:
        if k in sb and sa[k] != sb[k]:
            # expand sums the gradient of a broadcast operand.
            if sa[k] == 1:
                a = a.expand([sb[k] if j == k else -1 for j in la])
            else:
                b = b.expand([sa[k] if j == k else -1 for j in lb])
    if a._np_dtype.kind == "b" and any(k in sb and k not in lo for k in la):
        raise NotImplementedError(f"\"bmm\" not implemented for 'Bool' on device {a.device}")
    return contract_(a, b, la=tuple(la), lb=tuple(lb), lo=tuple(lo))


contract_ = primitive("einsum", "a, b, *, la, lb, lo",
                      lambda ctx, grad: contract_(grad, conj(ctx.b), la=ctx.lo, lb=ctx.lb, lo=ctx.la),
                      lambda ctx, grad: contract_(grad, conj(ctx.a), la=ctx.lo, lb=ctx.la, lo=ctx.lb), node="BmmBackward0")


# ------------------------------------------------------------------ einsum
def _letters(term, error):
    """Returns the subscripts of one operand or of the output; "..." is one item."""
    out, i, seen = [], 0, False
    while i < len(term):
        ch = term[i]
        if ch == " ":
            i += 1
        elif ch == ".":
            if term[i:i + 3] != "..." or seen:
                raise RuntimeError(f"einsum(): found '.' {error} that is not part of any ellipsis" if not seen else
                                   f"einsum(): found '.' {error} for which an ellipsis was already found")
            out.append("...")
            seen = True
            i += 3
        elif ch.isascii() and ch.isalpha():
            out.append(ch)
            i += 1
        else:
            raise RuntimeError(f"einsum(): invalid subscript given at index {i} in the equation string, subscripts "
                               "must be in "
                               "[a-zA-Z]")
    return out


def _from_sublists(args):
    """Parses einsum(a, [0, 1], b, [1, 2], [0, 2]) into (subscripts of operands, output or None,
    operands)."""
    operands, terms = [], []
    n = len(args) // 2 * 2
    for i in range(0, n, 2):
        operands.append(args[i])
        terms.append(_sublist(args[i + 1]))
    return terms, (_sublist(args[-1]) if len(args) % 2 else None), operands


def _sublist(items):
    out = []
    for s in items:
        if s is Ellipsis:
            out.append("...")
            continue
        s = int(s)
        if not 0 <= s < 52:
            raise RuntimeError("einsum(): not within range [0, 52)")
        out.append(chr(65 + s) if s < 26 else chr(97 + s - 26))
    return out


def _sums_products(*args):
    """Returns einsum's autocast category: that of matrix products if a label of two operands is
    summed over."""
    if args[0].__class__ is str:
        lhs, arrow, rhs = args[0].replace(" ", "").partition("->")
        terms, out = lhs.replace(".", "").split(","), rhs if arrow else None
    elif args[0].__class__ is Tensor or is_tensor(args[0]):
        terms, out = args[1::2], args[-1] if len(args) % 2 else None
    else:
        return None
    count = {}
    for t in terms:
        for k in set(t) - {Ellipsis}:
            count[k] = count.get(k, 0) + 1
    return "lower" if any([n > 1 and (out is None or k not in out) for k, n in count.items()]) else None


@register_op(method=False, autocast=_sums_products)
def einsum(*args):
    """Sums of products in Einstein notation: einsum("ij,jk->ik", a, b), a list of operands, or
    sublists of labels."""
    if len(args) < 2:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand "
                         "and its "
                         "subscripts list")
    if len(args) == 3 and args[0].__class__ is str and args[1].__class__ is Tensor is args[2].__class__:
        a, b = args[1:]
        labels = _single_contraction(args[0], a._sizes, b._sizes)
        if labels is not None and a._np_dtype is b._np_dtype and a._np_dtype.kind != "b":
            la, lb, lo = labels
            return contract_(a, b, la=la, lb=lb, lo=lo)
    if isinstance(args[0], str):
        operands = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
        lhs, arrow, rhs = args[0].partition("->")
        parts = lhs.split(",")
        if len(parts) > len(operands):
            raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
        if len(parts) < len(operands):
            raise RuntimeError("einsum(): more operands were provided than specified in the equation")
        terms = [_letters(t, f"for operand {i}") for i, t in enumerate(parts)]
        out = _letters(rhs, "in the output") if arrow else None
    else:
        terms, out, operands = _from_sublists(args)
    for i, t in enumerate(operands):
        check_tensor_arg("einsum", "tensors", t, i + 2)
    return _einsum(terms, out, list(operands))


@functools.lru_cache(512)
def _single_contraction(equation, sa, sb):
    """Returns the labels of two operands and of the result if an equation is exactly one
    contraction, else None. (Cached: parsing takes 12 us.)"""
    lhs, arrow, lo = equation.replace(" ", "").partition("->")
    la, comma, lb = lhs.partition(",")
    if not (arrow and comma and all([not t or t.isascii() and t.isalpha() for t in (la, lb, lo)])):
        return None
    if any([len(set(t)) != len(t) for t in (la, lb, lo)]) or len(la) != len(sa) or len(lb) != len(sb):
        return None             # diagonals, errors
    sizes = dict(zip(la, sa))
    if any([sizes.get(k, n) != n for k, n in zip(lb, sb)]) or set(la) ^ set(lb) ^ set(lo) & (set(la) ^ set(lb)) or set(lo) - set(la + lb):
        return None  # broadcast operands, sums before the product, errors
    return tuple([tuple(map(ord, t)) for t in (la, lb, lo)])


def _einsum(terms, out, operands):
    # Letters become labels >= 0. The dims of an ellipsis get negative labels, aligned at the right.
    ellipsis_ndim = 0
    for i, (t, x) in enumerate(zip(terms, operands)):
        named = sum(s != "..." for s in t)
        extra = x.ndim - named
        if "..." in t:
            if extra < 0:
                raise RuntimeError(f"einsum(): the number of subscripts in the equation ({named}) is more than the "
                                   "number of "
                                   f"dimensions ({x.ndim}) for operand {i}")
            ellipsis_ndim = max(ellipsis_ndim, extra)
        elif extra:
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({named}) does not match the "
                               "number of "
                               f"dimensions ({x.ndim}) for operand {i} and no ellipsis was given")
    if out is None:
        count = {}
        for t in terms:
            for s in t:
                count[s] = count.get(s, 0) + 1
        out = (["..."] if ellipsis_ndim else []) + sorted(s for s in count if s != "..." and count[s] == 1)
    lo = []
    known = {s for t in terms for s in t}
    for s in out:
        if s == "...":
            lo.extend(range(-ellipsis_ndim, 0))
            continue
        if s not in known:
            raise RuntimeError(f"einsum(): output subscript {s} does not appear in the equation for any input operand")
        if ord(s) in lo:
            raise RuntimeError(f"einsum(): output subscript {s} appears more than once in the output")
        lo.append(ord(s))
    sizes, items = {}, []
    for i, (t, x) in enumerate(zip(terms, operands)):
        labels = []
        extra = x.ndim - sum(s != "..." for s in t)
        for s in t:
            labels.extend(range(-extra, 0) if s == "..." else [ord(s)])
        x, labels = _diagonals(x, labels, i)
        for k, n in zip(labels, x._sizes):
            old = sizes.get(k, 1)
            if n != old and n != 1 and old != 1:
                raise RuntimeError(f"einsum(): subscript {chr(k) if k > 0 else '...'} has size {n} for operand {i} "
                                   "which does "
                                   f"not broadcast with previously seen size {old}")
            sizes[k] = n if old == 1 else old
        items.append((x, labels))
    x, lx = items[0]
    for i, (y, ly) in enumerate(items[1:], 1):
        wanted = set(lo)
        for _, lz in items[i + 1:]:
            wanted.update(lz)
        x, lx = _sum_out(x, lx, wanted | set(ly))
        y, ly = _sum_out(y, ly, wanted | set(lx))
        new = [k for k in lx if k in wanted] + [k for k in ly if k in wanted and k not in lx]
        if set(new) <= set(lo) and i == len(items) - 1:
            new = [k for k in lo if k in new]
        x, lx = _pair(x, y, lx, ly, new), new
    x, lx = _sum_out(x, lx, set(lo))
    missing = [k for k in lo if k not in lx]
    if lx + missing != lo or missing:
        x = x.permute([lx.index(k) for k in lo if k in lx]) if len(lx) > 1 else x
        for at, k in enumerate(lo):
            if k in missing:
                x = x.unsqueeze(at)
    return x


def _pair(x, y, lx, ly, lo):
    """Returns the product of two operands, summed over the labels that are not in `lo`.

    With mixed dtypes or bool, PyTorch supports it only if nothing is summed over or there are no
    elements: then there is no matrix product.
    """
    if x._np_dtype == y._np_dtype and x._np_dtype.kind != "b":
        return contract(x, y, lx, ly, lo)
    sx, sy = dict(zip(lx, x._sizes)), dict(zip(ly, y._sizes))
    x, lx = _sum_out(x, lx, [k for k in lx if k in lo or sx[k] != 1 != sy.get(k)])
    y, ly = _sum_out(y, ly, [k for k in ly if k in lo or sy[k] != 1 != sx.get(k)])
    dtype = None
    if any([k in ly and k not in lo for k in lx]):
        some = 0 not in x._sizes and 0 not in y._sizes
        if x._np_dtype != y._np_dtype and (some or x.requires_grad and y._np_dtype.kind not in "fc"):
            raise RuntimeError(f"expected scalar type {scalar_type_name(x._np_dtype)} but found {scalar_type_name(y._np_dtype)}")
        if some:
            return contract(x, y, lx, ly, lo)
        dtype = y.dtype  # as in PyTorch
    order = list(dict.fromkeys((*lo, *lx, *ly)))
    r = _align_labels(x, lx, order) * _align_labels(y, ly, order)
    drop = list(range(len(lo), len(order)))
    return r.sum(drop, dtype=dtype or r.dtype) if drop else r


def _align_labels(x, labels, order):
    """Returns x with one dim for each label of `order`, of size 1 where x does not have the label.
    """
    x = x.permute([labels.index(k) for k in order if k in labels])
    for at, k in enumerate(order):
        if k not in labels:
            x = x.unsqueeze(at)
    return x


def _diagonals(x, labels, operand):
    """Takes the diagonal for repeated labels of one operand."""
    i = 0
    while i < len(labels):
        k = labels[i]
        if k in labels[i + 1:]:
            j = labels.index(k, i + 1)
            if x._sizes[i] != x._sizes[j]:
                raise RuntimeError(f"einsum(): subscript {chr(k)} is repeated for operand {operand} but the sizes "
                                   "don't match, "
                                   f"{x._sizes[j]} != {x._sizes[i]}")
            x = x.diagonal(0, i, j)
            labels = [s for n, s in enumerate(labels) if n not in (i, j)] + [k]
            i = 0
        else:
            i += 1
    return x, labels


def _sum_out(x, labels, keep):
    drop = [i for i, k in enumerate(labels) if k not in keep]
    if not drop:
        return x, labels
    return x.sum(drop), [k for k in labels if k in keep]


# ------------------------------------------------------------------ tensordot
def _leaves_dims(a, b, dims=2, **out):
    """Returns tensordot's autocast category: that of matrix products, unless the result is a single
    element."""
    n = dims if dims.__class__ is int else len(dims[0]) if dims.__class__ in (list, tuple) and dims[0].__class__ in (list, tuple) else 1
    return "lower" if a.__class__ is not Tensor and not is_tensor(a) or a.ndim + b.ndim > 2 * n else None


@register_op(method=False, out="same", autocast=_leaves_dims)
def tensordot(a, b, dims=2):
    """Sums of products over pairs of dims: `dims` is a count (last of a, first of b) or two lists.
    """
    if dims.__class__ is Tensor or is_tensor(dims):
        dims = to_host(dims).tolist()
    x, y = a._sizes, b._sizes
    if isinstance(dims, (list, tuple)):
        if len(dims) != 2:
            raise RuntimeError("tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] "
                               "containing "
                               f"two lists, but got dims={dims}")
        da, db = ([d] if isinstance(d, int) else list(d) for d in dims)
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(len(x), len(y)):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        da, db = list(range(len(x) - dims, len(x))), list(range(dims))
    if len(da) != len(db):
        raise RuntimeError("both dimension lists should have same length")
    if a._np_dtype != b._np_dtype:
        raise RuntimeError("both inputs should have same dtype")
    da, db = [dim_of(d, len(x)) for d in da], [dim_of(d, len(y)) for d in db]
    la, lb = list(range(len(x))), list(range(len(x), len(x) + len(y)))
    for i, j in zip(da, db):
        if x[i] != y[j] and x[i] != 1 and y[j] != 1:
            raise RuntimeError(f"contracted dimensions need to match, but first has size {x[i]} in dim "
                               f"{i - len(x) if isinstance(dims, int) else i} and "
                               f"second has size {y[j]} in dim {j}")
        lb[j] = la[i]
    lo = [k for k in la if k not in lb] + [k for k in lb if k not in la]
    return contract(a, b, la, lb, lo)


