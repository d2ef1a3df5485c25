"""Tables and a plot of the measurements of run.py."""
import inspect
import json
import os
import statistics
import sys

import large_models

NAMES = {"mlp": "MLP 784-512-512-10, batch 64", "lenet": "LeNet, batch 64", "small_cnn": "3 convolutions, 16x3x32x32",
         "small_resnet": "small ResNet, 16x3x32x32", "resnet18": "ResNet-18, 4x3x64x64",
         "gpt2": "GPT-2-like, 4 layers of 128, 4x64", "bert": "BERT-like, 4 layers of 128, 4x64",
         "lstm": "LSTM 2x128, 16x32x128", "gan": "ConvTranspose GAN, 16x3x32x32"}
LARGE = {"resnet50": "ResNet-50, 8x3x224x224", "gpt2_small": "GPT-2 small, 12 layers of 768, 2x256", "unet": "diffusion U-Net, 4x3x32x32",
         "lstm_lm": "LSTM language model 2x650, 20x35", "dlrm": "DLRM, 8 tables of 100000x64, batch 256", "detector": "detector with masks, 1x3x256x256",
         "gcn": "GCN, 4096 nodes, sparse", "generate": "GPT-2 small generates 32 tokens, batch 1", "generate@8": "the same, batch 8"}


def spread(values):
    """Returns the interquartile range."""
    if len(values) < 2:
        return 0.0
    q = statistics.quantiles(values, n=4)
    return q[2] - q[0]


def paired(a, b):
    """Returns the median over rounds of the ratio of two sides' medians.

    A slow moment of the machine disturbs this figure least.
    """
    return statistics.median(statistics.median(x) / statistics.median(y) for x, y in zip(a, b))


def summary(rounds):
    """Returns the figures of one model from {side: {wall: [[...] per round], cpu, losses, memory}}.
    """
    out = {}
    for side, r in rounds.items():
        wall, cpu = sum(r["wall"], []), sum(r["cpu"], [])
        out[side] = {"wall_ms": statistics.median(wall) * 1e3, "wall_iqr_ms": spread(wall) * 1e3, "wall_min_ms": min(wall) * 1e3,
                     "cpu_ms": statistics.median(cpu) * 1e3, "cpu_min_ms": min(cpu) * 1e3, "cpu_iqr_ms": spread(cpu) * 1e3, "memory_mb": r["memory"],
                     "start_s": r["start"], "losses": r["losses"], "steps": len(wall)}
        if "imported" in r:
            out[side]["memory_beyond_import_mb"] = r["memory"] - r["imported"]
        if "first" in r:  # time of the first steps in excess of steady ones
            out[side]["compile_s"] = sum(max(0.0, t - min(wall)) for t in r["first"]["wall"])
        for base in ("torch", "torch-compiled", "mindspore-tuned", "mindspore-jit"):
            if base in rounds and base != side:
                out[side]["x " + base] = paired(r["wall"], rounds[base]["wall"])
                out[side]["cpu x " + base] = paired(r["cpu"], rounds[base]["cpu"])
    ref = next(iter(out.values()))["losses"]
    for r in out.values():
        r["losses_equal"] = all(abs(a - b) <= 1e-3 * max(1, abs(b)) for a, b in zip(r["losses"], ref))
    return out


def _ratio(r, key):
    return f"{r[key]:.2f}" if key in r else ""


def text(model, sides):
    """Returns one model's rows for the terminal."""
    lines = [f"\n{model:20s}{'wall ms':>9s}{'iqr':>8s}{'least':>8s}{'cpu ms':>9s}{'iqr':>8s}{'x torch':>9s}{'cpu x':>7s}{'compiled':>9s}{'x tuned':>9s}"
             f"{'MB':>7s}{'first s':>8s}  losses"]
    for side, r in sides.items():
        lines.append(f"{side:20s}{r['wall_ms']:9.2f}{r['wall_iqr_ms']:8.2f}{r['wall_min_ms']:8.2f}{r['cpu_ms']:9.2f}{r['cpu_iqr_ms']:8.2f}"
                     f"{_ratio(r, 'x torch'):>9s}{_ratio(r, 'cpu x torch'):>7s}{_ratio(r, 'x torch-compiled'):>9s}{_ratio(r, 'x mindspore-tuned'):>9s}"
                     f"{r['memory_mb']:7.0f}{_ratio(r, 'compile_s'):>8s}  "
                     f"{'equal' if r['losses_equal'] else r['losses']}")
    return "\n".join(lines)


#: Comparisons of the tables: (side, base, title).
_COMPARED = (("mindtorch", "torch", "eager / torch"), ("mindtorch", "mindspore-tuned", "eager / tuned"),
             ("mindtorch-compiled", "torch", "compiled / torch"), ("mindtorch", "torch-compiled", "eager / torch-compiled"),
             ("mindtorch-compiled", "torch-compiled", "compiled / torch-compiled"), ("mindtorch-compiled", "mindspore-jit", "compiled / jit"))


def title_of(name):
    return NAMES.get(name) or LARGE.get(name, name)


def _scaling(results, kind):
    """Returns the lines of the table of speed-ups from one to two threads."""
    one, two = (results.get(f"{kind}, {n}") for n in ("1 thread", "2 threads"))
    names = [n for n in one or () if n in (two or ())]
    if not names:
        return []
    sides = [s for s in one[names[0]] if all(s in r[n] for r in (one, two) for n in names)]
    out = ["", "Speedup of two threads over one (medians of wall time):", "",
           "| model | " + " | ".join(sides) + " |", "| --- |" + " --- |" * len(sides)]
    return out + [f"| {title_of(n)} | " + " | ".join(f"{one[n][s]['wall_ms'] / two[n][s]['wall_ms']:.2f}" for s in sides) + " |" for n in names]


def _growth(models):
    """Returns the lines of the table of step time against batch size."""
    # a run of selected sides omits others for some models
    sides = list(max(models.values(), key=len))
    out = ["", "Step time by batch size: ms per step (median wall time), in brackets ms per sample:", "",
           "| model | batch | " + " | ".join(sides) + " | eager / torch |", "| --- | --- |" + " --- |" * (len(sides) + 1)]
    for name, r in models.items():
        name, _, batch = name.rpartition("@")
        cells = [f"{r[s]['wall_ms']:.1f} ({r[s]['wall_ms'] / int(batch):.2f})" if s in r else "" for s in sides]
        out.append(f"| {name} | {batch} | " + " | ".join(cells) + f" | {_ratio(r.get('mindtorch', {}), 'x torch')} |")
    return out


def _models(models, how):
    """Returns the lines of the tables of one run."""
    sides = list(next(iter(models.values())))
    compared = [c for c in _COMPARED if c[0] in sides and c[1] in sides]
    head = ("| model | " + " | ".join([*sides, *(title for *_, title in compared)]) + " |",
            "| --- |" + " --- |" * (len(sides) + len(compared)))

    def table(title, cell, ratio):
        out = ["", title, "", *head]
        for name, r in models.items():
            # A side that could not run a model has no entry.
            cells = ([cell(r[s]) if s in r else "failed" for s in sides]
                     + [f"{ratio(r[s], r[base], base):.2f}" if s in r and base in r else "" for s, base, _ in compared])
            out.append(f"| {title_of(name)} | " + " | ".join(cells) + " |")
        return out
    out = table(f"Time of a training step{how} in ms (median, interquartile range in brackets; ratios are medians over the rounds):",
                lambda r: f"{r['wall_ms']:.1f} ({r['wall_iqr_ms']:.1f})", lambda r, _, base: r["x " + base])
    for what, key in (("Minimum time", "wall_min_ms"), ("Minimum CPU time", "cpu_min_ms")):
        out += table(f"{what} of a step{how} (ms), which other load on the machine affects less:",
                     lambda r, key=key: f"{r[key]:.1f}", lambda r, b, _, key=key: r[key] / b[key])
    out += table(f"CPU time of a step{how} (ms; median, ratios by pairs):", lambda r: f"{r['cpu_ms']:.1f}", lambda r, _, base: r["cpu x " + base])
    out += table(f"Peak memory{how} (MB):", lambda r: f"{r['memory_mb']:.0f}", lambda r, b, _: r["memory_mb"] / b["memory_mb"])
    compiling = [s for s in sides if s.endswith("-compiled") and all("compile_s" in r[s] for r in models.values() if s in r)]
    if compiling:
        out += ["", f"Compile time{how}: seconds by which the first three steps exceed later ones, with empty caches:", "",
                "| model | " + " | ".join(compiling) + " |", "| --- |" + " --- |" * len(compiling)]
        for name, r in models.items():
            out.append(f"| {title_of(name)} | " + " | ".join(f"{r[s]['compile_s']:.1f}" if s in r else "failed" for s in compiling) + " |")
    speaking = [name for name in models if name.split("@")[0] == "generate" and "tiny" not in name]
    if speaking:
        new = inspect.signature(large_models.generate).parameters["new"].default
        out += ["", f"Tokens per second{how}:", "", "| | " + " | ".join(sides) + " |", "| --- |" + " --- |" * len(sides)]
        for name in speaking:
            tokens = new * int(name.partition("@")[2] or 1)
            cells = [f"{tokens / models[name][s]['wall_ms'] * 1e3:.1f}" if s in models[name] else "failed" for s in sides]
            out.append(f"| {title_of(name)} | " + " | ".join(cells) + " |")
    unequal = [f"{name} ({s})" for name, r in models.items() for s in sides if s in r and not r[s]["losses_equal"]]
    return out + ["", "Losses differ: " + ", ".join(unequal) if unequal else "The first three losses of all sides agree to 1e-3."]


#: Parts of the results that are {model: figures}. A suffix such as ", 1 thread" states the number
#: of threads.
KINDS = ("models", "large")


def part_of(results, *kinds):
    """Returns only the parts of the results that are of the given kinds."""
    return {k: v for k, v in results.items() if k in ("version", "machine") or k.startswith(kinds)}


def markdown(results):
    """Returns the whole report as Markdown."""
    m, out = results["machine"], []
    out.append(f"mindtorch {results['version']}, torch {m['torch']}, MindSpore {m['mindspore']}, NumPy {m['numpy']}; {m['cpu']}, "
               f"{m['cores']} cores; load at start {m['load']:.1f}.")
    if m["load"] > m["cores"]:
        out += ["", "Other processes kept the machine busy. With several threads this slows the sides whose threads wait for each other "
                "(mainly PyTorch) far more than the others, so these times do not apply to an idle machine. Compare CPU times on one thread."]
    if "libraries_s" in m:
        out += ["", f"Compiling mindtorch's C libraries (once per machine) took {m['libraries_s']:.0f} s, which compile times below do not include."]
    for part in sorted(results, key=lambda p: (p.split(",")[0], p), reverse=True):          # one thread last
        if part.startswith(KINDS) and results[part]:
            out += _models(results[part], "" if "," not in part else f" ({part.partition(', ')[2]})")
    for kind in KINDS:
        out += _scaling(results, kind)
    if results.get("growth"):
        out += _growth(results["growth"])
    if results.get("import"):
        out += ["", "Import (seconds, median): " + ", ".join(f"`{k}` {v['wall_s']:.2f} (CPU {v['cpu_s']:.2f})" for k, v in results["import"].items())]
    for size, ops in results.get("latency", {}).items():
        out += ["", f"Latency of single ops, {size} tensors (us, least of all rounds):", "", "| op | torch | mindtorch | ratio |", "| --- | --- | --- | --- |"]
        out += [f"| {k} | {a:.1f} | {b:.1f} | {b / a:.2f} |" for k, (a, b) in ops.items()]
    return "\n".join(out) + "\n"


#: Side -> colour in the plots. PyTorch is their baseline.
_COLORS = {"mindtorch": "--ours", "mindtorch-compiled": "--slight", "torch-compiled": "--theirs", "mindspore-tuned": "--third", "mindspore-jit": "--fourth"}


def _panels(results):
    """Returns [(title, note, [(model, {side: time relative to PyTorch})])] of the measured parts.

    With one thread this is CPU time, which other work on the machine disturbs least.
    """
    out = []
    for kind, title in (("models", "A training step beside PyTorch's"), ("large", "Larger models: a training step beside PyTorch's")):
        one = results.get(f"{kind}, 1 thread")
        more = sorted(k for k in results if k.split(",")[0] == kind and not k.endswith(", 1 thread") and results[k])[-1:]
        shown = [(one, "cpu_min_ms", "one thread, least CPU time of a step")]
        shown += [(results[k], "wall_ms", f"{k.partition(', ')[2] or 'all threads'}, median wall time of a step") for k in more]
        for models, key, words in shown:
            rows = [(title_of(n), {s: r[s][key] / r["torch"][key] for s in _COLORS if s in r}) for n, r in (models or {}).items() if "torch" in r]
            rows = [r for r in rows if r[1]]
            if rows:
                out.append((title, f"{words}: times PyTorch's, to the left of 1 is faster", rows))
    rows = [(n.replace("@", ", batch "), {s: r[s]["wall_ms"] / r["torch"]["wall_ms"] for s in _COLORS if s in r})
            for n, r in results.get("growth", {}).items() if "torch" in r]
    rows = [r for r in rows if r[1]]
    if rows:
        out.append(("How a step grows with the batch", "median wall time of a step: times PyTorch's, to the left of 1 is faster", rows))
    return out


def picture(results):
    """Returns the plots as the text of one SVG file, or None if no part was measured with PyTorch.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if root not in sys.path:
        sys.path.append(root)
    from mindtorch.tools.html import svg as drawings
    parts, height = [], 0.0
    for title, note, rows in _panels(results):
        there = [(s, c) for s, c in _COLORS.items() if any(s in row for _, row in rows)]
        drawn, tall = drawings.bars(rows, there, title, note=note)
        parts += drawings.moved(drawn, height)
        height += tall
    if not parts:
        return None
    m = results["machine"]
    last = f"mindtorch {results['version']}, torch {m['torch']}, MindSpore {m['mindspore']}; {m['cpu']}, {m['cores']} cores"
    parts.append(drawings.words(10, height + 8, last))
    return drawings.alone(drawings.drawing(parts, height + 18, f"Times of training steps, as measured with {last}"))


def keep(results, folder, drawn=None):
    """Writes results/<version>.json and .md, and the plot to `drawn`. Returns all stored results.
    """
    os.makedirs(folder, exist_ok=True)
    base = os.path.join(folder, results["version"])
    if os.path.exists(base + ".json"):
        # A run of some parts replaces only those parts.
        with open(base + ".json") as f:
            old = json.load(f)
        for part in list(results):
            if part.startswith((*KINDS, "growth", "latency")):
                results[part] = {**old.get(part, {}), **results[part]}
        if not any(part.startswith(KINDS) for part in results):
            # with the load at the time of the models' measurements
            results["machine"] = old["machine"]
        results = {**old, **results}
    with open(base + ".json", "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
    with open(base + ".md", "w") as f:
        f.write(markdown(results))
    svg = picture(results)
    if drawn and svg:
        os.makedirs(os.path.dirname(drawn), exist_ok=True)
        with open(drawn, "w") as f:
            f.write(svg)
    return results
