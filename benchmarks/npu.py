"""CPU time of the npu device on MindSpore's CPU target against MindSpore itself.

    python benchmarks/npu.py                                   # both parts
    python benchmarks/npu.py --parts ops
    python benchmarks/npu.py --parts models --models mlp,gpt2 --rounds 5 --json out.json

- ops: overhead of a facade call over the MindSpore primitive that its kernel calls, on 8x8 tensors.
  Both run by turns in one process. The figure is the minimum of many short runs, in microseconds of
  this thread's CPU time.
- models: eager training steps of benchmarks/models.py on the device against the hand-written
  PyNative models of benchmarks/ms_models.py ("tuned"). Each side runs in its own process, and rounds
  alternate. The figure is the median over rounds of the ratio of CPU times per step.
"""
import argparse
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

SIDES = ("mindspore-tuned", "mindtorch-npu")


def _least(calls, number=300, rounds=25):
    """Returns {name: microseconds of this thread's CPU time per call}.

    The figure is the minimum over the rounds, in each of which all calls run by turns.
    """
    best = dict.fromkeys(calls, float("inf"))
    for f in calls.values():
        f()
    for _ in range(rounds):
        for name, f in calls.items():
            start = time.thread_time()
            for _ in range(number):
                f()
            best[name] = min(best[name], (time.thread_time() - start) / number * 1e6)
    return best


def ops():
    """Returns {op: (facade, bare primitive)} in microseconds."""
    os.environ["MINDTORCH_NPU"] = "cpu"
    import mindtorch.torch as torch
    from mindspore.ops import operations as P
    linear = torch.nn.functional.linear
    x, y, w = (torch.ones(8, 8, device="npu") for _ in range(3))
    b = torch.ones(8, device="npu")
    p, q, v, c = x._handle, y._handle, w._handle, b._handle
    add, relu, total, product, multiply = P.Add(), P.ReLU(), P.ReduceSum(), P.MatMul(transpose_b=True), P.Mul()
    cases = {"add": (lambda: x + y, lambda: add(p, q)), "mul": (lambda: x * y, lambda: multiply(p, q)),
             "relu": (lambda: torch.relu(x), lambda: relu(p)), "sum": (lambda: x.sum(), lambda: total(p)),
             "linear": (lambda: linear(x, w, b), lambda: add(product(p, v), c)), "view": (lambda: x.view(64), lambda: p.view(64))}
    found = _least({(name, i): f for name, pair in cases.items() for i, f in enumerate(pair)})
    from mindtorch.core.device import device_dispatch
    if device_dispatch.FALLBACKS:
        print("host fallbacks: " + ", ".join(name for _, name in device_dispatch.FALLBACKS))
    return {name: (found[name, 0], found[name, 1]) for name in cases}


def models(names, rounds, steps):
    """Returns {model: {ratio, CPU ms of both sides, losses}}."""
    import run
    out = {}
    for name in names:
        r = run.compare(name, SIDES, rounds, steps)
        bare, ours = ([statistics.median(x) * 1e3 for x in r[side]["cpu"]] for side in SIDES)
        out[name] = {"ratio": statistics.median(b / a for a, b in zip(bare, ours)), "mindspore_ms": statistics.median(bare),
                     "mindtorch_ms": statistics.median(ours), "losses": [r[side]["losses"] for side in SIDES]}
        m = out[name]
        print(f"{name:13} {m['mindtorch_ms']:8.2f} ms of CPU time, hand-written MindSpore {m['mindspore_ms']:8.2f}: {m['ratio']:.2f}x", flush=True)
    return out


def main():
    import report
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--parts", default="ops,models")
    ap.add_argument("--models", default=",".join(report.NAMES))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--threads", type=int, help="thread count of both sides; with 1, CPU times are comparable on a busy machine")
    ap.add_argument("--json", help="write the figures to this file")
    a = ap.parse_args()
    if a.threads:
        os.environ["OMP_NUM_THREADS"] = str(a.threads)
    results = {}
    if "ops" in a.parts.split(","):
        results["ops"] = ops()
        for name, (ours, bare) in results["ops"].items():
            print(f"{name:8} {ours:6.1f} us, bare {bare:6.1f}: {ours - bare:+.1f}")
    if "models" in a.parts.split(","):
        results["models"] = models(a.models.split(","), a.rounds, a.steps)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
