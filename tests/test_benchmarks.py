"""The benchmarks run from end to end and say the same about the losses on every side."""
import json
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"
SIDES = ["torch", "mindspore-tuned", "mindtorch"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "results.json"
    r = subprocess.run([sys.executable, str(FOLDER / "run.py"), "--parts", "models", "--models", "mlp", "--sides", ",".join(SIDES),
                        "--rounds", "1", "--steps", "2", "--json", str(path)], capture_output=True, text=True, timeout=110)
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


def test_report_is_kept_by_version(results, tmp_path, monkeypatch):
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


# ---------------------------------------------------------------- a step as one graph
def test_a_step_by_hand_and_on_the_device(tmp_path):
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
    # (A compiled step is held to the eager one more closely than to another program.)
    assert not step_graph.figures({"mindspore-jit": hand, "mindtorch-npu": ours, "mindtorch-npu-graph": {**ours, "losses": [1.0, 0.50001]}})["losses_equal"]
    assert "| MLP 784-512-512-10, batch 64 |" in step_graph.markdown({"mlp": m})
