"""torch.multiprocessing.spawn: starts a function in several processes and propagates their
failures."""
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings

ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"


class ProcessException(Exception):
    """A child process failed."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A child process raised an exception; the message contains its traceback."""

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A child process was killed or exited with a nonzero code."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn, i, args, error_file):
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        sys.exit(1)
    except Exception:
        # The parent reads this file and raises the error. A pipe could fill up.
        with open(error_file, "wb") as f:
            pickle.dump(traceback.format_exc(), f)
        sys.exit(1)


class ProcessContext:
    """The processes started by one call of `spawn`."""

    def __init__(self, processes, error_files):
        self.processes, self.error_files = processes, error_files
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self):
        return [p.pid for p in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Waits for at least one more process to exit. Returns True once all have exited
        successfully.

        If a process fails, terminates the others and raises its error.
        """
        if not self.sentinels:
            return True
        failed = None
        for s in multiprocessing.connection.wait(list(self.sentinels), timeout=timeout):
            i = self.sentinels.pop(s)
            p = self.processes[i]
            p.join()
            if p.exitcode != 0 and failed is None:
                failed = i
        if failed is None:
            return not self.sentinels
        self._stop(grace_period)
        self._raise(failed)

    def _stop(self, grace_period):
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        end = time.monotonic() + (30 if grace_period is None else grace_period)
        for p in self.processes:
            p.join(max(0, end - time.monotonic()))
            if p.is_alive():
                p.kill()
                p.join()

    def _raise(self, i):
        p = self.processes[i]
        if os.path.getsize(self.error_files[i]) == 0:
            if p.exitcode < 0:
                name = signal.Signals(-p.exitcode).name
                raise ProcessExitedException(f"process {i} terminated with signal {name}", i, p.pid, p.exitcode, name)
            raise ProcessExitedException(f"process {i} terminated with exit code {p.exitcode}", i, p.pid, p.exitcode)
        with open(self.error_files[i], "rb") as f:
            text = pickle.load(f)
        raise ProcessRaisedException(f"\n\n-- Process {i} terminated with the following error:\n{text}", i, p.pid)

    def __del__(self):
        for name in self.error_files:
            if os.path.exists(name):
                os.unlink(name)


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Runs fn(i, *args) in `nprocs` processes and waits for them.

    Returns the ProcessContext immediately if `join` is False.
    """
    mp = multiprocessing.get_context(start_method)
    processes, files = [], []
    for i in range(nprocs):
        handle, name = tempfile.mkstemp(prefix="mindtorch-spawn-")
        os.close(handle)
        p = mp.Process(target=_run, args=(fn, i, args, name), daemon=daemon)
        p.start()
        processes.append(p)
        files.append(name)
    context = ProcessContext(processes, files)
    if not join:
        return context
    while not context.join():
        pass
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Like `start_processes`, with the spawn start method."""
    if start_method != "spawn":
        warnings.warn(f"This method only supports start_method=spawn (got: {start_method}). torch.multiprocessing."
                      "start_processes(...) takes any.", FutureWarning, stacklevel=2)
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
