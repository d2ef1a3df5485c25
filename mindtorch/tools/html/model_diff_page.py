"""The HTML page of a `Comparison`: a self-contained file without scripts or network access.

It uses the standard library's string templates; the drawings are SVG.
"""
import html
import math
import string

import numpy as np

from mindtorch.tools.html import svg
from mindtorch.tools.model_diff.report import number
from mindtorch.tools.model_diff.activation_recorder import FUNCTIONALS

_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title: $sides</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --ink: #1c2330; --dim: #667085; --paper: #ffffff; --card: #f6f7f9; --line: #d9dde3;
  --same: #2f9e62; --noise: #4c8bd6; --slight: #e8a013; --different: #d6373f; --ours: #d97706; --theirs: #4c8bd6;
  --third: #8b5fbf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --paper: #14171c; --card: #1d2128;
  --line: #343a44; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1100px; padding: 28px 24px 60px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 34px 0 10px; } .dim { color: var(--dim); }
.verdict { border-left: 5px solid var(--same); background: var(--card); padding: 12px 16px; margin: 18px 0;
  border-radius: 4px; } .verdict.different { border-color: var(--different); } .verdict b { display: block; }
svg { display: block; width: 100%; height: auto; background: var(--card); border-radius: 6px; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; } .grid { stroke: var(--line); }
.curves svg + svg { margin-top: 12px; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; }
@media (max-width: 760px) { .two { grid-template-columns: 1fr; } }
.tree details, .tree .leaf { margin-left: 18px; } .tree > details { margin-left: 0; }
.tree summary, .tree .leaf { padding: 1px 0; cursor: default; } .tree summary { cursor: pointer; }
.tree .leaf { padding-left: 15px; }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 4px; }
.chip.round { border-radius: 50%; margin-right: 8px; } .key { margin-right: 14px; white-space: nowrap; }
.row { display: inline-flex; align-items: center; width: calc(100% - 24px); } .row > :nth-child(3) { flex: 1; }
.leaf .row { width: calc(100% - 9px); } .row .dim { width: 330px; }
.bar { width: 150px; height: 7px; border-radius: 4px; background: var(--line); margin: 0 12px; }
@media (max-width: 760px) { .row .dim { width: 150px; } .bar { width: 50px; } }
.bar i { display: block; height: 7px; border-radius: 4px; }
.name { font-weight: 600; } .here { outline: 2px solid var(--different); outline-offset: 2px; border-radius: 3px; }
.num { font-variant-numeric: tabular-nums; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; } th { text-align: left; color: var(--dim); }
td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.num, th.num { text-align: right; } .different td:first-child { color: var(--different); font-weight: 600; }
</style></head><body>
<h1>$model</h1><div class="dim">$title &middot; $against</div>
<div class="verdict $state"><b>$headline</b>$summary</div>$launches
<h2>Error by depth</h2>$plot
<div class="dim">Largest absolute difference of each layer's output, relative to the size of that output, in forward order.
Dots are outputs, rings the gradients that reach them. The line is the tolerance of the outputs, which grows with depth,
number of terms and the precision of the type.</div>$curves
<h2>$worst</h2><div class="two">$histograms</div>
<h2>Model</h2><div class="dim">$key</div><div class="tree">$tree</div>
<h2>Layers</h2><div class="scroll">$layers</div>
<h2>Gradients, buffers, steps</h2><div class="scroll">$others</div>
</body></html>
""")


def page(c):
    """Returns the page as text."""
    worst = _worst(c)
    return _PAGE.substitute(
        title=html.escape(c.title), model=html.escape(c.model), sides=html.escape(" against ".join(c.sides)), against=html.escape(c.against),
        state="same" if c.ok else "different",
        headline="They agree" if c.ok else f"First difference: {html.escape(c.first.layer or 'the model itself')}"
        f" ({html.escape(c.first.phase)})",
        summary=html.escape(c.summary()), launches=_launches(c), plot=_plot(c), curves=_curves(c), key=_KEY, tree=_tree(c),
        worst="Histograms" if worst is None else f"{'Largest difference' if c.ok else 'First difference'}: "
        f"{html.escape(worst.title)}", histograms=_histograms(worst, c.sides), layers=_layers(c), others=_others(c))


def _launches(c):
    from mindtorch.tools.model_diff.report import launched
    lines = launched(c)
    return f'<pre class="scroll">{html.escape(chr(10).join(lines[1:]))}</pre>' if lines else ""


def _worst(c):
    """Returns the call to draw: the first divergence, or the call with the largest error."""
    both = [r for r in c.rows if r.a is not None and r.b is not None]
    if c.first is not None:
        for r in both:
            if r.name == c.first.layer and (c.first.phase != "forward" or r.outputs.bad):
                return r
    return max((r for r in both if r.leaf), key=lambda r: r.outputs.relative, default=None)


_KEY = ('<span class="key">square: output, circle: gradients</span>' + "".join(
    f'<span class="key"><span class="chip" style="background:var(--{color})"></span>{word}</span>' for color, word in (
        ("same", "the same"), ("noise", "rounding"), ("slight", "slightly different"), ("different", "very different"),
        ("line", "none"))))


def _color(v):
    """Returns a CSS color: green for equal, blue for noise (stronger near the tolerance), yellow to
    red for different (by the logarithm of the error, from the tolerance to the size of the values).
    """
    if v.verdict == "different":
        low = math.log10(min(max(v.tolerance, 1e-7), 0.1))
        much = 1.0 if not math.isfinite(v.relative) or v.relative <= 0 else 1 - math.log10(v.relative) / low
        return f"color-mix(in srgb, var(--different) {100 * min(1.0, max(0.0, much)):.0f}%, var(--slight))"
    if v.verdict != "noise":
        return f"var(--{v.verdict})"
    share = min(1.0, v.relative / v.tolerance) if v.tolerance else 1.0
    return f"color-mix(in srgb, var(--noise) {30 + 70 * share:.0f}%, var(--same))"


# ------------------------------------------------------------------ drawings
_W, _H, _L, _B = 1040, 300, 62, 34


def _plot(c):
    rows = [r for r in c.rows if r.leaf or r.kind == "op" or r.outputs.bad]
    values = [x for r in rows for x in (r.outputs.relative, r.outputs.tolerance, r.grad_outputs.relative)
              if 0 < x < math.inf]
    low = math.floor(math.log10(min(values, default=1e-8)))
    high = max(math.ceil(math.log10(max(values, default=1e-5))), low + 1)

    def at(i, v):
        y = high if v == math.inf else low if v <= 0 else math.log10(v)
        return (_L + (i + 0.5) * (_W - _L - 14) / max(1, len(rows)),
                12 + (high - min(max(y, low), high)) / (high - low) * (_H - _B - 12))

    out = [f'<svg viewBox="0 0 {_W} {_H}" role="img" aria-label="relative error of each layer">']
    for e in range(low, high + 1):
        y = at(0, 10.0**e)[1]
        out.append(f'<line class="grid" x1="{_L}" x2="{_W - 14}" y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text x="{_L - 8}" y="{y + 4:.1f}" text-anchor="end">1e{e}</text>')
    line = " ".join("{:.1f},{:.1f}".format(*at(i, r.outputs.tolerance)) for i, r in enumerate(rows)
                    if r.outputs.tolerance > 0)
    out.append(f'<polyline points="{line}" fill="none" stroke="var(--dim)" stroke-width="1.3" stroke-dasharray="5 4"/>')
    every = max(1, math.ceil(len(rows) / 9))
    for i, r in enumerate(rows):
        x, y = at(i, r.outputs.relative)
        first = c.first is not None and r.name == c.first.layer and r.outputs.bad
        if r.b is not None and r.b.grad_outputs:
            gx, gy = at(i, r.grad_outputs.relative)
            out.append(f'<circle cx="{gx:.1f}" cy="{gy:.1f}" r="3.2" fill="none" stroke="{_color(r.grad_outputs)}" '
                       f'stroke-width="1.6"><title>gradient of {html.escape(r.title)}: '
                       f"{number(r.grad_outputs.relative)}</title></circle>")
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if first else 4}" fill="{_color(r.outputs)}">'
                   f"<title>{html.escape(r.title)} ({html.escape(r.type)}): {number(r.outputs.relative)}, tolerance "
                   f"{number(r.outputs.tolerance)}</title></circle>")
        if i % every == 0 and i + every // 2 < len(rows) + 1:
            name = r.title if len(r.title) < 17 else "…" + r.title[-15:]
            out.append(f'<text x="{x:.1f}" y="{_H - 12}" text-anchor="middle">{html.escape(name)}</text>')
    return "".join([*out, "</svg>"])


def _curves(c):
    """Draws the loss and gradients of both sides by step, and their differences; empty if there
    were no steps."""
    numbers = list(c.numbers)
    if len(numbers) < 2:
        return ""
    sides = [(c.sides[1], "--theirs", "", c.reference), (c.sides[0], "--ours", "6 4", c.ours)]
    marks = []
    if c.first is not None:
        marks.append((c.first.step, f"first difference: {c.first.layer or 'the model itself'} ({c.first.phase})"))
    if c.unjudged:
        marks.append((c.unjudged, "from here on rounding error is too large to judge gradients"))
    losses, norms = [], []
    for name, color, dash, record in sides:
        told = [s["loss"] if s["loss"] is not None else record.get("loss") for s in record["steps"]]
        losses.append((name, color, dash, [(i, _scalar(held)) for i, held in zip(numbers, told)]))
        norms.append((name, color, dash, [(i, _norm(s["grads"])) for i, s in zip(numbers, record["steps"])]))
    apart = [(word, color, "", [(i, max((v.relative for v in s.get(kind, {}).values()), default=0.0)) for i, s in zip(numbers, c.steps)])
             for word, kind, color in (("gradients", "grads", "--third"), ("weights", "weights", "--slight"))]
    apart.insert(0, ("loss", "--different", "", [(i, _off(a, b)) for (i, a), (_, b) in zip(losses[1][3], losses[0][3])]))
    drawn = [svg.curves(losses, "the loss", marks=marks, log=svg.wide(v for *_, points in losses for _, v in points)),
             svg.curves(norms, "norm of all gradients", marks=marks),
             svg.curves(apart, "relative difference, maximum over the parameters; 0 is drawn on the lower edge", marks=marks, log=True, height=240)]
    return '<h2>Loss and gradients by step</h2><div class="curves">' + "".join(drawn) + "</div>"


def _scalar(held):
    return math.nan if held is None else float(np.abs(held.a).reshape(-1)[0] if held.a.dtype.kind == "c" else held.a.reshape(-1)[0])


def _norm(grads):
    """Returns the norm of all gradients together. The norm of a sketch follows from its root mean
    square."""
    total = 0.0
    for h in grads.values():
        if h is not None and h.a.size:
            if h.of is not None:
                total += float(h.a[-FUNCTIONALS + 3]) ** 2 * h.size
                continue
            with np.errstate(all="ignore"):
                a = np.abs(h.a if h.a.dtype.kind == "c" else h.a.astype(np.float64))
                total += float(np.sum(a * a))
    return math.sqrt(total) if total >= 0 else math.nan


def _off(a, b):
    return abs(a - b) / abs(b) if b and math.isfinite(a) and math.isfinite(b) else 0.0 if a == b else math.nan


def _histograms(r, sides):
    if r is None:
        return ""
    # Draw whatever differs: the output, or the gradients if the output agrees.
    verdict, pairs, what = r.outputs, [], "the output"
    fields = [("outputs", r.outputs, "the output"), ("grad_outputs", r.grad_outputs, "the gradient that reaches it"),
              ("grad_inputs", r.grad_inputs, "the gradient of its input")]
    for field, v, name in sorted(fields, key=lambda f: not f[1].bad):
        a, b = getattr(r.a, field), getattr(r.b, field)
        both = [(a[p], h) for p, h in b.items() if p in a and a[p].a.shape == h.a.shape and h.a.size]
        if both and not pairs:
            verdict, pairs, what = v, both, name
    if not pairs:
        return '<div class="dim">There are no values to draw.</div>'
    a, b = (np.abs(h.a).astype(float).ravel() if h.a.dtype.kind == "c" else h.a.astype(float).ravel() for h in pairs[0])
    fine = np.isfinite(a) & np.isfinite(b)
    a, b = a[fine], b[fine]
    if not a.size:
        return '<div class="dim">There are no finite values.</div>'
    edges = np.histogram_bin_edges(np.concatenate([a, b]), 40)
    values = [(np.histogram(x, edges)[0], color) for x, color in ((b, "--theirs"), (a, "--ours"))]
    left = _bars(values, edges, f"values of {what}: {sides[1]} (blue, filled) and {sides[0]} (orange line)", "{:.3g}")
    d = np.abs(a - b)
    if not d.any():
        return left + '<div class="dim">All values are equal.</div>'
    logs = np.log10(d[d > 0])
    edges = np.histogram_bin_edges(logs, 40)
    equal = int((d == 0).sum())
    return left + _bars([(np.histogram(logs, edges)[0], "--different" if verdict.bad else "--noise")], edges,
                        f"absolute difference, logarithmic ({equal} of {d.size} equal)", "1e{:.1f}")


def _bars(series, edges, caption, form):
    w, h, bottom = 520, 210, 44
    top = max(int(n.max()) for n, _ in series) or 1
    out = [f'<svg viewBox="0 0 {w} {h}" role="img" aria-label="{html.escape(caption)}">']
    step = (w - 30) / (len(edges) - 1)
    for k, (counts, color) in enumerate(series):
        heights = [n / top * (h - bottom - 14) for n in counts]
        if k:  # the second one as an outline, so that both are visible
            points = " ".join(f"{15 + (i + j) * step:.1f},{h - bottom - size:.1f}" for i, size in enumerate(heights)
                              for j in (0, 1))
            out.append(f'<polyline points="{points}" fill="none" stroke="var({color})" stroke-width="1.6"/>')
            continue
        for i, size in enumerate(heights):
            if size:
                out.append(f'<rect x="{15 + i * step:.1f}" y="{h - bottom - size:.1f}" width="{step - 1:.1f}" '
                           f'height="{size:.1f}" fill="var({color})" fill-opacity="0.6"/>')
    for k in (0, len(edges) // 2, len(edges) - 1):
        anchor = "start" if k == 0 else "end" if k == len(edges) - 1 else "middle"
        out.append(f'<text x="{15 + k * step:.1f}" y="{h - bottom + 16}" text-anchor="{anchor}">'
                   f"{form.format(edges[k])}</text>")
    out.append(f'<text x="{w / 2}" y="{h - 10}" text-anchor="middle">{html.escape(caption)}</text></svg>')
    return "".join(out)


# ------------------------------------------------------------------ tree and tables
def _tree(c):
    from mindtorch.tools.model_diff.tolerance import worst
    called, below = {}, {}
    for r in c.rows:
        if r.kind == "module":
            called.setdefault(r.name, []).append(r)
    for name, kind in c.modules:
        if name:
            below.setdefault(name.rpartition(".")[0], []).append((name, kind))

    def node(name, kind):
        rows = called.get(name, [])
        v = worst(r.outputs for r in rows)
        grads = [g for r in rows for g in (r.grad_outputs, r.grad_inputs, *r.params.values())]
        buffers = [b for n, b in c.buffers.items() if n.rpartition(".")[0] == name]
        more = "".join(f", {what} different" for what, vs in (("gradient", grads), ("buffer", buffers))
                       if any(x.bad for x in vs))
        back = worst(grads)
        square, circle = (_color(v), _color(back)) if rows else ("var(--line)", "var(--line)")
        text = f"relative {number(v.relative)}" if rows else "not called as a module"
        here = " here" if c.first is not None and c.first.layer == name else ""
        # The bar is logarithmic, from a relative error of 1e-9 to the size of the values.
        share = 0 if not v.relative else 100 if v.relative == math.inf else max(3, min(100, 100 + 11 * math.log10(v.relative)))
        label = (f'<span class="row"><span class="chip" style="background:{square}"></span>'
                 f'<span class="chip round" style="background:{circle}"></span><span><span class="name{here}">'
                 f'{html.escape(name.rpartition(".")[2] or "(model)")}</span> {html.escape(kind)}</span>'
                 f'<span class="bar"><i style="width:{share:.0f}%;background:{square}"></i></span>'
                 f'<span class="dim num">{text}{more}</span></span>')
        inner = "".join(node(*x) for x in below.get(name, []))
        return f"<details open><summary>{label}</summary>{inner}</details>" if inner else (
            f'<div class="leaf">{label}</div>')
    return node("", c.model)


def _layers(c):
    lines = [("layer", "type", "max abs", "relative", "ulp", "cosine", "tolerance", "inputs")]
    for r in c.rows:
        v = r.outputs
        lines.append((v.verdict, r.title, r.type, number(v.max_abs), number(v.relative), f"{v.ulp:.3g}",
                      f"{v.cosine:.6f}", number(v.tolerance), r.inputs.verdict))
    return _table(lines, range(2, 7))


def _others(c):
    groups = [("gradient", c.param_verdicts), ("gradient of input", c.input_verdicts), ("buffer", c.buffers)]
    for i, step in zip(c.numbers, c.steps):
        groups += [(f"step {i}, {kind}", v) for kind, v in step.items()]
    lines = [("tensor", "what", "max abs", "relative", "cosine", "remark")]
    for what, verdicts in groups:
        lines += [(v.verdict, n, what, number(v.max_abs), number(v.relative), f"{v.cosine:.6f}", v.why)
                  for n, v in verdicts.items()]
    return _table(lines, (2, 3, 4))


def _table(lines, right):
    def cells(tag, row):
        return "".join(f'<{tag}{" class=num" if i in right else ""}>{html.escape(x)}</{tag}>' for i, x in enumerate(row))
    body = "".join(f'<tr class="{row[0]}">{cells("td", row[1:])}</tr>' for row in lines[1:])
    return f"<table><thead><tr>{cells('th', lines[0])}</tr></thead><tbody>{body}</tbody></table>"
