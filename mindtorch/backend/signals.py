"""Alternate signal stacks for threads that multiply matrices by oneDNN.

While oneDNN multiplies float32 matrices (version 3.10, shipped with MindSpore 2.10), the stack
pointer may point into a heap page: on AVX-512 a quarter to all samples taken during a product found
it there. If a signal arrives then, the kernel writes its frame of about 3 KB below that page, over
unrelated data. A training step that received a signal every 0.7 ms died of "corrupted size vs.
prev_size" within a second in half of all runs. CPython installs its handlers with SA_ONSTACK, so it
is enough that the thread has an alternate stack. The thread that imports MindSpore, on which its
kernels run (_set_launch in runtime.py), gets one, and so does each thread that runs our oneDNN. Our
own worker threads block all signals. Not covered are C handlers installed without that flag, and
MindSpore's threads.
"""
import ctypes
import mmap
import os
import signal
import sys
import threading

_DISABLED = 2                   # SS_DISABLE
_MINIMUM = 51  # AT_MINSIGSTKSZ: bytes that the kernel needs for the signal frame
_ROOM = 1 << 16
#: Signals caused by the thread's own faults stay enabled, for tools that report them
#: (faulthandler).
FAULTS = {getattr(signal, name) for name in ("SIGSEGV", "SIGFPE", "SIGILL", "SIGABRT", "SIGBUS", "SIGTRAP", "SIGSYS") if hasattr(signal, name)}


class _Stack(ctypes.Structure):
    """Linux's struct stack_t."""
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


class _C:
    """The C library functions used here, with their types."""

    def __init__(self):
        c, p, n = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p, ctypes.c_size_t
        self.sigaltstack, self.getauxval, self.mmap, self.munmap = c.sigaltstack, c.getauxval, c.mmap, c.munmap
        self.sigaltstack.argtypes = [ctypes.POINTER(_Stack)] * 2
        self.getauxval.restype, self.getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
        self.mmap.restype, self.mmap.argtypes = p, [p, n, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.munmap.argtypes = [p, n]

    def stack(self, new=None):
        """Returns the calling thread's previous alternate stack; sets `new`, if given."""
        old = _Stack()
        if self.sigaltstack(new, old):
            raise OSError(ctypes.get_errno(), f"sigaltstack: {os.strerror(ctypes.get_errno())}")
        return old


class SignalStack:
    """An alternate signal stack for the calling thread, if it has none.

    It is freed with this object, by the owning thread. The main thread's stack is never freed,
    because signals arrive until the process has ended.
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
            raise OSError(ctypes.get_errno(), f"cannot allocate a signal stack of {size} bytes: {os.strerror(ctypes.get_errno())}")
        c.stack(_Stack(start, 0, size))
        if threading.current_thread() is not threading.main_thread():
            self.c, self.start, self.size, self.owner = c, start, size, threading.get_native_id()

    def __del__(self):
        if self.start is not None and threading.get_native_id() == self.owner and self.c.stack().start == self.start:
            self.c.stack(_Stack(None, _DISABLED, 0))
            self.c.munmap(self.start, self.size)


def take_no_signals():
    """Blocks signals on the calling thread (one of ours), except those of its own faults."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
