"""Collectives between processes of one machine: time, bytes sent, overlap with backward.

    python benchmarks/distributed.py                          # 2 and 4 processes; a table
    python benchmarks/distributed.py --worlds 2 --rounds 3 --json out.json

The sides are gloo (PyTorch), sockets (mindtorch's default) and mccl (mindtorch over MindSpore's own
communication). Rounds alternate between the sides; times are medians over rounds. Bytes are counted
where they are passed to the network, so they include the signatures. They are compared with the
ring bound: an all-reduce of N bytes over n ranks sends at least 2 (n-1)/n N from each rank.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIDES = ["gloo", "sockets", "mccl"]
SIZES = [16, 1 << 14, 1 << 20, 1 << 24]
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"]


def _operation(torch, dist, name, nbytes, n):
    t = torch.zeros(max(1, nbytes // 4) // n * n or n)
    part = torch.zeros(t.numel() // n)
    return {"all_reduce": lambda: dist.all_reduce(t), "broadcast": lambda: dist.broadcast(t, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(t, part), "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, t),
            "barrier": lambda: dist.barrier()}[name], t.numel() * 4


def _bound(name, nbytes, n):
    """Returns the bytes that the busiest rank must send."""
    return {"all_reduce": 2 * (n - 1) * nbytes // n, "all_gather": (n - 1) * nbytes // n, "reduce_scatter": (n - 1) * nbytes // n,
            "broadcast": nbytes, "barrier": 0}[name]


def worker(side, rank, world, port):
    """Runs the part that each line on stdin names, and answers with one line of JSON."""
    if side != "gloo":
        from mindtorch.tools import mstorch_enable  # noqa: F401
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    for line in sys.stdin:
        part = line.strip()
        found = _overlap(torch, dist, world) if part == "overlap" else _collectives(torch, dist, side, world)
        found["rank"] = rank
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def _collectives(torch, dist, side, n):
    found = {"ops": []}
    for name in OPS:
        for nbytes in SIZES if name != "barrier" else [0]:
            fn, size = _operation(torch, dist, name, nbytes, n)
            repeats = 30 if nbytes <= 1 << 14 else 10 if nbytes <= 1 << 20 else 3
            fn()
            dist.barrier()
            before = dist.distributed_c10d.traffic()["sent"] if side == "sockets" else 0
            start = time.perf_counter()
            for _ in range(repeats):
                fn()
            took = (time.perf_counter() - start) / repeats
            sent = (dist.distributed_c10d.traffic()["sent"] - before) / repeats if side == "sockets" else None
            found["ops"].append({"op": name, "bytes": nbytes, "us": took * 1e6, "sent": sent, "bound": _bound(name, size, n) if nbytes else 0})
    return found


def _overlap(torch, dist, n, steps=6):
    """Returns the seconds of a training step in three variants, and the bytes of its gradients.

    The variants are: no communication, reduction after backward, reduction during backward (DDP).
    """
    from torch.nn.parallel import DistributedDataParallel as DDP

    torch.manual_seed(0)
    net = torch.nn.Sequential(*[m for _ in range(6) for m in (torch.nn.Linear(512, 512), torch.nn.ReLU())])
    x = torch.randn(128, 512)
    ddp = DDP(net, bucket_cap_mb=1)

    def step(model, after):
        net.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        if after:
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= n

    def timed(fn):
        fn()
        dist.barrier()
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            fn()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def silent():
        with ddp.no_sync():
            step(ddp, False)
    return {"alone": timed(silent), "after": timed(lambda: step(net, True)), "inside": timed(lambda: step(ddp, False)),
            "bytes": sum(p.numel() * 4 for p in net.parameters())}


class Side:
    """Worker processes of one side."""

    def __init__(self, name, world):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOG_v": "3"}
        if name == "mccl":
            env["MINDTORCH_CPU_COMM"] = "mccl"
        self.procs = [subprocess.Popen([sys.executable, "-W", "ignore", os.path.abspath(__file__), "--worker", name, str(r), str(world), str(port)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) for r in range(world)]

    def ask(self, part):
        for p in self.procs:
            p.stdin.write(part + "\n")
            p.stdin.flush()
        answers = []
        for p in self.procs:
            while True:
                line = p.stdout.readline()
                if not line:
                    raise RuntimeError(f"a process ended early (status {p.wait()})")
                if line.startswith("{"):
                    answers.append(json.loads(line))
                    break
        return answers

    def end(self):
        for p in self.procs:
            p.stdin.close()
        for p in self.procs:
            p.wait(60)


def measure(world, sides, rounds, overlap):
    running = {s: Side(s, world) for s in sides}
    cells, steps = {}, {}
    try:
        for _ in range(rounds):
            for name, side in running.items():
                ranks = side.ask("collectives")
                for rows in zip(*(r["ops"] for r in ranks)):
                    cell = cells.setdefault((rows[0]["op"], rows[0]["bytes"]), {}).setdefault(name, {"us": [], "bound": rows[0]["bound"]})
                    cell["us"].append(max(r["us"] for r in rows))
                    cell["sent"] = None if rows[0]["sent"] is None else max(r["sent"] for r in rows)
        if overlap:
            for _ in range(rounds):
                for name, side in running.items():
                    if name != "mccl":
                        ranks = side.ask("overlap")
                        for k in ("alone", "after", "inside"):
                            steps.setdefault(name, {}).setdefault(k, []).append(max(r[k] for r in ranks))
    finally:
        for side in running.values():
            side.end()
    return {"world": world,
            "ops": [{"op": op, "bytes": nbytes, **{s: {"us": statistics.median(c["us"]), "sent": c["sent"], "bound": c["bound"]}
                                                   for s, c in by_side.items()}} for (op, nbytes), by_side in cells.items()],
            "overlap": {s: {k: statistics.median(v) * 1e3 for k, v in d.items()} for s, d in steps.items()}}


def table(result, sides):
    n = result["world"]
    lines = [f"### {n} processes, microseconds", "", "| collective | bytes | " + " | ".join(sides) + " | sent / ring bound |",
             "|---|---:|" + "---:|" * (len(sides) + 1)]
    for row in result["ops"]:
        mine = row.get("sockets")
        share = f"{mine['sent'] / mine['bound']:.3f}" if mine and mine["bound"] else ""
        lines.append(f"| {row['op']} | {row['bytes']:,} | " + " | ".join(f"{row[s]['us']:,.0f}" for s in sides) + f" | {share} |")
    if result["overlap"]:
        lines += ["", f"### {n} processes, a step of an MLP with 6 MB of gradients, milliseconds", "",
                  "| side | no communication | reduction after backward | DDP: inside backward |", "|---|---:|---:|---:|"]
        lines += [f"| {s} | {d['alone']:.1f} | {d['after']:.1f} | {d['inside']:.1f} |" for s, d in result["overlap"].items()]
    return "\n".join([*lines, ""])


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], *map(int, sys.argv[3:]))
        return
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--worlds", default="2,4")
    p.add_argument("--sides", default=",".join(SIDES))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--no-overlap", action="store_true")
    p.add_argument("--json")
    a = p.parse_args()
    sides = a.sides.split(",")
    results = []
    for world in map(int, a.worlds.split(",")):
        results.append(measure(world, sides, a.rounds, not a.no_overlap))
        print(table(results[-1], sides), flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
