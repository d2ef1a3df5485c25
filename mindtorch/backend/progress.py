"""Prints once on standard error what is running if it takes long: a compilation at the first run on
a machine, or for a new graph."""
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

SECONDS = 5.0  # Building the C kernels takes 1-2 s; after longer silence users suspect a hang.
_notified: set[str] = set()


def seconds() -> float:
    """Returns the number of seconds before a notice is printed: MINDTORCH_PROGRESS, 0 for never."""
    try:
        return float(os.environ.get("MINDTORCH_PROGRESS", SECONDS))
    except ValueError:
        return SECONDS


def _notify(what: str) -> None:
    out = sys.stderr
    if what in _notified or out is None:
        return
    _notified.add(what)
    # Clear the terminal's current line, which may contain a progress bar; its owner draws it again.
    # (standard error may be closed, or have no reader)
    with contextlib.suppress(OSError, ValueError):
        out.write(("\r\x1b[K" if out.isatty() else "") + f"mindtorch: {what}\n")
        out.flush()


@contextlib.contextmanager
def notify_if_slow(what: str) -> Iterator[None]:
    """Context manager that prints `what` if the block still runs after some seconds, once per
    process."""
    after = seconds()
    if after <= 0 or what in _notified:
        yield
        return
    timer = threading.Timer(after, _notify, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
