"""A running simulator: its compute process, and the environment that makes a process of MindSpore or
torch_npu use it."""
from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile

from mindtorch.tools.standin import _build, _plugins, limits as _limits

#: the simulated chip, by default
CHIP = "Ascend910B2"
#: modules that can compute launches
ENGINES = {"cpu": "mindtorch.torch", "torch": "torch"}


class CannotRun(RuntimeError):
    """Raised if the compute process cannot be started; the message gives the reason."""


class Machine:
    """A simulated machine with eight devices, for processes started with `environment()`.

        engine   "cpu": launches are computed by mindtorch's own cpu device; "torch": by PyTorch
        kernels  files that are executed over the kernel table (to inject faults)
        plugin   the plugin whose processes use the machine (`_plugins.py`)

    Builds the simulator if necessary (CannotBuild if that is impossible). CannotRun for an engine
    that is not installed or a missing file. A context manager; it always ends with this process.
    """

    def __init__(self, engine: str = "cpu", kernels: tuple[str, ...] = (), say=print, plugin=_plugins.MINDSPORE):
        if importlib.util.find_spec(ENGINES[engine]) is None:
            raise CannotRun(f"the engine {engine!r} needs {ENGINES[engine]}, which is not installed")
        for path in kernels:
            if not os.path.isfile(path):
                raise CannotRun(f"there is no file {path!r} for --kernels")
        _build.build(say, plugin)
        self.plugin = plugin
        # A socket's path is limited to about a hundred characters.
        self.folder = tempfile.TemporaryDirectory(prefix="standin-", dir=None if len(os.fsencode(tempfile.gettempdir())) < 70 else "/tmp")
        self.path = os.path.join(self.folder.name, "device")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(self.path)
            server.listen(64)
            own = {k: v for k, v in os.environ.items() if k not in ("MINDTORCH_NPU", "ASCEND_LAUNCH_BLOCKING", "MINDTORCH_STANDIN_SOCKET")}
            own.update(MINDTORCH_STANDIN_ENGINE=ENGINES[engine], MINDTORCH_STANDIN_KERNELS=os.pathsep.join(map(os.path.abspath, kernels)))
            # In its own session, because the user's Ctrl-C is meant for the script. Without the
            # current folder on sys.path, where modules may have any name.
            start = (f"import sys; sys.path[:] = [p for p in sys.path if p] + [{str(_build.SOURCES.parents[2])!r}]\n"
                     f"from mindtorch.tools.standin import _machine; _machine.main({server.fileno()})")
            self.process = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, env=own, pass_fds=[server.fileno()],
                                            start_new_session=True)

    def ended(self) -> str | None:
        """Returns a sentence on how the compute process ended, or None if it is running."""
        status = self.process.poll()
        return None if status is None else f"the process that computes launches exited unexpectedly (status {status}); see its output above"

    def environment(self, log: str, chip: str = CHIP, limits: bool = True) -> dict[str, str]:
        """Returns the environment of a process that is to run on this machine: os.environ with
        changes. Its launches are written to `log`.

        limits: accept only the dtypes that CANN documents for the chip. ValueError for an unknown
        chip.
        """
        env = {k: v for k, v in os.environ.items() if k not in ("MINDTORCH_NPU", "MS_SIMULATION_LEVEL")}
        env.setdefault("GLOG_v", "3")  # hides MindSpore's warnings about the missing driver
        env.update(_build.environment(self.plugin), MINDTORCH_STANDIN_SOCKET=self.path, MINDTORCH_STANDIN_LOG=log, MINDTORCH_STANDIN_CHIP=chip)
        if limits:
            env["MINDTORCH_STANDIN_LIMITS"] = os.path.join(self.folder.name, _limits.chip_of(chip))
            with open(env["MINDTORCH_STANDIN_LIMITS"], "w") as f:
                f.writelines(line + "\n" for line in _limits.lines(chip))
        return env

    def close(self):
        """Ends the compute process. It first computes the pending launches, so that their failures
        are logged."""
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
