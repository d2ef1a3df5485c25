"""Drawings as SVG text: curves, bars and timelines, for the pages of the tools and the figures of
benchmarks.

Uses only the standard library; equal data produce equal text. In a page the drawings use the page's
colors (`--ink`, `--dim`, `--card`, `--line`, and those named by a series). `alone` turns a drawing
into a standalone file, light or dark as the user's system is.
"""
import html
import itertools
import math

FONT = 11
WIDTH = 1040
#: default colors, for standalone drawings and pages that define no others: (name, light, dark)
COLORS = (("--ink", "#1c2330", "#e6e9ef"), ("--dim", "#667085", "#98a2b3"), ("--paper", "#ffffff", "#14171c"), ("--card", "#f6f7f9", "#1d2128"),
          ("--line", "#d9dde3", "#343a44"), ("--same", "#2f9e62", "#2f9e62"), ("--noise", "#4c8bd6", "#4c8bd6"), ("--slight", "#e8a013", "#e8a013"),
          ("--different", "#d6373f", "#e5484d"), ("--ours", "#d97706", "#d97706"), ("--theirs", "#4c8bd6", "#4c8bd6"), ("--third", "#8b5fbf", "#a884d6"),
          ("--fourth", "#2f9e62", "#2f9e62"))
# per curve: longer ones are reduced to the minimum and maximum of each of half as many segments
MOST_POINTS = 700


def variables():
    """Returns CSS that sets the colors, for light and dark."""
    light, dark = ("".join(f"{name}: {c[k]}; " for name, *c in COLORS) for k in (0, 1))
    return f":root {{ color-scheme: light dark; {light}}} @media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}"


def escaped(text):
    """Returns any text in a form that XML can hold: markup escaped, and characters that XML lacks
    (controls, lone surrogates) replaced."""
    text = str(text).encode("utf-8", "replace").decode("utf-8")
    return html.escape("".join(c if c in "\t\n" or c >= " " and c not in "\x7f\ufffe\uffff" else "\ufffd" for c in text))


def width_of(text, size=FONT):
    """Returns an approximate upper bound of a text's width in a common font."""
    # (fsum gives the same result on every Python; sum() of floats changed in 3.12.)
    return size * math.fsum(0.75 if c in "MW@%mw" else 0.6 if " " <= c < "\x7f" else 1.05 for c in text)


def shortened(text, width, size=FONT, front=True):
    """Shortens a text to at most that width. By default the front is cut off, because the end of a
    name is more specific."""
    if width_of(text, size) <= width:
        return text
    while text and width_of("…" + text, size) > width:
        text = text[1:] if front else text[:-1]
    return "…" + text if front else text + "…"


def _px(v):
    return f"{v:.1f}"


def words(x, y, text, anchor="start", **more):
    """Returns a line of text."""
    return f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}"{_attributes(more)}>{escaped(text)}</text>'


def _attributes(more):
    return "".join(f' {k.rstrip("_").replace("_", "-")}="{escaped(v)}"' for k, v in more.items())


def line(x1, y1, x2, y2, **more):
    return f'<line x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}"{_attributes(more)}/>'


def rect(x, y, w, h, color, tip="", **more):
    """Returns a box; `tip` is its tooltip."""
    inner = f"<title>{escaped(tip)}</title>" if tip else ""
    return f'<rect x="{_px(x)}" y="{_px(y)}" width="{_px(w)}" height="{_px(h)}" fill="var({color})"{_attributes(more)}>{inner}</rect>'


def drawing(parts, height, title, width=WIDTH):
    """Returns the SVG element of a drawing; `title` is its accessible name."""
    name = escaped(title)
    return f'<svg viewBox="0 0 {width} {_px(height)}" role="img" aria-label="{name}"><title>{name}</title>' + "".join(parts) + "</svg>"


def alone(svg):
    """Returns a drawing as a standalone file."""
    style = (f"<style>{variables()} svg {{ background: var(--card); }} text {{ fill: var(--dim); font: {FONT}px system-ui, sans-serif; }} "
             ".grid { stroke: var(--line); } .head { fill: var(--ink); font-weight: 600; }</style>")
    head, rest = svg.split(">", 1)
    box = head.split('viewBox="0 0 ')[1].split('"')[0].split()
    return f'{head} xmlns="http://www.w3.org/2000/svg" width="{box[0]}" height="{box[1]}">{rest}'.replace("</title>", f"</title>{style}", 1) + "\n"


# ------------------------------------------------------------------ axes
def finite(v):
    return isinstance(v, (int, float)) and math.isfinite(v)


class Axis:
    """Maps values to positions between two edges. `log`: logarithmic, values that are not above
    zero are left out; `whole`: ticks at integers only."""

    def __init__(self, values, first, last, log=False, whole=False, count=5):
        values = [float(v) for v in values if finite(v) and (v > 0 or not log)] or [1.0]
        self.first, self.last, self.log = first, last, log
        low, high = min(values), max(values)
        if log:
            low, high = math.log10(low), math.log10(high)
            if high - low < 0.05:  # (nearly) equal values: a decade around them
                low, high = low - 0.5, high + 0.5
        elif high <= low + 1e-12 * max(abs(low), abs(high)):
            low, high = (low - 0.5, high + 0.5) if whole or not low else (low - abs(low) / 2, high + abs(high) / 2)
        self.low, self.high = low, high
        self.ticks = [(self.at(v), text) for v, text in (_log_ticks(low, high, count) if log else _ticks(low, high, count, whole))]

    def at(self, v):
        """Returns the position of a value; a value beyond the edges is placed on the edge."""
        v = self.low if self.log and v <= 0 else math.log10(v) if self.log else v
        share = (min(max(v, self.low), self.high) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


def _ticks(low, high, count, whole):
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, round(step))
    k, out = math.ceil(low / step - 1e-9), []
    while k * step <= high + 1e-9 * step:
        v = k * step
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        out.append((v, f"{v:.{digits}f}" if 1e-4 <= step and abs(v) < 1e6 else f"{v:.3g}"))
        k += 1
    return out


def _log_ticks(low, high, count):
    decades = range(math.floor(low), math.ceil(high) + 1)
    heads = (1,) if high - low > 2.2 else (1, 2, 5) if high - low > 0.6 else (1, 1.5, 2, 3, 4, 5, 7)
    found = [(e, h) for e in decades for h in heads if low - 1e-9 <= e + math.log10(h) <= high + 1e-9]
    every = max(1, math.ceil(len(found) / (2 * count)))
    return [(h * 10.0**e, f"{h * 10.0**e:g}" if -4 <= e < 6 else f"{h:g}e{e}") for e, h in found[::every]]


def legend(items, left, top, right, line_height=16):
    """Returns ([parts], height) of a legend of (name, color, dash), in several rows if needed.
    `dash` None draws a box, else a line."""
    out, x, y = [], left, top
    for name, color, dash in items:
        name = shortened(name, right - left - 40)
        w = 24 + width_of(name)
        if x > left and x + w > right:
            x, y = left, y + line_height
        out.append(rect(x, y + 2, 11, 11, color) if dash is None else
                   line(x, y + 8, x + 18, y + 8, stroke=f"var({color})", stroke_width=2, stroke_dasharray=dash or "none"))
        out.append(words(x + 23, y + 12, name))
        x += w + 22
    return out, y - top + line_height


# ------------------------------------------------------------------ curves
def thinned(points, most=MOST_POINTS):
    """Reduces many points to the minimum, the maximum and one non-finite point of each segment, in
    their order: what a curve of that width can show."""
    if len(points) <= most:
        return list(points)
    size, out = math.ceil(len(points) / (most / 2)), []
    for k in range(0, len(points), size):
        part = points[k:k + size]
        fine = [p for p in part if finite(p[1])]
        chosen = {id(p): p for p in ([min(fine, key=lambda p: p[1]), max(fine, key=lambda p: p[1])] if fine else [])}
        odd = next((p for p in part if not finite(p[1])), None)
        if odd is not None:
            chosen[id(odd)] = odd
        out += [p for p in part if id(p) in chosen]
    return out


def curves(series, title, *, x="step", log=False, marks=(), height=280, width=WIDTH, whole=True, log_x=False):
    """Draws curves over one axis.

        series  [(name, color variable, dash, [(x, y)])]; a y that is not finite interrupts the
                curve and is drawn as a cross at the upper edge; a y of at most 0 on a logarithmic
                axis is drawn on the lower edge
        marks   [(x, text)]: vertical lines with a text; marks at the same x share a line
    """
    series = [(name, color, dash, thinned(points)) for name, color, dash, points in series]
    left, right = 70, width - 16
    keys, tall = legend([s[:3] for s in series], left, 8, right)
    top, low = 12 + tall, height - 36
    every = [p for s in series for p in s[3]]
    across = Axis([p[0] for p in every], left + 8, right - 8, log=log_x, whole=whole, count=10)
    texts, strip = _marks(marks, across, top, low, left, right)
    up = Axis([p[1] for p in every], low, top + strip + 8, log=log)
    out = list(keys)
    for at, text in up.ticks:
        out += [line(left, at, right, at, class_="grid"), words(left - 8, at + 4, text, "end")]
    room = -math.inf
    for at, text in across.ticks:
        half = width_of(text) / 2
        if at - half > room:
            out.append(words(min(max(at, half + 2), width - half - 2), low + 17, text, "middle"))
            room = at + half + 8
    out.append(words(left, height - 5, shortened(f"{title}, by {x}", right - left)))
    out += texts
    for name, color, dash, points in series:
        for fine, stretch in itertools.groupby(points, key=lambda p: finite(p[1])):
            stretch = list(stretch)
            if not fine:
                out += [_cross(across.at(p[0]), up.last, color, f"{name}, {x} {p[0]:g}: {p[1]}") for p in stretch]
                continue
            places = " ".join(f"{_px(across.at(a))},{_px(up.at(b))}" for a, b in stretch)
            out.append(f'<polyline points="{places}" fill="none" stroke="var({color})" stroke-width="2" stroke-dasharray="{dash or "none"}"/>')
            if len(points) <= 60:
                out += [f'<circle cx="{_px(across.at(a))}" cy="{_px(up.at(b))}" r="3" fill="var({color})">'
                        f"<title>{escaped(name)}, {escaped(x)} {a:g}: {b:.6g}</title></circle>" for a, b in stretch]
    return drawing(out, height, title, width)


def wide(values):
    """True if values are better shown on a logarithmic axis: all positive, over more than three
    powers of ten."""
    values = [v for v in values if finite(v)]
    return bool(values) and min(values) > 0 and max(values) > 1e3 * min(values)


def _cross(x, y, color, tip):
    a, b, c, d = _px(x - 4), _px(x + 4), _px(y - 4), _px(y + 4)
    return f'<path d="M{a} {c}L{b} {d}M{a} {d}L{b} {c}" stroke="var({color})" stroke-width="2"><title>{escaped(tip)}</title></path>'


def _marks(marks, across, top, low, left, right):
    """Returns ([parts], height of the texts): vertical lines, each with its text on its own line;
    the last text that fits gives the number of the remaining ones."""
    out, together = [], {}
    for at, text in marks:
        together.setdefault(at, []).append(text)
    most = max(1, int((low - top) / 2 / 14))
    for k, (at, texts) in enumerate(together.items()):
        x = across.at(at)
        out.append(line(x, top, x, low, stroke="var(--different)", stroke_width=1.2, stroke_dasharray="4 3"))
        if k >= most:
            continue
        text = "; ".join(texts)
        if k == most - 1 and len(together) > most:
            text += f" (and {len(together) - most} more)"
        end = x > (left + right) / 2
        text = shortened(text, (x - left if end else right - x) - 12, front=False)
        out.append(words(x - 6 if end else x + 6, top + 12 + 14 * k, text, "end" if end else "start", style="fill: var(--different)"))
    return out, 14 * min(len(together), most) + 4 * bool(together)


# ------------------------------------------------------------------ bars
def bars(groups, series, title, *, note="", base=1.0, width=WIDTH):
    """Returns ([parts], height): for each group one bar per series, from `base` on a logarithmic
    axis, labelled with its value.

        groups  [(label, {series: value})]; series [(name, color variable)]
    """
    groups, thick, room = [g for g in groups if g[1]], 12, 46
    left = min(360, max((width_of(label) for label, _ in groups), default=0) + 16)
    right = width - 10
    out = [words(10, 18, shortened(title, width - 20), class_="head")]
    keys, tall = legend([(name, color, None) for name, color in series], 10, 26, right)
    out += keys
    top = 34 + tall
    if note:
        out.append(words(10, top + 6, shortened(note, width - 20)))
        top += 16
    height = top + sum(thick * sum(name in row for name, _ in series) + 8 for _, row in groups) + 30
    values = [v for _, row in groups for v in row.values()]
    across = Axis([*values, base], left + room, right - room, log=True)
    for at, text in across.ticks:
        out += [line(at, top - 2, at, height - 26, class_="grid"), words(at, height - 12, text, "middle")]
    zero, y = across.at(base), top
    for label, row in groups:
        mine = [(name, color) for name, color in series if name in row]
        out.append(words(left - 6, y + thick * len(mine) / 2 + 4, shortened(label, left - 12), "end", class_="label"))
        for name, color in mine:
            at = across.at(row[name])
            out.append(rect(min(at, zero), y, max(abs(at - zero), 1), thick - 2, color, f"{label}, {name}: {row[name]:.3g}"))
            text = f"{row[name]:.2f}" if row[name] < 10 else f"{row[name]:.0f}"
            out.append(words(at + 5 if at >= zero else at - 5, y + thick - 3, text, "start" if at >= zero else "end", style="font-size: 9px"))
            y += thick
        y += 8
    out.append(line(zero, top - 2, zero, height - 26, stroke="var(--ink)", stroke_width=1.2))
    return out, height


def moved(parts, down):
    """Returns parts of a drawing, shifted down."""
    return [f'<g transform="translate(0 {_px(down)})">', *parts, "</g>"]


# ------------------------------------------------------------------ timelines
def lanes(rows, steps, end, title, *, unit="ms", width=WIDTH, left=230):
    """Draws a timeline: a row for each kind of event, and below them a step curve.

        rows   [(name, color variable, [(time, tip)])]; events on the same pixel share one mark,
               whose height grows with their number
        steps  (name, [(time, value)], function that formats a value) or None: a value that holds
               until the next one
        end    the time at the right edge
    """
    tall, top, right = 18, 10, width - 16
    across = Axis([0.0, max(end, 1e-6)], left, right, count=8)
    out, y = [], top
    bottom = top + tall * len(rows) + (100 if steps else 0)
    for at, text in across.ticks:
        out += [line(at, top, at, bottom, class_="grid"), words(at, bottom + 16, text, "middle")]
    for name, color, moments in rows:
        label = shortened(f"{name}  {len(moments)}", left - 16)
        out.append(words(left - 8, y + 13, label, "end"))
        together = {}
        for t, tip in moments:
            together.setdefault(min(int((across.at(t) - left) / 2), int((right - left) / 2) - 1), []).append((t, tip))
        most = max(map(len, together.values()), default=1)
        for column, found in sorted(together.items()):
            size = 6 + (tall - 10) * (len(found) / most if most > 1 else 1.0)
            tip = f"{found[0][0]:.3f} {unit}: {found[0][1]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
            out.append(rect(left + 2 * column, y + (tall - size) / 2, 1.6, size, color, tip))
        y += tall
    if steps:
        name, values, text = steps
        up = Axis([0.0, *(v for _, v in values)], bottom - 4, y + 14)
        peak = f"at most {text(max((v for _, v in values), default=0))}"
        out += [words(left - 8, y + 18, shortened(name, left - 16), "end"), words(left - 8, y + 32, shortened(peak, left - 16), "end")]
        places, last = [], 0.0
        for t, v in thinned(values):
            places += [(across.at(t), up.at(last)), (across.at(t), up.at(v))]
            last = v
        if places:
            places = [(across.at(0.0), up.at(0.0)), *places, (across.at(end), up.at(last))]
            corners = " ".join(f"{_px(a)},{_px(b)}" for a, b in places)
            out.append(f'<polyline points="{corners}" fill="none" stroke="var(--third)" stroke-width="1.6"/>')
    out.append(words(left, bottom + 32, shortened(f"{unit} of this machine's clock since the first entry of the log", right - left)))
    return drawing(out, bottom + 42, title, width)
