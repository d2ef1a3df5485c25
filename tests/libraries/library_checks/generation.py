"""Checks of libraries for generative models: diffusion, and quantized codes."""
from library_checks.registry import check, train


@check("diffusers", "transformers")
def diffusers():
    """UNet2D training step with a DDPM scheduler, a DDIM step, AutoencoderKL"""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, DDPMScheduler, UNet2DModel
    net = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                      down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    x, noise, t = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8), torch.tensor([3, 7])
    noisy = DDPMScheduler(num_train_timesteps=10).add_noise(x, noise, t)
    train(net, (noisy, t), loss=lambda o: (o.sample - noise).pow(2).mean())
    s = DDIMScheduler(num_train_timesteps=10)
    s.set_timesteps(2)
    with torch.no_grad():
        before = s.step(net(x, 3).sample, 5, x).prev_sample
    assert before.shape == x.shape
    vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2)
    train(vae, (torch.randn(1, 3, 8, 8),), loss=lambda o: o.sample.pow(2).mean())


@check("denoising-diffusion-pytorch", "einops", "ema_pytorch", "accelerate")
def denoising_diffusion_pytorch():
    """Unet and GaussianDiffusion: training step, sampling"""
    import torch
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet
    d = GaussianDiffusion(Unet(dim=8, dim_mults=(1, 2), flash_attn=False), image_size=8, timesteps=4)
    train(d, (torch.rand(2, 3, 8, 8),))
    sampled = d.sample(batch_size=1)
    assert sampled.shape == (1, 3, 8, 8)


@check("vector-quantize-pytorch", "einops", "einx")
def vector_quantize_pytorch():
    """VQ, FSQ and LFQ training steps"""
    import torch
    from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize
    x = torch.randn(2, 6, 8, requires_grad=True)
    for q in (VectorQuantize(dim=8, codebook_size=4), ResidualVQ(dim=8, codebook_size=4, num_quantizers=2), FSQ([3, 3], dim=8)):
        out = q(x)
        out[0].sum().backward()
        assert out[0].shape == x.shape
