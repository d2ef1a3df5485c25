"""Starts the programs of _dist_programs.py (or any script) in several processes and collects their
results."""
import os
import pathlib
import pickle
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def environment(**more):
    """Returns the environment without variables that a launcher around the tests may have set."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TORCHELASTIC", "OMPI_", "MS_")) and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    env.update(OMP_NUM_THREADS="1", **{k: str(v) for k, v in more.items()})
    return env


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def together(commands, folder, timeout=100, envs=None):
    """Runs commands concurrently; returns [(exit status, output)]."""
    running = []
    for i, command in enumerate(commands):
        log = open(folder / f"log{i}.txt", "w+")
        env = environment(**(envs[i] if envs else {}))
        running.append((subprocess.Popen([sys.executable, *map(str, command)], stdout=log, stderr=subprocess.STDOUT, env=env, cwd=folder), log))
    results = []
    try:
        for p, log in running:
            try:
                p.wait(timeout)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
            log.seek(0)
            results.append((p.returncode, log.read()))
    finally:
        for p, log in running:
            if p.poll() is None:
                p.kill()
                p.wait()
            log.close()
    return results


def program(name, side, world, folder, timeout=100, **env):
    """Runs a program and returns the results of all ranks."""
    folder = folder / f"{name}-{side}-{world}"
    folder.mkdir()
    outs = [folder / f"out{r}" for r in range(world)]
    commands = [[HERE / "_dist_programs.py", name, side, r, world, folder / "store", outs[r]] for r in range(world)]
    for r, (status, text) in enumerate(together(commands, folder, timeout, [env] * world)):
        # Real PyTorch sometimes aborts at exit, after all work is done, while its threads end.
        done = status == -6 and side == "torch" and outs[r].exists()
        assert status == 0 or done, f"rank {r} of {name} ({side}): exit status {status}\n{text[-3000:]}"
    return [pickle.loads(o.read_bytes()) for o in outs]
