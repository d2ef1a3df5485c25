"""Runs a script on the simulator (the process that _command.py starts): like `python -m mindtorch
run`, with MindSpore's Ascend target, or with real torch and torch_npu."""
import argparse
import ctypes
import os
import signal
import sys

from mindtorch.tools import _hook, _run
from mindtorch.tools.standin import _attach, _steps


def _end_with_runner():
    """Ends this process when the command ends, for whatever reason."""
    runner = os.environ.pop("MINDTORCH_STANDIN_RUNNER", "")
    if runner:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)         # PR_SET_PDEATHSIG
        if os.getppid() != int(runner):
            os.kill(os.getpid(), signal.SIGTERM)


def _torch_npu():
    """Imports torch and torch_npu for a script that imports torch."""
    import torch_npu  # noqa: F401 (adds torch.npu)
    _attach.attach_reference()


def _mindtorch():
    """Enables mindtorch on MindSpore's Ascend target."""
    _attach.quiet()
    with _attach.elsewhere():
        import mindspore as ms
    ms.set_device("Ascend", int(os.environ.get("LOCAL_RANK", "0")) if "MS_ROLE" not in os.environ else 0)
    _hook.enable()


def main():
    _end_with_runner()
    start = _torch_npu if os.environ.pop("MINDTORCH_STANDIN_LIBRARY", "mindspore") == "torch_npu" else _mindtorch

    def library():
        start()
        if os.environ.pop("MINDTORCH_STANDIN_STEPS", ""):
            _steps.mark()
    parser = argparse.ArgumentParser(prog="python -m mindtorch standin run")
    _run.configure(parser)
    return _run.main(parser.parse_args(sys.argv[1:]), library)


if __name__ == "__main__":
    sys.exit(main())
