"""The report of a `Comparison`: text, a colored table for terminals, JSON. (The HTML page:
`mindtorch/tools/html/model_diff_page.py`.)

Rich draws the table if it is installed (`pip install mindtorch[tools]`); otherwise the same lines
are printed as plain text.
"""
import math

MARK = {"same": "=", "noise": "~", "different": "X"}
_PAINT = {"same": "32", "noise": "32", "different": "31;1"}


def number(v):
    return "inf" if v == float("inf") else "0" if v == 0 else f"{v:.2e}"


def rows(lines, right=()):
    """Returns the lines of a table with cells padded to equal width; columns in `right` are
    right-aligned."""
    widths = [max(len(r[i]) for r in lines) for i in range(len(lines[0]))]
    return ["  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
            for r in lines]


HEADER = ("", "layer", "type", "max abs", "relative", "ulp", "cosine", "tolerance", "inputs", "gradient")
_RIGHT = (3, 4, 5, 6, 7)


def _calls(c, everything):
    """Returns [(verdict, cells)] of the table's lines."""
    out = []
    for r in c.rows:
        if not (r.leaf or r.kind == "op" or everything or r.outputs.bad) or not r.call.sampled:
            continue
        v = r.outputs
        grad = [r.grad_outputs, r.grad_inputs, *r.params.values()]
        back = next((k for k in ("different", "noise") if any(g.verdict == k for g in grad)), "same")
        out.append((v.verdict, (MARK[v.verdict], r.title, r.type, number(v.max_abs), number(v.relative), f"{v.ulp:.3g}",
                                f"{v.cosine:.6f}", number(v.tolerance), r.inputs.verdict, back)))
    return out


def _groups(c, everything):
    """Returns [(title, [(verdict, cells)])] of everything that is not a call: gradients, buffers,
    optimizer steps."""
    groups = [("gradients", c.param_verdicts), ("gradients of inputs", c.input_verdicts), ("buffers", c.buffers)]
    for i, step in zip(c.numbers, c.steps):
        groups += [(f"{kind} {'at' if kind in ('grads', 'loss') else 'after'} step {i}", v) for kind, v in step.items()]
    out = []
    for title, verdicts in groups:
        if verdicts:
            agree = sum(not v.bad for v in verdicts.values())
            out.append((f"{title}: {agree} of {len(verdicts)} agree", [
                (v.verdict, (MARK[v.verdict], n, number(v.max_abs), number(v.relative), f"{v.cosine:.6f}", v.why))
                for n, v in verdicts.items() if everything or v.bad]))
    return out


def _title(c):
    return f"{c.title}  {c.model}: {c.against}"


MOST = 40  # maximum number of launches shown


def launched(c):
    """Returns lines that list the kernels launched at the divergence."""
    out = []
    for side, lines in c.launches.items():
        out += ["", f"launched there on {side}: {len(lines) or 'nothing'}", *(f"  {x}" for x in lines[:MOST])]
        if len(lines) > MOST:
            out.append(f"  ... and {len(lines) - MOST} more")
    return out


def text(c, everything=False, color=False):
    """Returns the report as text. `everything`: also containers, and gradients, buffers and weights
    that agree."""
    def paint(s, kind):
        return f"\033[{_PAINT[kind]}m{s}\033[0m" if color else s

    def body(lines, right, header=()):
        shown = rows([*header, *(cells for _, cells in lines)], right)
        return shown[:len(header)] + [paint(x, k) for x, (k, _) in zip(shown[len(header):], lines)]

    head, *lines = body(_calls(c, everything), _RIGHT, [HEADER])
    out = [_title(c), "", head, "-" * len(head), *lines]
    for title, lines in _groups(c, everything):
        out += ["", title, *(body(lines, (2, 3, 4)) if lines else ())]
    sign = paint("AGREE", "same") if c.ok else paint("DIFFERENT", "different")
    return "\n".join([*out, "", f"{sign}: {c.summary()}", *launched(c)])


_STYLE = {"same": "green", "noise": "cyan", "different": "bold red"}


def draw(c, everything=False, console=None):
    """Draws the report with Rich, by default on standard output. ImportError if Rich is not
    installed."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    console = console or Console()

    def table(lines, right, header=()):
        t = Table(box=None, pad_edge=False, show_header=bool(header), header_style="bold")
        for i in range(len(header or lines[0][1])):
            # On a narrow terminal names are wrapped instead of truncated.
            t.add_column(header[i] if header else "", justify="right" if i in right else "left", no_wrap=i in right,
                         overflow="fold")
        for kind, cells in lines:
            t.add_row(*map(Text, cells), style=_STYLE[kind])
        return t

    console.print(Text(_title(c), "bold"))
    console.print(table(_calls(c, everything), _RIGHT, HEADER))
    for title, lines in _groups(c, everything):
        console.print(Text("\n" + title, "bold"))
        if lines:
            console.print(table(lines, (2, 3, 4)))
    console.print()
    console.print(Panel(Text(c.summary()), title="AGREE" if c.ok else "DIFFERENT", title_align="left",
                        border_style=_STYLE["same" if c.ok else "different"]))
    for line in launched(c):
        console.print(Text(line))


def _json(v):
    """Converts infinities and NaN to strings, because JSON has neither."""
    if isinstance(v, dict):
        return {k: _json(x) for k, x in v.items()}
    return str(v) if isinstance(v, float) and not math.isfinite(v) else v


def verdicts(d):
    return {n: _json(v.as_dict()) for n, v in d.items()}


def plain(c):
    """Returns the report as JSON types; infinities and NaN become the strings 'inf' and 'nan'."""
    first = None
    if c.first is not None:
        f = c.first
        first = {"layer": f.layer, "phase": f.phase, "inputs_differed": f.inputs_differed, "text": f.text,
                 "tensor": f.tensor, "step": f.step, "around": f.around, "verdict": _json(f.verdict.as_dict())}
    return {"title": c.title, "model": c.model, "torch": c.reference["version"], "sides": list(c.sides[::-1]), "ok": c.ok, "first": first,
            "launches": c.launches, "unjudged": c.unjudged, "summary": c.summary(),
            "calls": [{"name": r.name, "type": r.type, "kind": r.kind, "nth": r.nth, "leaf": r.leaf,
                       **verdicts({f: getattr(r, f) for f in ("inputs", "outputs", "grad_inputs", "grad_outputs")})}
                      for r in c.rows],
            "grads": verdicts(c.param_verdicts), "input_grads": verdicts(c.input_verdicts),
            "buffers": verdicts(c.buffers),
            "numbers": c.numbers, "steps": [{k: verdicts(v) for k, v in s.items()} for s in c.steps]}
