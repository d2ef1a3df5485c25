"""Checks of libraries for signals: filters, resampling, losses on waveforms."""
from library_checks.registry import check


@check("julius")
def julius():
    """resampling, low-pass filters, with gradients"""
    import julius as library
    import torch
    x = torch.randn(2, 400, requires_grad=True)
    fewer = library.resample_frac(x, 4, 3)
    assert fewer.shape == (2, 300)
    low = library.lowpass_filter(x, 0.1)
    low.sum().backward()
    assert low.shape == x.shape and low.std() < x.std() and x.grad is not None


@check("auraloss")
def auraloss():
    """losses over spectrograms of several resolutions, with gradients"""
    import torch
    from auraloss.freq import MultiResolutionSTFTLoss
    from auraloss.time import SISDRLoss
    x, y = torch.randn(2, 1, 4096, requires_grad=True), torch.randn(2, 1, 4096)
    loss = MultiResolutionSTFTLoss(fft_sizes=[256, 128], hop_sizes=[64, 32], win_lengths=[256, 128])(x, y) + SISDRLoss()(x, y)
    loss.backward()
    assert torch.isfinite(x.grad).all() and x.grad.abs().sum() > 0
