"""Indexed pipes: a pipe over a sequence."""
import copy

from mindtorch.torch.utils.data.datapipes.datapipe import MapDataPipe

__all__ = ["SequenceWrapperMapDataPipe"]


class SequenceWrapperMapDataPipe(MapDataPipe):
    """Pipe over a sequence or dict."""

    def __init__(self, sequence, deepcopy=True):
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, i):
        return self.sequence[i]

    def __len__(self):
        return len(self.sequence)
