"""Runs a function in several processes that form a group, on mindtorch or on real PyTorch."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

_HEAD = """
import faulthandler, os, sys
faulthandler.dump_traceback_later({timeout} - 5, exit=True)
REAL = {real}
if not REAL:
    from mindtorch.tools import mstorch_enable
import json
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if {init}:
    dist.init_process_group("gloo")

def give(**values):
    "What the test gets of this rank: JSON with arrays as lists."
    def plain(x):
        if isinstance(x, torch.Tensor):
            return x.detach().float().numpy().tolist() if x.is_floating_point() else x.detach().numpy().tolist()
        if isinstance(x, dict):
            return {{str(k): plain(v) for k, v in x.items()}}
        if isinstance(x, (list, tuple)):
            return [plain(v) for v in x]
        return x.tolist() if isinstance(x, (np.ndarray, np.generic)) else x
    with open(os.environ["GIVE"], "w") as f:
        json.dump(plain(values), f)
"""

_TAIL = """
if {init} and dist.is_initialized():
    dist.barrier()
    dist.destroy_process_group()
if REAL:
    # Real PyTorch's threads sometimes still run at exit ("terminate called without an active exception").
    # All output is written by now.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ranks(code, world=2, real=False, timeout=60, init=True, env=None, cwd=None, check=True):
    """Returns what each rank passed to `give(...)`, in order; AssertionError with all output if one
    fails.

    The code can use torch, nn, F, dist, np, RANK, WORLD and REAL; the process group is initialized.
    """
    text = _HEAD.format(timeout=timeout, real=real, init=init) + textwrap.dedent(code) + _TAIL.format(init=init)
    with tempfile.TemporaryDirectory() as d:
        script = pathlib.Path(d, "worker.py")
        script.write_text(text)
        port = free_port()
        procs = []
        for r in range(world):
            e = {k: v for k, v in os.environ.items() if not k.startswith(("MINDTORCH_", "PYTHON", "GLOG", "ONEDNN"))}
            e.update(PYTHONPATH=str(ROOT), RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", GIVE=os.path.join(d, f"{r}.json"),
                     **(env or {}))
            log = open(os.path.join(d, f"{r}.log"), "w+")
            procs.append((subprocess.Popen([sys.executable, str(script)], env=e, stdout=log, stderr=subprocess.STDOUT,
                                           cwd=cwd or d), log))
        end = time.monotonic() + timeout
        while any(p.poll() is None for p, _ in procs) and time.monotonic() < end:
            time.sleep(0.02)
        logs = []
        for p, log in procs:
            if p.poll() is None:
                p.kill()
                p.wait()
            log.seek(0)
            logs.append(log.read())
            log.close()
        codes = [p.returncode for p, _ in procs]
        if check:
            assert not any(codes), f"exit statuses {codes}\n" + "\n".join(f"--- rank {i}\n{t[-3000:]}" for i, t in enumerate(logs))
        given = []
        for r in range(world):
            path = pathlib.Path(d, f"{r}.json")
            given.append(json.loads(path.read_text()) if path.exists() else None)
        return given if check else (given, codes, logs)
