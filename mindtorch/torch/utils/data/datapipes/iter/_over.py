"""Base class of iterable pipes over another pipe."""
from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe


class _Over(IterDataPipe):
    """Pipe over another pipe."""

    def __init__(self, datapipe):
        self.datapipe = datapipe

    def __len__(self):
        return len(self.datapipe)
