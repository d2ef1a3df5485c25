"""The HTML page of a comparison in a real browser: no errors, everything drawn, nothing cut off or
overlapping."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from test_svg import read, sound, ticks

from mindtorch.tools import compare_layers

MODELS = str(pathlib.Path(__file__).resolve().parents[1] / "_layer_models.py")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --enable-logging=stderr").split()

# Measures what a reader sees, in the displayed page.
LOOK = """<script>
addEventListener("load", () => {
  const all = s => [...document.querySelectorAll(s)], box = e => e.getBoundingClientRect();
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  const texts = all("svg").map(svg => [...svg.querySelectorAll("text")].map(box));
  const out = {
    wide: document.documentElement.scrollWidth - innerWidth,
    dots: all("svg circle").length,
    outside: all("svg *").filter(e => { const b = box(e), s = box(e.closest("svg"));
      return e.tagName != "title" && (b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1); }).length,
    overlaps: texts.map(ts => ts.filter((a, i) => ts.some((b, j) => i < j && over(a, b))).length),
    bars: all("svg rect").filter(e => box(e).height > 0.5).length,
    chips: all(".tree .chip").map(e => getComputedStyle(e).backgroundColor),
    sizes: all(".tree .chip").map(e => box(e).width),
    bands: all(".tree .bar i").map(e => box(e).width),
    here: all(".here").map(e => e.textContent),
    title: document.title,
  };
  document.body.setAttribute("data-look", JSON.stringify(out));
});
</script>"""


def chromium(folder, page, *flags, width=1180, height=1500):
    """Opens a page; returns (standard output, the page's console messages)."""
    done = subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}", *flags,
                           page.as_uri()], capture_output=True, text=True, timeout=100, env={**os.environ, "HOME": str(folder)})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, re.findall(r":CONSOLE[^\]]*\] (.*)", done.stderr)


def look(folder, page, **size):
    copy = folder / "looked.html"
    copy.write_text(page.read_text("utf-8").replace("</body>", LOOK + "</body>"), "utf-8")
    dom, said = chromium(folder, copy, "--dump-dom", **size)
    assert said == []
    found = re.search(r'data-look="([^"]*)"', dom)
    assert found, dom[-500:]
    return json.loads(found[1].replace("&quot;", '"'))


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    folder = tmp_path_factory.mktemp("pages")
    out = {}
    for name, builder, fault in (("eps", "resnet", "resnet_eps"), ("detached", "mlp", "mlp_detached"), ("clean", "mlp", None)):
        c = compare_layers(MODELS, builder, fault=fault, steps=4 if builder == "mlp" else 2)
        c.save(folder / f"{name}.html")
        out[name] = c, folder / f"{name}.html"
    return out


def test_javascript_error_on_a_page_is_detected(reports, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<!DOCTYPE html><body><script>nothing.there()</script><img src='missing.png'></body>", "utf-8")
    said = chromium(tmp_path, page, "--dump-dom")[1]
    assert any("nothing is not defined" in line for line in said), said


@pytest.mark.parametrize("name", ["eps", "detached", "clean"])
@pytest.mark.parametrize("width", [1180, 500])
def test_the_page_shows_everything_without_errors(reports, name, width, tmp_path):
    c, page = reports[name]
    seen = look(tmp_path, page, width=width)
    assert seen["wide"] <= 0 and seen["outside"] == 0 and not any(seen["overlaps"]), seen
    assert seen["title"].endswith("mindtorch against torch") and seen["bars"] >= 5
    leaves = [r for r in c.rows if r.leaf]
    assert seen["dots"] >= len(leaves) and len(seen["chips"]) == 2 * len(c.modules) == 2 * len(seen["bands"])
    assert min(seen["sizes"]) > 8 and "rgba(0, 0, 0, 0)" not in seen["chips"]
    squares = seen["chips"][::2]
    assert seen["here"] == {"eps": ["bn2"], "detached": ["act2"], "clean": []}[name]
    if name == "eps":
        # Layers before the fault have another color and a shorter bar than the faulty layer.
        names = [n for n, _ in c.modules]
        before, there = names.index("layer1.0.bn1"), names.index("layer2.0.bn2")
        assert squares[before] != squares[there] and seen["bands"][before] < seen["bands"][there]
    else:
        assert (len(set(seen["chips"][1::2])) > 1) is (name == "detached") or name == "clean"


@pytest.mark.parametrize("name", ["eps", "detached", "clean"])
def test_curves_show_both_sides_and_the_divergence(reports, name):
    c, page = reports[name]
    drawn = [sound(svg) for svg in re.findall("<svg.*?</svg>", page.read_text("utf-8").partition('class="curves"')[2].partition("<h2>")[0], re.S)]
    assert [d.find("title").text.partition(",")[0].partition(" of")[0] for d in drawn] == ["the loss", "norm", "relative difference"]
    record = (c.reference, "torch"), (c.ours, "mindtorch")
    for d, key in zip(drawn, ("loss", "grads")):
        values, steps = ticks(d, "end"), ticks(d, "middle")
        for r, side in record:
            dots = {e.find("title").text.partition(":")[0]: e for e in d.iter("circle")}
            for i, step in enumerate(r["steps"]):
                held = step["loss"] or r["loss"]
                want = float(held.a.reshape(-1)[0]) if key == "loss" else np.sqrt(sum(float((h.a.astype(float) ** 2).sum()) for h in step["grads"].values() if h is not None))
                dot = dots[f"{side}, step {i}"]
                assert f"{want:.6g}" == dot.find("title").text.partition(": ")[2]
                assert read(float(dot.get("cx")), steps, False) == pytest.approx(i, abs=0.02)
                assert read(float(dot.get("cy")), values, False) == pytest.approx(want, abs=0.02 * (values[0][0] - values[-1][0]) * 1e-2 + abs(want) * 0.02 + 0.02)
    said = [e.text for e in drawn[0].iter("text") if "different" in e.get("style", "")]
    assert said[:1] == {"eps": ["first difference: layer2.0.bn2 (forward)"], "detached": ["first difference: act2 (gradient)"], "clean": []}[name]


def test_page_screenshot_is_complete(reports, tmp_path):
    """The picture in docs/ is made in this way."""
    out = tmp_path / "page.png"
    said = chromium(tmp_path, reports["eps"][1], f"--screenshot={out}")[1]
    data = out.read_bytes()
    # an empty page takes about 5000 bytes
    assert said == [] and data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 50_000
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1180, 1500)
