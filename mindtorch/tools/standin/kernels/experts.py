"""Mixture of experts: sorting tokens by expert and back; deformable attention, sampled at locations
of feature maps."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._results import upcast
from mindtorch.tools.standin.kernels._table import gradients, kernel


def _order(experts):
    """Returns the permutation that sorts a flat list of experts, and its inverse (the destination
    of each element)."""
    order = experts.reshape(-1).long().argsort(stable=True)
    return order, order.argsort(stable=True)


def _rows(x, indices):
    """Returns the rows at these indices; zeros for indices out of range."""
    there = (indices >= 0) & (indices < x.shape[0])
    return x[indices.clamp(0, x.shape[0] - 1)] * there.reshape([-1] + [1] * (x.dim() - 1))


def _no_padding(padded):
    if padded:
        raise NotImplementedError("tokens of experts, padded")


@kernel("MoeTokenPermute", "tokens, experts, count:int, padded:bool, out!, places!")
def _permute(tokens, experts, count, padded, out, indices):
    _no_padding(padded)
    order, went = _order(experts)
    return tokens[order // (experts.numel() // tokens.shape[0])][:out.shape[0]], went


@kernel("MoeTokenPermuteGrad", "grad, places, times:int, padded:bool, out!")
def _permute_grad(g, indices, times, padded, out):
    _no_padding(padded)
    return _rows(upcast(g), indices.long()).reshape(-1, times, g.shape[-1]).sum(1)


@kernel("MoeTokenUnpermute", "tokens, places, chances, padded:bool, shape:ints, out!")
def _unpermute(tokens, indices, chances, padded, shape, out):
    _no_padding(padded)
    rows = _rows(upcast(tokens), indices.long())
    return rows if chances is None else (rows.reshape(*chances.shape, -1) * upcast(chances).unsqueeze(-1)).sum(1)


@kernel("MoeTokenUnpermuteGrad", "tokens, grad, places, chances, padded:bool, shape:ints, grad_tokens!, grad_chances!")
def _unpermute_grad(tokens, g, indices, chances, padded, *_):
    _no_padding(padded)
    indices, empty = indices.long(), torch.zeros(tokens.shape)
    there = (indices < tokens.shape[0]).nonzero().reshape(-1)
    if chances is None:
        return empty.index_copy(0, indices[there], upcast(g).float()[there]), None
    shares = (upcast(g).float().unsqueeze(1) * upcast(chances).unsqueeze(-1)).flatten(0, 1)
    of_chances = (_rows(upcast(tokens), indices).reshape(*chances.shape, -1) * upcast(g).unsqueeze(1)).sum(-1)
    return empty.index_copy(0, indices[there], shares[there]), of_chances


@kernel("MoeGatingTopKSoftmax", "x, finished, k:int, out!, experts!, rows!")
def _gating(x, finished, k, out, *_):
    y, experts = torch.softmax(upcast(x), -1).topk(k, -1)
    if finished is not None:
        experts = experts.masked_fill(finished.unsqueeze(-1), x.shape[-1])
    count = x.numel() // x.shape[-1]
    return y, experts, (torch.arange(k) * count + torch.arange(count).reshape(-1, 1)).reshape(y.shape)


@kernel("MoeInitRouting", "x, rows, experts, active:int, out!, places!, sorted!")
def _route(x, rows, experts, active, out, *_):
    order, _ = _order(experts)
    rows = rows.reshape(-1).long()[order]
    return x[rows[:out.shape[0]] % x.shape[0]], rows.argsort(stable=True), experts.reshape(-1)[order]


def _routed(x, experts, capacity, number, padded, flag, out, counts, before):
    """Returns rows, the expert of each row, the destination of each token, the number of tokens per
    expert (cumulative for flag 1), and the number before dropping."""
    order, went = _order(experts)
    flat = experts.reshape(-1).long()
    times = experts.shape[-1]
    each = (flat == torch.arange(max(number, 1)).reshape(-1, 1)).sum(1)
    if padded:
        starts = each.cumsum(0) - each
        in_turn = went - starts[flat]
        went = torch.where(in_turn < capacity, flat * capacity + in_turn, torch.full_like(went, -1))
        routed = (went >= 0).nonzero().reshape(-1)
        rows = torch.zeros([number * capacity, x.shape[1]], dtype=x.dtype).index_copy(0, went[routed], x[routed // times])
        of = torch.arange(number).repeat_interleave(capacity)
        rows = rows.reshape(out.shape)
    else:
        rows, of = x[order // times][:out.shape[0]], flat[order][:out.shape[0]]
    totals = None if counts is None or not flag else each.cumsum(0) if flag == 1 else each
    return rows, of, went, totals, each if before else None


@kernel("MoeInitRoutingV2", "x, experts, active:int, capacity:int, number:int, padded:int, flag:int, before:bool, out!, places!, counts!, counts_before!")
def _route2(x, experts, active, capacity, number, padded, flag, before, out, indices, counts, counts_before):
    rows, _, *others = _routed(x, experts, capacity, number, padded, flag, out, counts, before)
    return rows, *others


@kernel("MoeInitRoutingQuantV2", "x, experts, scale, offset, active:int, capacity:int, number:int, padded:int, flag:int, before:bool, mode:int, "
        "out!, places!, counts!, counts_before!, scales!")
def _route_quant(x, experts, scale, offset, active, capacity, number, padded, flag, before, mode, out, indices, counts, counts_before, scales):
    rows, of, *others = _routed(upcast(x), experts, capacity, number, padded, flag, out, counts, before)
    rows, found = rows.reshape(-1, x.shape[1]), None
    if mode == 0:
        rows = rows * upcast(scale) + upcast(offset)
    else:
        if scale is not None:
            rows = rows * (upcast(scale)[of] if scale.shape[0] > 1 else upcast(scale))
        found = rows.abs().amax(-1) / 127
        rows = rows / found.masked_fill(found == 0, 1).unsqueeze(-1)
    return torch.clamp(torch.round(rows), -128, 127).reshape(out.shape), *others, found


@kernel("MoeFinalizeRouting", "rows, x1, x2, bias, scales, places, experts, out!")
def _finalize(rows, x1, x2, bias, scales, indices, experts, out):
    each = _rows(upcast(rows), indices.long()).reshape(scales.shape[1], *x1.shape).transpose(0, 1)
    each = each if bias is None else each + upcast(bias)[experts.long()]
    y = upcast(x1) + (each * upcast(scales).unsqueeze(-1)).sum(1)
    return y if x2 is None else y + upcast(x2)


kernel("MoeComputeExpertTokens", "sorted, number:int, out!")(
    lambda experts, number, out: (experts.reshape(-1) <= torch.arange(number).reshape(-1, 1)).sum(1))


def _sampled(value, shapes, starts, locations, weight):
    """Samples values [B, keys, heads, size] at locations [B, queries, heads, levels, points, 2] and
    sums them weighted: [B, queries, heads * size]."""
    b, _, n, d = value.shape
    queries, levels = locations.shape[1], locations.shape[3]
    found = []
    for level in range(levels):
        height, width = (int(v) for v in shapes[level])
        start = int(starts[level])
        plane = value[:, start:start + height * width].permute(0, 2, 3, 1).reshape(b * n, d, height, width)
        grid = locations[:, :, :, level].transpose(1, 2).flatten(0, 1) * 2 - 1
        found.append(F.grid_sample(plane, grid, "bilinear", "zeros", False))
    each = torch.stack(found, -2).flatten(-2)                          # [B * heads, size, queries, levels * points]
    y = (each * weight.transpose(1, 2).reshape(b * n, 1, queries, -1)).sum(-1)
    return y.reshape(b, n * d, queries).transpose(1, 2)


_MAPS = "value, shapes, starts, locations, weight"
kernel("MultiScaleDeformableAttnFunction", f"{_MAPS}, out!")(
    lambda value, shapes, starts, locations, weight, out: _sampled(upcast(value), shapes, starts, upcast(locations), upcast(weight)))


@kernel("MultiScaleDeformableAttentionGrad", f"{_MAPS}, grad, grad_value!, grad_locations!, grad_weight!")
def _sampled_grad(value, shapes, starts, locations, weight, g, *_):
    g = upcast(g).reshape(g.shape[0], locations.shape[1], -1)
    return tuple(gradients(lambda v, at, w: _sampled(v, shapes, starts, at, w), g, upcast(value), upcast(locations), upcast(weight)))
