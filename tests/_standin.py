"""Processes with MindSpore's Ascend target on mindtorch's CANN simulator; real PyTorch computes the
launches as an independent reference.

A launch that cannot be computed fails its process. `Standin.run` fails if any launch was not
computed, even if the process ignored that.
"""
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from mindtorch.tools.standin import _report, _session

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Result:
    """Output and launches of a process. `found`: the figures of the report; `log`: path of the
    launch log."""

    def __init__(self, process, log):
        self.stdout, self.stderr, self.returncode = process.stdout, process.stderr, process.returncode
        self.log = pathlib.Path(log)
        self.found = _report.read(log)

    def said(self, word):
        """Returns the rest of the printed line that starts with `word`."""
        return re.search(rf"^{word} (.*)$", self.stdout, re.M)[1]


class Standin:
    """One simulated machine, used by many processes."""

    def __init__(self, engine="torch"):
        self.machine = _session.Machine(engine, say=lambda text: None)
        self.folder = tempfile.TemporaryDirectory()
        self.count = itertools.count(1)

    def close(self):
        self.machine.close()
        self.folder.cleanup()

    def environment(self, **more):
        log = os.path.join(self.folder.name, f"{next(self.count)}.log")
        open(log, "w").close()
        env = self.machine.environment(log)
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests"), env["PYTHONPATH"]])
        return {**env, **more}

    def run(self, *argv, hook=True, status=0, timeout=110, **env):
        """Runs `python argv...` on the simulator.

        `hook`: run a script (or -m, module) under `mindtorch run`; False runs plain Python, which
        chooses its device itself. `status`: the expected exit status; None accepts any, and also
        failed launches (the test checks them).
        """
        env = self.environment(**env)
        start = [sys.executable, "-m", "mindtorch.tools.standin._inside"] if hook else [sys.executable]
        process = subprocess.run([*start, *map(str, argv)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
        result = Result(process, env["MINDTORCH_STANDIN_LOG"])
        if status is not None:
            assert process.returncode == status and not result.found.failed, \
                f"status {process.returncode}, failed: {result.found.failed}\n{process.stdout[-3000:]}\n{process.stderr[-5000:]}"
        return result
