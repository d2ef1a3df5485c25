"""Runs a script on the stand-in (the process that _command.py starts): as `python -m mindtorch run`, with MindSpore on its Ascend target."""
import argparse
import ctypes
import os
import signal
import sys

from mindtorch.tools.standin import _attach


def _end_with_runner():
    """However the command ends, its script does not go on alone."""
    runner = os.environ.pop("MINDTORCH_STANDIN_RUNNER", "")
    if runner:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)         # PR_SET_PDEATHSIG
        if os.getppid() != int(runner):
            os.kill(os.getpid(), signal.SIGTERM)


def main():
    _end_with_runner()
    _attach.quiet()
    with _attach.elsewhere():
        import mindspore as ms
    ms.set_device("Ascend", int(os.environ.get("LOCAL_RANK", "0")) if "MS_ROLE" not in os.environ else 0)
    from mindtorch.tools import _run
    parser = argparse.ArgumentParser(prog="python -m mindtorch standin run")
    _run.configure(parser)
    return _run.main(parser.parse_args(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
