"""Checks of libraries for attention: transformer layers, forms of attention, position encodings,
sparse softmax."""
from library_checks.registry import check, place, train


@check("x-transformers", "einops", "einx", "loguru")
def x_transformers():
    """decoder training step, generate"""
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
    net = AutoregressiveWrapper(TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2, rotary_pos_emb=True)))
    train(net, (torch.randint(0, 20, (2, 10)),))
    written = net.generate(torch.zeros(1, 1, dtype=torch.long), 4)
    assert written.shape == (1, 4)


@check("rotary-embedding-torch", "einops")
def rotary_embedding_torch():
    """rotated queries"""
    import torch
    from rotary_embedding_torch import RotaryEmbedding
    turned = RotaryEmbedding(dim=8).rotate_queries_or_keys(torch.randn(1, 2, 5, 8))
    assert turned.shape == (1, 2, 5, 8)


@check("entmax")
def entmax():
    """sparsemax and entmax with gradients"""
    import torch
    from entmax import entmax15, sparsemax
    x = torch.tensor([[1.0, 2.0, 0.1]], requires_grad=True)
    p = sparsemax(x, dim=-1) + entmax15(x, dim=-1)
    assert abs(p.sum().item() - 2) < 1e-5
    p[0, 0].backward()


@check("linformer")
def linformer():
    """a language model's training step"""
    import torch
    from linformer import LinformerLM
    net = LinformerLM(num_tokens=20, dim=16, seq_len=16, depth=1, heads=2, k=4)
    train(net, (torch.randint(0, 20, (2, 16)),))


@check("performer-pytorch", "axial_positional_embedding", "local_attention", "hyper_connections", "einops", placed=True)
def performer_pytorch():
    """a causal language model with random features: training step"""
    import torch
    from performer_pytorch import PerformerLM
    net = PerformerLM(num_tokens=20, max_seq_len=16, dim=16, depth=1, heads=2, dim_head=8, causal=False).to(place())
    train(net, (torch.randint(0, 20, (2, 16), device=place()),))


@check("local-attention", "hyper_connections", "einops")
def local_attention():
    """windows that attend to themselves and the previous one: training step of a small transformer
    """
    import torch
    from local_attention import LocalAttention
    from local_attention.transformer import LocalTransformer
    q = torch.randn(2, 2, 16, 8, requires_grad=True)
    LocalAttention(dim=8, window_size=4, causal=True)(q, q, q).sum().backward()
    assert q.grad.shape == q.shape
    train(LocalTransformer(num_tokens=20, dim=16, depth=1, heads=2, dim_head=8, max_seq_len=16, local_attn_window_size=4), (torch.randint(0, 20, (2, 16)),))


@check("perceiver-pytorch", "einops")
def perceiver_pytorch():
    """a Perceiver on images: training step"""
    import torch
    from perceiver_pytorch import Perceiver
    net = Perceiver(input_channels=3, input_axis=2, num_freq_bands=2, max_freq=4.0, depth=1, num_latents=4, latent_dim=16, cross_heads=1, latent_heads=2,
                    cross_dim_head=8, latent_dim_head=8, num_classes=3)
    train(net, (torch.randn(2, 6, 6, 3),))
