"""What MindSpore's Ascend plugin does to the process that it runs in, and its cure: Ctrl-C, and the end of forked children.

Each of its queues' threads takes SIGINT over when it starts (2.10: at the queue's first use, and at the first after each fork), with a handler that ends the
process by SIGTERM: no KeyboardInterrupt would ever come, and nothing be saved.  Its statics crash in a forked child that ends by `exit`, since the
threads and the device that they belong to are the parent's.
"""
from __future__ import annotations

import ctypes
import signal
import sys
import threading

from mindtorch.backend import cpython

_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
_at_end, _on_exit = getattr(_libc, "__cxa_atexit", None), getattr(_libc, "on_exit", None)        # (glibc's)


class _Symbol(ctypes.Structure):
    """Dl_info"""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


class HostProcess:
    """The process of a device; `fresh`: queues may be about to start (nothing has been asked of them since the beginning, or since a fork)."""

    def __init__(self) -> None:
        self.fresh = True
        self.used = False
        self._action = (ctypes.c_void_p * 64)()         # (a struct sigaction, whose first word is the handler; of 152 bytes)
        self._at = ctypes.addressof(self._action)
        self._known: int | None = None
        self._main = threading.main_thread().ident
        cpython.at_fork("Ctrl-C and the end of a process whose parent has used a device", after_in_parent=self._parent, after_in_child=self._child)

    def _parent(self):
        self.fresh = True

    def _child(self):
        self.fresh, self._main = True, threading.main_thread().ident
        if self.used and _libc is not None and _at_end is not None and _on_exit is not None:
            # What C registered before the fork is passed over; Python's own exit functions have run by then.  (In reverse order: flush, then _exit(status).)
            _on_exit(_libc._exit, None)
            _at_end(_libc.fflush, None, None)

    def keep_ctrl_c(self) -> None:
        """Puts Python's SIGINT handler back where MindSpore has replaced it; of the main thread alone, which is the one that may.  1 us."""
        self.used = True
        if _libc is None or threading.get_ident() != self._main:
            return
        _libc.sigaction(signal.SIGINT, None, ctypes.c_void_p(self._at))
        now = self._action[0]
        if now == self._known:
            return
        handler = signal.getsignal(signal.SIGINT)
        if handler is not None and now and b"mindspore" in _file_of(now):
            signal.signal(signal.SIGINT, handler)
        else:
            self._known = now           # (Python's, or that of somebody else who knows what he does, as faulthandler.register)


def _file_of(address):
    """The library that an address lies in."""
    found = _Symbol()
    if not _libc.dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return b""
    return (found.file or b"").rpartition(b"/")[2]
