"""Says on standard error what keeps a user waiting, once, where it lasts: what is compiled at the first run on a machine, or for a new graph."""
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

SECONDS = 5.0       # a compile of our C takes one or two; who waits longer wonders
_told: set[str] = set()


def seconds() -> float:
    """After how many seconds something is said: MINDTORCH_PROGRESS, 0 for never."""
    try:
        return float(os.environ.get("MINDTORCH_PROGRESS", SECONDS))
    except ValueError:
        return SECONDS


def _tell(what: str) -> None:
    out = sys.stderr
    if what in _told or out is None:
        return
    _told.add(what)
    # A progress bar may stand in a terminal's line: it is drawn anew by whoever draws it.
    with contextlib.suppress(OSError, ValueError):      # (nobody reads standard error any more, or it has been closed)
        out.write(("\r\x1b[K" if out.isatty() else "") + f"mindtorch: {what}\n")
        out.flush()


@contextlib.contextmanager
def slow(what: str) -> Iterator[None]:
    """Around what may take long: `what` is said if it is still under way after some seconds, and once in a process."""
    after = seconds()
    if after <= 0 or what in _told:
        yield
        return
    timer = threading.Timer(after, _tell, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
