"""A training step as one MindSpore graph, hand-written and compiled from PyTorch code.

The hand-written step runs under `ms.jit`, the PyTorch code under `torch.compile(step,
backend="mindspore")`, both on MindSpore's CPU target.

    python benchmarks/step_graph.py                                    # the nine models
    python benchmarks/step_graph.py --models mlp,gpt2 --rounds 7 --threads 1 --json out.json
    python benchmarks/step_graph.py --sides mindspore-jit,mindtorch-npu-graph

Each side runs in its own process, and rounds alternate between them. Weights, data, optimizers and
batch sizes are the same (models.py, ms_models.py). The sides are:

- mindspore-jit: forward, ms.value_and_grad and the optimizer in one ms.jit function (ast, O0), with
  blocking launches
- mindspore-jit-async: the same without blocking launches
- mindspore-jit-O1: the same with jit_level O1
- mindspore-jit-inline: the same in the calling thread, as in mindtorch (a private switch of
  MindSpore). Otherwise the calling thread spins until another thread has run the graph. This side
  compares the graphs without that effect.
- mindtorch-npu-graph: zero_grad, forward, backward and optimizer.step() as one function, compiled
  with backend="mindspore", on the npu device
- mindtorch-npu: the same function in eager mode, for information

mindspore-jit-async and mindspore-jit-O1 are not in the default, because they differ from
mindspore-jit by less than the spread of the figures on all models.

The CPU time (of the whole process) and the wall time of a step are medians over the steps of all
rounds. The rounds start after 50 steps, which MindSpore needs to choose how it runs a graph. The
ratio compares CPU times with the fastest hand-written side (-inline has its own ratio): it is the
median over rounds of the ratio of the rounds' medians. `least` is the first decile and the ratio of
first deciles. Compile time is the time of those first steps that stand out (over a tenth of the
longest), in excess of later steps.

MindSpore's threads spin while they wait for each other. A thread that shares its core with other
work costs whole time slices: a step of 20 ms of CPU time then takes 100 to 400 ms. On a busy
machine only `least` is meaningful.
"""
import argparse
import json
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import report  # noqa: E402
import run  # noqa: E402

SIDES = ("mindspore-jit", "mindspore-jit-inline", "mindtorch-npu-graph", "mindtorch-npu")
OURS, EAGER, INLINE = "mindtorch-npu-graph", "mindtorch-npu", "mindspore-jit-inline"
#: Number of steps that are reported one by one. The sides compile within these steps.
FIRST = 8
#: Steps before the rounds: MindSpore tries thread counts for its kernels for 30 steps, then ways to
#: run the graph for 20.
SETTLE = 50
#: Settings of malloc that mindtorch makes on import (freed memory is kept). Here all sides have
#: them.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 27)}
#: Tolerances of losses, relative to the larger of 1 and the loss. `CLOSE`: difference to the first
#: side in the first `COMPARED` steps. Later steps drift, because nn.Adam adds epsilon before it
#: corrects the second moment and PyTorch's Adam after. `SAME`: difference of the compiled step to
#: the eager one in all reported steps.
CLOSE, COMPARED, SAME = 1e-4, 3, 1e-6


def _least(values):
    """Returns the first decile."""
    return sorted(values)[len(values) // 10]


def compile_time(first, steady):
    """Returns the time of the first steps that stand out, in excess of steady ones."""
    return sum(max(0.0, t - steady) for t in first if t > max(first) / 10)


def _close(losses, others, tolerance):
    return all(abs(a - b) <= tolerance * max(1.0, abs(b)) for a, b in zip(losses, others))


def side_figures(r):
    """Returns a side's figures in ms from the result of run.compare."""
    out = {"losses": r["losses"], "memory_mb": r["memory"], "steps": sum(map(len, r["cpu"]))}
    for clock in ("cpu", "wall"):
        times = [t * 1e3 for x in r[clock] for t in x]
        out[f"{clock}_ms"], out[f"{clock}_least_ms"] = statistics.median(times), _least(times)
        out[f"compile_{clock}_ms"] = compile_time([t * 1e3 for t in r["first"][clock]], out[f"{clock}_least_ms"])
    return out


def figures(found):
    """Returns the figures of one model.

    They are {"sides": {side: figures}, "best": the fastest hand-written side, "losses_equal"}. The
    figures of the other sides include "ratio", "ratio_least" and "ratio_compile" to the
    hand-written sides.
    """
    sides = {side: side_figures(r) for side, r in found.items()}
    out = {"sides": sides}
    hand = [s for s in sides if s.startswith("mindspore") and s != INLINE]
    if hand:
        best = out["best"] = min(hand, key=lambda s: sides[s]["cpu_ms"])
        for side, f in sides.items():
            if side not in hand and side != INLINE:
                f["ratio"] = statistics.median(statistics.median(a) / statistics.median(b) for a, b in zip(found[side]["cpu"], found[best]["cpu"]))
                f["ratio_least"] = f["cpu_least_ms"] / min(sides[s]["cpu_least_ms"] for s in hand)
                f["ratio_compile"] = f["compile_cpu_ms"] / min(sides[s]["compile_cpu_ms"] for s in hand)
    if INLINE in sides:
        for side, f in sides.items():
            if side not in hand and side != INLINE:
                f["ratio_inline"] = f["cpu_least_ms"] / sides[INLINE]["cpu_least_ms"]
    ref = next(iter(sides.values()))["losses"][:COMPARED]
    out["losses_equal"] = all(_close(f["losses"], ref, CLOSE) for f in sides.values())
    if OURS in sides and EAGER in sides:
        out["losses_equal"] &= _close(sides[OURS]["losses"], sides[EAGER]["losses"], SAME)
    return out


def text(model, m):
    """Returns one model's rows for the terminal."""
    head = zip(("cpu ms", "least", "wall ms", "least", "compile", "(wall)", "MB", "x hand", "least", "inline", "compile"), (9, 8, 9, 8, 10, 8, 7, 8, 7, 7, 9))
    lines = [f"\n{model:22s}" + "".join(f"{h:>{w}s}" for h, w in head)]
    for side, f in m["sides"].items():
        ratios = [f"{f[k]:{w}.2f}" if k in f else " " * w for k, w in (("ratio", 8), ("ratio_least", 7), ("ratio_inline", 7), ("ratio_compile", 9))]
        lines.append(f"{side + ' *' * (side == m.get('best')):22s}{f['cpu_ms']:9.2f}{f['cpu_least_ms']:8.2f}{f['wall_ms']:9.2f}{f['wall_least_ms']:8.2f}"
                     f"{f['compile_cpu_ms']:10.0f}{f['compile_wall_ms']:8.0f}{f['memory_mb']:7.0f}" + "".join(ratios))
    if not m["losses_equal"]:
        lines += ["losses differ:"] + [f"    {side:20s}" + " ".join(f"{x:.6f}" for x in f["losses"]) for side, f in m["sides"].items()]
    return "\n".join(lines)


def markdown(models):
    """Returns the table of the compiled step against the fastest hand-written step."""
    out = ["| model | hand, CPU ms | compiled, CPU ms | ratio | ratio of least | compile, ms | by hand | ratio |", "| --- |" + " --- |" * 7]
    for name, m in models.items():
        if OURS in m["sides"] and "best" in m:
            a, b = m["sides"][m["best"]], m["sides"][OURS]
            cells = (f"{a['cpu_ms']:.1f}", f"{b['cpu_ms']:.1f}", f"{b['ratio']:.2f}", f"{b['ratio_least']:.2f}", f"{b['compile_cpu_ms']:.0f}",
                     f"{a['compile_cpu_ms']:.0f}", f"{b['ratio_compile']:.2f}")
            out.append(" | ".join(("| " + report.NAMES[name], *cells)) + " |")
    return "\n".join(out) if len(out) > 2 else ""


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--models", default=",".join(report.NAMES))
    ap.add_argument("--sides", default=",".join(SIDES))
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--steps", type=int, default=8, help="minimum steps per round; short steps are repeated for 0.3 s")
    ap.add_argument("--settle", type=int, default=SETTLE, help=f"steps between the first {FIRST} and the rounds")
    ap.add_argument("--threads", type=int, help="thread count of every side")
    ap.add_argument("--json", help="write the figures to this file")
    a = ap.parse_args()
    if a.threads:
        os.environ["OMP_NUM_THREADS"] = str(a.threads)
    os.environ.update({k: v for k, v in MEMORY.items() if k not in os.environ})
    results = {"version": run.own_version(), "machine": run.machine(), "models": {}}
    for name in a.models.split(","):
        m = results["models"][name] = figures(run.compare(name, a.sides.split(","), a.rounds, a.steps, FIRST, a.settle))
        print(text(name, m), flush=True)
        if a.json:
            with open(a.json, "w") as f:
                json.dump(results, f, indent=1)
    print("\n" + markdown(results["models"]))
    wrong = [name for name, m in results["models"].items() if not m["losses_equal"]]
    if wrong:
        print("losses differ: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
