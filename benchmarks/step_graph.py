"""A training step as one MindSpore graph: by hand under `ms.jit`, and torch code under `torch.compile(step, backend="mindspore")`, on MindSpore's CPU target.

    python benchmarks/step_graph.py                                    # the nine models
    python benchmarks/step_graph.py --models mlp,gpt2 --rounds 7 --threads 1 --json out.json
    python benchmarks/step_graph.py --sides mindspore-jit,mindtorch-npu-graph

The sides, each in a process of its own, rounds alternating; weights, data, optimizers and batch sizes are the same (models.py, ms_models.py):

mindspore-jit         forward, ms.value_and_grad and the optimizer in one ms.jit function (ast, O0), launches waited for
mindspore-jit-async   the same, not waited for
mindspore-jit-O1      the same with jit_level O1
mindspore-jit-inline  the same, run in the calling thread as mindtorch has it (a private switch of MindSpore's; else the calling thread spins until another has
                      run the graph): how the graphs compare, apart from that
mindtorch-npu-graph   zero_grad, forward, backward and optimizer.step() as one function, compiled with backend="mindspore", on the device npu
mindtorch-npu         the same function, eager, for information

A step's CPU time (of the whole process) and wall time are medians over the rounds' steps, after as many steps as MindSpore takes to settle on how it runs a
graph (50).  The ratio is to the quickest side written by hand (-inline has a ratio of its own), by CPU time: the median over the rounds of the ratio of the
rounds' medians.  `least` is the first decile and the ratio of these.  MindSpore's threads spin while they wait for each other; one that has to share its core
with other work costs whole time slices, a step of 20 ms of CPU time then takes 100 to 400: on a machine that does other work only `least` tells something.
Compile time: what those of the first steps that stand out (over a tenth of the longest) take beyond later ones.

Not among the sides by themselves: not to wait for launches (-async) and jit_level O1 differ from mindspore-jit by less than the figures' spread on all models.
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
#: Steps that are told of one by one: those in which the sides compile are among them.
FIRST = 8
#: MindSpore tries numbers of threads for its kernels for 30 steps, then ways to run the graph for 20.
SETTLE = 50
#: What mindtorch asks of the C library when it is imported (it keeps freed memory); here asked for on all sides.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 27)}
#: Largest difference of two losses, relative to 1 or to the loss: to the first side's in the first steps (later ones drift: nn.Adam adds epsilon before it
#: corrects the second moment, PyTorch's Adam after), and of a compiled step to the eager one in all that are told of.
CLOSE, COMPARED, SAME = 1e-4, 3, 1e-6


def _least(values):
    """The first decile."""
    return sorted(values)[len(values) // 10]


def compile_time(first, steady):
    """What the first steps that stand out take beyond steady ones."""
    return sum(max(0.0, t - steady) for t in first if t > max(first) / 10)


def _close(losses, others, tolerance):
    return all(abs(a - b) <= tolerance * max(1.0, abs(b)) for a, b in zip(losses, others))


def side_figures(r):
    """A side's figures in ms from what run.compare found."""
    out = {"losses": r["losses"], "memory_mb": r["memory"], "steps": sum(map(len, r["cpu"]))}
    for clock in ("cpu", "wall"):
        times = [t * 1e3 for x in r[clock] for t in x]
        out[f"{clock}_ms"], out[f"{clock}_least_ms"] = statistics.median(times), _least(times)
        out[f"compile_{clock}_ms"] = compile_time([t * 1e3 for t in r["first"][clock]], out[f"{clock}_least_ms"])
    return out


def figures(found):
    """{"sides": {side: figures}, "best": the quickest by hand, "ratio", "ratio_least", "ratio_compile", "losses_equal"} of one model."""
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
    """One model's rows for the terminal."""
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
    """The table of the compiled step against the best by hand."""
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
    ap.add_argument("--steps", type=int, default=8, help="steps a round at least; short steps are repeated for 0.3 s")
    ap.add_argument("--settle", type=int, default=SETTLE, help=f"steps between the first {FIRST} and the rounds")
    ap.add_argument("--threads", type=int, help="threads of every side")
    ap.add_argument("--json", help="write the figures there")
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
