"""The benchmarks run end to end and compute the same losses on every side."""
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import mindtorch.torch as mt

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"
SIDES = ["torch", "mindspore-tuned", "mindtorch"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "results.json"
    r = subprocess.run([sys.executable, str(FOLDER / "run.py"), "--parts", "models", "--models", "mlp", "--sides", ",".join(SIDES),
                        "--quick", "--json", str(path)], capture_output=True, text=True, timeout=110)
    assert r.returncode == 0, r.stdout + r.stderr
    return json.loads(path.read_text()), r.stdout


def test_one_round_of_one_model(results):
    found, printed = results
    rows = found["models"]["mlp"]
    assert list(rows) == SIDES
    for r in rows.values():
        assert r["losses_equal"] and r["steps"] >= 2 and r["wall_ms"] > 0 and r["cpu_ms"] > 0 and r["memory_mb"] > 50
    assert rows["mindtorch"]["x torch"] > 0 and rows["mindtorch"]["x mindspore-tuned"] > 0
    assert "| MLP 784-512-512-10, batch 64 |" in printed


def _report(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import report
    return report


def test_report_is_stored_by_version(results, tmp_path, monkeypatch):
    report = _report(monkeypatch)
    report.keep(json.loads(json.dumps(results[0])), str(tmp_path))
    other = {**results[0], "models": {"lenet": results[0]["models"]["mlp"]}}
    report.keep(other, str(tmp_path))
    kept = json.loads((tmp_path / (results[0]["version"] + ".json")).read_text())
    assert set(kept["models"]) == {"mlp", "lenet"}          # a second run adds to the first
    assert (tmp_path / (results[0]["version"] + ".md")).read_text().count("\n| ") > 4


def test_unequal_losses_are_noticed(monkeypatch):
    report = _report(monkeypatch)
    side = {"wall": [[1.0, 2.0]], "cpu": [[1.0, 1.0]], "memory": 1.0, "start": 1.0, "losses": [1.0, 0.5]}
    r = report.summary({"torch": side, "mindtorch": {**side, "losses": [1.0, 0.51]}})
    assert r["torch"]["losses_equal"] and not r["mindtorch"]["losses_equal"]


def test_every_model_is_there_on_both_sides(monkeypatch):
    report = _report(monkeypatch)
    import models
    import ms_models
    assert set(models.MODELS) == set(ms_models.MODELS) == set(report.NAMES)


# -------------------------------------------------------- larger models, and the torch.compile side
def _large(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import large_models
    return large_models


def test_large_models_match_in_both_libraries(monkeypatch):
    large = _large(monkeypatch)
    assert set(large.MODELS) == set(large.TINY) == set(large.GROWTH) == {n.split("@")[0] for n in _report(monkeypatch).LARGE}
    for name in large.MODELS:
        one, two = (large.build(t, name + "@tiny").step(t, False) for t in (torch, mt))
        a, b = ([f() for _ in range(3)] for f in (one, two))
        assert a == pytest.approx(b, rel=1e-3), name
        assert name == "generate" or a[2] < a[0], name


def test_batches_of_large_models(monkeypatch):
    large = _large(monkeypatch)
    for batch in (1, 3):
        assert large.build(mt, f"unet@tiny@{batch}").data[0].shape == (batch, 3, 8, 8)
        assert large.build(mt, f"generate@tiny@{batch}").tokens == 4 * batch


def _run(path, *options):
    r = subprocess.run([sys.executable, str(FOLDER / "run.py"), "--quick", "--json", str(path), *options], capture_output=True, text=True, timeout=280)
    assert r.returncode == 0, r.stdout + r.stderr
    return json.loads(path.read_text()), r.stdout


def test_a_large_model_end_to_end(tmp_path):
    found, printed = _run(tmp_path / "r.json", "--parts", "large", "--only", "gcn", "--sides", "torch,mindtorch", "--threads", "1")
    rows = found["large, 1 thread"]["gcn@tiny"]
    assert list(rows) == ["torch", "mindtorch"] and all(r["losses_equal"] and r["memory_beyond_import_mb"] >= 0 for r in rows.values())
    assert rows["mindtorch"]["cpu x torch"] > 0 and "CPU time of a step (1 thread)" in printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_compiled_sides_end_to_end(tmp_path):
    found, printed = _run(tmp_path / "r.json", "--parts", "large", "--only", "dlrm", "--threads", "1", "--sides", "torch,torch-compiled,mindtorch-compiled")
    rows = found["large, 1 thread"]["dlrm@tiny"]
    assert list(rows)[1] == "torch-compiled" and rows["torch-compiled"]["compile_s"] > 0 and rows["mindtorch-compiled"]["x torch-compiled"] > 0
    assert "Compile time (1 thread)" in printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_growth_end_to_end(tmp_path):
    found, printed = _run(tmp_path / "r.json", "--parts", "growth", "--only", "dlrm", "--sides", "mindtorch")
    assert list(found["growth"]) == ["dlrm@tiny@64", "dlrm@tiny@256"] and "| dlrm@tiny | 64 |" in printed


def test_report_contains_scaling_growth_and_tokens(monkeypatch):
    report = _report(monkeypatch)
    side = {"wall": [[0.02, 0.02]], "cpu": [[0.01, 0.01]], "memory": 9.0, "imported": 4.0, "start": 1.0, "losses": [1.0], "first": {"wall": [0.52, 0.02], "cpu": [1, 1]}}
    one = report.summary({s: side for s in ("torch", "torch-compiled", "mindtorch")})
    two = report.summary({s: {**side, "wall": [[0.01, 0.01]]} for s in one})
    text = report.markdown({"version": "0", "machine": {"torch": "2", "mindspore": "2", "numpy": "1", "cpu": "c", "cores": 2, "load": 0.0},
                            "large, 1 thread": {"generate@8": one}, "large, 2 threads": {"generate@8": two}, "growth": {"unet@2": {"torch": one["torch"]}, "unet@4": one}})
    assert one["torch"]["compile_s"] == 0.5 and one["torch"]["memory_beyond_import_mb"] == 5
    assert "| the same, batch 8 | 2.00 | 2.00 | 2.00 |" in text and "| the same, batch 8 | 12800.0 |" in text and "| unet | 4 | 20.0 (5.00) |" in text
    assert "| unet | 2 | 20.0 (10.00) |  |  |" in text  # (a side that did not run)
    assert set(report.part_of({"version": 1, "machine": 2, "large, 1 thread": 3, "models": 4, "growth": 5}, "large", "growth")) == {"version", "machine", "large, 1 thread", "growth"}


def test_the_page_has_places_for_the_tables(monkeypatch):
    _report(monkeypatch)
    import documents
    page = (FOLDER.parent / "docs" / "speed.md").read_text()
    assert all(page.count(m) == 1 for part in ("models", "large") for m in documents.marks(part))


# ---------------------------------------------------------------- data and checkpoints
def test_loaders_of_three_item_sizes(monkeypatch):
    _report(monkeypatch)
    import data_io
    assert set(data_io.ITEMS) < set(data_io.CASES)
    for t in (torch, mt):
        assert [x[:, 0].tolist() for x in data_io.items(t, (3,), 5, 2)] == [[pytest.approx(1.764052 + i) for i in pair] for pair in ((0, 1), (2, 3), (4,))]
    small, large = (sum(x.numel() * 4 for x in data_io.state_dict(torch, n).values()) for n in (1, 10))
    assert small == pytest.approx(1e6, rel=0.05) and large == pytest.approx(1e7, rel=0.05)


@pytest.mark.slow
def test_checkpoints_and_loaders_end_to_end(monkeypatch):
    _report(monkeypatch)
    import data_io
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    cases = ["save", "load", "items small", "items image"] + data_io.SAFE * bool(importlib.util.find_spec("safetensors"))
    found = data_io.main(1, cases, megabytes=2)
    assert list(found) == cases and all(x > 0 for r in found.values() for x in r)


# ---------------------------------------------------------------- a step as one graph
def test_handwritten_step_and_step_on_the_device(tmp_path):
    path = tmp_path / "steps.json"
    r = subprocess.run([sys.executable, str(FOLDER / "step_graph.py"), "--models", "mlp", "--sides", "mindspore-jit,mindtorch-npu", "--rounds", "1",
                        "--steps", "2", "--settle", "2", "--threads", "1", "--json", str(path)], capture_output=True, text=True, timeout=110)
    assert r.returncode == 0, r.stdout + r.stderr
    m = json.loads(path.read_text())["models"]["mlp"]
    assert m["best"] == "mindspore-jit" and m["losses_equal"] and m["sides"]["mindtorch-npu"]["ratio"] > 0
    for f in m["sides"].values():
        assert len(f["losses"]) == 8 and 0 < f["cpu_least_ms"] <= f["cpu_ms"] and f["wall_ms"] > 0
    assert m["sides"]["mindspore-jit"]["compile_cpu_ms"] > 20
    assert "mindspore-jit *" in r.stdout


def test_figures_of_steps(monkeypatch):
    _report(monkeypatch)
    import step_graph
    hand = {"cpu": [[2.0, 2.0], [4.0, 4.0]], "wall": [[1.0, 1.0], [2.0, 2.0]], "first": {"cpu": [9.0, 2.0], "wall": [5.0, 1.0]}, "memory": 1.0, "start": 1.0,
            "losses": [1.0, 0.5]}
    ours = {**hand, "cpu": [[1.0, 1.0], [2.0, 2.0]], "first": {"cpu": [4.0, 11.0, 1.0], "wall": [5.0, 1.0]}}
    slow = {**hand, "cpu": [[3.0, 3.0], [9.0, 9.0]]}
    m = step_graph.figures({"mindspore-jit": hand, "mindspore-jit-O1": slow, "mindtorch-npu-graph": ours})
    assert m["best"] == "mindspore-jit" and m["losses_equal"]
    f = m["sides"]["mindtorch-npu-graph"]
    assert (f["ratio"], f["ratio_least"]) == (0.5, 0.5) and f["compile_cpu_ms"] == 13000 and f["ratio_compile"] == 13 / 6
    assert not step_graph.figures({"mindspore-jit": hand, "mindtorch-npu": {**ours, "losses": [1.0, 0.501]}})["losses_equal"]
    # (A compiled step must match the eager one more closely than it must match another program.)
    assert not step_graph.figures({"mindspore-jit": hand, "mindtorch-npu": ours, "mindtorch-npu-graph": {**ours, "losses": [1.0, 0.50001]}})["losses_equal"]
    assert "| MLP 784-512-512-10, batch 64 |" in step_graph.markdown({"mlp": m})


# ---------------------------------------------------------------- the picture
PICTURE = FOLDER.parent / "docs" / "img" / "speed.svg"


def test_picture_in_docs_shows_the_stored_figures(monkeypatch):
    report, shown = _report(monkeypatch), PICTURE.read_text()
    version = re.search(r"measured with mindtorch (\S+),", shown)[1]
    kept = json.loads((FOLDER / "results" / f"{version}.json").read_text())
    assert report.picture(kept) == shown, "benchmarks/run.py draws it with the figures that it keeps"
    monkeypatch.syspath_prepend(str(FOLDER.parent / "tests" / "tools"))
    from test_svg import sound
    bars = {e.find("title").text for e in sound(shown).iter("rect") if e.find("title") is not None}
    part = kept.get("models, 1 thread") or {}
    for name, r in part.items():
        assert f"{report.title_of(name)}, mindtorch: {r['mindtorch']['cpu_min_ms'] / r['torch']['cpu_min_ms']:.3g}" in bars


def test_every_part_has_a_panel_in_the_picture(results, tmp_path, monkeypatch):
    report, rows = _report(monkeypatch), results[0]["models"]["mlp"]
    found = {**results[0], "large, 1 thread": {"unet": rows}, "growth": {"unet@8": rows, "unet@16": rows}}
    report.keep(found, str(tmp_path), str(tmp_path / "img" / "speed.svg"))
    shown = (tmp_path / "img" / "speed.svg").read_text()
    for text in ("all threads, median wall time", "one thread, least CPU time", "diffusion U-Net, 4x3x32x32", "unet, batch 16", "How a step grows"):
        assert text in shown, text
    alone = {k: v for k, v in results[0].items() if k in ("version", "machine")}
    assert report.picture(alone) is None


def test_failed_sides_are_blank_and_unknown_sides_raise(monkeypatch):
    report = _report(monkeypatch)

    def side():
        return {"wall": [[1.0, 2.0]], "cpu": [[1.0, 2.0]], "memory": 100, "start": 0.0, "losses": [1.0], "first": {"wall": [3.0], "cpu": [3.0]}}
    sides = ("torch", "torch-compiled", "mindtorch")
    models = {m: report.summary({s: side() for s in sides if (m, s) != ("gan", "torch-compiled")}) for m in ("mlp", "gan")}
    lines = report._models(models, "")
    assert sum(line.startswith("| ConvTranspose GAN") for line in lines) == 6
    for line in lines:
        assert ("failed" in line) == line.startswith("| ConvTranspose GAN"), line
    r = subprocess.run([sys.executable, str(FOLDER / "run.py"), "--parts", "models", "--sides", "torch,eager"], capture_output=True, text=True)
    assert r.returncode == 2 and "unknown sides: eager" in r.stderr
