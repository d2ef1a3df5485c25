"""Channel shuffle (https://pytorch.org/docs/stable/generated/torch.nn.ChannelShuffle.html)."""
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleaves the channels of `groups` groups of (N, C, *)."""

    __constants__ = ["groups"]

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"
