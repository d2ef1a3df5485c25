"""Where a process keeps the files that MindSpore's compiler reads."""
from __future__ import annotations

import functools
import os
import shutil
import tempfile

from mindtorch.backend.cpython import at_exit


@functools.cache
def folder() -> str:
    """Where the process keeps what MindSpore reads, until its end."""
    path = tempfile.mkdtemp(prefix="mindtorch-graphs-")
    at_exit("graphs' sources")(functools.partial(_remove, path, os.getpid()))
    return path


def _remove(path, owner):
    if os.getpid() == owner:            # (and not a forked child)
        shutil.rmtree(path, ignore_errors=True)
