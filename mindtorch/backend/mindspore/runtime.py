"""Sets MindSpore up. This is the first module of the package that imports it.

All other modules access MindSpore by ``from mindtorch.backend.mindspore.runtime import ms, np``, so
the setup before and right after its import has been done.

Settings, each read once, when this module is imported:

- ``MINDTORCH_LAUNCH_BLOCKING=0`` keeps MindSpore's asynchronous launch on CPU. (Blocking launch is
  3 to 5 times faster there for small networks, and raises an error at the call that causes it.)
- ``ONEDNN_MAX_CPU_ISA``, if set, is left to oneDNN; otherwise oneDNN is limited to AVX2.
- ``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_THRESHOLD_``, if set, are left to the C library;
  otherwise it keeps up to 128 MB of freed memory for the next arrays.
- ``GLOG_v``, if set, is MindSpore's log level; otherwise only errors are shown.

No environment variable stays set after the import of MindSpore.
"""
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import sys
import threading
import time
import warnings

from mindtorch.backend import cpython
from mindtorch.backend.signals import SignalStack
from mindtorch.backend.mindspore.patches import put

#: Supported MindSpore releases: at least the first, below the second.
MINDSPORE_PIN = ((2, 10), (2, 11))
PIN_TEXT = "mindspore>=2.10,<2.11"
NUMPY_TEXT = "numpy>=1.26,<2"


def release(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version: '2.10.0rc1' -> (2, 10, 0)."""
    parts = []
    for part in version.split("+")[0].split("."):
        digits = part[:len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
        if digits != part:
            break
    return tuple(parts)


def in_pin(version: str) -> bool:
    """True if mindtorch supports this MindSpore version."""
    return MINDSPORE_PIN[0] <= release(version) < MINDSPORE_PIN[1]


def mindspore_version() -> str | None:
    """Returns the installed MindSpore's version without importing it, or None if it is not
    installed or has no version metadata."""
    loaded = getattr(sys.modules.get("mindspore"), "__version__", None)
    if loaded is not None:
        return loaded
    try:
        return importlib.metadata.version("mindspore")
    except importlib.metadata.PackageNotFoundError:
        # possibly a build tree on sys.path; its __version__ is checked after the import
        return None


def _wrong_version(version):
    return ImportError(f"mindtorch needs {PIN_TEXT}, but mindspore {version} is installed. "
                       f"Remedy: pip install '{PIN_TEXT}'")


def _check_before():
    if importlib.util.find_spec("mindspore") is None:
        raise ImportError("mindtorch runs on MindSpore, and there is no module named 'mindspore'. "
                          f"Remedy: pip install '{PIN_TEXT}' '{NUMPY_TEXT}'", name="mindspore")
    version = mindspore_version()
    if version is not None and not in_pin(version):
        raise _wrong_version(version)
    if release(np.__version__) >= (2,):
        raise ImportError(f"mindtorch needs {NUMPY_TEXT}, but numpy {np.__version__} is installed, and MindSpore's "
                          f"binaries are built against numpy 1. Remedy: pip install '{NUMPY_TEXT}'")


@contextlib.contextmanager
def _quiet():
    """Sets the log level. MindSpore reads it during its import, and again when its Python logger is
    first used."""
    mine = "GLOG_v" not in os.environ
    if mine:
        os.environ["GLOG_v"] = "3"
    try:
        with warnings.catch_warnings():
            # Python deprecations inside MindSpore's own modules (Thread.getName and others).
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"mindspore\.")
            yield
        sys.modules["mindspore"].log.get_level()
    finally:
        if mine:
            os.environ.pop("GLOG_v", None)


import numpy as np  # noqa: E402

_check_before()
_DILL = sys.modules.get("dill")
with _quiet():
    import mindspore as ms  # noqa: E402
if not in_pin(ms.__version__):
    raise _wrong_version(ms.__version__)
if _DILL is None and "dill" in sys.modules:
    # MindSpore's import of dill changes Python's own pickle._Pickler to pickle a script's classes
    # by value. Revert that.
    sys.modules["dill"].extend(False)


# ---------------------------------------------------------------- device
def target() -> str:
    """Returns the device that MindSpore runs on: 'CPU', 'Ascend' or 'GPU'."""
    return ms.get_context("device_target")


def in_graph_mode() -> bool:
    """True if MindSpore's mode is GRAPH_MODE."""
    return ms.get_context("mode") == ms.GRAPH_MODE


# ---------------------------------------------------------------- oneDNN
_AVX2 = 0x7        # dnnl_cpu_isa_avx2
_AVX512 = 0x27  # dnnl_cpu_isa_avx512_core and its subsets


def dnnl_path():
    """Returns the path of the wheel's oneDNN, or None if the wheel has none under this name."""
    found = sorted(pathlib.Path(ms.__file__).parent.glob("lib/libdnnl.so*"))
    return str(found[0]) if found else None


def _dnnl():
    """Returns the wheel's oneDNN, which MindSpore has loaded."""
    path = dnnl_path()
    return ctypes.CDLL(path) if path else None


def _cap_onednn():
    """Limits oneDNN to AVX2: with AVX-512 the wheel's oneDNN uses a reference convolution that is
    50 to 80 times slower.

    This calls the library itself, which accepts the limit until it has selected its first kernel.
    ONEDNN_MAX_CPU_ISA would have the same effect, but oneDNN reads it only at the first convolution
    or matmul, so it would have to stay set until then.
    """
    if {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & os.environ.keys():
        return
    dnnl = _dnnl() if platform.machine().lower() in ("x86_64", "amd64") else None
    if dnnl is not None and dnnl.dnnl_set_max_cpu_isa(_AVX2) != 0 and onednn_uses_avx512():
        warnings.warn("MindSpore ran a kernel before mindtorch was imported, so its oneDNN uses AVX-512, "
                      "which makes convolutions 50 to 80 times slower. Import mindtorch first, or set "
                      "ONEDNN_MAX_CPU_ISA=AVX2.", RuntimeWarning, stacklevel=2)


def onednn_uses_avx512() -> bool:
    """True if oneDNN runs with AVX-512 (slow convolutions, see above). The query fixes the choice
    for this process."""
    dnnl = _dnnl()
    return dnnl is not None and dnnl.dnnl_get_effective_cpu_isa() & _AVX512 == _AVX512


# ---------------------------------------------------------------- memory
def _keep_freed_memory():
    """Makes the C library keep up to 128 MB of freed memory at the top of its heap (glibc only).

    By default it returns large arrays to the system when they are freed, and requests new pages,
    which must be cleared, for the next ones. That causes 2000 to 3000 page faults per step of a
    small convolutional network, a fifth of its time. MALLOC_TRIM_THRESHOLD_ and
    MALLOC_MMAP_THRESHOLD_ are left alone if set.
    """
    if {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"} & os.environ.keys() or not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # M_MMAP_THRESHOLD: its maximum; setting either option disables their automatic adjustment
        mallopt(-3, 1 << 25)
        mallopt(-1, 1 << 27)      # M_TRIM_THRESHOLD


# ---------------------------------------------------------------- launch
def launch_is_blocking() -> bool:
    """True if an op has finished when its call returns."""
    from mindspore.runtime.executor import RuntimeConf

    return bool(RuntimeConf.get_instance().is_launch_blocking())


def _set_launch():
    if target() == "CPU" and os.environ.get("MINDTORCH_LAUNCH_BLOCKING", "1") != "0":
        # kernels then run on the calling thread, so it needs `_signals`
        ms.runtime.launch_blocking()


#: Signal stack of this thread. Other threads get theirs with their oneDNN.
_signals = SignalStack()


# ---------------------------------------------------------------- fork
_LONGEST_WAIT = 0.25  # seconds; a pool that is busy for longer is running an op of another thread


def _kernel_threads_run():
    """Returns True if a thread of MindSpore's kernel pool is running or spinning. Returns None
    where that cannot be determined (not Linux)."""
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return None
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/stat") as f:
                pid_and_name, _, rest = f.read().rpartition(")")
        except OSError:
            continue  # the thread has just ended
        if rest[1:2] == "R" and "(KernelThread" in pid_and_name:
            return True
    return False


def _wait_for_kernel_threads():
    """Waits until MindSpore's kernel threads sleep.

    They spin for about 6 ms after an op and lock their own mutex repeatedly. A fork at such a
    moment (1 in 300, measured) leaves the child with a mutex that stays locked, despite MindSpore's
    own fork callbacks.
    """
    end, quiet = time.monotonic() + _LONGEST_WAIT, 0
    while quiet < 2 and time.monotonic() < end:
        runs = _kernel_threads_run()
        if runs is None:
            time.sleep(0.03)
            return
        quiet = 0 if runs else quiet + 1
        time.sleep(0.0005)


class _Forks:
    """Runs MindSpore's fork callbacks for every fork, once each.

    Without them a forked child hangs in its first op if the parent has run one. MindSpore itself
    calls them only in `mindspore.multiprocessing`, around the fork. There they would run twice,
    which aborts the parent. MindSpore's own calls therefore go through the same guard.
    """

    def __init__(self, callbacks):
        self._prepare = callbacks.prepare_before_fork
        self._parent = callbacks.parent_at_fork
        self._child = callbacks.child_at_fork
        self._state = threading.local()  # all callbacks of a fork run in the forking thread
        prefix = "mindspore._c_expression:fork_utils."
        put(prefix + "prepare_before_fork", self.prepare)
        put(prefix + "parent_at_fork", self.parent)
        put(prefix + "child_at_fork", self.child)
        cpython.at_fork("MindSpore's kernel threads", before=self.prepare, after_in_parent=self.parent, after_in_child=self.child)

    def prepare(self):
        if not getattr(self._state, "prepared", False):
            self._state.prepared = True
            _wait_for_kernel_threads()
            self._prepare()

    def parent(self):
        if getattr(self._state, "prepared", False):
            self._state.prepared = False
            self._parent()

    def child(self):
        if getattr(self._state, "prepared", False):
            self._state.prepared = False
            self._child()


def _register_forks():
    from mindspore._c_expression import fork_utils

    if cpython.FORKS:
        _Forks(fork_utils)


_cap_onednn()
_keep_freed_memory()
_set_launch()
_register_forks()
