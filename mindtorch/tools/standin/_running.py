"""Runs a script on the simulator in a new process."""
from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys

from mindtorch.tools.standin import _plugins, _session


@dataclasses.dataclass
class Outcome:
    """How a script ended: its exit status, as subprocess reports it; what it printed, if that was
    captured; a sentence if the process that computes launches ended early."""

    status: int
    printed: str
    ended: str | None

    def failure(self, failed):
        """Returns a sentence on what went wrong beside the script's own exit status, or None.
        failed: the failed launches of the log."""
        if self.ended:
            return self.ended
        if self.status < 0:
            return f"the script was ended by signal {-self.status} ({signal.strsignal(-self.status)})"
        return failed[0] if failed and not self.status else None

    def exit_status(self, failed):
        """Returns the exit status of the command."""
        return 128 - self.status if self.status < 0 else self.status or (1 if self.failure(failed) else 0)


def run(args, plugin, log, variables=(), capture=False) -> Outcome:
    """Runs the script of parsed arguments (`_command.configure`) with a plugin's library.

    Args:
        log: path of the log.
        variables: additional environment variables.
        capture: keep what the script prints to standard output instead of showing it.
    """
    with _session.Machine(args.engine, tuple(args.kernels), lambda text: print(text, file=sys.stderr), plugin) as machine:
        env = machine.environment(log, args.chip, not args.no_limits)
        for name, value in (("FAIL", args.fail), ("MEMORY", args.memory)):
            if value:
                env["MINDTORCH_STANDIN_" + name] = value
        if args.no_compute:
            env["MINDTORCH_STANDIN_COMPUTE"] = "0"
        if plugin is _plugins.MINDSPORE and args.random != "device":
            env["MINDTORCH_NPU_RANDOM"] = "host"
        env.update(variables, MINDTORCH_STANDIN_LIBRARY=plugin.name, MINDTORCH_STANDIN_RUNNER=str(os.getpid()))
        command = ["--device", args.device] if args.device else []
        command += args.script if not args.module else ["-m", *args.module]
        status, printed = _run([sys.executable, "-m", "mindtorch.tools.standin._inside", *command], env, capture)
        return Outcome(status, printed, machine.ended())


def _run(command, env, capture):
    """Runs a process. Ctrl-C reaches it directly, and its handling may take time; other termination
    signals are forwarded."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE if capture else None, text=True)

    def forwarded(number, frame):
        if number != signal.SIGINT:
            process.send_signal(number)
    before = {number: signal.signal(number, forwarded) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        printed = process.communicate()[0] or ""
        return process.returncode, printed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
