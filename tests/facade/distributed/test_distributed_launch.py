"""Launching several processes: torchrun on one machine and on two, spawn, msrun, and the variables
of mpirun."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
from _dist_run import environment, free_port
from _dist_run import together as _together

pytestmark = [pytest.mark.dist, pytest.mark.timeout(300)]

RUN = ["-m", "mindtorch.torch.distributed.run"]


def together(commands, folder, timeout=200, envs=None):
    return _together(commands, folder, timeout, envs)


# An unmodified PyTorch script: nothing in it enables mindtorch.
SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    r = dist.get_rank()
    t = torch.ones(2) * (r + 1)
    dist.all_reduce(t)
    os.write(1, f"out of rank {r}\\n".encode())        # in one piece: nothing of another process may come between
    os.write(2, f"err of rank {r}\\n".encode())
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
             "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS"]
    found = {"env": {n: os.environ.get(n) for n in names}, "sum": t.tolist(), "argv": sys.argv[2:], "node": dist.get_node_local_rank(),
             "real": "libtorch_cpu" in open("/proc/self/maps").read(), "elastic": dist.is_torchelastic_launched(), "name": __name__}
    if "fail" in sys.argv and r == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("planted failure")
    with open(os.path.join(sys.argv[1], f"r{r}.json"), "w") as f:
        json.dump(found, f)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def found(folder, world):
    return [json.loads((folder / f"r{r}.json").read_text()) for r in range(world)]


def test_one_machine(script, tmp_path):
    logs = tmp_path / "logs"
    (status, text), = together([[*RUN, "--standalone", "--nproc_per_node=2", "--log_dir", logs, "--redirects", "0:2", "--tee", "1:3",
                                 "--role", "trainer", "--rdzv_id", "ignored", script, tmp_path, "--lr", "0.1"]], tmp_path)
    assert status == 0, text
    for r, f in enumerate(found(tmp_path, 2)):
        env = f["env"]
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == (str(r), str(r), "2", "2")
        assert env["ROLE_NAME"] == "trainer" and env["MASTER_ADDR"] == "localhost" and env["OMP_NUM_THREADS"] == "1"
        assert f["sum"] == [3.0, 3.0] and f["argv"] == ["--lr", "0.1"] and f["node"] == r and f["elastic"] and not f["real"]
        assert f["name"] == "__main__"
    assert "[trainer1]:out of rank 1" in text and "[trainer1]:err of rank 1" in text and "out of rank 0" in text and "err of rank 0" not in text
    files = sorted(str(p.relative_to(logs)).split("/", 1)[1] for p in logs.rglob("*.log"))
    assert files == ["attempt_0/0/stderr.log", "attempt_0/1/stderr.log", "attempt_0/1/stdout.log"] or files[0] == "attempt_0/0/stderr.log", files
    assert "err of rank 1" in next(logs.rglob("attempt_0/1/stderr.log")).read_text()


def test_failure_and_report(script, tmp_path):
    (status, text), = together([[*RUN, "--nproc_per_node", "2", script, tmp_path, "fail"]], tmp_path)
    assert status == 1
    assert "train.py FAILED" in text and "rank      : 1 (local_rank: 1)" in text and "ValueError: planted failure" in text
    assert "exitcode  : 1" in text


def test_restart(script, tmp_path):
    (status, text), = together([[*RUN, "--nproc_per_node", "2", "--max_restarts", "1", script, tmp_path, "fail"]], tmp_path)
    assert status == 0, text
    assert [f["env"]["TORCHELASTIC_RESTART_COUNT"] for f in found(tmp_path, 2)] == ["1", "1"]


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_two_machines(script, tmp_path, backend):
    """Two agents on this machine with three processes in total. The first attempt fails on one
    agent."""
    port = free_port()
    common = [*RUN, "--nnodes", "2", "--max_restarts", "1"]
    where = [[*common, "--node_rank", i, "--master_addr", "127.0.0.1", "--master_port", port] for i in (0, 1)] if backend == "static" else \
        [[*common, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_id", "job", "--rdzv_conf", f"is_host={i}"]
         for i in ("true", "false")]
    results = together([[*w, "--nproc_per_node", n, script, tmp_path, "fail"] for w, n in zip(where, (1, 2))], tmp_path)
    assert [s for s, _ in results] == [0, 0], results
    got = found(tmp_path, 3)
    assert all(f["sum"] == [6.0, 6.0] and f["env"]["WORLD_SIZE"] == "3" and f["env"]["TORCHELASTIC_RESTART_COUNT"] == "1" for f in got)
    assert sorted(f["env"]["GROUP_RANK"] for f in got) in (["0", "0", "1"], ["0", "1", "1"])


def test_two_machines_both_fail(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(3)\ntime.sleep(60)\n")
    port, start = free_port(), time.monotonic()
    results = together([[*RUN, "--nnodes", "2", "--node_rank", i, "--master_port", port, path] for i in (0, 1)], tmp_path, 60)
    assert [s for s, _ in results] == [1, 1] and time.monotonic() - start < 50, results
    assert "exitcode  : 3" in results[1][1] and "rank 1 failed" in results[0][1]


def test_module_launch_and_no_python(script, tmp_path):
    results = together([[*RUN, "--nproc_per_node", 2, "-m", "train", tmp_path]], tmp_path, envs=[{"PYTHONPATH": f"{tmp_path}:{pathlib.Path(__file__).resolve().parents[3]}"}])
    assert results[0][0] == 0, results
    for f in tmp_path.glob("r*.json"):
        f.unlink()
    path = tmp_path / "old.py"
    # Python runs unbuffered, as under PyTorch's launcher. print would write word by word,
    # interleaved with the other process.
    path.write_text("import sys, os\nos.write(1, f\"argv {os.environ['RANK']} {sys.argv[1:]}\\n\".encode())\n")
    (status, text), = together([["-m", "mindtorch.torch.distributed.launch", "--nproc_per_node", 2, path, "--x"]], tmp_path)
    assert status == 0 and "argv 1 ['--local-rank=1', '--x']" in text and "argv 0 ['--local-rank=0', '--x']" in text, text
    (status, text), = together([[*RUN, "--nproc_per_node", 2, "--no_python", "/bin/sh", "-c", "echo shell $RANK of $WORLD_SIZE"]], tmp_path)
    assert status == 0 and "shell 1 of 2" in text


def test_launch_under_the_import_hook(script, tmp_path):
    (status, text), = together([["-m", "mindtorch", "run", "-m", "torch.distributed.run", "--nproc_per_node", 2, script, tmp_path]], tmp_path)
    assert status == 0 and not any(f["real"] for f in found(tmp_path, 2)), text


def test_signal_terminates_all_ranks(tmp_path):
    path = tmp_path / "sleep.py"
    path.write_text(f"import os, time\nopen(os.path.join({str(tmp_path)!r}, 'pid' + os.environ['RANK']), 'w').write(str(os.getpid()))\ntime.sleep(100)\n")
    p = subprocess.Popen([sys.executable, *RUN, "--nproc_per_node", "2", str(path)], env=environment(), stderr=subprocess.DEVNULL)
    end = time.monotonic() + 40
    while len(list(tmp_path.glob("pid*"))) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.5)
    pids = [int(f.read_text()) for f in tmp_path.glob("pid*")]
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == 128 + signal.SIGTERM and len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


SPAWN = """
import sys
from mindtorch.tools import mstorch_enable
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def work(rank, world, port):
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    t = torch.tensor([rank + 1])
    dist.all_reduce(t)
    assert t.item() == 3
    dist.destroy_process_group()
    sys.stdout.write(f"spawned {rank} {t.item()}" + chr(10))      # in one piece: the other process writes as well
    sys.stdout.flush()

def launched(x):
    dist.init_process_group("gloo")
    t = torch.tensor([dist.get_rank() + x])
    dist.all_reduce(t)
    return t.item()

if __name__ == "__main__":
    mp.spawn(work, (2, int(sys.argv[1])), nprocs=2)
    from spawning import launched
    print("launched", elastic_launch(LaunchConfig(1, 1, 2, max_restarts=0), launched)(10))
"""


def test_spawn_and_elastic_launch(tmp_path):
    (tmp_path / "spawning.py").write_text(SPAWN)
    (status, text), = together([[tmp_path / "spawning.py", free_port()]], tmp_path)
    assert status == 0 and "spawned 0 3" in text and "spawned 1 3" in text and "launched {" in text and "0: 21" in text and "1: 21" in text, text


OTHER = """
from mindtorch.tools import mstorch_enable
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(t)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "local", dist.get_node_local_rank(), "sum", t.item(), flush=True)
dist.destroy_process_group()
"""


def test_variables_of_mpirun(tmp_path):
    """The variables that Open MPI's mpirun sets; MPI itself is not needed."""
    (tmp_path / "s.py").write_text(OTHER)
    envs = [{"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": r, "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
            "PMIX_NAMESPACE": f"prterun-{os.getpid()}"} for r in (0, 1)]
    for r, (status, text) in enumerate(together([[tmp_path / "s.py"]] * 2, tmp_path, envs=envs)):
        assert status == 0 and f"rank {r} of 2 local {r} sum 3.0" in text, text


@pytest.mark.skipif(shutil.which("msrun") is None and not (pathlib.Path(sys.executable).parent / "msrun").exists(), reason="MindSpore's msrun is absent")
def test_msrun(tmp_path):
    (tmp_path / "s.py").write_text(OTHER)
    env = environment()
    # msrun starts `python`
    env["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), env.get("PATH", "")])
    p = subprocess.run(["msrun", "--worker_num=2", "--local_worker_num=2", f"--master_port={free_port()}", "--join=True",
                        f"--log_dir={tmp_path / 'log'}", str(tmp_path / "s.py")], env=env, cwd=tmp_path, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=100)
    logs = "".join(f.read_text() for f in (tmp_path / "log").glob("worker_*.log"))
    assert p.returncode == 0, p.stdout[-2000:] + logs[-2000:]
    assert "rank 0 of 2 local 0 sum 3.0" in logs and "rank 1 of 2 local 1 sum 3.0" in logs


@pytest.mark.parametrize("arguments, message", [
    (["--nnodes", "1:4"], "variable number of machines is not supported"), (["--rdzv_backend", "etcd"], "etcd"), (["--logs_specs", "x"], "logs_specs"),
    (["--nproc_per_node", "gpu"], "Cuda is not available"), (["--tee", "7"], "7 is not one of"),
])
def test_refusals(arguments, message):
    from mindtorch.torch.distributed import run

    with pytest.raises((NotImplementedError, ValueError), match=message):
        run.job_from_args(run.parse_args([*arguments, "s.py"]))


def test_string_launcher_arguments_are_converted():
    from mindtorch.torch.distributed import run

    args = run.parse_args(["--nproc_per_node", "2", "s.py"])
    args.master_port, args.node_rank = "29701", "0"
    job = run.job_from_args(args)
    assert job.port == 29701 and job.node_rank == 0
