"""Placement of the dump that MindSpore's compiler writes for a graph that it rejects.

The file is rank_0/om/analyze_fail.ir in the working directory. `into` redirects it where users
should not see it.
"""
import contextlib
import os

_VARIABLE = "MS_OM_PATH"


@contextlib.contextmanager
def into(folder: str):
    """Redirects such files to another folder, unless the user has set one."""
    if _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = folder
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


def drop(since: float) -> None:
    """Removes a dump that a compilation has written since `since` (time.time())."""
    om = os.path.join(os.environ.get(_VARIABLE, "."), f"rank_{os.environ.get('RANK_ID', '0')}", "om")
    path = os.path.join(om, "analyze_fail.ir")
    with contextlib.suppress(OSError):  # there is none, or the folder contains other files
        if os.path.getmtime(path) >= since - 1:
            os.remove(path)
            os.rmdir(om)
            os.rmdir(os.path.dirname(om))
