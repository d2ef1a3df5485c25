"""The timeline page of the CANN simulator's log: every launch and copy in its lane at its time,
several processes and streams, truncated lines."""
import json
import re
import subprocess
import sys

import pytest
from test_svg import read, sound, ticks

from mindtorch.tools.standin import _report, _timeline


def written(path, lines):
    path.write_bytes(b"".join(json.dumps(x).encode() + b"\n" for x in lines) + b'{"launch": "acl')
    return _timeline.page(path, _report.read(path))


def drawings(text):
    return [sound(svg) for svg in re.findall("<svg.*?</svg>", text, re.S)]


def marks(drawn):
    """Returns {tooltip: (time read from the axis, y of its middle)}."""
    axis = ticks(drawn, "middle")
    return {e.find("title").text: (read(float(e.get("x")) + 0.8, axis, False), float(e.get("y")) + float(e.get("height")) / 2) for e in drawn.iter("rect")}


def lane_of(drawn, name):
    return next(float(e.get("y")) for e in drawn.iter("text") if (e.text or "").startswith(name + "  ")) - 4


ONE = [{"memory": 2 << 20, "t": 1000.0, "pid": 7}, {"launch": "aclnnAdd", "args": "T[2]f32", "stream": 0, "t": 1010.0, "pid": 7},
       {"launch": "aclnnMul", "args": "<&>\x00", "stream": 0, "t": 1050.0, "pid": 7}, {"launch": "aclnnAdd", "args": "T[3]f32", "stream": 0, "t": 1090.0, "pid": 7},
       {"copy": "H2D", "bytes": 2048, "site": "<b>.py:3", "t": 1030.0, "pid": 7}, {"copy": "D2H", "bytes": 4, "t": 1100.0, "pid": 7},
       {"memory": 8 << 20, "t": 1060.0, "pid": 7}, {"failed": "aclnnMul failed", "t": 1099.0, "pid": 7}]


def test_events_are_in_their_lane_at_their_time(tmp_path):
    text = written(tmp_path / "log", ONE)
    drawn, = drawings(text)
    seen = marks(drawn)
    for tip, at, lane in (("10.000 ms: T[2]f32", 10, "aclnnAdd"), ("90.000 ms: T[3]f32", 90, "aclnnAdd"), ("50.000 ms: <&>\ufffd", 50, "aclnnMul"),
                          ("30.000 ms: 2.0 KB, <b>.py:3", 30, "copies to the device"), ("100.000 ms: 4 B", 100, "copies from the device"),
                          ("99.000 ms: aclnnMul failed", 99, "FAILED")):
        assert seen[tip][0] == pytest.approx(at, abs=0.5) and abs(seen[tip][1] - lane_of(drawn, lane)) < 6, (tip, seen[tip])
    assert len(seen) == 6 and any(e.text == "at most 8.0 MB" for e in drawn.iter("text"))
    assert "<b>" not in text and "lines of the log that cannot be read: 1" in text and "3 launches of 2 kernels" in text


def test_memory_is_drawn_as_a_step_curve(tmp_path):
    drawn, = drawings(written(tmp_path / "log", ONE))
    xy = [float(x) for x in re.findall(r"-?\d+\.\d", drawn.find("polyline").get("points"))]
    points, axis = list(zip(xy[::2], xy[1::2])), ticks(drawn, "middle")
    floor, top = max(y for _, y in points), min(y for _, y in points)
    values = [(round(read(x, axis, False)), round(8 * (floor - y) / (floor - top))) for x, y in points]
    assert values == [(0, 0), (0, 0), (0, 2), (60, 2), (60, 8), (100, 8)]


def test_streams_processes_and_many_kernels(tmp_path):
    lines = [{"launch": f"aclnnK{k}", "args": "", "stream": k % 2, "t": 1000.0 + k, "pid": pid} for pid in (1, 2) for k in range(60)]
    both = drawings(written(tmp_path / "log", lines))
    assert len(both) == 2
    for drawn in both:
        lanes = [e.text for e in drawn.iter("text") if e.get("text-anchor") == "end"]
        assert any(x.startswith("aclnnK0, stream 0  1") for x in lanes) and any(x == f"{60 - _timeline.MOST_LANES + 1} other kernels  {60 - _timeline.MOST_LANES + 1}" for x in lanes)
        shown = sum(1 + int((re.search(r"and (\d+) more$", tip) or [0, 0])[1]) for tip in marks(drawn))
        assert shown <= 60 and len(marks(drawn)) >= _timeline.MOST_LANES


def test_a_log_without_times_and_an_empty_one(tmp_path):
    assert drawings(written(tmp_path / "log", [{"launch": "aclnnAdd", "args": ""}])) == []
    (tmp_path / "none").write_bytes(b"")
    assert "Nothing was launched." in _timeline.page(tmp_path / "none", _report.read(tmp_path / "none"))


@pytest.mark.ascend
@pytest.mark.timeout(200)
def test_command_writes_a_page_matching_its_counts(tmp_path):
    (tmp_path / "x.py").write_text("import torch\nx = torch.ones(4, 4)\nfor _ in range(5):\n    x = torch.tanh(x)\nprint(x.sum().item() > 0)\n")
    run = [sys.executable, "-m", "mindtorch", "standin"]
    done = subprocess.run([*run, "run", "--no-report", "--html", "page.html", "--json", "r.json", "--log", "x.log", "--device", "npu", "x.py"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    drawn, = drawings((tmp_path / "page.html").read_text("utf-8"))
    named = {e.text.rpartition("  ")[0]: int(e.text.rpartition("  ")[2]) for e in drawn.iter("text") if e.get("text-anchor") == "end" and "  " in e.text}
    assert found["launches"]["aclnnTanh"] == 5 and {k: named.get(k) for k in found["launches"]} == found["launches"]
    again = subprocess.run([*run, "report", "--html", "again.html", "x.log"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and (tmp_path / "again.html").read_text("utf-8") == (tmp_path / "page.html").read_text("utf-8")
    times = [json.loads(x)["t"] for x in (tmp_path / "x.log").read_text().splitlines()]
    assert len(times) > 6 and max(times) - min(times) < 180_000
