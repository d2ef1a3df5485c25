"""Cost of DistributedDataParallel: bytes sent, gain of overlap, scaling of throughput.

    python benchmarks/ddp.py                      # 1, 2 and 4 processes on this machine, about a minute
    python benchmarks/ddp.py --worlds 2 --steps 40

Bytes: what a rank sends over its connections in one step, including the signatures of the
collectives. The lower bound of any all-reduce is 2 (n-1)/n of the size of the gradients from each
of n ranks.

Overlap: the same steps run with and without overlap. Without overlap, each bucket is awaited as
soon as it is sent. Steps of the two kinds alternate, and the table has the median of the ratios of
neighbouring steps.

Throughput: every process has a fixed batch (weak scaling). On a machine with fewer cores than
processes, this measures the number of cores.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def models():
    import mindtorch.torch.nn as nn

    def mlp():
        return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), *[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.ReLU())],
                             nn.Linear(1024, 10)), (784,)

    def cnn():
        layers, c = [], 3
        for width in (16, 32, 64):
            layers += [nn.Conv2d(c, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            c = width
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10)), (3, 32, 32)
    return {"mlp": mlp, "cnn": cnn}


def worker(args):
    import mindtorch.torch as torch
    import mindtorch.torch.distributed as dist
    import mindtorch.torch.nn.functional as F
    from mindtorch.torch.distributed.distributed_c10d import traffic
    from mindtorch.torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    out = {}
    for name, make in models().items():
        torch.manual_seed(0)
        net, shape = make()
        ddp = DistributedDataParallel(net, bucket_cap_mb=args.bucket)
        opt = torch.optim.SGD(ddp.parameters(), lr=0.01)
        x, y = torch.randn(args.batch, *shape), torch.randint(0, 10, (args.batch,))

        def step(overlap, ddp=ddp, opt=opt, x=x, y=y):
            ddp.reducer.overlap = overlap
            begin = time.perf_counter()
            opt.zero_grad()
            F.cross_entropy(ddp(x), y).backward()
            opt.step()
            return time.perf_counter() - begin

        for _ in range(3):
            step(True)
        dist.barrier()
        before = traffic()["sent"]
        step(True)
        sent = traffic()["sent"] - before
        times = {True: [], False: []}
        for i in range(args.steps):
            for overlap in ((True, False) if i % 2 else (False, True)):
                times[overlap].append(step(overlap))
        grads = sum(p.numel() * p.element_size() for p in net.parameters())
        buffers = sum(b.numel() * b.element_size() for b in net.buffers())
        out[name] = {"gradient bytes": grads, "buffer bytes": buffers, "buckets": len(ddp.reducer.buckets), "sent": sent,
                     "bound": 2 * (world - 1) / world * grads, "step": statistics.median(times[True]),
                     "ratio": statistics.median(b / a for a, b in zip(times[True], times[False]))}
    everybody = [None] * world
    dist.all_gather_object(everybody, out)
    if rank == 0:
        merged = {name: {**out[name], "sent": max(r[name]["sent"] for r in everybody), "step": max(r[name]["step"] for r in everybody)}
                  for name in out}
        print(json.dumps(merged), flush=True)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--worlds", default="1,2,4")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--batch", type=int, default=64, help="samples per process")
    p.add_argument("--bucket", type=float, default=4, help="MB")
    p.add_argument("--worker", action="store_true")
    args = p.parse_args()
    if args.worker:
        return worker(args)
    single = {}
    print(f"{os.cpu_count()} cores, batch {args.batch} per process, buckets of {args.bucket:g} MB, one thread per process")
    print(f"{'model':5} {'ranks':>5} {'sent/rank':>12} {'ring bound':>12} {'ratio':>6} {'buckets':>7} {'step ms':>8} "
          f"{'overlap off/on':>14} {'samples/s':>10} {'scaling':>8}")
    for world in map(int, args.worlds.split(",")):
        command = [sys.executable, "-m", "mindtorch.torch.distributed.run", "--standalone", "--nproc_per_node", str(world),
                   os.path.abspath(__file__), "--worker", "--steps", str(args.steps), "--batch", str(args.batch), "--bucket", str(args.bucket)]
        done = subprocess.run(command, env=dict(os.environ, PYTHONPATH=ROOT, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=300)
        if done.returncode:
            sys.exit(done.stderr[-3000:])
        found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
        for name, r in found.items():
            rate = world * args.batch / r["step"]
            single.setdefault(name, rate / world)
            bound = r["bound"]
            print(f"{name:5} {world:5} {r['sent']:12,} {bound:12,.0f} {r['sent'] / bound if bound else 1:6.3f} {r['buckets']:7} "
                  f"{1000 * r['step']:8.1f} {r['ratio']:14.2f} {rate:10.0f} {rate / single[name] / world:7.0%}")


if __name__ == "__main__":
    main()
