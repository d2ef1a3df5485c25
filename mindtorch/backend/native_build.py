"""Compiles mindtorch's C kernels with the compiler of this machine, once, and loads them.

The library lies in the user's cache folder (MINDTORCH_CACHE, or XDG_CACHE_HOME/mindtorch, or ~/.cache/mindtorch) under a name
made of the source, the flags, the compiler and the processor.  Without a compiler, or with MINDTORCH_NATIVE=0, there are no C
kernels and everything runs on NumPy as before; one logged line says so.
"""
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
import subprocess
import tempfile
import time

log = logging.getLogger("torch._inductor")

FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd", "-fPIC", "-shared",
         "-std=gnu11", "-Wno-unknown-pragmas")


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
        return pathlib.Path(named)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mindtorch"


def _processor():
    try:
        with open("/proc/cpuinfo") as f:
            lines = [line for line in f if line.startswith(("model name", "flags", "Features", "CPU part"))]
        return "".join(sorted(set(lines)))
    except OSError:
        return platform.processor() + platform.machine()


def build(source, extra=()):
    """Path of the shared library of a C source file; compiled unless the cache has it.  RuntimeError if that fails."""
    cc = compiler()
    if cc is None:
        raise RuntimeError("no C compiler was found (CC, cc, gcc, clang)")
    source = pathlib.Path(source)
    text = b"\0".join(p.read_bytes() for p in (source, *sorted(source.parent.glob(f"{source.stem}_*.h"))))
    key = hashlib.sha256(b"\0".join([text, " ".join((*cc, *FLAGS, *extra)).encode(), _processor().encode()])).hexdigest()[:24]
    folder = cache_folder()
    target = folder / f"kernels-{key}.so"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
    except OSError as e:
        raise RuntimeError(f"the cache folder {folder} cannot be written to ({e})") from None
    try:
        done = subprocess.run([*cc, *FLAGS, *extra, str(source), "-o", made, "-lm", "-lpthread"], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{cc[0]} failed: {done.stderr.strip()[-500:]}")
        os.replace(made, target)         # several processes may do this at once
    except (OSError, subprocess.SubprocessError) as e:
        raise RuntimeError(f"{cc[0]} could not be run ({e})") from None
    finally:
        pathlib.Path(made).unlink(missing_ok=True)
    return target


class Choices:
    """Which of two kernels was faster, by shape: measured once on a machine and kept beside the library, so that every run
    computes alike."""

    def __init__(self):
        self.known = self.path = None

    def _load(self):
        self.known = {}
        try:
            self.path = cache_folder() / f"choices-{build(SOURCE).stem}.json"
            self.known.update(json.loads(self.path.read_text("utf-8")))
        except (OSError, ValueError, RuntimeError):
            pass        # measured anew

    def ask(self, key, first, second, rounds=5, by=0.97):
        """True if first() takes less than `by` of the time of second(), the least of some alternating runs."""
        if self.known is None:
            self._load()
        if key not in self.known:
            times = ([], [])
            for _ in range(rounds):
                for f, t in zip((first, second), times):
                    start = time.perf_counter()
                    f()
                    t.append(time.perf_counter() - start)
            self.known[key] = min(times[0]) < by * min(times[1])
            self._keep()
        return self.known[key]

    def _keep(self):
        if self.path is None:
            return
        try:
            handle, made = tempfile.mkstemp(suffix=".json", dir=self.path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                json.dump(self.known, f, indent=0, sort_keys=True)
            os.replace(made, self.path)
        except OSError as e:
            log.info("measured choices are not kept: %s", e)


choices = Choices()
SOURCE = pathlib.Path(__file__).with_name("_kernels.c")
POOL = pathlib.Path(__file__).with_name("_pool.c")
POOL_FLAGS = ("-ffp-contract=off",)


def declare(lib, arguments, integers):
    """Sets the argument types of a library's functions ({name: types}); those named in `integers` return an int, the others nothing."""
    for name, types in arguments.items():
        f = getattr(lib, name)
        f.argtypes, f.restype = types, ctypes.c_int if name in integers else None


def _off():
    return os.environ.get("MINDTORCH_NATIVE", "1") == "0"


@functools.cache
def pool():
    """The loaded threads and what eager mode runs on them (pool.py), or None.  A second to compile, once on a machine."""
    if _off():
        return None
    try:
        return ctypes.CDLL(str(build(POOL, POOL_FLAGS)))
    except (RuntimeError, OSError) as e:
        log.info("kernels share no threads: %s", e)
        return None


@functools.cache
def library():
    """The loaded kernels, or None (with one logged line)."""
    if _off():
        log.info("no C kernels: MINDTORCH_NATIVE=0")
        return None
    try:
        lib = ctypes.CDLL(str(build(SOURCE)))
        threads = pool()
        if threads is None:
            raise RuntimeError("the threads that they share could not be compiled")
        lib.mt_use(threads.mt_share, threads.mt_parts)
    except (RuntimeError, OSError) as e:
        log.warning("torch.compile replays without C kernels: %s", e)
        return None
    return lib
