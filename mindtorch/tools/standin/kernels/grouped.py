"""Grouped matrix products, with one weight per group of rows, and the expert layers built from
them."""
import itertools

from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._table import kernel


def _absent(**given):
    """Rejects lists and tensors that the functions below do not support."""
    for name, value in given.items():
        if value is not None and (not isinstance(value, list) or value):
            raise NotImplementedError(f"{name} of a grouped product")


def _element(items, k):
    """Returns the k-th element of a list, or of the first dimension of its only tensor."""
    if not items:
        return None
    return items[0][k] if len(items) == 1 and items[0].dim() > 1 else items[k]


def _scaled_product(a, b, bias, scale, each):
    """Computes a @ b; of int8 operands the exact sum, scaled per column and per row."""
    value = a @ b if a.is_floating_point() else a.double() @ b.double()
    if scale is not None:
        value = value * scale
    if each is not None:
        value = value * each.reshape(-1, 1)
    return value if bias is None else value + bias


def _grouped(x, weight, bias, ends, kind, out, scale=None, each=None):
    """Computes the grouped products. `kind`: -1 pairs of x and weight; 0 the rows of x up to each
    end have their own weight; 2 the columns of x and the rows of the weight are split."""
    if kind == -1 or ends is None:
        return [_scaled_product(a, b, *(None if not v else v[k] for v in (bias, scale, each))) for k, (a, b) in enumerate(zip(x, weight))]
    spans = list(itertools.pairwise([0, *ends]))
    if kind == 2:
        return [torch.stack([x[0][:, a:b] @ weight[0][a:b] for a, b in spans])]
    if kind != 0:
        raise NotImplementedError(f"groups of kind {kind}")
    rows = x[0] if len(x) == 1 else torch.cat(x)
    weights = list(weight[0]) if len(weight) == 1 else weight
    pieces = [_scaled_product(rows[a:b], weights[k], _element(bias, k), _element(scale, k), each[0][a:b] if each else None) for k, (a, b) in enumerate(spans)]
    if len(out) > 1:
        return pieces
    rest = rows.shape[0] - spans[-1][1]  # (rows without an expert)
    return [torch.cat([*pieces, torch.zeros([rest, pieces[0].shape[1]], dtype=pieces[0].dtype)])]


def _ends(groups, counts=False):
    """Returns the end of each group, from a list or a tensor of ends or of sizes."""
    if groups is None:
        return None
    groups = groups if isinstance(groups, list) else groups.tolist()
    return list(itertools.accumulate(groups)) if counts else groups


def _grouped_plain(x, weight, bias, scale, offset, antiscale, antioffset, groups, split, kind, out):
    _absent(scale=scale, offset=offset, antiscale=antiscale, antioffset=antioffset)
    return _grouped(x, weight, bias, _ends(groups), kind, out)


def _grouped_scaled(x, weight, bias, scale, offset, antiscale, antioffset, each, groups, active, active_scale, active_offset, split, kind, counts, act,
                    out, active_out, dynamic_scale):
    _absent(offset=offset, antiscale=antiscale, antioffset=antioffset, active=active, active_scale=active_scale, active_offset=active_offset)
    if act:
        raise NotImplementedError(f"activation {act} of a grouped product")
    return _grouped(x, weight, bias, _ends(groups, counts == 1), kind, out, scale, each), [], []


OPERANDS = "x:tensors, weight:tensors, bias:tensors, scale:tensors, offset:tensors, antiscale:tensors, antioffset:tensors"
kernel("GroupedMatmulV2", f"{OPERANDS}, ends:ints, split:int, kind:int, out:tensors!")(_grouped_plain)
kernel("GroupedMatmulV3", f"{OPERANDS}, ends, split:int, kind:int, out:tensors!")(_grouped_plain)
kernel("GroupedMatmulV4", f"{OPERANDS}, each:tensors, groups, active:tensors, active_scale:tensors, active_offset:tensors, "
       "split:int, kind:int, counts:int, act:int, out:tensors!, active_out:tensors!, dynamic_scale:tensors!")(_grouped_scaled)


# ---- both layers of each expert
ACTIVATIONS = {"relu": torch.relu, "silu": F.silu, "gelu": F.gelu, "fastgelu": lambda x: x * torch.sigmoid(1.702 * x)}


def _feed_forward(x, first, second, counts, bias1, bias2, scale, offset, d1, d2, s1, s2, o1, o2, activation, precise, out):
    _absent(scale=scale, offset=offset, d1=d1, d2=d2, s1=s1, s2=s2, o1=o1, o2=o2)
    function = ACTIVATIONS[activation.lower()]
    if not counts:
        hidden = function(_scaled_product(x, first, bias1, None, None))
        return _scaled_product(hidden, second, bias2, None, None)
    ends = _ends(counts, True)
    hidden = function(_grouped([x], [first], [] if bias1 is None else [bias1], ends, 0, [out])[0])
    return _grouped([hidden], [second], [] if bias2 is None else [bias2], ends, 0, [out])[0]


kernel("FFN", "x, first, second, counts:ints, bias1, bias2, scale, offset, d1, d2, s1, s2, o1, o2, activation:string, precise:int, out!")(_feed_forward)
