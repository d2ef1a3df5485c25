"""torch.fx.passes: none."""
