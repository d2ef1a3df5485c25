"""vmap and the levels of torch.func."""
