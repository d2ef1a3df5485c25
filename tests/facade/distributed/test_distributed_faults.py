"""Dead and late processes, mismatched calls, restarts: one clear error in bounded time, and no
wrong results."""
import json
import re
import textwrap

import pytest
from _dist_run import HERE, free_port, together


def kill(rounds, world, seed, folder, timeout):
    (status, text), = together([[HERE / "_dist_faults.py", rounds, world, seed]], folder, timeout)
    assert status == 0, text[-3000:]
    found = json.loads(text.splitlines()[-1])
    assert not found["wrong"], text[-3000:]
    assert found["slowest"] < 20


def test_killed_processes(tmp_path):
    kill(3, 3, 7, tmp_path, 60)


@pytest.mark.dist
@pytest.mark.timeout(240)
def test_thirty_killed_processes(tmp_path):
    kill(30, 3, 100, tmp_path, 220)


@pytest.mark.dist
@pytest.mark.timeout(240)
def test_killed_processes_of_four(tmp_path):
    kill(15, 4, 500, tmp_path, 220)


PRELUDE = """
import datetime, os, sys, time
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def init(seconds):
    dist.init_process_group("gloo", "file://" + store, datetime.timedelta(seconds=seconds), world, rank)
def error(fn):
    start = time.monotonic()
    try:
        fn()
    except dist.DistError as e:
        print(f"{rank}: {type(e).__name__} after {time.monotonic() - start:.1f} s: {e}", flush=True)
    else:
        print(f"{rank}: went through after {time.monotonic() - start:.1f} s", flush=True)
"""


def script(body, world, tmp_path, timeout=60):
    """Runs `body` in every rank and returns the (status, output) of each."""
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(body))
    return together([[path, r, world, tmp_path / "store"] for r in range(world)], tmp_path, timeout)


def test_faults_of_one_run(tmp_path):
    """Late, mismatched and missing ranks. Each case uses a new subgroup or group, so one start of
    the processes serves all."""
    results = script("""
        init(60)
        def fresh(seconds=60):
            return dist.new_group(list(range(world)), datetime.timedelta(seconds=seconds))
        # late: rank 1 comes three seconds late, first within the timeout, then beyond it
        g = fresh(30)
        time.sleep(1 * (rank == 1))
        t = torch.ones(3)
        dist.all_reduce(t, group=g)
        assert t.tolist() == [2.0, 2.0, 2.0]
        g = fresh(0.5)
        print("late", flush=True)
        time.sleep(2 * (rank == 1))
        error(lambda: dist.all_reduce(torch.ones(3), group=g))
        error(lambda: dist.barrier(g))
        dist.barrier()                 # the default group is none the worse for it
        # what they call differs: operation, size, dtype, reduction, root
        for a, b in [(lambda g: dist.all_reduce(torch.ones(3), group=g), lambda g: dist.broadcast(torch.ones(3), 1, g)),
                     (lambda g: dist.all_reduce(torch.ones(3), group=g), lambda g: dist.all_reduce(torch.ones(4), group=g)),
                     (lambda g: dist.all_reduce(torch.ones(4), group=g), lambda g: dist.all_reduce(torch.ones(2, dtype=torch.float64), group=g)),
                     (lambda g: dist.all_reduce(torch.ones(1, dtype=torch.int64), group=g), lambda g: dist.all_reduce(torch.ones(4, dtype=torch.bfloat16), group=g)),
                     (lambda g: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX, g), lambda g: dist.all_reduce(torch.ones(4), group=g)),
                     (lambda g: dist.reduce(torch.ones(4), 0, group=g), lambda g: dist.reduce(torch.ones(4), 1, group=g)),
                     (lambda g: dist.all_gather([torch.ones(2)] * 2, torch.ones(2), g), lambda g: dist.barrier(g))]:
            g = fresh(1)
            print("differ", flush=True)
            error(lambda: (b if rank else a)(g))
            error(lambda: dist.barrier(g))
        # a message of another size, and one that nobody sends
        g = fresh(1)
        print("message", flush=True)
        if rank:
            dist.send(torch.ones(5), 0, g)
        else:
            error(lambda: dist.recv(torch.ones(4), 1, g))
        g = fresh(0.5)
        print("silence", flush=True)
        if not rank:
            error(lambda: dist.recv(torch.ones(4), 1, g))
        g = fresh(0.5)
        print("monitored", flush=True)
        if rank:
            time.sleep(2)
        error(lambda: dist.monitored_barrier(g))
        dist.barrier()
        # one leaves, the other does not know
        print("leaves", flush=True)
        if rank:
            dist.destroy_process_group()
        else:
            error(lambda: dist.all_reduce(torch.ones(2)))
        """, 2, tmp_path)
    for status, text in results:
        assert status == 0, text[-3000:]
    for rank, (_, text) in enumerate(results):
        parts = re.split(r"^(late|differ|message|silence|monitored|leaves)$", text, flags=re.M)
        for name, part in zip(parts[1::2], parts[2::2]):
            lines = part.strip().splitlines()
            if name == "late":
                assert "DistBackendError" in lines[0] and "timed out after 0.5 s" in lines[0] and "rank 1" in lines[0], text
                assert "the group has failed" in lines[1], text
            elif name == "differ":
                # With two roots every rank waits for the other. A broadcast does not compare the
                # calls, so it times out.
                assert any("call different collectives" in line or "timed out after 1 s, waiting for rank" in line for line in lines), text
                # A rank that only sends may have succeeded; its next call raises the error.
                assert "DistBackendError" in lines[-1], text
            elif name in ("message", "silence") and rank == 0:
                assert "DistBackendError" in lines[0] and ("sends 20 bytes" in lines[0] or "timed out after 0.5 s" in lines[0]), text
            elif name == "monitored":
                assert "Rank 1 failed to pass monitoredBarrier in 500 ms" in lines[0], text
            elif name == "leaves" and rank == 0:
                assert "rank 1 has left" in lines[0], text


@pytest.mark.dist
@pytest.mark.timeout(150)
def test_rank_late_by_a_minute(tmp_path):
    results = script("""
        init(90)
        time.sleep(60 * (rank == 1))
        t = torch.ones(3) * (rank + 1)
        dist.all_reduce(t)
        print(t.tolist())
        """, 2, tmp_path, 140)
    assert [(s, "[3.0, 3.0, 3.0]" in text) for s, text in results] == [(0, True), (0, True)], results


@pytest.mark.dist
def test_forked_child_does_not_hide_a_rank_death(tmp_path):
    """A DataLoader worker inherits its parent's connections. The parent's death must be detected
    regardless."""
    results = script("""
        import signal
        init(20)
        dist.barrier()
        if rank == 1:
            if os.fork() == 0:
                time.sleep(8)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        error(lambda: dist.all_reduce(torch.ones(2)))
        """, 2, tmp_path)
    assert results[0][0] == 0 and "rank 1 has died" in results[0][1], results
    assert float(re.search(r"after (\S+) s", results[0][1]).group(1)) < 6, results


TRAIN = """
import os, sys
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    folder, kill_at = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    path, step = os.path.join(folder, "ckpt.pth"), 0
    if os.path.exists(path):
        state = torch.load(path, weights_only=True)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        step = state["step"]
    while step < 12:
        g = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(16, 4, generator=g)
        loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        dist.all_reduce(loss.data)
        step += 1
        if rank == 0:
            with open(os.path.join(folder, "losses.txt"), "a") as f:
                f.write(f"{step} {loss.item() / world:.7f}\\n")
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step}, path + ".new")
            os.replace(path + ".new", path)
        dist.barrier()
        if step == kill_at and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1:
            os.kill(os.getpid(), 9)
    dist.destroy_process_group()

main()
"""


@pytest.mark.dist
@pytest.mark.timeout(300)
def test_restart_continues_the_loss_curve(tmp_path):
    script_path = tmp_path / "train.py"
    script_path.write_text(TRAIN)
    curves = []
    for kill_at in (0, 5):
        folder = tmp_path / f"run{kill_at}"
        folder.mkdir()
        (status, text), = together([["-m", "mindtorch.torch.distributed.run", "--nproc_per_node", 2, "--max_restarts", 2,
                                     "--master_port", free_port(), script_path, folder, kill_at]], tmp_path, 140)
        assert status == 0, text[-3000:]
        assert ("SIGKILL" in text or "exit code -9" in text) == bool(kill_at), text[-2000:]
        curves.append(dict(line.split() for line in (folder / "losses.txt").read_text().splitlines()))
    assert list(curves[0]) == list(curves[1]) == [str(i) for i in range(1, 13)]
    assert curves[0] == curves[1] and float(curves[0]["12"]) < float(curves[0]["1"])


