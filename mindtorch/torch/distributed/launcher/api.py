"""torch.distributed.launcher.api: torchrun as a function."""
import dataclasses
import os
import pickle
import shutil
import sys
import tempfile

from mindtorch.backend.comm.launch_agent import Agent, Job, new_run_id

__all__ = ["LaunchConfig", "elastic_launch"]

#: Program of a worker that runs a function. It reads the function and its arguments from a file and
#: writes the result to a file.
_WORKER = ("import os, pickle, sys; sys.path[:] = {path!r}; from mindtorch.tools import _hook; _hook.enable() if {hook} else None; "
           "fn, args = pickle.load(open({call!r}, 'rb')); r = fn(*args); "
           "pickle.dump(r, open(os.path.join({folder!r}, os.environ['RANK']), 'wb'))")


@dataclasses.dataclass
class LaunchConfig:
    """Configuration of `elastic_launch` (torchrun's arguments)."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: object = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "static"
    rdzv_configs: dict = dataclasses.field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str = None
    metrics_cfg: dict = dataclasses.field(default_factory=dict)
    local_addr: str = None

    def __post_init__(self):
        if self.min_nodes != self.max_nodes:
            raise NotImplementedError("torch.distributed.launcher: a variable number of machines is not supported "
                                      f"(min_nodes {self.min_nodes}, max_nodes {self.max_nodes})")
        if self.logs_specs is not None:
            raise NotImplementedError("torch.distributed.launcher: logs_specs is not supported")


class elastic_launch:
    """`elastic_launch(config, function or command)(*args)` runs the function or command in all
    processes.

    For a function, returns {rank: result} of the processes on this machine. The function must be
    importable by name. Raises ChildFailedError if a process fails.
    """

    def __init__(self, config, entrypoint):
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args):
        c = self._config
        host, _, port = c.rdzv_endpoint.rpartition(":")
        rank = int(c.rdzv_configs.get("rank", 0))
        if isinstance(self._entrypoint, str):
            self._run([self._entrypoint, *map(str, args)], host, port, rank)
            return {}
        folder = tempfile.mkdtemp(prefix="mindtorch-launch-")
        try:
            call = os.path.join(folder, "call")
            with open(call, "wb") as f:
                pickle.dump((self._entrypoint, args), f)
            hook = sys.modules.get("torch") is sys.modules.get("mindtorch.torch")
            code = _WORKER.format(path=sys.path, call=call, folder=folder, hook=hook)
            self._run([sys.executable, "-u", "-c", code], host, port, rank)
            results = {}
            for name in os.listdir(folder):
                if name.isdigit():
                    with open(os.path.join(folder, name), "rb") as f:
                        results[int(name)] = pickle.load(f)
            return results
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, command, host, port, rank):
        c = self._config
        env = {"MINDTORCH_HOST_ADDRESS": c.local_addr} if c.local_addr else {}
        Agent(Job(command, c.nproc_per_node, c.max_nodes, rank, host or "127.0.0.1", int(port or 0), None,
              c.run_id or new_run_id(), c.role, c.max_restarts, c.monitor_interval, env=env)).run()
