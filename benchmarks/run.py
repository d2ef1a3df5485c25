"""Paired benchmarks: real torch (eager, compiled by inductor), hand-written MindSpore (as shipped, tuned, under ms.jit), mindtorch (eager, compiled).

    python benchmarks/run.py                                  # everything; results/<version>.json, .md, docs/img/speed.svg
    python benchmarks/run.py --parts models --models mlp,lenet --rounds 5 --json out.json
    python benchmarks/run.py --parts large,growth --threads 1,2   # models of the sizes that people train (large_models.py), and how their step grows
    python benchmarks/run.py --parts large --only resnet50,unet@8 # some, or with another batch
    python benchmarks/run.py --parts latency                  # single ops, small and large (ops.py has 200)
    python benchmarks/run.py --parts import
    python benchmarks/run.py --parts overhead                 # what the facade adds to the kernel it chose, op by op
    python benchmarks/run.py --parts io                       # checkpoints and data loading
    python benchmarks/run.py --write ...                      # also replaces the tables in docs/speed.md

Every implementation runs in a process of its own; rounds alternate between them, so that a slow moment of the machine hits
all.  Medians and the spread (interquartile range) of wall and CPU time per step, the least step, the peak of memory; the
first losses must agree.  Compilers begin with empty caches.  Ratios are medians over rounds of the sides' medians in one round.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import documents  # noqa: E402
import large_models  # noqa: E402
import report  # noqa: E402
import sides as sides_  # noqa: E402
from sides import FACADES, SIDES  # noqa: E402

PARTS = ["models", "large", "growth", "latency", "import", "overhead", "io"]
RESULTS = os.path.join(HERE, "results")
#: Parts whose figures depend on the number of threads.
THREADED = ("models", "large")


def _environment():
    """The checkout's package is importable in the workers also where it is not installed; byte code is kept, as users have it."""
    root = os.path.dirname(HERE)
    path = os.environ.get("PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**env, "PYTHONPATH": root if not path else root + os.pathsep + path}


def _start(*arguments, **variables):
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", *arguments], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, env={**_environment(), **variables})


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


def cold(folder):
    """Variables for compilers to keep their results in an empty folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor")}


def libraries():
    """Seconds that mindtorch's libraries in C take to be compiled, once on a machine: into the cache, which is empty, for all models of this run."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from mindtorch.backend.native import build; build.every()"], check=True, env=_environment())
    return time.perf_counter() - began


def compare(model, sides, rounds, steps, warm=3, settle=3, **variables):
    """{side: {wall: [[...] a round], cpu, losses, memory, start, first}} of one model, rounds alternating between the sides.

    `variables` are put into the environment; `warm` steps are told of by their losses and times (first), `settle` more pass before the rounds.
    """
    procs, out, count = {}, {}, {}
    try:
        for side in sides:
            procs[side] = p = _start(side, model, str(warm), **variables)
            try:
                first = _answer(p, side)
            except RuntimeError as e:
                # What another compiler cannot compile is a model without that side (inductor of torch 2.13 at the GAN).
                if side != "torch-compiled":
                    raise
                print(f"{model}: {e}; it is left out", flush=True)
                procs.pop(side).stdin.close()
                continue
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
    return {"cpu": documents.processor(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "python": platform.python_version(),
            **{m: version(m) for m in ("torch", "mindspore", "numpy")}}


def own_version():
    """mindtorch's version, read without importing it."""
    with open(os.path.join(os.path.dirname(HERE), "mindtorch", "__init__.py")) as f:
        return next(x.split('"')[1] for x in f if x.startswith("__version__"))


def names_of(part, a):
    """The models of a part, by the options."""
    if part == "models":
        return [m for m in a.models.split(",") if m in report.NAMES] if a.models else list(report.NAMES)
    wanted = a.models.split(",") if a.models else list(report.LARGE)
    wanted = [m for m in wanted if m.split("@")[0] in large_models.MODELS]
    if part == "growth":
        tiny = "@tiny" if a.quick else ""
        return [f"{m}{tiny}@{b}" for m in dict.fromkeys(m.split("@")[0] for m in wanted) for b in large_models.GROWTH[m][:2 if tiny else None]]
    return list(dict.fromkeys(m.split("@")[0] + "@tiny" for m in wanted)) if a.quick else wanted


def step_times(kept, names, a, rounds):
    """Compares the sides on each model, tells of it and keeps the figures."""
    for model in names:
        large = model.split("@")[0] in large_models.MODELS
        sides = [s for s in a.sides.split(",") if s in FACADES or not large]
        steps, settle = a.steps or (2 if a.quick or large else 8), 1 if a.quick or large else 3
        with tempfile.TemporaryDirectory() as folder:
            kept[model] = r = report.summary(compare(model, sides, rounds, steps, settle=settle, **cold(folder)))
        print(report.text(model, r), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--parts", default="models,latency,import,overhead", help="some of " + ",".join(PARTS))
    ap.add_argument("--models", "--only", help="those of the parts models, large (name, name@batch or name@tiny) and growth")
    ap.add_argument("--sides", default=",".join(s for s in SIDES if s != "mindspore"), help="some of " + ",".join(SIDES) + "; default all but mindspore")
    ap.add_argument("--rounds", type=int, help="default 5, of large and growth 3")
    ap.add_argument("--steps", type=int, help="steps a round at least, default 8, of large models 2; short steps are repeated for 0.3 s")
    ap.add_argument("--threads", help="threads of every side, a number or several (1,2); with 1, CPU times on a busy machine can be compared")
    ap.add_argument("--quick", action="store_true", help="one round of two steps, of large models their tiny forms: whether all runs")
    ap.add_argument("--megabytes", type=int, default=100, help="size of the checkpoints of io")
    ap.add_argument("--json", help="write the figures there, and keep nothing in results/")
    ap.add_argument("--write", action="store_true", help="replace the tables in docs/speed.md")
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
    # (A side of another name would be run as MindSpore written by hand.)
    if set(a.sides.split(",")) - set(SIDES):
        ap.error(f"unknown sides: {', '.join(set(a.sides.split(',')) - set(SIDES))}; there are {', '.join(SIDES)}")
    rounds = a.rounds or (1 if a.quick else 5)
    results = {"version": own_version(), "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        if not a.quick and set(parts) & {*THREADED, "growth"} and set(a.sides.split(",")) & {"mindtorch", "mindtorch-compiled"}:
            os.environ["MINDTORCH_CACHE"] = folder
            results["machine"]["libraries_s"] = libraries()
        for threads in (a.threads or "").split(","):
            if threads:
                os.environ["OMP_NUM_THREADS"] = threads
            for part in THREADED:
                if part in parts:
                    # Runs with another number of threads are kept beside those with all.
                    kept = results[part if not threads else f"{part}, {threads} thread{'s'[:int(threads) > 1]}"] = {}
                    step_times(kept, names_of(part, a), a, rounds if a.rounds or part == "models" else min(rounds, 3))
                    if not a.json:
                        report.keep(dict(results), RESULTS)         # (what comes after it may be broken off)
        if "growth" in parts:
            step_times(results.setdefault("growth", {}), names_of("growth", a), a, min(rounds, 3))
    if "latency" in parts:
        results["latency"] = {size: latency(size, rounds) for size in ("small", "large")}
    if "import" in parts:
        results["import"] = imports(rounds)
    print("\n" + report.markdown(results))
    if "overhead" in parts:
        subprocess.run([sys.executable, os.path.join(HERE, "op_overhead.py")], check=True, env=_environment())
    if "io" in parts:
        os.environ.update(_environment())
        import data_io
        results["io"] = data_io.main(rounds, megabytes=a.megabytes)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)
    else:
        results = report.keep(results, RESULTS, os.path.join(documents.DOCS, "img", "speed.svg"))
    if a.write:
        for kinds in (("models",), ("large", "growth")):
            if any(part.startswith(kinds) for part in results):
                documents.write(os.path.join(documents.DOCS, "speed.md"), kinds[0], report.markdown(report.part_of(results, *kinds)))
    wrong = [m for part in results if part.startswith((*THREADED, "growth")) for m, rows in results[part].items() for r in rows.values()
             if not r["losses_equal"]]
    if wrong:
        print("losses differ: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
