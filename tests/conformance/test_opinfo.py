"""PyTorch's op database against mindtorch, with a ratchet.

known_failures.txt has one line per known failure: `op dtype check  # reason`. A failure that is not
listed fails the suite, and so does a listed check that now passes: remove its line.
"""
import pathlib

import pytest

import _on_device
from mindtorch.tools import _opinfo_runner as C
from mindtorch.tools._comparators import SHAPE_ONLY

# With --device npu: only real dtypes, and another list; complex numbers run on the host there for
# the most part.
KNOWN = pathlib.Path(__file__).with_name(f"known_failures{'_' + _on_device.active() if _on_device.active() else ''}.txt")
DTYPES = C.DTYPES if not _on_device.active() else ("float32", "int64", "bool")


def known():
    out = {}
    for line in KNOWN.read_text().splitlines():
        text, _, reason = line.partition("#")
        if text.strip():
            op, dtype, check = text.split()
            out[op, dtype, check] = reason.strip()
    return out


CASES = [(name, op, d) for name, op in C.ops() for d in DTYPES if op.supports_dtype(getattr(C.real_torch()[0], d), "cpu")]


@pytest.mark.parametrize("name,op,dtype", CASES, ids=[f"{n}-{d}" for n, _, d in CASES])
def test_op(name, op, dtype):
    limit, seen, bad = known(), set(), {}
    for check, outcome, detail in C.judge(op, dtype, limit=4):
        seen.add(check)
        # "shape only" passes only for ops with nothing else to compare.
        if outcome != "pass" and not (outcome == "shape only" and op.name in SHAPE_ONLY):
            bad.setdefault(check, f"{outcome}: {detail}")
    assert "forward" in seen
    expected = {c for o, d, c in limit if (o, d) == (name, dtype)}
    new = {c: d for c, d in bad.items() if c not in expected}
    assert not new, "\n".join(f"{name} {dtype} {c}  # {d}" for c, d in new.items())
    healed = {c for c in expected if c not in bad}
    assert not healed, f"now passes: take {sorted(healed)} of {name} {dtype} out of {KNOWN.name}"


def test_every_known_failure_has_a_reason():
    assert [k for k, reason in known().items() if not reason] == []
