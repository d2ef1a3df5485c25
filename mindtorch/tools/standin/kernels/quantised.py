"""Quantization to small integers with a scale, and products of quantized values."""
from mindtorch.tools.standin.kernels._engine import torch
from mindtorch.tools.standin.kernels._table import kernel

ROUND = {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}


def _as(value, out):
    """Converts a result to the output's dtype: integers are rounded and clamped to their range."""
    if out.is_floating_point():
        return value
    limits = torch.iinfo(out.dtype)
    return torch.round(value).clamp(limits.min, limits.max)


def _quantised(x, scale, offset, squared, rounding, dtype, out):
    if out.dtype != torch.int8:
        raise NotImplementedError(f"quantised to {out.dtype}")
    value = x.float() * scale.float()
    value = value * scale.float() if squared else value
    value = value if offset is None else value + offset.float()
    return ROUND[(rounding or "round").lower()](value).clamp(-128, 127)


def _by_row(x, smooth, out, scale):
    """Quantizes with one scale per row, so that its largest value becomes 127."""
    x = x.float() if smooth is None else x.float() * smooth.float()
    found = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / torch.where(found == 0, torch.ones_like(found), found)), found.squeeze(-1)


kernel("AscendQuant", "x, scale, offset, squared:bool, rounding:string, dtype:int32, out!")(_quantised)
kernel("DynamicQuant", "x, smooth, out!, scale!")(_by_row)


def _scale(scale):
    """Returns scales as float32; 64-bit integers contain the bits of a float32."""
    return scale.to(torch.int32).view(torch.float32) if scale.dtype in (torch.int64, torch.uint64) else scale.float()


def _product(a, b, scale, offset, each, bias, transpose_a, transpose_b, out):
    """Computes int8 @ int8, summed exactly. An integer bias is added before scaling, any other bias
    after it."""
    value = (a.mT if transpose_a else a).double() @ (b.mT if transpose_b else b).double()
    early = bias is not None and not bias.is_floating_point()
    value = (value + bias if early else value) * _scale(scale)
    value = value if each is None else value * each.reshape(-1, 1)
    value = value if offset is None else value + offset
    return _as(value if bias is None or early else value + bias, out)


def _weight_product(x, weight, scale, offset, quant_scale, quant_offset, bias, group, out):
    """Computes x @ weight, where the integer weight has one scale per column, or one for all."""
    if group or quant_scale is not None or quant_offset is not None:
        raise NotImplementedError("group scales, or an integer result")

    def row(t):
        return t.float().reshape(1, -1)

    real = (weight.float() if offset is None else weight.float() + row(offset)) * row(scale)
    value = x.float() @ real
    return value if bias is None else value + bias.float()


kernel("QuantMatmulV4", "a, b, scale, offset, each, bias, transpose_a:bool, transpose_b:bool, out!")(_product)
kernel("WeightQuantBatchMatmulV2", "x, weight, scale, offset, quant_scale, quant_offset, bias, group:int32, out!")(_weight_product)
