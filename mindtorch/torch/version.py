"""torch.version: the PyTorch release whose interface this is."""
__version__ = "2.13.0+mindspore"
debug = False
cuda = None
hip = None
xpu = None
git_version = "unknown"
