"""A stand-in at work: the machine's process, and the environment that puts a process of MindSpore on it."""
from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile

from mindtorch.tools.standin import _build, limits as _limits

#: the chip that is stood in for where none is named
CHIP = "Ascend910B2"
#: what computes
ENGINES = {"cpu": "mindtorch.torch", "torch": "torch"}


class CannotRun(RuntimeError):
    """The machine cannot be started, and why."""


class Machine:
    """A machine with eight devices, for processes started with `environment()`.

    engine  "cpu": launches are computed by mindtorch's own cpu device; "torch": by real torch
    kernels files that are run over the table of kernels (they plant faults)
    Builds the stand-in if it does not stand (CannotBuild where that is impossible). CannotRun for an engine or a file that is not there. A context manager;
    ends with the process in any case."""

    def __init__(self, engine: str = "cpu", kernels: tuple[str, ...] = (), say=print):
        if importlib.util.find_spec(ENGINES[engine]) is None:
            raise CannotRun(f"the engine {engine!r} needs {ENGINES[engine]}, which is not installed")
        for path in kernels:
            if not os.path.isfile(path):
                raise CannotRun(f"there is no file {path!r} to be run over the kernels")
        _build.build(say)
        # A socket's path may be about a hundred characters long.
        self.folder = tempfile.TemporaryDirectory(prefix="standin-", dir=None if len(os.fsencode(tempfile.gettempdir())) < 70 else "/tmp")
        self.path = os.path.join(self.folder.name, "device")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(self.path)
            server.listen(64)
            own = {k: v for k, v in os.environ.items() if k not in ("MINDTORCH_NPU", "ASCEND_LAUNCH_BLOCKING", "MINDTORCH_STANDIN_SOCKET")}
            own.update(MINDTORCH_STANDIN_ENGINE=ENGINES[engine], MINDTORCH_STANDIN_KERNELS=os.pathsep.join(map(os.path.abspath, kernels)))
            # In a session of its own: the user's Ctrl-C is for the script. Not from the user's folder, where modules may have any name.
            start = (f"import sys; sys.path[:] = [p for p in sys.path if p] + [{str(_build.SOURCES.parents[2])!r}]\n"
                     f"from mindtorch.tools.standin import _machine; _machine.main({server.fileno()})")
            self.process = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, env=own, pass_fds=[server.fileno()],
                                            start_new_session=True)

    def ended(self) -> str | None:
        """What became of the machine's process if it is no longer there, in a sentence."""
        status = self.process.poll()
        return None if status is None else f"the process that computes launches ended by itself (status {status}); what it said stands above"

    def environment(self, log: str, chip: str = CHIP, limits: bool = True) -> dict[str, str]:
        """The variables of a process that is to run on the machine, over os.environ's; what it launches is written to `log`.

        limits: only the dtypes that CANN documents for the chip are taken. ValueError for an unknown chip"""
        env = {k: v for k, v in os.environ.items() if k not in ("MINDTORCH_NPU", "MS_SIMULATION_LEVEL")}
        env.setdefault("GLOG_v", "3")           # MindSpore's warnings that there is no driver
        env.update(_build.environment(), MINDTORCH_STANDIN_SOCKET=self.path, MINDTORCH_STANDIN_LOG=log, MINDTORCH_STANDIN_CHIP=chip)
        if limits:
            env["MINDTORCH_STANDIN_LIMITS"] = os.path.join(self.folder.name, _limits.chip_of(chip))
            with open(env["MINDTORCH_STANDIN_LIMITS"], "w") as f:
                f.writelines(line + "\n" for line in _limits.lines(chip))
        return env

    def close(self):
        """Ends the machine's process; first it computes what has been launched, for what failed there is written to the log."""
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
