"""Paired benchmarks of PyTorch, hand-written MindSpore and mindtorch.

PyTorch runs eagerly and compiled by Inductor; MindSpore runs as shipped, tuned and under ms.jit;
mindtorch runs eagerly and compiled.

    python benchmarks/run.py                                  # everything; results/<version>.json, .md, docs/img/speed.svg
    python benchmarks/run.py --parts models --models mlp,lenet --rounds 5 --json out.json
    python benchmarks/run.py --parts large,growth --threads 1,2   # models of realistic size (large_models.py), and the growth of their step with the batch
    python benchmarks/run.py --parts large --only resnet50,unet@8 # some, or with another batch
    python benchmarks/run.py --parts latency                  # single ops, small and large (ops.py has 200)
    python benchmarks/run.py --parts import
    python benchmarks/run.py --parts overhead                 # overhead of the facade over the kernel that it calls, per op
    python benchmarks/run.py --parts io                       # checkpoints and data loading
    python benchmarks/run.py --write ...                      # also replaces the tables in docs/speed.md

Each implementation runs in its own process. Rounds alternate between the implementations, so that a
slow moment of the machine affects all of them. The report has medians and interquartile ranges of
wall and CPU time per step, the minimum step and the peak memory. The first losses must agree.
Compilers start with empty caches. A ratio is the median over rounds of the ratio of the sides'
medians in one round.
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
    """Returns the environment of the workers.

    The package of this checkout is importable even if it is not installed. Byte code is cached, as
    it is for users.
    """
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


#: Minimum duration of a round in seconds: the first steps after another side's round find cold
#: caches and sleeping threads.
ROUND = 0.3


def cold(folder):
    """Returns variables that make compilers use an empty cache folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor")}


def libraries():
    """Compiles mindtorch's C libraries into the empty cache and returns the seconds.

    This happens once per machine. All models of this run use these libraries.
    """
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from mindtorch.backend.c_kernels import build; build.every()"], check=True, env=_environment())
    return time.perf_counter() - began


def compare(model, sides, rounds, steps, warm=3, settle=3, **variables):
    """Returns {side: {wall: [[...] per round], cpu, losses, memory, start, first}} of one model.

    Rounds alternate between the sides. `variables` are added to the environment. The first `warm`
    steps are reported with their losses and times (`first`); `settle` more steps run before the
    rounds.
    """
    procs, out, count = {}, {}, {}
    try:
        for side in sides:
            procs[side] = p = _start(side, model, str(warm), **variables)
            try:
                first = _answer(p, side)
            except RuntimeError as e:
                # A model that Inductor cannot compile is reported without that side (torch 2.13:
                # the GAN).
                if side != "torch-compiled":
                    raise
                print(f"{model}: {e}; skipping this side", flush=True)
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
    """Returns {op: [torch, mindtorch]} in microseconds."""
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
    """Returns the seconds that each import takes in a fresh interpreter."""
    code = ("import time, sys; w, c = time.perf_counter(), time.process_time(); import {}; "
            "print(time.perf_counter() - w, time.process_time() - c)")
    out = {m: [] for m in ("torch", "mindspore", "mindtorch.torch")}
    for m in out:
        subprocess.run([sys.executable, "-c", f"import {m}"], check=True, env=_environment())       # writes the byte code
    for _ in range(rounds):
        for m, seen in out.items():
            r = subprocess.run([sys.executable, "-c", code.format(m)], capture_output=True, text=True, check=True, env=_environment())
            seen.append([float(x) for x in r.stdout.split()[-2:]])
    # Differences are paired, because the speed of the machine changes between rounds.
    out["mindtorch.torch over mindspore"] = [[a - b for a, b in zip(x, y)] for x, y in zip(out["mindtorch.torch"], out["mindspore"])]
    return {m: {"wall_s": statistics.median(w for w, _ in seen), "cpu_s": statistics.median(c for _, c in seen)} for m, seen in out.items()}


def machine():
    """Returns the machine and the library versions that the figures depend on."""
    from importlib.metadata import version
    return {"cpu": documents.processor(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "python": platform.python_version(),
            **{m: version(m) for m in ("torch", "mindspore", "numpy")}}


def own_version():
    """Returns mindtorch's version without importing it."""
    with open(os.path.join(os.path.dirname(HERE), "mindtorch", "__init__.py")) as f:
        return next(x.split('"')[1] for x in f if x.startswith("__version__"))


def names_of(part, a):
    """Returns the models of a part, according to the options."""
    if part == "models":
        return [m for m in a.models.split(",") if m in report.NAMES] if a.models else list(report.NAMES)
    wanted = a.models.split(",") if a.models else list(report.LARGE)
    wanted = [m for m in wanted if m.split("@")[0] in large_models.MODELS]
    if part == "growth":
        tiny = "@tiny" if a.quick else ""
        return [f"{m}{tiny}@{b}" for m in dict.fromkeys(m.split("@")[0] for m in wanted) for b in large_models.GROWTH[m][:2 if tiny else None]]
    return list(dict.fromkeys(m.split("@")[0] + "@tiny" for m in wanted)) if a.quick else wanted


def step_times(kept, names, a, rounds):
    """Compares the sides on each model, prints the figures and stores them in `kept`."""
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
    ap.add_argument("--models", "--only", help="models of the parts models, large (name, name@batch or name@tiny) and growth; default all")
    ap.add_argument("--sides", default=",".join(s for s in SIDES if s != "mindspore"), help="some of " + ",".join(SIDES) + "; default all but mindspore")
    ap.add_argument("--rounds", type=int, help="default 5, for large and growth 3")
    ap.add_argument("--steps", type=int, help="minimum steps per round, default 8, for large models 2; short steps are repeated for 0.3 s")
    ap.add_argument("--threads", help="thread count of every side, or several (1,2); with 1, CPU times are comparable on a busy machine")
    ap.add_argument("--quick", action="store_true", help="smoke test: one round of two steps, with tiny versions of the large models")
    ap.add_argument("--megabytes", type=int, default=100, help="size of the checkpoints of the part io")
    ap.add_argument("--json", help="write the figures to this file and nothing to results/")
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
    # A side of another name would run as hand-written MindSpore.
    if set(a.sides.split(",")) - set(SIDES):
        ap.error(f"unknown sides: {', '.join(set(a.sides.split(',')) - set(SIDES))}; choose from {', '.join(SIDES)}")
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
                    # Runs with a given number of threads are stored in addition to those with all
                    # threads.
                    kept = results[part if not threads else f"{part}, {threads} thread{'s'[:int(threads) > 1]}"] = {}
                    step_times(kept, names_of(part, a), a, rounds if a.rounds or part == "models" else min(rounds, 3))
                    if not a.json:
                        # stored now, because a later part may be interrupted
                        report.keep(dict(results), RESULTS)
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
