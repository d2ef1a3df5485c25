"""Single ops against PyTorch: about 200 ops at three sizes, forward and with gradient.

    python benchmarks/ops.py                                          # all, one thread; a few minutes
    python benchmarks/ops.py --ops cumsum,gelu,topk --threads 2       # some
    python benchmarks/ops.py --sizes large --worst 20                 # the slowest relative to PyTorch
    python benchmarks/ops.py --json ops.json --write                  # the table of docs/speed-ops.md

Both libraries run in this process and alternate op by op, block by block. A block has as many calls
as fill --least seconds. The order changes from round to round, so that a slow moment of the machine
affects both. A ratio is the median over rounds of the ratio of the two blocks of a round. With one
thread it is a ratio of CPU times, with more threads of wall times, because threads that spin while
they wait (as those of PyTorch do) use CPU time.

The results and gradients of both libraries are compared first. An op with a different result has no
figures, is listed at the end, and makes the run fail.
"""
import argparse
import gc
import importlib.util
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import _op_cases  # noqa: E402
import documents  # noqa: E402

MODES = {"forward": "x", "with gradient": "x grad"}


def libraries(threads):
    """Returns (torch, mindtorch.torch), each set to the given number of threads."""
    import torch
    import mindtorch.torch as mt
    for t in (torch, mt):
        t.set_num_threads(threads)
    if importlib.util.find_spec("torchvision"):
        import torchvision  # noqa: F401  (brings torch.ops.torchvision)
    return torch, mt


def prepared(t, case, inputs, grad):
    """Returns a function that runs the case once.

    It returns the first result (forward), or the gradients (with gradient).
    """
    args, f = case.arguments(t, inputs, grad), case.make(t, inputs)

    def first(out):
        return out[0] if isinstance(out, tuple | list) else out
    if not grad:
        return lambda: first(f(*args))
    leaves = [a for a in args if a.requires_grad]
    like = first(f(*args))
    g = t.ones_like(like) if not like.dim() else t.linspace(0.5, 1.5, like.numel()).to(like.dtype).view(like.shape)
    autograd = t.autograd.grad

    def run():
        return autograd(first(f(*args)), leaves, g)
    return run


def differ(ours, theirs, half):
    """Returns a description of the difference of two results, or None."""
    for a, b in zip(ours, theirs, strict=True):
        if a is None and b is None:
            continue
        if tuple(a.shape) != tuple(b.shape) or str(a.dtype) != str(b.dtype):
            return f"differs: {tuple(a.shape)} {a.dtype} beside {tuple(b.shape)} {b.dtype}"
        a, b = (x.detach().cpu() for x in (a, b))
        a, b = ((x.float() if half else x).numpy() for x in (a, b))
        if a.dtype.kind in "bi":
            if (a != b).any():
                return f"differs at {int((a != b).sum())} of {a.size} integers"
        elif a.size and not abs(a - b).max() <= (2e-2 if half else 2e-3) * max(1.0, abs(b).max()):
            return f"differs by {abs(a - b).max():.2g} of {abs(b).max():.2g}"
    return None


def compared(libs, case, inputs, grad):
    """Compares the two libraries' results on fresh inputs; returns the difference, or None."""
    if not case.compare:
        return None
    with libs[0].set_grad_enabled(grad), libs[1].set_grad_enabled(grad):
        results = [prepared(t, case, inputs, grad)() for t in libs]
    results = [r if isinstance(r, tuple | list) else (r,) for r in results]
    if results[0] == (None,) and results[1] == (None,):
        return None
    return differ(results[1], results[0], bool({"half", "bf"} & set(case.inputs)) or "float16" in case.name)


def block(f, n):
    """Returns the (wall, CPU) seconds per call, averaged over n calls."""
    w, c = time.perf_counter(), time.process_time()
    for _ in range(n):
        f()
    w, c = time.perf_counter() - w, time.process_time() - c
    return w / n, c / n


def calls(f, least):
    """Returns how many calls fill `least` seconds of CPU time, at most 5000."""
    n = 1
    f()  # the first call may compile, load or prepare what later calls reuse
    while True:
        once = max(1e-7, block(f, n)[1])
        if n * once >= least / 4 or n >= 256:
            return max(1, min(5000, int(least / once)))
        n *= 4


def measure(libs, case, inputs, grad, rounds, least, threads):
    """Returns the figures of one case.

    They are {torch, mindtorch: {wall_us, cpu_us: [min, median, iqr]}, ratio: [min, median, iqr]}.
    """
    with libs[0].set_grad_enabled(grad), libs[1].set_grad_enabled(grad):
        runs = [prepared(t, case, inputs, grad) for t in libs]
        counts = []
        for f in runs:
            counts.append(calls(f, least))
        times = ([], [])
        for n in range(rounds):
            for k in (0, 1)[::1 - n % 2 * 2]:
                if threads > 1:
                    # Wait until the threads of the other library stop spinning: PyTorch's OpenMP
                    # threads spin for 8 to 10 ms. Then wake this library's threads by an untimed
                    # block: waking takes up to some milliseconds and is no part of an op.
                    time.sleep(0.02)
                    block(runs[k], counts[k])
                times[k].append(block(runs[k], counts[k]))
    clock = clock_of(threads) == "cpu_us"
    out = {name: {f"{what}_us": three([t[c] * 1e6 for t in taken]) for c, what in enumerate(("wall", "cpu"))}
           for name, taken in zip(("torch", "mindtorch"), times)}
    out["ratio"] = three([b[clock] / max(a[clock], 1e-9) for a, b in zip(*times)])
    return out


def clock_of(threads):
    """Returns the name of the clock that ratios are computed from."""
    return "cpu_us" if threads == 1 else "wall_us"


def three(values):
    """Returns [minimum, median, interquartile range]."""
    q = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return [min(values), statistics.median(values), q[2] - q[0]]


def run(libs, names, sizes, modes, rounds, least, threads, tell=print):
    """Returns {op: {size: {mode: figures, or a text with the reason why there are none}}}."""
    out = {}
    for size in sizes:
        inputs = _op_cases.Inputs(size)
        for name in names:
            case = _op_cases.CASES[name]
            if size not in case.sizes or case.needs and not importlib.util.find_spec(case.needs):
                continue
            found = out.setdefault(name, {}).setdefault(size, {})
            for mode in modes:
                grad = mode != "forward"
                if grad and not case.grad:
                    continue
                try:
                    wrong = compared(libs, case, inputs, grad)
                # reported at the end, where the run fails; the other ops keep their figures
                except Exception as e:
                    wrong = f"{type(e).__name__}: {e}"
                found[mode] = wrong or measure(libs, case, inputs, grad, rounds, least, threads)
                gc.collect()
            tell(f"{size:7s} {name:24s}" + "  ".join(f"{m}: {text(r, clock_of(threads))}" for m, r in found.items()))
    return out


def text(r, clock):
    """Returns one measurement as text for the terminal."""
    if isinstance(r, str):
        return r
    return f"{r['torch'][clock][1]:9.1f} {r['mindtorch'][clock][1]:9.1f} us  x {r['ratio'][1]:5.2f} ({r['ratio'][2]:.2f})"


def _all(found):
    return [(r, name, size, mode) for name, sizes in found.items() for size, modes in sizes.items() for mode, r in modes.items()]


def flat(found):
    """Returns [(ratio, op, size, mode)] of all measurements."""
    return [(r["ratio"][1], *where) for r, *where in _all(found) if not isinstance(r, str)]


def unequal(found):
    """Returns the cases without figures, each with the reason."""
    return [f"{', '.join(where)}: {r}" for r, *where in _all(found) if isinstance(r, str)]


def markdown(results):
    """Returns the report as Markdown."""
    found, m = results["ops"], results["machine"]
    sizes = [s for s in _op_cases.SIZES if any(s in v for v in found.values())]
    clock = clock_of(results["threads"])
    busy = " (busy machine)" if m["load"] > 0.7 * m["cores"] else ""
    out = [f"mindtorch {results['version']}, torch {m['torch']}; {m['cpu']}, {results['threads']} of {m['cores']} cores, "
           f"load at start {m['load']:.1f}{busy}. "
           f"{'CPU' if clock == 'cpu_us' else 'Wall'} time, medians of {results['rounds']} rounds, ratios with their interquartile range.", "",
           "| | ops | at most 1.0 | at most 1.2 | median | slowest |", "| --- |" + " --- |" * 5]
    for size in sizes:
        for mode in MODES:
            rows = sorted(r for r in flat(found) if r[2:] == (size, mode))
            if rows:
                slowest = ", ".join(f"{r[1]} {r[0]:.1f}" for r in rows[:-6:-1])
                out.append(f"| {size}, {mode} | {len(rows)} | {sum(r[0] <= 1 for r in rows)} | {sum(r[0] <= 1.2 for r in rows)} | "
                           f"{statistics.median(r[0] for r in rows):.2f} | {slowest} |")
    out += ["", "| op | " + " | ".join(f"{s}: torch us | x | x grad" for s in sizes) + " |", "| --- |" + " --- |" * 3 * len(sizes)]
    for name, row in found.items():
        cells = []
        for s in sizes:
            f, g = (row.get(s, {}).get(mode, "") for mode in MODES)
            cells += [f"{f['torch'][clock][1]:.1f}" if f and not isinstance(f, str) else "",
                      *("" if not r else "no figure" if isinstance(r, str) else f"{r['ratio'][1]:.2f} ({r['ratio'][2]:.2f})" for r in (f, g))]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out + ["", *unequal(found)])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ops",
                    help="comma-separated names of _op_cases.py; the first word of a name selects all of its cases (cumsum: also `cumsum dim 0`)")
    ap.add_argument("--sizes", default=",".join(_op_cases.SIZES))
    ap.add_argument("--modes", default=",".join(MODES))
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--least", type=float, default=0.005, help="minimum seconds of a block")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--quick", action="store_true", help="3 rounds of 1 ms")
    ap.add_argument("--worst", type=int, default=20, help="how many of the slowest ops are listed at the end")
    ap.add_argument("--json", help="write the figures to this file")
    ap.add_argument("--write", nargs="?", const=os.path.join(documents.DOCS, "speed-ops.md"), help="replace the table in a page (default docs/speed-ops.md)")
    a = ap.parse_args()
    names = list(_op_cases.CASES)
    if a.ops:
        wanted = a.ops.split(",")
        names = [n for n in names if n in wanted or n.split(" ")[0] in wanted]
        lost = [w for w in wanted if w not in names and not any(n.split(" ")[0] == w for n in names)]
        if lost:
            ap.error("unknown ops: " + ", ".join(lost))
    libs = libraries(a.threads)
    import mindtorch
    rounds, least = (3, 0.001) if a.quick else (a.rounds, a.least)
    results = {"version": mindtorch.__version__, "threads": a.threads, "rounds": rounds,
               "machine": {"cpu": documents.processor(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "torch": libs[0].__version__}}
    results["ops"] = run(libs, names, a.sizes.split(","), a.modes.split(","), rounds, least, a.threads, lambda line: print(line, flush=True))
    print("\nslowest relative to torch:")
    for ratio, *what in sorted(flat(results["ops"]), reverse=True)[:a.worst]:
        print(f"{ratio:7.2f}  " + ", ".join(what))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)
    if a.write:
        documents.write(a.write, f"ops, {a.threads} thread{'s' * (a.threads > 1)}", markdown(results))
    wrong = unequal(results["ops"])
    if wrong:
        print("cases without figures:\n" + "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
