"""The figures by which library checks are compared (library_checks/figures.py): PyTorch's
and mindtorch's for one program."""
import sys

import pytest
import torch

import mindtorch.torch as mt
from library_checks import figures


def _a_check(T):
    def inner(a):
        doubled = a * 2
        return doubled
    T.manual_seed(0)
    w = T.randn(3, 2, requires_grad=True)
    net, seen = T.nn.Sequential(T.nn.Linear(2, 2), T.nn.BatchNorm1d(2)), []
    seen.append(net(inner(w)).pow(2).sum())
    (seen[0] + w.sum()).backward()
    empty, half, places, there = T.zeros(0), w.detach().bfloat16(), T.arange(4), w.detach() > 0
    wave, sparse, name, nothing = T.complex(w, w).detach(), T.eye(2).to_sparse(), "a", None
    with T.no_grad():
        batched = T.vmap(inner)(w)
    return empty, half, places, there, wave, sparse, name, nothing, batched


@pytest.fixture
def tracer():
    """Installs a trace function, as debuggers and coverage.py do, and checks that it is still
    installed afterwards."""
    def trace(frame, event, arg):
        return None
    before = sys.gettrace()
    sys.settrace(trace)
    yield
    found = sys.gettrace()
    sys.settrace(before)
    assert found is trace


@pytest.mark.parametrize("traced", [False, True])
def test_figures_of_a_check_match_torch(traced, request):
    """A program has the same figures under both libraries; they cover only its own functions, also
    under a function transform."""
    told = []
    if traced:
        request.getfixturevalue("tracer")
    for T in (torch, mt):
        with figures.Seen(__file__) as seen, pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "torch", T)
            _a_check(T)
        told.append(seen.calls)
    assert not figures.apart(told[1], told[0], 1e-5) and [c[0] for c in told[0]] == ["inner", "inner", "_a_check"]
    last = told[0][-1][1]
    assert set(last) == {"w", "net", "seen", "empty", "half", "places", "there", "wave", "sparse", "batched"}
    assert last["places"] == 1.5 and last["sparse"] == 0.5 and len(last["w"]) == 2 and all(last["net"]) and last["empty"] == 0
    assert told[0][1][1]["doubled"] == "unread" and figures.count(told[0]) > 12
