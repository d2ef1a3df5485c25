"""SVG drawings: well-formed, inside their frame, points at their values, no overlapping text, for
any names and values."""
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st

from mindtorch.tools.html import svg as drawings

NAMES = st.text(max_size=40)
VALUES = st.floats(-1e6, 1e6) | st.sampled_from([math.inf, -math.inf, math.nan, 0.0, 1e-30, 1e30])


def tree(svg):
    """Returns the drawing as parsed XML with names without namespace."""
    root = ET.fromstring(svg)
    for e in root.iter():
        e.tag = e.tag.rpartition("}")[2]
    return root


def numbers(text):
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", text)]


def placed(root):
    """Returns [(element, x0, y0, x1, y1)]: the bounding boxes, shifted by the enclosing groups."""
    out = []

    def walk(e, down):
        if "transform" in e.attrib:
            down += numbers(e.get("transform"))[1]
        n = {k: float(v) for k, v in e.attrib.items() if re.fullmatch(r"-?\d+(\.\d+)?", v)}
        if e.tag == "text":
            size = float((re.search(r"font-size: (\d+)px", e.get("style", "")) or [0, 11])[1])
            w = drawings.width_of(e.text or "", size)
            x = n["x"] - {"start": 0, "middle": w / 2, "end": w}[e.get("text-anchor")]
            out.append((e, x, n["y"] - 0.8 * size + down, x + w, n["y"] + 0.2 * size + down))
        elif e.tag == "rect":
            out.append((e, n["x"], n["y"] + down, n["x"] + n["width"], n["y"] + n["height"] + down))
        elif e.tag == "circle":
            out.append((e, n["cx"] - n["r"], n["cy"] - n["r"] + down, n["cx"] + n["r"], n["cy"] + n["r"] + down))
        elif e.tag == "line":
            out.append((e, min(n["x1"], n["x2"]), min(n["y1"], n["y2"]) + down, max(n["x1"], n["x2"]), max(n["y1"], n["y2"]) + down))
        elif e.tag in ("polyline", "path"):
            xy = numbers(e.get("points") or e.get("d"))
            out.append((e, min(xy[::2]), min(xy[1::2]) + down, max(xy[::2]), max(xy[1::2]) + down))
        for child in e:
            walk(child, down)
    walk(root, 0.0)
    return out


def sound(svg):
    """Checks the properties of every drawing and returns its parsed form."""
    root = tree(svg)
    _, _, width, height = numbers(root.get("viewBox"))
    assert root.find("title").text and root.get("role") == "img" and root.get("aria-label")
    boxes = placed(root)
    for e, x0, y0, x1, y1 in boxes:
        assert -0.6 <= x0 <= x1 <= width + 0.6 and -0.6 <= y0 <= y1 <= height + 0.6, (ET.tostring(e), x0, y0, x1, y1, width, height)
    texts = [b for b in boxes if b[0].tag == "text" and (b[0].text or "").strip()]
    for i, (a, ax0, ay0, ax1, ay1) in enumerate(texts):
        for b, bx0, by0, bx1, by1 in texts[:i]:
            assert not (ax0 < bx1 - 1 and bx0 < ax1 - 1 and ay0 < by1 - 1 and by0 < ay1 - 1), (a.text, b.text)
    return root


def ticks(root, anchor):
    """Returns [(position, value)] of an axis, from its labels: the left axis ("end") or the lower
    one ("middle")."""
    along = "y" if anchor == "end" else "x"
    return [(float(e.get(along)) - (4 if along == "y" else 0), float(e.text)) for e in root.iter("text")
            if e.get("text-anchor") == anchor and not e.get("style")]


def read(place, known, log):
    """Returns the value at a position, from the two ticks farthest apart."""
    (p, a), (q, b) = known[0], known[-1]
    f = math.log10 if log else float
    v = f(a) + (place - p) / (q - p) * (f(b) - f(a))
    return 10**v if log else v


@pytest.mark.parametrize("log", [False, True])
def test_points_are_drawn_at_their_values(log):
    points = [(k, 5.0 * 0.7**k) for k in range(12)]
    root = sound(drawings.curves([("loss", "--ours", "", points)], "the loss", log=log))
    dots = [(float(e.get("cx")), float(e.get("cy"))) for e in root.iter("circle")]
    corners = numbers(root.find("polyline").get("points"))
    assert dots == list(zip(corners[::2], corners[1::2])) and len(dots) == 12
    steps, values = ticks(root, "middle"), ticks(root, "end")
    assert len(values) >= 3 and len(steps) >= 4
    for (x, y), (k, v) in zip(dots, points):
        assert read(x, steps, False) == pytest.approx(k, abs=0.02)
        assert read(y, values, log) == pytest.approx(v, rel=0.02, abs=0 if log else 0.02)


def test_nonfinite_value_interrupts_the_curve_and_is_marked():
    points = [(0, 1.0), (1, 2.0), (2, math.nan), (3, math.inf), (4, 3.0), (5, 2.0)]
    root = sound(drawings.curves([("loss", "--ours", "", points)], "the loss"))
    assert len(root.findall("polyline")) == 2 and [e.find("title").text for e in root.findall("path")] == ["loss, step 2: nan", "loss, step 3: inf"]


def test_a_long_run_keeps_its_peaks():
    points = [(k, 1.0 + math.sin(k / 1000)) for k in range(50_000)]
    points[33_333] = 33_333, 40.0
    points[44_444] = 44_444, -7.0
    thin = drawings.thinned(points)
    assert len(thin) <= drawings.MOST_POINTS + 2 and {(33_333, 40.0), (44_444, -7.0)} <= set(thin) and thin == sorted(thin)
    assert len(sound(drawings.curves([("a", "--ours", "", points)], "t")).findall("circle")) == 0
    points[7] = 7, math.nan
    assert any(math.isnan(y) for _, y in drawings.thinned(points))


def test_divergence_is_marked_at_its_step():
    root = sound(drawings.curves([(n, "--ours", d, [(k, 1.0 + k) for k in range(9)]) for n, d in (("torch", ""), ("cpu", "6 3"))], "the loss",
                                 marks=[(3, "they part"), (3, "<&>"), (8, "x" * 300)]))
    steps = ticks(root, "middle")
    marks = [e for e in root.iter("line") if "different" in e.get("stroke", "")]
    assert [round(read(float(e.get("x1")), steps, False), 1) for e in marks] == [3.0, 8.0]
    said = [e.text for e in root.iter("text") if "different" in e.get("style", "")]
    assert said[0] == "they part; <&>" and said[1].endswith("…")


@settings(max_examples=25)
@given(st.lists(st.tuples(NAMES, st.lists(VALUES, max_size=12)), max_size=5), NAMES, st.booleans(), st.lists(st.tuples(st.integers(0, 11), NAMES), max_size=12))
def test_curves_are_valid_for_any_names_and_values(series, title, log, marks):
    sound(drawings.curves([(n, "--ours", "", list(enumerate(v))) for n, v in series], title or "t", log=log, marks=marks))


@settings(max_examples=25)
@given(st.lists(st.tuples(NAMES, st.dictionaries(st.sampled_from("abc"), st.floats(1e-4, 1e4))), max_size=8), NAMES)
def test_bars_are_valid_for_any_names_and_values(groups, title):
    drawn, height = drawings.bars(groups, [(s, "--ours") for s in "abc"], title, note=title)
    sound(drawings.alone(drawings.drawing(drawn, height, title or "t")))


def test_bars_are_as_long_as_their_values():
    drawn, height = drawings.bars([("one", {"a": 0.5, "b": 2.0}), ("two", {"a": 4.0})], [("a", "--ours"), ("b", "--theirs")], "t")
    root = sound(drawings.drawing(drawn, height, "t"))
    scale = ticks(root, "middle")
    found = {e.find("title").text: (float(e.get("x")), float(e.get("x")) + float(e.get("width"))) for e in root.iter("rect") if e.find("title") is not None}
    assert {k: tuple(round(read(x, scale, True), 1) for x in v) for k, v in found.items()} == {"one, a: 0.5": (0.5, 1.0), "one, b: 2": (1.0, 2.0), "two, a: 4": (1.0, 4.0)}


@settings(max_examples=25)
@given(st.lists(st.tuples(NAMES, st.lists(st.tuples(st.floats(0, 50), NAMES), max_size=20)), max_size=6), st.lists(st.floats(0, 1e9), max_size=10))
def test_lanes_are_valid_for_any_times(rows, memory):
    steps = "device memory", [(float(k), v) for k, v in enumerate(memory)], lambda v: f"{v:.0f} B"
    sound(drawings.lanes([(n, "--ours", m) for n, m in rows], steps, 50.0, "t"))


def test_lanes_count_overlapping_events():
    root = sound(drawings.lanes([("aclnnAdd", "--ours", [(1.0, "a"), (1.001, "b"), (9.0, "c")])], None, 10.0, "t"))
    tips = [e.find("title").text for e in root.iter("rect")]
    assert tips == ["1.000 ms: a and 1 more", "9.000 ms: c"] and any(e.text == "aclnnAdd  3" for e in root.iter("text"))


def test_drawing_is_deterministic_and_has_both_color_schemes():
    a, b = (drawings.alone(drawings.curves([("loss", "--ours", "", [(0, 1.0), (1, 0.5)])], "the loss")) for _ in range(2))
    assert a == b and "prefers-color-scheme: dark" in a and "http" not in a.replace("http://www.w3.org/2000/svg", "")
    sound(a)
    used = set(re.findall(r"var\((--\w+)\)", a))
    assert used <= {name for name, *_ in drawings.COLORS}
