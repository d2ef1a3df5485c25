"""A base of iterable pipes."""
from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe


class _Over(IterDataPipe):
    """A pipe over another one."""

    def __init__(self, datapipe):
        self.datapipe = datapipe

    def __len__(self):
        return len(self.datapipe)
