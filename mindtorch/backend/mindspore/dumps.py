"""The file that MindSpore's compiler leaves of a graph that it has refused (rank_0/om/analyze_fail.ir, in the working directory), where nobody is to see it."""
import contextlib
import os

_VARIABLE = "MS_OM_PATH"


@contextlib.contextmanager
def into(folder: str):
    """Such files go to another folder, unless the user has named one."""
    if _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = folder
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


def drop(since: float) -> None:
    """Removes one that a compilation has left since then (time.time())."""
    om = os.path.join(os.environ.get(_VARIABLE, "."), f"rank_{os.environ.get('RANK_ID', '0')}", "om")
    path = os.path.join(om, "analyze_fail.ir")
    with contextlib.suppress(OSError):          # (there is none, or somebody else keeps files there)
        if os.path.getmtime(path) >= since - 1:
            os.remove(path)
            os.rmdir(om)
            os.rmdir(os.path.dirname(om))
