"""torch_npu as imported under the hook, and its fused functions compared with PyTorch's ops."""
import subprocess
import sys

import numpy as np
import pytest
import torch

import mindtorch.torch as mt
import mindtorch.torch_npu as torch_npu

F = torch.nn.functional


def pair(*shape, seed=0, grad=False):
    a = np.random.RandomState(seed).randn(*shape).astype(np.float32)
    return torch.tensor(a, requires_grad=grad), mt.tensor(a, requires_grad=grad)


def same(want, got, tol=1e-5):
    assert tuple(want.shape) == tuple(got.shape)
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=tol, atol=tol)


HEADS = {"BNSD": lambda x: x, "BSND": lambda x: x.transpose(1, 2), "BSH": lambda x: x.transpose(1, 2).flatten(2), "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2)}


@pytest.mark.parametrize("layout", HEADS)
@pytest.mark.parametrize("sparse_mode", [0, 2, 3, 4])
def test_attention(layout, sparse_mode):
    (q, mq), (k, mk), (v, mv) = pair(2, 4, 5, 8, grad=True), pair(2, 2, 7, 8, seed=1, grad=True), pair(2, 2, 7, 8, seed=2, grad=True)
    place = torch.arange(7) - torch.arange(5)[:, None]
    mask = {0: torch.rand(5, 7) < 0.3, 2: place > 0, 3: place > 2, 4: (place - 2 > 1) | (place - 2 < -2)}[sparse_mode]
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask, scale=0.3, enable_gqa=True)
    to = HEADS[layout]
    got = torch_npu.npu_fusion_attention(to(mq), to(mk), to(mv), 4, layout, atten_mask=mt.tensor(mask.numpy()), scale=0.3, sparse_mode=sparse_mode,
                                         pre_tockens=2, next_tockens=1)
    same(to(want), got[0])
    scores = (q @ k.repeat_interleave(2, 1).transpose(-1, -2) * 0.3).masked_fill(mask, -torch.inf)
    same(scores.amax(-1, keepdim=True).expand(-1, -1, -1, 8), got[1])
    same((scores - scores.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True).expand(-1, -1, -1, 8), got[2])
    want.square().sum().backward()
    got[0].square().sum().backward()
    for a, b in ((q, mq), (k, mk), (v, mv)):
        same(a.grad, b.grad, 1e-4)


def test_attention_with_packed_sequences():
    (q, mq), (k, mk) = pair(7, 2, 4), pair(9, 2, 4, seed=1)
    out = torch_npu.npu_fusion_attention(mq, mk, mk, 2, "TND", scale=0.5, actual_seq_qlen=[3, 7], actual_seq_kvlen=[4, 9])
    for a, b, c, d in ((0, 3, 0, 4), (3, 7, 4, 9)):
        parts = [x.transpose(0, 1) for x in (q[a:b], k[c:d], k[c:d])]
        same(F.scaled_dot_product_attention(*parts, scale=0.5).transpose(0, 1), out[0][a:b])
    with pytest.raises(NotImplementedError, match="sparse_mode=7"):
        torch_npu.npu_fusion_attention(mq, mk, mk, 2, "TND", sparse_mode=7)


def test_fused_norms_and_gates():
    (x, mx), (w, mw), (b, mb) = pair(3, 4, 6), pair(6, seed=1), pair(6, seed=2)
    y, r = torch_npu.npu_rms_norm(mx, mw, 1e-5)
    same(F.rms_norm(x, (6,), w, 1e-5), y)
    same(torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5), r)
    y, r, s = torch_npu.npu_add_rms_norm(mx, mx, mw)
    same(F.rms_norm(2 * x, (6,), w, 1e-6), y)
    same(2 * x, s)
    same(F.layer_norm(x * 0.3 + x, (6,), w, b, 1e-6), torch_npu.npu_deep_norm(mx, mx, mb, mw)[2])
    same(F.silu(x[..., :3]) * x[..., 3:], torch_npu.npu_swiglu(mx))
    same(F.gelu(x[..., 3:]) * x[..., :3], torch_npu.npu_geglu(mx, approximate=0)[0])
    same(x * torch.sigmoid(1.702 * x), torch_npu.npu_fast_gelu(mx))
    (g, mg), (gw, mgw) = pair(2, 4, 3, 3), pair(4, seed=3)
    same(F.silu(F.group_norm(g, 2, gw, gw)), torch_npu.npu_group_norm_silu(mg, mgw, mgw, 2)[0])
    same(torch.softmax((x * 2).masked_fill(x > 0, -10000.0), -1), torch_npu.npu_scaled_masked_softmax(mx, mx > 0, 2.0))


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary(mode):
    (x, mx), (c, mc), (s, ms) = pair(2, 3, 5, 8), pair(1, 1, 5, 8, seed=1), pair(1, 1, 5, 8, seed=2)
    z = torch.complex(x[..., :4], x[..., 4:]) if mode == "half" else torch.view_as_complex(x.unflatten(-1, (4, 2)))
    turned = z * 1j
    turned = torch.cat([turned.real, turned.imag], -1) if mode == "half" else torch.view_as_real(turned).flatten(-2)
    same(x * c + turned * s, torch_npu.npu_rotary_mul(mx, mc, ms, mode))


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_w_steps(amsgrad):
    p, mp = pair(4, 3)
    p.requires_grad_()
    opt = torch.optim.AdamW([p], lr=0.01, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=amsgrad)
    m, v, most = [mt.zeros(4, 3) for _ in range(3)]
    for step in range(1, 4):
        g, mg = pair(4, 3, seed=step)
        p.grad = g
        opt.step()
        out = torch_npu.npu_apply_adam_w(0.8 ** (step - 1), 0.9 ** (step - 1), 0.01, 0.1, 0.8, 0.9, 1e-8, mg, most if amsgrad else None, amsgrad, False, out=(mp, m, v))
        assert out[0] is mp
    same(p, mp)


def test_iou_of_boxes():
    rng = np.random.RandomState(0)
    low = rng.rand(5, 2).astype(np.float32)
    boxes = np.concatenate([low, low + rng.rand(5, 2).astype(np.float32) + 0.1], 1)
    got = torch_npu.npu_iou(mt.tensor(boxes[:3]), mt.tensor(boxes))
    for i in range(5):
        for j in range(3):
            a, b = boxes[i], boxes[j]
            side = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
            inter = side[0] * side[1]
            union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inter
            assert abs(float(got[i, j]) - inter / union) < 1e-5
    giou = torch_npu.npu_giou(mt.tensor(boxes.T), mt.tensor(boxes.T))
    assert tuple(giou.shape) == (1, 5) and mt.allclose(giou, mt.ones(1, 5))


def test_unsupported_npu_functions_raise():
    with pytest.raises(NotImplementedError, match="npu_moe_gating_top_k is not supported"):
        torch_npu.npu_moe_gating_top_k(mt.ones(2))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(torch_npu, "nothing")  # noqa: B009


def test_import_under_the_hook():
    code = ("from mindtorch.tools import mstorch_enable\nimport torch, torch_npu, importlib.util, importlib.metadata\n"
            "from torch_npu.contrib import transfer_to_npu\nassert torch_npu.npu is torch.npu and torch_npu.__name__ == 'torch_npu'\n"
            "assert importlib.util.find_spec('torch_npu') is not None and importlib.metadata.version('torch_npu') == torch.__version__\n"
            "mstorch_enable.disable()\nimport sys\nassert not [m for m in sys.modules if m.split('.')[0] == 'torch_npu']\nprint('fine')")
    assert "fine" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
