"""Compiles mindtorch's C kernels with this machine's compiler, once, and loads them.

The library is stored in the user's cache directory (MINDTORCH_CACHE, or XDG_CACHE_HOME/mindtorch,
or ~/.cache/mindtorch). Its file name is a hash of the source, the flags, the compiler and the
processor; a digest of its content is appended. A library is loaded only if no other user can have
written it and its digest matches; otherwise it is recompiled, with a warning. Without a compiler,
or with MINDTORCH_NATIVE=0, there are no C kernels and everything runs on NumPy; one line is logged.
"""
import contextlib
import ctypes
import functools
import hashlib
import json
import logging
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from mindtorch.backend import secure_files

log = logging.getLogger("torch._inductor")

# (-fno-if-conversion: gcc 12 compiles `T == 4 ? f4 : f5` and a value that depends on the same
# condition to two conditional moves, and an addition in between overwrites the condition flags.
# With Intel's AVX-512 the weight gradient of a convolution then called the 5-tap function for 4
# taps. Conditions in vectorized loops use a separate pass, which stays enabled. -falign-functions:
# otherwise the speed of a loop depends on the size of the functions before it: identical code
# gathered 65536 floats in 25 or 41 us.)
FLAGS = ("-O3", "-march=native", "-fno-if-conversion", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd", "-fPIC", "-shared",
         "-std=gnu11", "-Wno-unknown-pragmas", "-falign-functions=64")

CSRC = pathlib.Path(__file__).parents[2] / "csrc"  # mindtorch/csrc, the C sources


def compiler():
    """Returns the compiler's command as a list: CC, else cc, gcc or clang; None if none exists."""
    named = os.environ.get("CC")
    if named is not None:
        words = shlex.split(named)
        return words if words and shutil.which(words[0]) else None
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return [path]
    return None


def cache_folder():
    """Returns the directory of compiled libraries."""
    named = os.environ.get("MINDTORCH_CACHE")
    if named:
        return pathlib.Path(named).expanduser()
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mindtorch"


def _processor():
    try:
        with open("/proc/cpuinfo") as f:
            lines = [line for line in f if line.startswith(("model name", "flags", "Features", "CPU part"))]
        return "".join(sorted(set(lines)))
    except OSError:
        return platform.processor() + platform.machine()


_MARK = b"mindtorch sha256"  # precedes the digest at the end of a library, which the loader ignores


def _intact(path):
    """Returns why a cached library must not be loaded (another user could have written it, or it is
    corrupt); None if it may."""
    try:
        data = secure_files.read(path)
    except OSError as e:
        return str(e)
    if data[-len(_MARK) - 32:-32] != _MARK or hashlib.sha256(data[:-len(_MARK) - 32]).digest() != data[-32:]:
        return f"{path} is damaged"
    return None


def build(source, extra=()):
    """Returns the path of the shared library of a C source file; compiles it unless the cache has a
    valid one. RuntimeError on failure."""
    source = pathlib.Path(source)
    return _built(source.read_bytes(), source.parent, extra, lambda folder: str(source))


def generated(text, extra=()):
    """Compiles and loads generated C source, which may include the headers in `mindtorch/csrc`;
    RuntimeError like `load`."""
    def written(folder):
        path = pathlib.Path(folder) / "generated.c"
        path.write_text(text, "utf-8")
        return str(path)
    return _loaded(_built(text.encode(), CSRC, (*extra, f"-I{CSRC}"), written))


def _headers(text, folder):
    """Returns the paths of the headers in a directory that a C source text includes, directly or
    through other headers."""
    found, texts = set(), [text]
    while texts:
        named = {folder / os.fsdecode(name) for name in re.findall(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', texts.pop(), re.M)}
        new = {path for path in named - found if path.is_file()}  # the compiler reports a missing one
        found |= new
        texts += [path.read_bytes() for path in new]
    return found


def _built(text, folder, extra, source_in):
    cc = compiler()
    if cc is None:
        raise RuntimeError("no C compiler was found (CC, cc, gcc, clang)")
    text = b"\0".join((text, *[p.read_bytes() for p in sorted(_headers(text, folder))]))
    return cached(b"\0".join([text, " ".join((*cc, *FLAGS, *extra)).encode(), _processor().encode()]),
                  lambda made, out: [*cc, *FLAGS, *extra, source_in(made), "-o", out, "-lm", "-lpthread"])


def cached(key, command):
    """Returns the path of a library in the cache; compiles it unless the cache has a valid one.
    RuntimeError on failure.

    Args:
        key: bytes that determine the library: source, command, versions.
        command: (temporary folder, path of the library) -> the compiler's command, as a list.
    """
    key = hashlib.sha256(b"\0".join([_MARK, key])).hexdigest()[:24]
    named = cache_folder()
    try:
        folder = pathlib.Path(secure_files.secure_dir(named))
    except (OSError, ValueError) as e:
        raise RuntimeError(f"the cache folder {named} cannot be used ({e})") from None
    target = folder / f"kernels-{key}.so"
    why = _intact(target) if os.path.lexists(target) else ""
    if why is None:
        return target
    if why:
        log.warning("recompiling C kernels: %s", why)
    try:
        sweep(folder)
        with _alone(folder / f"{PART}{key}.lock"):
            if not os.path.lexists(target) or _intact(target) is not None:
                _make(command, folder, target)
    except OSError as e:
        raise RuntimeError(f"the cache folder {folder} cannot be written to ({e})") from None
    return target


@contextlib.contextmanager
def _alone(path):
    """Inter-process lock: other processes wait at most as long as one compilation may take.

    (All ranks of a job need the same libraries; those that wait do not compile them again.)
    """
    try:
        import fcntl
        f = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except (ImportError, OSError):
        yield
        return
    last = time.monotonic() + _LONGEST
    try:
        while time.monotonic() < last:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:         # (a file system without locks)
                break
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(f)


def _make(command, folder, target):
    """Compiles the library `target` in a directory."""
    # The compiler creates files with the umask's mode, so it writes to a directory that no other
    # user can access.
    with tempfile.TemporaryDirectory(prefix=PART, dir=folder) as made:
        out = pathlib.Path(made) / "kernels.so"
        _compile(command(made, str(out)))
        data = out.read_bytes()
    if target.is_dir() and not target.is_symlink():
        raise OSError(f"{target} is a folder")
    secure_files.write(target, data + _MARK + hashlib.sha256(data).digest())


#: name prefix of a build's directory or lock; age in seconds after which one belongs to a killed
#: build; timeout of the compiler in seconds
PART, _OLD, _LONGEST = "build-", 3600.0, 120.0


def sweep(folder):
    """Removes leftovers of killed processes."""
    for path in folder.glob(f"{PART}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _OLD:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _compile(command):
    try:
        # (imported here because `import torch` does not need it)
        from mindtorch.backend import progress
        with progress.notify_if_slow(f"compiling kernels in C, once on this machine ({cache_folder()})"):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
    except (OSError, subprocess.SubprocessError) as e:
        raise RuntimeError(f"{command[0]} could not be run ({e})") from None
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")


def load(source, extra=()):
    """Builds and loads the library of a C source file; RuntimeError if it cannot be built or
    loaded."""
    return _loaded(build(source, extra))


def _loaded(path):
    try:
        return ctypes.CDLL(str(path))
    except OSError as e:
        raise RuntimeError(f"{path} cannot be loaded ({e})") from None


def load_in_child():
    """Loads the libraries in a child process and checks their results. Returns (message, True if
    they are correct).

    A library that crashes only ends the child process.
    """
    done = subprocess.run([sys.executable, "-c", _CHILD, str(pathlib.Path(__file__).parents[2])], capture_output=True, text=True, timeout=300)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no error output"]
        how = f"exit status {done.returncode}" if done.returncode > 0 else signal.Signals(-done.returncode).name
        return f"a child process that loads them ended with {how} ({last[0]})", False
    return " ".join([done.stdout.strip(), *(f"({line})" for line in done.stderr.splitlines())]), True


_CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from mindtorch.backend.c_kernels import build
print(build.self_check())
"""


def self_check():
    """Loads both libraries and checks one computation of each. Returns one line of text;
    RuntimeError if a result is wrong."""
    paths = [build(THREAD_POOL, NO_CONTRACTION), build(CONV_NORM_LSTM)]
    threads, lib = load(THREAD_POOL, NO_CONTRACTION), load(CONV_NORM_LSTM)
    lib.mt_use(threads.mt_share, threads.mt_parts)
    n, pointer = 1000, ctypes.c_void_p
    declare(threads, {"mt_cast": [ctypes.c_int, pointer, pointer, ctypes.c_long]}, ("mt_cast",))
    declare(lib, {"mt_same": [pointer, pointer, ctypes.c_long]}, ("mt_same",))
    # bfloat16 is the upper half of a float32.
    halves, cast = (ctypes.c_uint16 * n)(*range(0x3f00, 0x3f00 + n)), (ctypes.c_uint32 * n)()
    whole = (ctypes.c_uint32 * n)(*(i << 16 for i in range(0x3f00, 0x3f00 + n)))
    if threads.mt_cast(0, halves, cast, n) or bytes(cast) != bytes(whole):
        raise RuntimeError(f"{paths[0]} casts bfloat16 wrongly")
    words = (ctypes.c_uint64 * 2)(3, 5)
    at = (pointer * 2)(*(ctypes.addressof(words) + 8 * i for i in range(2)))
    if not lib.mt_same(at, words, 2) or lib.mt_same(at, (ctypes.c_uint64 * 2)(3, 4), 2):
        raise RuntimeError(f"{paths[1]} compares wrongly")
    return f"{paths[0].name} and {paths[1].name} in {paths[0].parent}: owner, mode and digest checked, loaded, compute right"


def _agree(a, b):
    """True if two results (arrays, None, or tuples of them) agree up to rounding: within 1e-4 of
    the largest element."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_agree, a, b))
    return a is None or b is None or a.shape == b.shape and np.allclose(a, b, 0, 1e-4 * float(np.abs(b).max(initial=0)))


class Choices:
    """Records which of two kernels is faster, by shape: measured once per machine and stored next
    to the library, so that every run uses the same kernels."""

    def __init__(self):
        self.known = self.path = None

    def _load(self):
        self.known = {}
        try:
            self.path = pathlib.Path(secure_files.secure_dir(cache_folder())) / f"choices-{build(CONV_NORM_LSTM).stem}.json"
            found = json.loads(secure_files.read(self.path))
        except (OSError, ValueError, RuntimeError):
            return  # measured again
        if isinstance(found, dict) and all(isinstance(v, bool) for v in found.values()):
            self.known.update(found)

    def ask(self, key, first, second, rounds=5, by=0.97):
        """True if first() takes less than `by` of the time of second() (minimum of alternating
        runs) and returns the same arrays up to rounding."""
        if self.known is None:
            self._load()
        if key not in self.known:
            times, results = ([], []), [None, None]
            for _ in range(rounds):
                for i, f in enumerate((first, second)):
                    start = time.perf_counter()
                    results[i] = f()
                    times[i].append(time.perf_counter() - start)
            same = _agree(*results)
            if not same:
                log.warning("%s: the C kernel built by this machine's compiler gives different results; it is not used", key)
            self.known[key] = same and min(times[0]) < by * min(times[1])
            self._keep()
        return self.known[key]

    def _keep(self):
        if self.path is None:
            return
        try:
            secure_files.write(self.path, json.dumps(self.known, indent=0, sort_keys=True).encode())
        except OSError as e:
            log.info("measured kernel choices could not be saved: %s", e)


choices = Choices()
CONV_NORM_LSTM = CSRC / "conv_norm_lstm.c"
THREAD_POOL = CSRC / "thread_pool.c"
ROI = CSRC / "roi.c"
SCAN_GATHER = CSRC / "scan_gather.c"
REDUCE = CSRC / "reduce.c"
COPY_PAD_GRID = CSRC / "copy_pad_grid.c"
ELEMENTWISE = CSRC / "elementwise.c"
RANDOM = CSRC / "random.c"
POOLING = CSRC / "pooling.c"
FASTCALL = CSRC / "fastcall.c"
RNN = CSRC / "rnn.c"
NO_CONTRACTION = ("-ffp-contract=off",)


def declare(lib, arguments, integers, direct=False):
    """Sets the argument types of a library's functions ({name: types}). Those in `integers` return
    an int, the others nothing.

    direct: all arguments are ints and Python numbers; where possible they are called without ctypes
    (fastcall.py).
    """
    for name, types in arguments.items():
        f = getattr(lib, name)
        f.argtypes, f.restype = types, ctypes.c_int if name in integers else None
        if direct:
            setattr(lib, name, _direct()(f, types, name in integers))


def _off():
    return os.environ.get("MINDTORCH_NATIVE", "1") == "0"


_said: set[str] = set()  # reasons that have been reported


def _warn(text, reason):
    """Logs a warning once per reason: a failing compiler or cache affects both the threads and the
    kernels."""
    if str(reason) not in _said:
        _said.add(str(reason))
        log.warning(text, reason)


@functools.cache
def thread_pool():
    """Returns the library of the thread pool and the kernels that eager mode runs on it
    (thread_pool.py), or None. Takes a second to compile, once per machine."""
    if _off():
        return None
    try:
        return load(THREAD_POOL, NO_CONTRACTION)
    except RuntimeError as e:
        # No warning without a compiler, which is a supported setup; an unusable cache is for the
        # user to fix.
        if compiler() is not None:
            _warn("C kernels are unavailable, so steps are slower: %s", e)
        return None


def _load_library(source, flags, without):
    """Loads a further library for eager mode, or returns None after one warning that names the ops
    that are slower without it."""
    if _off():
        return None
    try:
        return load(source, flags)
    except RuntimeError as e:
        _warn(f"{without} run slower, because C kernels are unavailable: %s", e)
        return None


@functools.cache
def _direct():
    """Returns fastcall.directly bound to its library."""
    # (imported here because `import torch` does not need it)
    from mindtorch.backend.c_kernels import fastcall
    return functools.partial(fastcall.directly, fastcall.ready(_load_library(FASTCALL, (), "calls of C")))


@functools.cache
def roi():
    """Loads the kernels for regions of images (roi.py); None if unavailable."""
    return _load_library(ROI, (), "regions of images")


@functools.cache
def scan_gather():
    """Loads the kernels along an axis (scan_gather.py); None if unavailable."""
    return _load_library(SCAN_GATHER, NO_CONTRACTION, "scans, scattering and sorting")


@functools.cache
def reduce():
    """Loads the kernels over rows and columns (reduce.py); None if unavailable."""
    # (-O3 takes 14 s to compile instead of 4 s; the median speedup over 13 ops at three sizes is
    # 1.03.)
    return _load_library(REDUCE, ("-O2",), "reductions")


@functools.cache
def copy_pad_grid():
    """Loads the kernels for gathering and copying over several axes (copy_pad_grid.py); None if
    unavailable."""
    return _load_library(COPY_PAD_GRID, NO_CONTRACTION, "grid_sample, bags of embeddings and padding")


@functools.cache
def elementwise():
    """Loads the elementwise loops (elementwise.py); None if unavailable."""
    return _load_library(ELEMENTWISE, NO_CONTRACTION, "elementwise ops of several passes")


@functools.cache
def random():
    """Loads the random number kernels (random.py); None if unavailable."""
    return _load_library(RANDOM, NO_CONTRACTION, "random numbers")


@functools.cache
def pooling():
    """Loads the pooling kernels (pooling.py); None if unavailable."""
    return _load_library(POOLING, NO_CONTRACTION, "pools, unfold and fold")


@functools.cache
def rnn():
    """Loads the kernels of recurrent layers (rnn.py); None if unavailable."""
    return _load_library(RNN, (), "recurrent layers")


def every():
    """Compiles and loads all libraries that are otherwise loaded on first use."""
    for f in (thread_pool, _direct, roi, scan_gather, reduce, copy_pad_grid, elementwise, random, pooling, rnn, conv_norm_lstm):
        f()


@functools.cache
def conv_norm_lstm():
    """Loads the kernels of torch.compile (conv_norm_lstm.py); None if unavailable (logged once)."""
    if _off():
        log.info("no C kernels: MINDTORCH_NATIVE=0")
        return None
    try:
        lib = load(CONV_NORM_LSTM)
        threads = thread_pool()
        if threads is None:
            raise RuntimeError("the thread pool could not be compiled")
        lib.mt_use(threads.mt_share, threads.mt_parts)
    except RuntimeError as e:
        _warn("torch.compile replays without C kernels: %s", e)
        return None
    return lib
