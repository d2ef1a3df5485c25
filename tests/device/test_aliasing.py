"""Views, in-place writes and autograd on the npu device: the CPU test cases and random programs,
compared with PyTorch on its CPU."""
import pytest

from _alias_programs import On, survey
from core.test_alias import CASES, _same


@pytest.mark.parametrize("name", CASES)
def test_case(name, npu):
    _same(CASES[name], On(npu))


def _check(seeds, npu):
    good, refused, bad = survey(seeds, device=npu)
    first = "\n\n".join(f"seed {s}: {text}" for found in bad.values() for s, text in found[:3])
    assert not bad.get("value") and not bad.get("gradient"), first
    assert good >= 0.97 * len(seeds), f"only {good} of {len(seeds)} programs are identical\n{first}"
    assert refused > len(seeds) // 2


def test_random_programs(npu):
    _check(range(120), npu)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1))  # 20 blocks were run once, 20 to 40 s each
def test_many_random_programs(block, npu):
    _check(range(500 * block, 500 * block + 250), npu)
