"""Paired benchmarks: real torch, hand-written MindSpore (as shipped, tuned, under ms.jit), mindtorch (eager, compiled).

    python benchmarks/run.py                                  # everything; results/<version>.json, .md, .png
    python benchmarks/run.py --parts models --models mlp,lenet --rounds 5 --json out.json
    python benchmarks/run.py --parts latency                  # single ops, small and large
    python benchmarks/run.py --parts import
    python benchmarks/run.py --parts overhead                 # what the facade adds to the kernel it chose, op by op
    python benchmarks/run.py --parts io                       # checkpoints and data loading

Every implementation runs in a process of its own; rounds alternate between them, so that a slow moment of the machine hits
all.  Medians and the spread (interquartile range) of wall and CPU time per step, the least step, the peak of memory; the
first losses must agree.  Ratios are medians over rounds of the sides' medians in one round.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import report  # noqa: E402
import sides as sides_  # noqa: E402
from sides import SIDES  # noqa: E402

PARTS = ["models", "latency", "import", "overhead", "io"]


def _environment():
    """The checkout's package is importable in the workers also where it is not installed; byte code is kept, as users have it."""
    root = os.path.dirname(HERE)
    path = os.environ.get("PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**env, "PYTHONPATH": root if not path else root + os.pathsep + path}


def _start(*arguments):
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", *arguments], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, env=_environment())


def _answer(p, what):
    while True:
        line = p.stdout.readline()
        if not line:
            raise RuntimeError(f"the {what} process ended early (status {p.wait()})")
        if line.startswith("{"):
            return json.loads(line)


def _ask(p, what, line):
    p.stdin.write(f"{line}\n")
    p.stdin.flush()
    return _answer(p, what)


def _end(procs):
    for p in procs:
        p.stdin.close()
    for p in procs:
        p.wait()


#: Seconds that a round lasts at least: the first steps after another side's round find cold caches and sleeping threads.
ROUND = 0.3


def compare(model, sides, rounds, steps, warm=3, settle=3):
    """{side: {wall: [[...] a round], cpu, losses, memory, start, first}} of one model, rounds alternating between the sides.

    `warm` steps are told of by their losses and times (first), `settle` more pass before the rounds.
    """
    procs, out, count = {}, {}, {}
    try:
        for side in sides:
            procs[side] = p = _start(side, model, str(warm))
            first = _answer(p, side)
            out[side] = {"wall": [], "cpu": [], **first}
            least = max(2, steps // 6) if side == "mindspore" else steps
            count[side] = max(least, min(200, int(ROUND / min(_ask(p, side, settle)["wall"]))))
        for _ in range(rounds):
            for side, p in procs.items():
                r = _ask(p, side, count[side])
                out[side]["wall"].append(r["wall"])
                out[side]["cpu"].append(r["cpu"])
                out[side]["memory"] = r["memory"]
    finally:
        _end(procs.values())
    return out


def latency(size, rounds, least=0.02):
    """{op: [torch, mindtorch]} in microseconds."""
    sides = ("torch", "mindtorch")
    procs = {s: _start("latency", s, size) for s in sides}
    try:
        names = [_answer(p, s) for s, p in procs.items()][0]["ops"]
        seen = {s: {} for s in sides}
        for _ in range(rounds):
            for s, p in procs.items():
                for k, v in _ask(p, s, least).items():
                    seen[s][k] = min(v, seen[s].get(k, v))
    finally:
        _end(procs.values())
    return {k: [seen[s][k] for s in sides] for k in names}


def imports(rounds):
    """Seconds that each import takes in a fresh interpreter."""
    code = ("import time, sys; w, c = time.perf_counter(), time.process_time(); import {}; "
            "print(time.perf_counter() - w, time.process_time() - c)")
    out = {m: [] for m in ("torch", "mindspore", "mindtorch.torch")}
    for m in out:
        subprocess.run([sys.executable, "-c", f"import {m}"], check=True, env=_environment())       # writes the byte code
    for _ in range(rounds):
        for m, seen in out.items():
            r = subprocess.run([sys.executable, "-c", code.format(m)], capture_output=True, text=True, check=True, env=_environment())
            seen.append([float(x) for x in r.stdout.split()[-2:]])
    # By pairs: the machine's speed changes from one round to the next.
    out["mindtorch.torch over mindspore"] = [[a - b for a, b in zip(x, y)] for x, y in zip(out["mindtorch.torch"], out["mindspore"])]
    return {m: {"wall_s": statistics.median(w for w, _ in seen), "cpu_s": statistics.median(c for _, c in seen)} for m, seen in out.items()}


def machine():
    """What the figures depend on."""
    from importlib.metadata import version
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            cpu = next((x.split(":", 1)[1].strip() for x in f if x.startswith("model name")), cpu)
    except OSError:
        pass
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "python": platform.python_version(),
            **{m: version(m) for m in ("torch", "mindspore", "numpy")}}


def own_version():
    """mindtorch's version, read without importing it."""
    with open(os.path.join(os.path.dirname(HERE), "mindtorch", "__init__.py")) as f:
        return next(x.split('"')[1] for x in f if x.startswith("__version__"))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--parts", default="models,latency,import,overhead", help="some of " + ",".join(PARTS))
    ap.add_argument("--models", default=",".join(report.NAMES))
    ap.add_argument("--sides", default=",".join(SIDES))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=8, help="steps a round at least; short steps are repeated for 0.3 s")
    ap.add_argument("--threads", type=int, help="threads of every side; with 1, CPU times on a busy machine can be compared")
    ap.add_argument("--json", help="write the figures there, and keep nothing in results/")
    ap.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.worker:
        if a.worker[0] == "latency":
            import op_latency
            return op_latency.worker(*a.worker[1:])
        return sides_.worker(*a.worker)
    parts = a.parts.split(",")
    if set(parts) - set(PARTS):
        ap.error(f"unknown parts: {', '.join(set(parts) - set(PARTS))}")
    results = {"version": own_version(), "machine": machine()}
    if a.threads:
        os.environ["OMP_NUM_THREADS"] = str(a.threads)
    if "models" in parts:
        # Runs with another number of threads are kept beside those with all.
        kept = results["models" if not a.threads else f"models, {a.threads} thread{'s'[:a.threads > 1]}"] = {}
        for model in a.models.split(","):
            kept[model] = r = report.summary(compare(model, a.sides.split(","), a.rounds, a.steps))
            print(report.text(model, r), flush=True)
    if "latency" in parts:
        results["latency"] = {size: latency(size, a.rounds) for size in ("small", "large")}
    if "import" in parts:
        results["import"] = imports(a.rounds)
    print("\n" + report.markdown(results))
    if "overhead" in parts:
        subprocess.run([sys.executable, os.path.join(HERE, "op_overhead.py")], check=True, env=_environment())
    if "io" in parts:
        os.environ.update(_environment())
        import data_io
        results["io"] = data_io.main(a.rounds)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)
    else:
        report.keep(results, os.path.join(HERE, "results"))
    wrong = [m for part in results if part.startswith("models") for m, rows in results[part].items() for r in rows.values()
             if not r["losses_equal"]]
    if wrong:
        print("losses differ: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
