"""Where signals are handled on threads that multiply matrices by oneDNN.

oneDNN's products of float32 matrices (3.10, which MindSpore 2.10 brings) point the stack pointer to a page of the heap while they
run: a quarter to all samples of a product on AVX-512 found it there.  The frame of a signal that arrives then, some 3 KB, is written
below that page, over whatever is there: a training step that took a signal every 0.7 ms died of "corrupted size vs. prev_size"
within a second in half of all runs.  CPython's handlers ask for the thread's alternate stack (SA_ONSTACK), so it is enough to have
one: the thread that imports MindSpore, on which its kernels run (_set_launch in runtime.py), and each that has a oneDNN of ours.
Our own threads take no signals at all.  Left are handlers in C installed without that flag, and the threads of MindSpore.
"""
import ctypes
import mmap
import os
import signal
import sys
import threading

_DISABLED = 2                   # SS_DISABLE
_MINIMUM = 51                   # AT_MINSIGSTKSZ: what the kernel puts there itself
_ROOM = 1 << 16
#: What a thread meets by its own fault is left as it is, for who reports it (faulthandler).
FAULTS = {getattr(signal, name) for name in ("SIGSEGV", "SIGFPE", "SIGILL", "SIGABRT", "SIGBUS", "SIGTRAP", "SIGSYS") if hasattr(signal, name)}


class _Stack(ctypes.Structure):
    """struct stack_t of Linux."""
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


class _C:
    """The functions of the C library that are needed, with their types."""

    def __init__(self):
        c, p, n = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p, ctypes.c_size_t
        self.sigaltstack, self.getauxval, self.mmap, self.munmap = c.sigaltstack, c.getauxval, c.mmap, c.munmap
        self.sigaltstack.argtypes = [ctypes.POINTER(_Stack)] * 2
        self.getauxval.restype, self.getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
        self.mmap.restype, self.mmap.argtypes = p, [p, n, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.munmap.argtypes = [p, n]

    def stack(self, new=None):
        """The calling thread's alternate stack, as it was before `new` became it."""
        old = _Stack()
        if self.sigaltstack(new, old):
            raise OSError(ctypes.get_errno(), f"sigaltstack: {os.strerror(ctypes.get_errno())}")
        return old


class SignalStack:
    """An alternate stack for the calling thread, where it has none.

    It is given back with this object, by the thread itself; the main thread's never is, for signals arrive until a process has ended.
    """
    start = None

    def __init__(self):
        if sys.platform != "linux":
            return
        c = _C()
        if not c.stack().flags & _DISABLED:
            return
        size = c.getauxval(_MINIMUM) + _ROOM
        start = c.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), f"no {size} bytes for a stack of signals: {os.strerror(ctypes.get_errno())}")
        c.stack(_Stack(start, 0, size))
        if threading.current_thread() is not threading.main_thread():
            self.c, self.start, self.size, self.owner = c, start, size, threading.get_native_id()

    def __del__(self):
        if self.start is not None and threading.get_native_id() == self.owner and self.c.stack().start == self.start:
            self.c.stack(_Stack(None, _DISABLED, 0))
            self.c.munmap(self.start, self.size)


def take_no_signals():
    """The calling thread, one of ours, leaves the signals to others; those of its own faults come as ever."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
