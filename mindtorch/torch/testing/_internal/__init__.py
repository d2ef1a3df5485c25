"""torch.testing._internal: what torch's own tests share, as far as other projects' tests import it."""
