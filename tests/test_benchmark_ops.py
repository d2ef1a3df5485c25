"""The ops of benchmarks/ops.py return the same results in both libraries, and its table is
generated and written."""
import pathlib

import pytest
import torch

import mindtorch.torch as mt

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def ops(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import ops
    return ops


def test_every_case_computes_the_same(ops):
    inputs, seen = ops._op_cases.Inputs("small"), 0
    for case in ops._op_cases.CASES.values():
        if case.needs:
            continue
        for grad in (False, True)[:1 + bool(case.grad)]:
            if case.compare:
                assert ops.compared((torch, mt), case, inputs, grad) is None, (case.name, grad)
                seen += 1
            else:
                assert ops.prepared(mt, case, inputs, grad)() is not None
    assert len(ops._op_cases.CASES) >= 150 and seen >= 250


def test_a_difference_is_noticed(ops, monkeypatch):
    inputs = ops._op_cases.Inputs("small")
    monkeypatch.setattr(mt, "exp", lambda x: mt.expm1(x))
    found = ops.run((torch, mt), ["exp", "floor"], ["small"], ["forward"], 2, 1e-4, 1, lambda line: None)
    assert ops.compared((torch, mt), ops._op_cases.CASES["exp"], inputs, False).startswith("differs by 1")
    assert len(ops.unequal(found)) == 1 and [r[1] for r in ops.flat(found)] == ["floor"]


def test_the_table(ops, tmp_path):
    found = ops.run((torch, mt), ["cumsum", "zeros"], ["small", "medium"], list(ops.MODES), 3, 1e-4, 1, lambda line: None)
    assert not ops.unequal(found) and len(ops.flat(found)) == 6
    r = found["cumsum"]["small"]["with gradient"]
    assert 0 < r["torch"]["cpu_us"][0] <= r["torch"]["cpu_us"][1] and r["ratio"][1] > 0
    results = {"version": "0", "threads": 1, "rounds": 3, "machine": {"cpu": "a", "cores": 2, "load": 0.0, "torch": "2"}, "ops": found}
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- generated: ops -->\nold\n<!-- end: ops -->\nafter\n")
    for _ in range(2):
        ops.documents.write(path, "ops", ops.markdown(results))
    text = path.read_text()
    assert text.startswith("before\n<!-- generated: ops -->\nmindtorch 0") and text.endswith("<!-- end: ops -->\nafter\n") and "old" not in text
    assert text.count("| cumsum |") == 1
    with pytest.raises(ValueError, match="no single place"):
        ops.documents.write(path, "models", "")


def test_the_page_has_places_for_the_tables(ops):
    for n in ("1 thread", "2 threads"):
        assert all((FOLDER.parent / "docs" / "speed-ops.md").read_text().count(m) == 1 for m in ops.documents.marks(f"ops, {n}"))
