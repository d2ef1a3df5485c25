"""Kills processes of a group at random moments; the others must fail with the documented error, and
in time.

    python _dist_faults.py ROUNDS WORLD SEED

Prints one line per round, then a line of JSON. The processes are forked from this one, which has
loaded everything.
"""
import datetime
import json
import os
import random
import signal
import sys
import tempfile
import time

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist

TIMEOUT = 3.0


def member(rank, world, store, seed, big):
    """Calls collectives until one fails; returns the exit status.

    It is 17 if the error was the documented one and later collectives fail too, in time.
    """
    rs = random.Random(seed)
    started = last = time.monotonic()
    try:
        dist.init_process_group("gloo", f"file://{store}", datetime.timedelta(seconds=TIMEOUT), world, rank)
        t, n = torch.ones(big), 0
        pair = dist.new_group([0, 1])
        while time.monotonic() - started < 30:
            last = time.monotonic()
            kind = rs.choice(["all_reduce", "async", "gather", "message", "barrier", "object", "pair", "compute"])
            if kind == "all_reduce":
                dist.all_reduce(t, dist.ReduceOp.MAX)
            elif kind == "async":
                works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(4)]
                for w in works:
                    w.wait()
            elif kind == "gather":
                dist.all_gather_into_tensor(torch.empty(world, 100), torch.ones(100))
            elif kind == "message":
                works = [dist.isend(t, (rank + 1) % world), dist.irecv(torch.empty(big), (rank - 1) % world)]
                for w in works:
                    w.wait()
            elif kind == "barrier":
                dist.barrier()
            elif kind == "object":
                dist.all_gather_object([None] * world, {"n": n})
            elif kind == "pair" and rank < 2:
                dist.all_reduce(torch.ones(3), group=pair)
            else:
                time.sleep(0.001)
            n += 1
    except dist.DistError as e:
        waited = time.monotonic() - last
        if dist.is_initialized():
            again = time.monotonic()
            for later in (dist.barrier, lambda: dist.all_reduce(torch.ones(2))):
                try:
                    later()
                except dist.DistError:
                    continue
                print(f"rank {rank}: a collective after the failure went through", flush=True)
                return 18
            if time.monotonic() - again > TIMEOUT + 15:
                return 19
        text = str(e)
        if "rank" not in text.lower() and "store" not in text and "key" not in text:
            print(f"rank {rank}: the error names no rank or key: {text}", flush=True)
            return 20
        return 17 if waited < TIMEOUT + 15 else 19
    print(f"rank {rank}: no error", flush=True)
    return 21


def round_(number, world, seed):
    """Returns (what went wrong or None, seconds until the last survivor ended)."""
    rs = random.Random(seed)
    big = rs.choice([10, 5000, 300000])
    delay = rs.choice([0.0, 0.02, 0.1]) + rs.random() * 0.4
    victim = rs.randrange(world)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                status = 22
                try:
                    status = member(rank, world, os.path.join(folder, "store"), seed, big)
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            children.append(pid)
        time.sleep(delay)
        os.kill(children[victim], signal.SIGKILL)
        killed = time.monotonic()
        left = {pid: rank for rank, pid in enumerate(children)}
        statuses = {}
        while left and time.monotonic() - killed < TIMEOUT + 15 + 2:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                statuses[left.pop(pid)] = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.01)
        took = time.monotonic() - killed
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        print(f"round {number}: rank {victim} of {world} killed after {delay:.2f} s ({big} numbers): {statuses}, {took:.2f} s", flush=True)
        if left:
            return f"round {number}: ranks {sorted(left.values())} hang", took
        wrong = {r: s for r, s in statuses.items() if r != victim and s != 17}
        return (f"round {number}: {wrong}" if wrong else None), took


def main():
    rounds, world, seed = map(int, sys.argv[1:])
    results = [round_(i, world, seed + i) for i in range(rounds)]
    print(json.dumps({"wrong": [w for w, _ in results if w], "slowest": max(t for _, t in results)}))


if __name__ == "__main__":
    main()
