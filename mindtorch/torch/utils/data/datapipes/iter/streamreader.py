"""Iterable pipes of the contents of opened files."""
from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["StreamReaderIterDataPipe"]


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe):
    """Pipe that returns (path, data) for each (path, file), in pieces of size `chunk` or complete;
    it closes the file at its end."""

    def __init__(self, datapipe, chunk=None):
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self):
        for path, stream in self.datapipe:
            while data := stream.read(self.chunk):
                yield path, data
            stream.close()
