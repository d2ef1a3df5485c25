"""torch.utils.hooks: the handle by which a hook is removed."""
