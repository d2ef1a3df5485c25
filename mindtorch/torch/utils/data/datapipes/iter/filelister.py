"""Iterable pipes of file names."""
import fnmatch
import os
import warnings

from mindtorch.torch.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe
from mindtorch.torch.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe

__all__ = ["FileListerIterDataPipe"]


def _complain(error):
    warnings.warn(f"{error.filename} : {error.strerror}", stacklevel=2)
    raise error


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe):
    """Pipe of file paths: the files in the root folders whose names match one of `masks`; a root
    that is a file is listed itself."""

    def __init__(self, root=".", masks="", *, recursive=False, abspath=False, non_deterministic=False, length=-1):
        roots = [root] if isinstance(root, str) else root
        self.datapipe = roots if isinstance(roots, IterDataPipe) else IterableWrapperIterDataPipe(roots)
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def _fits(self, name):
        masks = [self.masks] if isinstance(self.masks, str) else self.masks
        return not self.masks or any(fnmatch.fnmatch(name, m) for m in masks)

    def _under(self, root):
        placed = os.path.abspath if self.abspath else str
        if os.path.isfile(root):
            if self._fits(os.path.basename(root)):
                yield placed(root)
            return
        for folder, folders, files in os.walk(root, onerror=_complain):
            if not self.non_deterministic:
                files.sort()
                folders.sort()
            for name in filter(self._fits, files):
                yield os.path.join(placed(folder), name)
            if not self.recursive:
                return

    def __iter__(self):
        for root in self.datapipe:
            yield from self._under(root)

    def __len__(self):
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length
