"""Fused layers, composed of PyTorch ops."""
from mindtorch import torch
from mindtorch.torch.nn import functional as F


def npu_rms_norm(self, gamma, epsilon=1e-6):
    """Returns (self / rms * gamma, 1 / rms). The root mean square is over the last dimensions,
    whose shape is gamma's; computed in float32."""
    dims = tuple(range(self.dim() - gamma.dim(), self.dim()))
    x = self.float()
    r = torch.rsqrt(x.square().mean(dims, keepdim=True) + epsilon)
    return (x * r * gamma.float()).to(self.dtype), r


def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    """Applies `npu_rms_norm` to x1 + x2; returns (normalized, 1 / rms, x1 + x2)."""
    x = x1 + x2
    y, r = npu_rms_norm(x, gamma, epsilon)
    return y, r, x


def npu_deep_norm(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6):
    """Applies layer norm to x * alpha + gx over gamma's dimensions; returns (mean, 1 / standard
    deviation, normalized)."""
    h = (x * alpha + gx).float()
    dims = tuple(range(h.dim() - gamma.dim(), h.dim()))
    mean = h.mean(dims, keepdim=True)
    r = torch.rsqrt((h - mean).square().mean(dims, keepdim=True) + epsilon)
    return mean, r, ((h - mean) * r * gamma + beta).to(x.dtype)


def npu_layer_norm_eval(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Layer norm."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def npu_group_norm_silu(input, weight, bias, group, eps=1e-5):
    """Computes silu(group norm); returns (result, means, 1 / standard deviations), the last two (N,
    group)."""
    x = input.float().reshape(input.shape[0], group, -1)
    mean = x.mean(-1)
    r = torch.rsqrt(x.var(-1, correction=0) + eps)
    return F.silu(F.group_norm(input, group, weight, bias, eps)), mean.to(input.dtype), r.to(input.dtype)


def npu_swiglu(self, dim=-1):
    """Computes silu(a) * b for the two halves of a dimension."""
    a, b = self.chunk(2, dim)
    return F.silu(a) * b


def npu_geglu(self, dim=-1, approximate=1, activate_left=False):
    """Returns (gelu(b) * a, gelu(b)) for the halves a, b of a dimension; activate_left: swaps them;
    approximate: 1 tanh, 0 erf."""
    a, b = self.chunk(2, dim)
    if activate_left:
        a, b = b, a
    g = F.gelu(b, approximate="tanh" if approximate else "none")
    return a * g, g


def npu_gelu(input, approximate="none"):
    """gelu."""
    return F.gelu(input, approximate=approximate)


def npu_fast_gelu(self):
    """x / (1 + exp(-1.702 |x|)) * exp(0.851 (x - |x|))."""
    a = self.abs()
    return self / (1 + torch.exp(-1.702 * a)) * torch.exp(0.851 * (self - a))


def npu_silu(self):
    """silu."""
    return F.silu(self)


def npu_silu_(self):
    """silu in place."""
    return F.silu(self, inplace=True)


def npu_mish(self):
    """mish."""
    return F.mish(self)


def npu_linear(input, weight, bias=None):
    """input @ weight.T + bias."""
    return F.linear(input, weight, bias)


def npu_conv2d(input, weight, bias, stride, padding, dilation, groups):
    """2D convolution."""
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


def npu_conv3d(input, weight, bias, stride, padding, dilation, groups):
    """3D convolution."""
    return F.conv3d(input, weight, bias, stride, padding, dilation, groups)


def npu_bmmV2(self, mat2, output_sizes):
    """Computes matrix products; the result has the shape output_sizes unless that is empty."""
    r = torch.matmul(self, mat2)
    return r.reshape(output_sizes) if len(output_sizes) else r


def npu_scaled_masked_softmax(x, mask, scale=1.0, fixed_triu_mask=False):
    """Computes softmax over the last dimension of x * scale, with -10000 where the mask is True;
    fixed_triu_mask: masks everything above the diagonal instead."""
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return torch.softmax((x.float() * scale).masked_fill(mask, -10000.0), -1).to(x.dtype)


def npu_softmax_cross_entropy_with_logits(features, labels):
    """Computes -sum(labels * log_softmax(features)) over the last dimension; labels: probabilities.
    """
    return -(labels * F.log_softmax(features, -1)).sum(-1)


def npu_max(self, dim, keepdim=False):
    """Returns (maxima, their indices as int32) along a dimension."""
    v, i = self.max(dim, keepdim)
    return v, i.to(torch.int32)


def npu_min(self, dim, keepdim=False):
    """Returns (minima, their indices as int32) along a dimension."""
    v, i = self.min(dim, keepdim)
    return v, i.to(torch.int32)


def npu_stride_add(self, other, offset1, offset2, c1_len):
    raise NotImplementedError("torch_npu.npu_stride_add is not supported: it operates on Ascend's format NC1HWC0, which tensors here never have")


_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "fastgelu": npu_fast_gelu, "swiglu": npu_swiglu, "geglu": lambda x: npu_geglu(x)[0],
                "reglu": lambda x: F.relu(x.chunk(2, -1)[1]) * x.chunk(2, -1)[0]}


def npu_ffn(x, weight1, weight2, activation, *, bias1=None, bias2=None, expert_tokens=None, inner_precise=0, **others):
    """Computes activation(x @ weight1 + bias1) @ weight2 + bias2; activation: relu, gelu, silu,
    fastgelu, swiglu, geglu, reglu.

    Experts and quantized weights are not supported.
    """
    given = [k for k, v in others.items() if v is not None]
    if expert_tokens is not None or given:
        raise NotImplementedError(f"torch_npu.npu_ffn with {', '.join(['expert_tokens'] * (expert_tokens is not None) + given)} is not supported")
    if activation not in _ACTIVATIONS:
        raise NotImplementedError(f"torch_npu.npu_ffn: activation {activation!r} is not supported; these are: {', '.join(_ACTIVATIONS)}")
    h = x @ weight1 if bias1 is None else x @ weight1 + bias1
    r = _ACTIVATIONS[activation](h) @ weight2
    return r if bias2 is None else r + bias2
