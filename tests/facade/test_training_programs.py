"""Random training programs on PyTorch and on mindtorch, eager, compiled and on the npu device.

Losses, gradients, parameters, buffers and optimizer states must be equal. A failure prints the
smallest plan found that still fails; `check(Plan(...), way)` runs it again.
"""
import contextlib

import numpy as np
import pytest
import torch as real
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import _training_programs as programs
import mindtorch.torch as mine
from _training_programs import Plan
from mindtorch.core.device import rng

pytestmark = pytest.mark.usefixtures("forgotten_variants")
MANY = settings().max_examples
SEEDS = st.integers(1000, 10 ** 9)
#: Seeds of programs that fail, with the reason: none today.
KNOWN = {}
#: The magnitude of a seed has no meaning, so hypothesis does not shrink it: failures are reduced by
#: `programs.smaller`.
ONCE = dict(phases=(Phase.reuse, Phase.generate))


@contextlib.contextmanager
def host_numbers():
    """Makes the npu device use the host's random numbers, so that its runs have the dropout masks
    of PyTorch."""
    before, rng.policy.host = rng.policy.host, True
    try:
        yield
    finally:
        rng.policy.host = before


def difference(plan, way):
    """Returns (first difference from PyTorch's run or None, whether the runs agree without allowing
    for magnified rounding errors)."""
    plan = programs.there(plan) if way == "npu" else plan
    want = programs.run(real, plan)
    mine._dynamo.reset()
    with host_numbers():
        have = programs.run(mine, plan, "npu" if way == "npu" else "cpu", mine.compile if way == "compiled" else None)
    if programs.difference(want, have, programs.tolerance(plan)) is None:
        return None, True
    found = programs.difference(want, have, programs.tolerance(plan), programs.neighbours(real, plan))
    return None if found is not None and programs.only_overflowed(real, plan, found) else found, False


def check(plan, way):
    """Runs a plan; a run that differs is reduced and reported as an AssertionError.

    Returns whether the run agrees with PyTorch's without allowing for magnified rounding errors.
    """
    found, near = difference(plan, way)
    if found is not None:
        least = programs.smaller(plan, lambda p: difference(p, way)[0] is not None)
        raise AssertionError(f"{way}: {plan}\nleast: {least}\n{programs.told(difference(least, way)[0] or found)}")
    return near


@settings(max_examples=MANY // 3, **ONCE)
@given(SEEDS)
def test_random_programs(seed):
    check(programs.random_plan(real, seed), "eager")


@settings(max_examples=MANY // 6, **ONCE)
@given(SEEDS)
def test_random_programs_compiled(seed):
    check(programs.random_plan(real, seed), "compiled")


@settings(max_examples=MANY // 10, **ONCE)
@given(SEEDS)
def test_random_programs_on_the_npu(npu, seed):
    check(programs.random_plan(real, seed), "npu")


#: Number of programs that the slow job runs; `pytest -m nightly` runs 400 of each kind.
SLOW = {"eager": 400, "compiled": 100, "npu": 50}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["eager", "compiled", "npu"])
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_hundreds_of_random_programs(way, first, request):
    if first >= SLOW[way] and request.config.option.markexpr != "nightly":
        pytest.skip("the nightly run has these")
    if way == "npu":
        request.getfixturevalue("npu")
    near = [check(programs.random_plan(real, seed), way) for seed in range(first, first + 50) if seed not in KNOWN]
    assert sum(near) > 35  # (Few programs magnify rounding errors beyond the tolerance.)


def test_planted_mistake_is_detected(monkeypatch):
    """The planted mistake is an optimizer that ignores its weight decay."""
    plan = Plan(3, (("bottleneck", 1), ("bilinear", 0)), optimizer="nesterov")
    assert difference(plan, "eager")[0] is None
    monkeypatch.setitem(programs.OPTIMIZERS, "nesterov", ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}))
    sgd = mine.optim.SGD
    monkeypatch.setattr(mine.optim, "SGD", lambda ps, **options: sgd(ps, **{**options, "weight_decay": 0.0}))
    assert difference(plan, "eager")[0] is not None


def test_overflow_only_in_torch_is_not_a_difference():
    """A second derivative of batch norm in float16: PyTorch's overflows where its float32 does not,
    and mindtorch's does not overflow."""
    plan = Plan(171, (("shared module", 604), ("channels last", 945)), loss="cross entropy", steps=1, backward="hessian", precision="scaled")
    want, have = programs.run(real, plan), programs.run(mine, plan)
    i, a, b = found = programs.difference(want, have, programs.tolerance(plan), programs.neighbours(real, plan))
    assert not np.isfinite(a[1]).all() and np.isfinite(b[1]).all() and np.abs(b[1]).max() < 1000
    assert programs.only_overflowed(real, plan, found)
    assert not programs.only_overflowed(real, plan, (i, b, a))  # infinities of mindtorch only
    assert not programs.only_overflowed(real, plan, (i, a, (b[0], b[1] * 1.1)))
    assert not programs.only_overflowed(real, plan, (i, a, (b[0], np.full_like(b[1], np.nan))))
    assert difference(plan, "eager")[0] is None
