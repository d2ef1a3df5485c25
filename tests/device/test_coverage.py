"""`coverage` checks the npu device, and docs/coverage.md states the current status of each op."""
import pathlib

import pytest

from mindtorch.backend import kernels
from mindtorch.core.device import device_dispatch
from mindtorch.tools import _opinfo_runner as C, _coverage, _kernels

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "coverage.md"


def page():
    """Returns {op: its verdict on the npu}."""
    text = PAGE.read_text("utf-8").partition("## Op by op")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name: npu for name, _, npu in rows[1:]}


def test_coverage_page_lists_every_op():
    assert set(page()) == {name for name, _ in C.ops()}


@pytest.mark.parametrize("name", ["special.erfcx", "sinc", "nn.functional.glu"])
def test_coverage_page_matches_the_npu(npu, name):
    ran = _coverage.collect(2, ["float32", "int64"], name, "npu")
    assert name in ran.ops
    for n, found in ran.ops.items():
        assert page()[n] == _coverage.verdict(found), ran.failures
    assert device_dispatch.fallback.policy == "silent"


def test_coverage_detects_wrong_npu_values(npu, monkeypatch):
    way = device_dispatch.kernel_spec("sinc", npu)
    monkeypatch.setattr(way, "fn", lambda a: way.device.upload(way.device.download(a)))
    monkeypatch.setattr(way, "known", {})  # otherwise the cached call is used
    found = _coverage.collect(1, ["float32"], "sinc", "npu")
    assert not found.ops["sinc"][0] and {f[3] for f in found.failures} == {"wrong"}
    monkeypatch.undo()
    monkeypatch.setitem(device_dispatch.KERNEL_CACHE["npu"], "sinc", None)
    found = _coverage.collect(1, ["float32"], "sinc", "npu")
    assert found.ops["sinc"][:2] == (True, ("sinc",)) and _coverage.verdict(found.ops["sinc"]) == "passes, on the host: sinc"
    head, body = _coverage.summary([found])
    assert head == ["namespace", "ops", "npu", "npu without CPU fallback"] and body[-1] == ["all", "1", "1", "0"]


def test_regenerating_the_page_keeps_manual_parts():
    part = _coverage.by_hand(PAGE.read_text("utf-8"))
    assert len(part) == 1 and "## PyTorch's own unit tests" in part[0]
    judged = [_coverage.collect(1, ["float32"], "sinc")]
    once = _coverage.markdown(judged, PAGE.read_text("utf-8"))
    assert part[0] in once and _coverage.markdown(judged, once) == once
    assert "by hand" not in _coverage.markdown(judged) and not _coverage.by_hand("<!-- by hand --> without an end")


def test_kernels_of_each_target_are_listed(npu):
    assert set(_kernels.of_target("CPU")) == set(kernels.TABLES["npu"])
    head, rows, totals = _kernels.table()
    assert head[-2:] == ["npu on CPU", "npu on Ascend"] and "cuda" not in head
    known = _kernels.primitives()
    for row in rows:
        for target, said in zip(("CPU", "Ascend"), row[-2:]):
            assert (said.partition(":")[0] == "kernel") == (row[0] in _kernels.of_target(target)), row
    cell = dict(zip(head, next(r for r in rows if r[0] == "linalg_svdvals")))
    assert cell["npu on CPU"] == "kernel: float32 float64" and "npu on CPU" in [t[0] for t in totals] and len(rows) == len(known)
