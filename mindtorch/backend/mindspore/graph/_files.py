"""Location of the files that MindSpore's compiler reads."""
from __future__ import annotations

import functools
import os
import shutil
import tempfile

from mindtorch.backend.cpython import at_exit


@functools.cache
def folder() -> str:
    """Returns this process's folder for files that MindSpore reads; it is removed at exit."""
    path = tempfile.mkdtemp(prefix="mindtorch-graphs-")
    at_exit("graphs' sources")(functools.partial(_remove, path, os.getpid()))
    return path


def _remove(path, owner):
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(path, ignore_errors=True)
