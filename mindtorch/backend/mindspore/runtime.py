"""Sets MindSpore up; the first module of the package that imports it.

``from mindtorch.backend.mindspore.runtime import ms, np`` is how everything else gets at MindSpore, so that what must happen
before and right after its import has happened.

Settings, each read once, when this module is imported:

- ``MINDTORCH_LAUNCH_BLOCKING=0`` keeps MindSpore's asynchronous launch on CPU (blocking launch is 3 to 5 times faster
  there for small networks, and raises an error at the call that causes it);
- ``ONEDNN_MAX_CPU_ISA``, if set, is left to oneDNN; otherwise oneDNN is held to AVX2;
- ``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_THRESHOLD_``, if set, are left to the C library; otherwise it keeps up to 128 MB
  of freed memory for the next arrays;
- ``GLOG_v``, if set, is MindSpore's log level; otherwise only its errors are shown.

No environment variable is set beyond the import of MindSpore.
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

#: The MindSpore releases this version of mindtorch is written for: at least the first, below the second.
MINDSPORE_PIN = ((2, 10), (2, 11))
PIN_TEXT = "mindspore>=2.10,<2.11"
NUMPY_TEXT = "numpy>=1.26,<2"


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: '2.10.0rc1' -> (2, 10, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = part[:len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def in_pin(version: str) -> bool:
    """Whether a MindSpore version is one that mindtorch is written for."""
    return MINDSPORE_PIN[0] <= release(version) < MINDSPORE_PIN[1]


def mindspore_version() -> str | None:
    """The installed MindSpore's version, found without importing it; None if it is not installed or does not say."""
    loaded = getattr(sys.modules.get("mindspore"), "__version__", None)
    if loaded is not None:
        return loaded
    try:
        return importlib.metadata.version("mindspore")
    except importlib.metadata.PackageNotFoundError:
        return None     # perhaps a build tree on sys.path; its own __version__ is looked at after the import


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
    """MindSpore reads its log level while it is imported, and once more when its Python logger is first asked for."""
    mine = "GLOG_v" not in os.environ
    if mine:
        os.environ["GLOG_v"] = "3"
    try:
        with warnings.catch_warnings():
            # Python deprecations inside MindSpore's own modules (Thread.getName and the like).
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
    # MindSpore's import of dill has taught Python's own pickle._Pickler to pickle a script's classes by value, which nobody asked for.
    sys.modules["dill"].extend(False)


# ---------------------------------------------------------------- device
def target() -> str:
    """The device MindSpore runs on: 'CPU', 'Ascend' or 'GPU'."""
    return ms.get_context("device_target")


def in_graph_mode() -> bool:
    """Whether MindSpore's mode is GRAPH_MODE."""
    return ms.get_context("mode") == ms.GRAPH_MODE


# ---------------------------------------------------------------- oneDNN
_AVX2 = 0x7        # dnnl_cpu_isa_avx2
_AVX512 = 0x27     # dnnl_cpu_isa_avx512_core and what it contains


def dnnl_path():
    """File of the wheel's oneDNN; None where the wheel has none under this name."""
    found = sorted(pathlib.Path(ms.__file__).parent.glob("lib/libdnnl.so*"))
    return str(found[0]) if found else None


def _dnnl():
    """The wheel's oneDNN, which MindSpore has loaded."""
    path = dnnl_path()
    return ctypes.CDLL(path) if path else None


def _cap_onednn():
    """Holds oneDNN to AVX2: with AVX-512 the wheel's oneDNN takes a reference convolution, 50 to 80 times slower.

    Asked of the library itself, which listens until it has chosen its first kernel.  ONEDNN_MAX_CPU_ISA would do the
    same, but oneDNN reads it only at the first convolution or matmul, and would have to find it still set then.
    """
    if {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & os.environ.keys():
        return
    dnnl = _dnnl() if platform.machine().lower() in ("x86_64", "amd64") else None
    if dnnl is not None and dnnl.dnnl_set_max_cpu_isa(_AVX2) != 0 and onednn_uses_avx512():
        warnings.warn("MindSpore has run a kernel before mindtorch was imported, and its oneDNN has chosen AVX-512, "
                      "with which convolutions are 50 to 80 times slower. Import mindtorch before, or set "
                      "ONEDNN_MAX_CPU_ISA=AVX2.", RuntimeWarning, stacklevel=2)


def onednn_uses_avx512() -> bool:
    """Whether oneDNN runs with AVX-512 (slow convolutions, see above). Asking settles it for this process."""
    dnnl = _dnnl()
    return dnnl is not None and dnnl.dnnl_get_effective_cpu_isa() & _AVX512 == _AVX512


# ---------------------------------------------------------------- memory
def _keep_freed_memory():
    """Lets the C library keep up to 128 MB of freed memory at the top of its heap (glibc; elsewhere nothing happens).

    By itself it gives large arrays back to the system when they die, and takes new pages, which must be cleared, for the next:
    2000 to 3000 page faults a step of a small convolutional network, a fifth of its time.  MALLOC_TRIM_THRESHOLD_ and
    MALLOC_MMAP_THRESHOLD_, where set, are left alone.
    """
    if {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"} & os.environ.keys() or not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-3, 1 << 25)      # M_MMAP_THRESHOLD: the most it takes; setting either ends their adjusting themselves
        mallopt(-1, 1 << 27)      # M_TRIM_THRESHOLD


# ---------------------------------------------------------------- launch
def launch_is_blocking() -> bool:
    """Whether an op is finished when its call returns."""
    from mindspore.runtime.executor import RuntimeConf

    return bool(RuntimeConf.get_instance().is_launch_blocking())


def _set_launch():
    if target() == "CPU" and os.environ.get("MINDTORCH_LAUNCH_BLOCKING", "1") != "0":
        ms.runtime.launch_blocking()        # (kernels then run on the thread that calls, so it needs `_signals`)


#: This thread's stack for signals; another one gets its own with its oneDNN.
_signals = SignalStack()


# ---------------------------------------------------------------- fork
_LONGEST_WAIT = 0.25    # seconds; a pool busy for longer is running somebody's op in another thread


def _kernel_threads_run():
    """Whether a thread of MindSpore's kernel pool is running or spinning (Linux; elsewhere nobody knows: None)."""
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return None
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/stat") as f:
                pid_and_name, _, rest = f.read().rpartition(")")
        except OSError:
            continue            # it has just ended
        if rest[1:2] == "R" and "(KernelThread" in pid_and_name:
            return True
    return False


def _settle():
    """Waits until MindSpore's kernel threads sleep.

    For about 6 ms after an op they spin, and take their own mutex over and over; a fork that hits such a moment (1 in
    300, measured) gives the child a mutex that is locked for ever, in spite of MindSpore's own fork callbacks.
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
    """MindSpore's fork callbacks for every fork, once each.

    Without them a forked child waits for ever in its first op, if the parent has run one.  MindSpore calls them itself
    only in `mindspore.multiprocessing`, around the fork, so there they would run twice, which aborts the parent: hence
    the guard, through which MindSpore's own calls go too.
    """

    def __init__(self, callbacks):
        self._prepare = callbacks.prepare_before_fork
        self._parent = callbacks.parent_at_fork
        self._child = callbacks.child_at_fork
        self._state = threading.local()          # a fork's callbacks all run in the thread that forks
        place = "mindspore._c_expression:fork_utils."
        put(place + "prepare_before_fork", self.prepare)
        put(place + "parent_at_fork", self.parent)
        put(place + "child_at_fork", self.child)
        cpython.at_fork("MindSpore's kernel threads", before=self.prepare, after_in_parent=self.parent, after_in_child=self.child)

    def prepare(self):
        if not getattr(self._state, "prepared", False):
            self._state.prepared = True
            _settle()
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
