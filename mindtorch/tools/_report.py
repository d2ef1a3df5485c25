"""The report of a Comparison: text for the terminal, JSON. (The HTML page: `_page.py`.)

The standard library's string formatting is all that is used: the tools need nothing but MindSpore and NumPy.
"""
import math

MARK = {"same": "=", "noise": "~", "different": "X"}
_PAINT = {"same": "32", "noise": "32", "different": "31;1"}


def number(v):
    return "inf" if v == float("inf") else "0" if v == 0 else f"{v:.2e}"


def rows(lines, right=()):
    """Lines of a table, cells padded to one width; columns in `right` stand to the right."""
    widths = [max(len(r[i]) for r in lines) for i in range(len(lines[0]))]
    return ["  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
            for r in lines]


def text(c, everything=False, color=False):
    """The report as text. `everything`: also containers, and gradients, buffers and weights that agree."""
    def paint(s, kind):
        return f"\033[{_PAINT[kind]}m{s}\033[0m" if color else s

    out = [f"{c.title}  {c.model}: mindtorch against torch {c.reference['version']}", ""]
    table, kinds = [("", "layer", "type", "max abs", "relative", "ulp", "cosine", "tolerance", "inputs", "gradient")], []
    for r in c.rows:
        if not (r.leaf or r.kind == "op" or everything or r.outputs.bad):
            continue
        v = r.outputs
        grad = [g for g in (r.grad_outputs, r.grad_inputs, *r.params.values())]
        table.append((MARK[v.verdict], r.title, r.type, number(v.max_abs), number(v.relative), f"{v.ulp:.3g}",
                      f"{v.cosine:.6f}", number(v.tolerance), r.inputs.verdict,
                      "different" if any(g.bad for g in grad) else
                      "noise" if any(g.verdict == "noise" for g in grad) else "same"))
        kinds.append(v.verdict)
    lines = rows(table, right=(3, 4, 5, 6, 7))
    out += [lines[0], "-" * len(lines[0])] + [paint(x, k) for x, k in zip(lines[1:], kinds)]
    groups = [("gradients", c.param_verdicts), ("gradients of inputs", c.input_verdicts), ("buffers", c.buffers)]
    for i, step in enumerate(c.steps):
        groups += [(f"{kind} {'at' if kind in ('grads', 'loss') else 'after'} step {i}", v) for kind, v in step.items()]
    for title, verdicts in groups:
        shown = {n: v for n, v in verdicts.items() if everything or v.bad}
        if verdicts:
            bad = sum(v.bad for v in verdicts.values())
            out += ["", f"{title}: {len(verdicts) - bad} of {len(verdicts)} agree"]
        if shown:
            body = [(MARK[v.verdict], n, number(v.max_abs), number(v.relative), f"{v.cosine:.6f}", v.why)
                    for n, v in shown.items()]
            out += [paint(x, v.verdict) for x, v in zip(rows(body, right=(2, 3, 4)), shown.values())]
    sign = paint("AGREE", "same") if c.ok else paint("DIFFERENT", "different")
    return "\n".join([*out, "", f"{sign}: {c.summary()}"])


def _json(v):
    """JSON knows no infinity."""
    if isinstance(v, dict):
        return {k: _json(x) for k, x in v.items()}
    return str(v) if isinstance(v, float) and not math.isfinite(v) else v


def verdicts(d):
    return {n: _json(v.as_dict()) for n, v in d.items()}


def plain(c):
    """The report as JSON can hold it; infinities are the strings 'inf' and 'nan'."""
    first = None
    if c.first is not None:
        f = c.first
        first = {"layer": f.layer, "phase": f.phase, "inputs_differed": f.inputs_differed, "text": f.text,
                 "tensor": f.tensor, "step": f.step, "verdict": _json(f.verdict.as_dict())}
    return {"title": c.title, "model": c.model, "torch": c.reference["version"], "ok": c.ok, "first": first,
            "calls": [{"name": r.name, "type": r.type, "kind": r.kind, "nth": r.nth, "leaf": r.leaf,
                       **verdicts({f: getattr(r, f) for f in ("inputs", "outputs", "grad_inputs", "grad_outputs")})}
                      for r in c.rows],
            "grads": verdicts(c.param_verdicts), "input_grads": verdicts(c.input_verdicts),
            "buffers": verdicts(c.buffers),
            "steps": [{k: verdicts(v) for k, v in s.items()} for s in c.steps]}


def html(c):
    """One self-contained page."""
    from mindtorch.tools import _page
    return _page.page(c)
