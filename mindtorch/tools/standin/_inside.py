"""Runs a script on the stand-in (the process that _command.py starts): as `python -m mindtorch run`, with MindSpore on its Ascend target."""
import argparse
import atexit
import ctypes
import json
import logging
import os
import sys
import threading


def sites():
    """Tells the stand-in, for each copy, the user's line that is at work."""
    import mindspore

    import mindtorch
    ours = tuple(os.path.join(os.path.dirname(m.__file__), "") for m in (mindtorch, mindspore))
    main = threading.main_thread().ident

    def find(buffer, size):
        # Copies may be made by MindSpore's own threads, which have no Python of theirs: then the main thread waits for them.
        frame = sys._getframe() if threading.get_ident() == main else sys._current_frames().get(main)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith((*ours, "<frozen")) and os.path.isabs(name) and os.sep + "threading.py" not in name:
                data = f"{name}:{frame.f_lineno}".encode()[:size - 1]
                ctypes.memmove(buffer, data + b"\0", len(data) + 1)
                return
            frame = frame.f_back
    kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(find)
    library = ctypes.CDLL("libascendcl.so")
    library.standin_find_site_by(kept)
    # No Python is left to ask when the process ends.
    atexit.register(lambda: (library.standin_find_site_by(None), kept))
    return library


def quiet():
    """MindSpore says while it starts that CANN's compiler `te` is missing. A package of that name would be taken for the compiler itself, so it is
    missing for good."""
    known = ("CheckFailed: No module named 'te'", 'MindSpore relies on whl package "te"')
    logging.getLogger(f"ME.mindspore.log.{os.getpid()}").addFilter(lambda record: not record.getMessage().startswith(known))


def main():
    quiet()
    import mindspore as ms
    ms.set_device("Ascend", int(os.environ.get("LOCAL_RANK", "0")) if "MS_ROLE" not in os.environ else 0)
    library = sites()

    def told():
        from mindtorch.core import devices
        fallbacks = {name: n for (_, name), n in devices.FALLBACKS.items()}
        library.standin_log(json.dumps({"allocated": ms.runtime.max_memory_allocated(), "fallbacks": fallbacks,
                                         "random": os.environ.get("MINDTORCH_NPU_RANDOM", "device")}).encode())
    atexit.register(told)
    if os.environ.get("ASCEND_LAUNCH_BLOCKING"):
        ms.runtime.launch_blocking()
    from mindtorch.tools import _run
    parser = argparse.ArgumentParser(prog="python -m mindtorch standin run")
    _run.configure(parser)
    return _run.main(parser.parse_args(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
