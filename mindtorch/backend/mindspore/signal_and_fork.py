"""Workarounds for side effects of MindSpore's Ascend plugin on its process: Ctrl-C, and the exit of
forked children.

Each thread of the plugin's queues replaces the SIGINT handler when it starts (2.10: at the queue's
first use, and at the first use after each fork). Its handler ends the process by SIGTERM, so
KeyboardInterrupt would never be raised and nothing would be saved. The plugin's static objects
crash in a forked child that ends by `exit`, since their threads and device belong to the parent.
"""
from __future__ import annotations

import ctypes
import signal
import sys
import threading

from mindtorch.backend import cpython

_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
# glibc only
_at_end, _on_exit = getattr(_libc, "__cxa_atexit", None), getattr(_libc, "on_exit", None)


class _Symbol(ctypes.Structure):
    """Dl_info"""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


class HostProcess:
    """State of a process that uses a device. `fresh`: queues may be about to start (none was used
    since the beginning, or since a fork)."""

    def __init__(self) -> None:
        self.fresh = True
        self.used = False
        # a struct sigaction (152 bytes), whose first word is the handler
        self._action = (ctypes.c_void_p * 64)()
        self._at = ctypes.addressof(self._action)
        self._known: int | None = None
        self._main = threading.main_thread().ident
        cpython.at_fork("Ctrl-C and the end of a process whose parent has used a device", after_in_parent=self._parent, after_in_child=self._child)

    def _parent(self):
        self.fresh = True

    def _child(self):
        self.fresh, self._main = True, threading.main_thread().ident
        if self.used and _libc is not None and _at_end is not None and _on_exit is not None:
            # Skip what C code registered before the fork; Python's own exit functions have run by
            # then. Handlers run in reverse order: flush, then _exit(status).
            _on_exit(_libc._exit, None)
            _at_end(_libc.fflush, None, None)

    def keep_ctrl_c(self) -> None:
        """Restores Python's SIGINT handler if MindSpore has replaced it. Only the main thread may
        do so. Takes 1 us."""
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
            # Python's handler, or one that other code installed on purpose, such as
            # faulthandler.register
            self._known = now


def _file_of(address):
    """Returns the name of the library that contains an address."""
    found = _Symbol()
    if not _libc.dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return b""
    return (found.file or b"").rpartition(b"/")[2]
