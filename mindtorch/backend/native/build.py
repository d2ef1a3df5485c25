"""Compiles mindtorch's C kernels with the compiler of this machine, once, and loads them.

The library lies in the user's cache folder (MINDTORCH_CACHE, or XDG_CACHE_HOME/mindtorch, or ~/.cache/mindtorch) under a name
made of the source, the flags, the compiler and the processor, a digest of it at its end.  Only what nobody else can have written is
loaded, and only as it was written; anything else is compiled anew, with a warning.  Without a compiler, or with MINDTORCH_NATIVE=0, there are no C
kernels and everything runs on NumPy as before; one logged line says so.
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
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from mindtorch.backend import owned

log = logging.getLogger("torch._inductor")

# (-fno-if-conversion: gcc 12 makes `T == 4 ? f4 : f5` and a number that hangs on the same condition two conditional moves, and lets an addition in between
# overwrite the condition: for Intel's AVX-512 the gradient of a convolution's weight called the function for 5 taps with 4. Vectors have a pass of their own
# for conditions, which stays.
# -falign-functions: else how fast a loop is hangs on how long the functions before it are: the very same code gathered 65536 floats in 25 or 41 us.)
FLAGS = ("-O3", "-march=native", "-fno-if-conversion", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd", "-fPIC", "-shared",
         "-std=gnu11", "-Wno-unknown-pragmas", "-falign-functions=64")


def compiler():
    """The compiler's command as a list: CC, else cc, gcc or clang; None if there is none."""
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
    """Where compiled libraries are kept."""
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


_MARK = b"mindtorch sha256"     # before the digest at a library's end, where the loader does not look


def _intact(path):
    """Why a library of the cache may not be loaded, or None: somebody else could have written it, or it is not as it was written."""
    try:
        data = owned.read(path)
    except OSError as e:
        return str(e)
    if data[-len(_MARK) - 32:-32] != _MARK or hashlib.sha256(data[:-len(_MARK) - 32]).digest() != data[-32:]:
        return f"{path} is damaged"
    return None


def build(source, extra=()):
    """Path of the shared library of a C source file; compiled unless the cache has a sound one.  RuntimeError if that fails."""
    source = pathlib.Path(source)
    return _built(source.read_bytes(), (*source.parent.glob(f"{source.stem}_*.h"), *source.parent.glob("_common*.h")), extra,
                  lambda folder: str(source))


def generated(text, extra=()):
    """The loaded library of a C source that was made here and may include the headers beside this module; RuntimeError as `load`."""
    def written(folder):
        path = pathlib.Path(folder) / "generated.c"
        path.write_text(text, "utf-8")
        return str(path)
    folder = pathlib.Path(__file__).parent
    return _loaded(_built(text.encode(), folder.glob("_*.h"), (*extra, f"-I{folder}"), written))


def _built(text, headers, extra, source_in):
    cc = compiler()
    if cc is None:
        raise RuntimeError("no C compiler was found (CC, cc, gcc, clang)")
    text = b"\0".join((text, *[p.read_bytes() for p in sorted(headers)]))
    key = hashlib.sha256(b"\0".join([_MARK, text, " ".join((*cc, *FLAGS, *extra)).encode(), _processor().encode()])).hexdigest()[:24]
    named = cache_folder()
    try:
        folder = pathlib.Path(owned.folder(named))
    except (OSError, ValueError) as e:
        raise RuntimeError(f"the cache folder {named} cannot be used ({e})") from None
    target = folder / f"kernels-{key}.so"
    why = _intact(target) if os.path.lexists(target) else ""
    if why is None:
        return target
    if why:
        log.warning("C kernels are compiled anew: %s", why)
    try:
        sweep(folder)
        with _alone(folder / f"{PART}{key}.lock"):
            if not os.path.lexists(target) or _intact(target) is not None:
                _make(cc, extra, source_in, folder, target)
    except OSError as e:
        raise RuntimeError(f"the cache folder {folder} cannot be written to ({e})") from None
    return target


@contextlib.contextmanager
def _alone(path):
    """One process at a time is inside; others wait as long as one compiles at most.

    (The ranks of a job all want the same libraries: who waits does not compile them again.)
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


def _make(cc, extra, source_in, folder, target):
    """Compiles a source into the library `target` of a folder."""
    # The compiler writes with the umask's mode, so it does so where nobody else gets to.
    with tempfile.TemporaryDirectory(prefix=PART, dir=folder) as made:
        out = pathlib.Path(made) / "kernels.so"
        _compile([*cc, *FLAGS, *extra, source_in(made), "-o", str(out), "-lm", "-lpthread"])
        data = out.read_bytes()
    if target.is_dir() and not target.is_symlink():
        raise OSError(f"{target} is a folder")
    owned.write(target, data + _MARK + hashlib.sha256(data).digest())


#: how a folder (or a lock) begins that a build works in; seconds after which one that is still there is a killed build's; and that a compiler may take
PART, _OLD, _LONGEST = "build-", 3600.0, 120.0


def sweep(folder):
    """Removes what killed processes have left."""
    for path in folder.glob(f"{PART}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _OLD:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _compile(command):
    try:
        from mindtorch.backend import patience      # (an import of torch does without it)
        with patience.slow(f"compiling kernels in C, once on this machine ({cache_folder()})"):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
    except (OSError, subprocess.SubprocessError) as e:
        raise RuntimeError(f"{command[0]} could not be run ({e})") from None
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")


def load(source, extra=()):
    """The loaded library of a C source file; RuntimeError if it cannot be built or loaded."""
    return _loaded(build(source, extra))


def _loaded(path):
    try:
        return ctypes.CDLL(str(path))
    except OSError as e:
        raise RuntimeError(f"{path} cannot be loaded ({e})") from None


def load_in_child():
    """Loads the libraries in a process of their own and lets them compute: (what was found, whether that is right).

    A library that ends the process ends that one.
    """
    done = subprocess.run([sys.executable, "-c", _CHILD, str(pathlib.Path(__file__).parents[2])], capture_output=True, text=True, timeout=300)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        how = f"exit status {done.returncode}" if done.returncode > 0 else signal.Signals(-done.returncode).name
        return f"a process that loads them ends with {how} ({last[0]})", False
    return " ".join([done.stdout.strip(), *(f"({line})" for line in done.stderr.splitlines())]), True


_CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from mindtorch.backend.native import build as native_build
print(native_build.self_check())
"""


def self_check():
    """Loads both libraries and lets each compute something: one line that says what was checked.  RuntimeError if it is wrong."""
    paths = [build(POOL, POOL_FLAGS), build(SOURCE)]
    threads, lib = load(POOL, POOL_FLAGS), load(SOURCE)
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
    """Whether two results (arrays, None, or tuples of them) are the same but for rounding: within 1e-4 of the largest element."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_agree, a, b))
    return a is None or b is None or a.shape == b.shape and np.allclose(a, b, 0, 1e-4 * float(np.abs(b).max(initial=0)))


class Choices:
    """Which of two kernels was faster, by shape: measured once on a machine and kept beside the library, so that every run
    computes alike."""

    def __init__(self):
        self.known = self.path = None

    def _load(self):
        self.known = {}
        try:
            self.path = pathlib.Path(owned.folder(cache_folder())) / f"choices-{build(SOURCE).stem}.json"
            found = json.loads(owned.read(self.path))
        except (OSError, ValueError, RuntimeError):
            return      # measured anew
        if isinstance(found, dict) and all(isinstance(v, bool) for v in found.values()):
            self.known.update(found)

    def ask(self, key, first, second, rounds=5, by=0.97):
        """True if first() takes less than `by` of the time of second(), the least of some alternating runs, and gives the same arrays but for rounding."""
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
                log.warning("%s: C as this machine's compiler makes it computes something else; it is not used", key)
            self.known[key] = same and min(times[0]) < by * min(times[1])
            self._keep()
        return self.known[key]

    def _keep(self):
        if self.path is None:
            return
        try:
            owned.write(self.path, json.dumps(self.known, indent=0, sort_keys=True).encode())
        except OSError as e:
            log.info("measured choices are not kept: %s", e)


choices = Choices()
SOURCE = pathlib.Path(__file__).with_name("_kernels.c")
POOL = pathlib.Path(__file__).with_name("_pool.c")
REGIONS = pathlib.Path(__file__).with_name("_regions.c")
ALONG = pathlib.Path(__file__).with_name("_along.c")
ROWS = pathlib.Path(__file__).with_name("_rows.c")
MOVES = pathlib.Path(__file__).with_name("_moves.c")
LOOPS = pathlib.Path(__file__).with_name("_loops.c")
DRAWS = pathlib.Path(__file__).with_name("_draws.c")
POOLS = pathlib.Path(__file__).with_name("_pools.c")
DIRECT = pathlib.Path(__file__).with_name("_direct.c")
RECURRENT = pathlib.Path(__file__).with_name("_recurrent.c")
POOL_FLAGS = ("-ffp-contract=off",)


def declare(lib, arguments, integers, direct=False):
    """Sets the argument types of a library's functions ({name: types}); those named in `integers` return an int, the others nothing.

    direct: they are given ints and numbers alone, and are called without ctypes in between where that can be (direct.py)."""
    for name, types in arguments.items():
        f = getattr(lib, name)
        f.argtypes, f.restype = types, ctypes.c_int if name in integers else None
        if direct:
            setattr(lib, name, _direct()(f, types, name in integers))


def _off():
    return os.environ.get("MINDTORCH_NATIVE", "1") == "0"


_said: set[str] = set()        # reasons that a warning has given


def _warn(text, reason):
    """Once for each reason: what cannot be compiled or kept stops the threads as well as the kernels."""
    if str(reason) not in _said:
        _said.add(str(reason))
        log.warning(text, reason)


@functools.cache
def pool():
    """The loaded threads and what eager mode runs on them (pool.py), or None.  A second to compile, once on a machine."""
    if _off():
        return None
    try:
        return load(POOL, POOL_FLAGS)
    except RuntimeError as e:
        # Without a compiler that is as it should be; a cache that cannot be used is for the user to mend.
        if compiler() is not None:
            _warn("no C kernels, which makes steps slower: %s", e)
        return None


def _beside_pool(source, flags, without):
    """What eager mode calls beside the pool, loaded; or None, with one warning of what is slower without it."""
    if _off():
        return None
    try:
        return load(source, flags)
    except RuntimeError as e:
        _warn(f"{without} without C kernels, which makes them slower: %s", e)
        return None


@functools.cache
def _direct():
    """direct.directly with its library."""
    from mindtorch.backend.native import direct         # (an import of torch does without it)
    return functools.partial(direct.directly, direct.ready(_beside_pool(DIRECT, (), "calls of C")))


@functools.cache
def regions():
    """The loaded kernels of regions of images (regions.py), or None."""
    return _beside_pool(REGIONS, (), "regions of images")


@functools.cache
def along():
    """The loaded kernels along an axis (along.py), or None."""
    return _beside_pool(ALONG, POOL_FLAGS, "scans, scattering and sorting")


@functools.cache
def rows():
    """The loaded kernels of rows and columns (rows.py), or None."""
    # (-O3 takes 14 s to compile instead of 4; of 13 ops at three sizes it is 1.03 times as fast in the middle.)
    return _beside_pool(ROWS, ("-O2",), "reductions")


@functools.cache
def moves():
    """The loaded kernels that pick and place by several axes (moves.py), or None."""
    return _beside_pool(MOVES, POOL_FLAGS, "grid_sample, bags of embeddings and padding")


@functools.cache
def loops():
    """The loaded elementwise loops (loops.py), or None."""
    return _beside_pool(LOOPS, POOL_FLAGS, "elementwise ops of several passes")


@functools.cache
def draws():
    """The loaded kernels of random numbers (draws.py), or None."""
    return _beside_pool(DRAWS, POOL_FLAGS, "random numbers")


@functools.cache
def pools():
    """The loaded kernels of pools (pools.py), or None."""
    return _beside_pool(POOLS, POOL_FLAGS, "pools, unfold and fold")


@functools.cache
def recurrent():
    """The loaded kernels of recurrent layers (recurrent.py), or None."""
    return _beside_pool(RECURRENT, (), "recurrent layers")


def every():
    """Compiles and loads all that is loaded when it is first needed."""
    for f in (pool, _direct, regions, along, rows, moves, loops, draws, pools, recurrent, library):
        f()


@functools.cache
def library():
    """The loaded kernels, or None (with one logged line)."""
    if _off():
        log.info("no C kernels: MINDTORCH_NATIVE=0")
        return None
    try:
        lib = load(SOURCE)
        threads = pool()
        if threads is None:
            raise RuntimeError("the threads that they share could not be compiled")
        lib.mt_use(threads.mt_share, threads.mt_parts)
    except RuntimeError as e:
        _warn("torch.compile replays without C kernels: %s", e)
        return None
    return lib
