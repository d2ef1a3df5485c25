"""Starts the worker processes of one machine, watches them and restarts them when one fails.

The agents of several machines meet in a store, which the first one serves. The workers use the same
store, under a separate prefix per attempt. Nothing here needs MindSpore.
"""
import dataclasses
import datetime
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from mindtorch.backend.comm.errors import DistError
from mindtorch.backend.comm.tcpstore import TCPStore

STDOUT, STDERR = 1, 2
_MOMENT = 1.5  # seconds within which workers that fail together exit


@dataclasses.dataclass
class Job:
    """What to start, and how. `host`:`port` is the store's address; port 0 picks a free port (one
    machine only)."""

    command: list
    nproc: int = 1
    nnodes: int = 1
    node_rank: int = 0  # -1: assigned by the store, in order of arrival
    host: str = "127.0.0.1"
    port: int = 0
    serve: bool | None = None          # whether this agent serves the store; None: if node_rank is 0
    run_id: str = "none"
    role: str = "default"
    max_restarts: int = 0
    interval: float = 0.1
    log_dir: str | None = None
    redirects: dict = dataclasses.field(default_factory=dict)   # local rank (or None: all others) -> STDOUT | STDERR
    tee: dict = dataclasses.field(default_factory=dict)
    visible: set | None = None  # local ranks whose output is shown; None: all
    virtual_local_rank: bool = False
    join_timeout: float = 900.0
    shutdown_timeout: float = 30.0
    signals: tuple = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    env: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Failure:
    """A worker that exited with an error."""

    rank: int
    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    when: float
    host: str = dataclasses.field(default_factory=socket.gethostname)

    def error(self):
        """Returns the exception report that the worker wrote (see
        elastic.multiprocessing.errors.record); None if there is none."""
        try:
            with open(self.error_file) as f:
                return json.loads(f.read(1 << 24))["message"]
        # no file, a partial one, or unrelated content
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def text(self):
        e = self.error()
        how = f"{self.exitcode}" if self.exitcode >= 0 else f"{self.exitcode} ({signal.Signals(-self.exitcode).name})"
        extra = e.get("extraInfo") if isinstance(e, dict) else None
        trace = extra["py_callstack"] if isinstance(extra, dict) and "py_callstack" in extra else \
            "to get the traceback here, decorate main with torch.distributed.elastic.multiprocessing.errors.record"
        return "\n".join([f"  time      : {datetime.datetime.fromtimestamp(self.when):%Y-%m-%d_%H:%M:%S}",
                          f"  host      : {self.host}", f"  rank      : {self.rank} (local_rank: {self.local_rank})",
                          f"  exitcode  : {how} (pid: {self.pid})", f"  error_file: {self.error_file if e else '<N/A>'}",
                          f"  traceback : {trace}"])


class WorkersFailed(Exception):
    """Workers failed on this or another machine, and no restarts are left."""

    def __init__(self, name, failures, elsewhere=None):
        self.name, self.failures, self.elsewhere = name, failures, elsewhere
        lines = ["", "=" * 60, f"{name} FAILED", "-" * 60]
        if failures:
            first, *rest = failures
            lines += ["Root cause (first observed failure):", first.text()]
            for f in rest:
                lines += ["-" * 60, f.text()]
        else:
            lines.append(f"  {elsewhere}")
        super().__init__("\n".join([*lines, "=" * 60]))


class Stopped(Exception):
    """The agent was ended by a signal."""

    def __init__(self, number):
        super().__init__(f"Process {os.getpid()} got signal: {signal.Signals(number).name}")
        self.number = number


class _Worker:
    def __init__(self, process, rank, local_rank, error_file, readers):
        self.process, self.rank, self.local_rank = process, rank, local_rank
        self.error_file, self.readers = error_file, readers


def _copy_lines(pipe, file, console, prefix):
    with pipe:
        for line in iter(pipe.readline, b""):
            if file is not None:
                file.write(line)
                file.flush()
            if console is not None:
                console.buffer.write(prefix + line)
                console.flush()
    if file is not None:
        file.close()


class Agent:
    """Runs a Job on this machine."""

    def __init__(self, job):
        self.job = job
        self.workers = []
        self.store = None
        self._logs = None

    # ---- rendezvous with the other machines
    def _join(self):
        job = self.job
        serve = job.node_rank == 0 if job.serve is None else job.serve
        self.store = TCPStore(job.host, job.port, None, serve, datetime.timedelta(seconds=job.join_timeout),
                              _all_here=job.nnodes == 1)
        self.port = self.store.port
        self.node_rank = job.node_rank
        self.key = f"agents/{job.run_id}"
        if self.node_rank < 0:
            self.node_rank = self.store.add(f"{self.key}/arrived", 1) - 1
            if self.node_rank >= job.nnodes:
                raise DistError(f"run {job.run_id!r} already has all of its {job.nnodes} machines")
        self._meet(0)

    def _meet(self, attempt):
        """Publishes the number of workers on this machine and reads those of the others."""
        key = f"{self.key}/attempt_{attempt}"
        self.store.set(f"{key}/nproc_{self.node_rank}", str(self.job.nproc))
        counts = [int(v) for v in self.store.multi_get([f"{key}/nproc_{i}" for i in range(self.job.nnodes)])]
        self.first, self.world = sum(counts[:self.node_rank]), sum(counts)

    # ---- workers
    def _folder(self, attempt, local_rank):
        if self._logs is None:
            base = self.job.log_dir
            if base is None:
                base = tempfile.mkdtemp(prefix="mindtorch-run-")
            else:
                os.makedirs(base, exist_ok=True)
            self._logs = tempfile.mkdtemp(prefix=f"{self.job.run_id}_", dir=base)
        path = os.path.join(self._logs, f"attempt_{attempt}", str(local_rank))
        os.makedirs(path, exist_ok=True)
        return path

    def _environment(self, attempt, local_rank, error_file):
        job, rank = self.job, self.first + local_rank
        env = dict(os.environ, **job.env)
        env.update({
            "RANK": rank, "LOCAL_RANK": 0 if job.virtual_local_rank else local_rank, "WORLD_SIZE": self.world,
            "LOCAL_WORLD_SIZE": job.nproc, "GROUP_RANK": self.node_rank, "GROUP_WORLD_SIZE": job.nnodes, "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": self.world, "ROLE_NAME": job.role, "MASTER_ADDR": job.host, "MASTER_PORT": self.port,
            "TORCHELASTIC_RESTART_COUNT": attempt, "TORCHELASTIC_MAX_RESTARTS": job.max_restarts,
            "TORCHELASTIC_RUN_ID": job.run_id, "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_ERROR_FILE": error_file,
        })
        if job.nproc > 1 and "OMP_NUM_THREADS" not in os.environ:
            env["OMP_NUM_THREADS"] = 1
        return {k: str(v) for k, v in env.items()}

    def _start(self, attempt):
        job = self.job
        self.workers = []
        for i in range(job.nproc):
            folder = self._folder(attempt, i)
            error_file = os.path.join(folder, "error.json")
            streams, readers = {}, []
            tee = job.tee.get(i, job.tee.get(None, 0))
            to_file = job.redirects.get(i, job.redirects.get(None, 0))
            for flag, name, console in ((STDOUT, "stdout", sys.stdout), (STDERR, "stderr", sys.stderr)):
                visible = job.visible is None or i in job.visible
                if tee & flag:
                    streams[name] = subprocess.PIPE
                    readers.append((name, open(os.path.join(folder, name + ".log"), "wb"), console if visible else None))
                elif to_file & flag:
                    streams[name] = open(os.path.join(folder, name + ".log"), "wb")
                elif not visible:
                    streams[name] = subprocess.DEVNULL
            process = subprocess.Popen(job.command, env=self._environment(attempt, i, error_file), **streams)
            for s in streams.values():
                if hasattr(s, "close"):
                    s.close()
            threads = []
            for name, file, console in readers:
                t = threading.Thread(target=_copy_lines, daemon=True,
                                     args=(getattr(process, name), file, console, f"[{job.role}{i}]:".encode()))
                t.start()
                threads.append(t)
            self.workers.append(_Worker(process, self.first + i, i, error_file, threads))

    def _stop(self, number=signal.SIGTERM):
        for w in self.workers:
            if w.process.poll() is None:
                w.process.send_signal(number)
        end = time.monotonic() + self.job.shutdown_timeout
        for w in self.workers:
            try:
                w.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                w.process.kill()
                w.process.wait()
        self._drain()

    def _drain(self):
        for w in self.workers:
            for t in w.readers:
                t.join(5.0)

    def _failures(self):
        found = [Failure(w.rank, w.local_rank, w.process.pid, w.process.returncode, w.error_file, _when(w.error_file))
                 for w in self.workers if w.process.poll() not in (None, 0)]
        # A process killed from outside (SIGKILL, SIGSEGV) writes no error file, and did not fail
        # because of another worker: sort it first.
        return sorted(found, key=lambda f: (f.exitcode >= 0 or f.exitcode == -signal.SIGTERM, f.when))

    def _watch(self, attempt):
        """Returns None once all workers here have succeeded; else (failures here, message of
        another machine)."""
        several, last_query = self.job.nnodes > 1, time.monotonic()
        while True:
            if self._failures():
                # A worker that fails because of another one may exit first. So wait a moment,
                # collect all that exit, and take the one that wrote its error file first as the
                # cause.
                end = time.monotonic() + _MOMENT
                while time.monotonic() < end and any(w.process.poll() is None for w in self.workers):
                    time.sleep(0.02)
                return self._failures(), None
            if all(w.process.poll() == 0 for w in self.workers):
                self._drain()
                return None
            if several and time.monotonic() - last_query > 0.5:
                last_query = time.monotonic()
                if self.store.check([f"{self.key}/attempt_{attempt}/failed"]):
                    return [], self.store.get(f"{self.key}/attempt_{attempt}/failed").decode()
            time.sleep(self.job.interval)

    # ---- main loop
    def run(self):
        """Runs until all workers have succeeded. Raises WorkersFailed if they fail, Stopped after a
        signal."""
        previous = self._catch_signals()
        try:
            self._join()
            attempt = 0
            while True:
                self._start(attempt)
                result = self._watch(attempt)
                if result is None and self._others_done(attempt):
                    return
                failures, elsewhere = result or ([], self._reported)
                if failures:
                    first = failures[0]
                    print(f"worker {first.rank} (pid {first.pid}) failed with exit code {first.exitcode}; "
                          f"{self.job.max_restarts - attempt} restarts left", file=sys.stderr, flush=True)
                    self.store.set(f"{self.key}/attempt_{attempt}/failed",
                                   f"rank {first.rank} failed on {first.host} with exit code {first.exitcode}")
                self._stop()
                if attempt >= self.job.max_restarts:
                    self._farewell()
                    raise WorkersFailed(_name(self.job.command), failures, elsewhere)
                attempt += 1
                self._meet(attempt)
        except BaseException:
            self._stop()
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if self.store is not None:
                self.store.close()
            if self._logs is not None and self.job.log_dir is None and not any({**self.job.redirects, **self.job.tee}.values()):
                # contained only error reports
                shutil.rmtree(os.path.dirname(self._logs), ignore_errors=True)

    def _others_done(self, attempt):
        """Blocks until the workers of the other machines have finished; returns False if one of
        them fails."""
        if self.job.nnodes == 1:
            return True
        key = f"{self.key}/attempt_{attempt}"
        self.store.set(f"{key}/done_{self.node_rank}", "1")
        done = [f"{key}/done_{i}" for i in range(self.job.nnodes)]
        while not self.store.check(done):
            if self.store.check([f"{key}/failed"]):
                self._reported = self.store.get(f"{key}/failed").decode()
                return False
            time.sleep(0.2)
        self._farewell()
        return True

    def _farewell(self):
        """Makes the agent that serves the store exit last."""
        if self.job.nnodes == 1:
            return
        try:
            n = self.store.add(f"{self.key}/gone", 1)
            end = time.monotonic() + 30.0
            while self.store.is_master and n < self.job.nnodes and time.monotonic() < end:
                time.sleep(0.1)
                n = self.store.add(f"{self.key}/gone", 0)
        except DistError:
            return          # the store is gone already

    def _catch_signals(self):
        previous = {}

        def handler(number, frame):
            raise Stopped(number)
        if threading.current_thread() is threading.main_thread():
            for name in self.job.signals:
                number = getattr(signal, name, None)
                if number is not None:
                    previous[number] = signal.signal(number, handler)
        return previous


def _when(error_file):
    """Returns the time at which a worker wrote its error file; the current time if it did not."""
    try:
        return os.path.getmtime(error_file)
    except OSError:
        return time.time()


def _name(command):
    return next((c for c in command if c.endswith(".py")), command[-1])


def new_run_id():
    """Returns a unique id for a run."""
    return uuid.uuid4().hex
