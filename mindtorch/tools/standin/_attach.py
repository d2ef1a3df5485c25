"""Setup of a process on the CANN simulator: source lines of its copies, and its memory and CPU
fallbacks in the log.

`attach()` is called when the hook is enabled, so that it also runs in ranks and spawned workers.
"""
import contextlib
import ctypes
import json
import logging
import os
import site
import sys
import sysconfig
import threading

from mindtorch.backend.cpython import at_exit


def quiet():
    """Suppresses MindSpore's start-up messages that CANN's compiler `te` is missing. An empty
    package of that name would be used as the compiler, so `te` always stays missing."""
    known = ("CheckFailed: No module named 'te'", 'MindSpore relies on whl package "te"')
    logging.getLogger(f"ME.mindspore.log.{os.getpid()}").addFilter(lambda record: not record.getMessage().startswith(known))


def user_line(frame, ours, installed):
    """Returns `file:line` of the innermost user frame: outside the `installed` folders if there is
    one, else outside `ours`. None if there is neither."""
    found = None
    while frame is not None:
        name = frame.f_code.co_filename
        if os.path.isabs(name) and not name.startswith(ours):
            if not name.startswith(installed):
                return f"{name}:{frame.f_lineno}"
            found = found or f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return found


def _folders(*paths):
    return tuple(os.path.join(p, "") for p in paths if p)


def _sites(library, *packages):
    """Reports to the simulator, for each copy, the user's source line that causes it. packages: the
    modules whose lines do not count."""
    ours = _folders(*(os.path.dirname(p.__file__) for p in packages))
    paths = sysconfig.get_paths()
    installed = _folders(*(paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")), *site.getsitepackages(), site.getusersitepackages())
    main = threading.main_thread().ident

    def find(buffer, size):
        # Copies may be made by MindSpore's own threads, which have no Python frames: then the main
        # thread is waiting for them.
        line = user_line(sys._getframe(), ours, installed) or user_line(sys._current_frames().get(main), ours, installed)
        if line:
            data = line.encode()[:size - 1]
            ctypes.memmove(buffer, data + b"\0", len(data) + 1)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(find)
    library.standin_find_site_by(callback)
    # The callback must not be called after Python has shut down.
    at_exit("the stand-in's log")(lambda: (library.standin_find_site_by(None), callback))


@contextlib.contextmanager
def elsewhere():
    """Context manager that imports without the current folder, which `python -m` adds: a script's
    process would not search it, and modules there may have any name."""
    first = sys.path[0] if sys.path and sys.path[0] in ("", os.getcwd()) else None
    if first is not None:
        del sys.path[0]
    try:
        yield
    finally:
        if first is not None:
            sys.path.insert(0, first)


def attach():
    """Prepares this process for the log; must be called before its device is used."""
    quiet()
    with elsewhere():
        import mindspore as ms

    import mindtorch
    try:
        library = ctypes.CDLL("libascendcl.so")
    except OSError:  # (a process that was started without the rest of the environment)
        return
    _sites(library, mindtorch, ms)

    def report():
        if not library.standin_in_use():        # a launcher, a worker that loads data, a forked child
            return
        from mindtorch.core.device import device_dispatch
        entry = {"fallbacks": {name: n for (_, name), n in device_dispatch.FALLBACKS.items()}, "random": os.environ.get("MINDTORCH_NPU_RANDOM", "device")}
        try:
            entry["allocated"] = ms.runtime.max_memory_allocated()
        except RuntimeError:  # (the device has failed, which is in the log)
            pass
        library.standin_log(json.dumps(entry).encode())
    at_exit("the stand-in's log")(report)


def attach_reference():
    """Prepares a process of torch_npu for the log."""
    import torch
    import torch_npu

    import mindtorch
    library = ctypes.CDLL("libascendcl.so")
    _sites(library, mindtorch, torch, torch_npu)

    def report():
        if not library.standin_in_use():
            return
        entry = {"fallbacks": {}, "random": "device", "allocated": torch.npu.max_memory_allocated()}
        library.standin_log(json.dumps(entry).encode())
    at_exit("the simulator's log")(report)
