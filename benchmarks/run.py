"""Paired benchmarks: real torch, hand-written MindSpore (as shipped and tuned), mindtorch.

    python benchmarks/run.py [--models mlp,lenet] [--rounds 5] [--json results.json]
    python benchmarks/run.py --ops          # overhead of the facade over the kernel it chose, op by op

Every implementation runs in a process of its own; rounds alternate between them, so that a slow moment of the machine
hits all.  Medians and the spread (interquartile range) of wall and CPU time per step; losses must agree.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SIDES = ["torch", "mindspore", "mindspore-tuned", "mindtorch"]


def build(side, model):
    """step() of a model for one implementation, in this process."""
    sys.path.insert(0, HERE)
    if side == "torch":
        import torch
        import models
        return models.MODELS[model](torch)
    if side == "mindtorch":
        import mindtorch.torch as torch
        import models
        return models.MODELS[model](torch)
    tuned = side == "mindspore-tuned"
    os.environ.setdefault("GLOG_v", "3")
    if tuned:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    import mindspore as ms
    if tuned:
        ms.runtime.launch_blocking()
    import ms_models
    return ms_models.MODELS[model](ms, tuned)


def worker(side, model):
    """Answers each line 'n' on stdin with the wall and CPU time of n steps."""
    step = build(side, model)
    losses = [step() for _ in range(3)]
    print(json.dumps({"losses": losses}), flush=True)
    for line in sys.stdin:
        walls, cpus = [], []
        for _ in range(int(line)):
            w, c = time.perf_counter(), time.process_time()
            step()
            walls.append(time.perf_counter() - w)
            cpus.append(time.process_time() - c)
        print(json.dumps({"wall": walls, "cpu": cpus}), flush=True)


def compare(model, rounds, steps):
    """{side: {wall: [...], cpu: [...], losses: [...]}} of one model, rounds alternating between the sides."""
    procs, out = {}, {}
    for side in SIDES:
        p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", side, "--models", model],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        procs[side] = p
        line = _answer(p, side)
        out[side] = {"wall": [], "cpu": [], "losses": line["losses"]}
    for _ in range(rounds):
        for side, p in procs.items():
            n = max(2, steps // 6) if side == "mindspore" else steps
            p.stdin.write(f"{n}\n")
            p.stdin.flush()
            r = _answer(p, side)
            out[side]["wall"] += r["wall"]
            out[side]["cpu"] += r["cpu"]
    for p in procs.values():
        p.stdin.close()
        p.wait()
    return out


def _answer(p, side):
    while True:
        line = p.stdout.readline()
        if not line:
            raise RuntimeError(f"the {side} process ended early (status {p.wait()})")
        if line.startswith("{"):
            return json.loads(line)


def table(model, res):
    """Prints one model's rows; returns {side: median wall ms}."""
    base = statistics.median(res["mindspore-tuned"]["wall"])
    ref = res["torch"]["losses"]
    print(f"\n{model:12s} {'wall ms':>9s} {'iqr':>7s} {'cpu ms':>9s} {'x torch':>8s} {'x tuned':>8s}  losses")
    medians = {}
    for side in SIDES:
        r = res[side]
        w = statistics.median(r["wall"])
        q = statistics.quantiles(r["wall"], n=4)
        same = all(abs(a - b) <= 1e-3 * max(1, abs(b)) for a, b in zip(r["losses"], ref))
        medians[side] = w * 1e3
        print(f"{side:16s} {w * 1e3:8.2f} {1e3 * (q[2] - q[0]):7.2f} {1e3 * statistics.median(r['cpu']):9.2f} "
              f"{w / statistics.median(res['torch']['wall']):8.2f} {w / base:8.2f}  {'equal' if same else r['losses']}")
    return medians


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--models", default="mlp,lenet,small_cnn")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=12, help="steps a round")
    ap.add_argument("--json", help="write all figures there")
    ap.add_argument("--ops", action="store_true", help="per-op overhead instead of models")
    ap.add_argument("--worker", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        return worker(a.worker, a.models)
    if a.ops:
        sys.path.insert(0, HERE)
        import op_overhead
        return op_overhead.main()
    results = {}
    for model in a.models.split(","):
        results[model] = res = compare(model, a.rounds, a.steps)
        table(model, res)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)


if __name__ == "__main__":
    sys.exit(main())
