"""Compiled steps on the npu device with arbitrary changes between the calls: results match an eager
run of the same program on the same device.

A failing program prints the smallest plan found that still fails. `check(Plan(...), device)` reruns
it.
"""
import os
import collections
import dataclasses
import threading
import time

import pytest

import _compile_programs as networks
import _graph_changes as programs
import _graph_programs
import mindtorch.torch as torch
from _graph_programs import Plan
from mindtorch.core.device import device_state
from mindtorch.core.compile import replay

pytestmark = pytest.mark.usefixtures("forgotten_variants")
TOLERANCE = 1e-6
OPTIONS = {"backend": "mindspore"}


def compiling(f):
    return torch.compile(f, **OPTIONS)


def difference(plan, device):
    """Returns the first difference between the compiled and the eager run of a plan, or None."""
    want = programs.run(plan, device)
    torch._dynamo.reset()
    have = programs.run(plan, device, compiling)
    if networks.differ(want, have, TOLERANCE) is None:
        return None
    return networks.differ(want, have, TOLERANCE, programs.run(plan, device, jitter=1e-6))


def check(plan, device, reduce=True):
    """Compares the runs of a plan. A failing plan is reduced and reported."""
    try:
        found = difference(plan, device)
    except Exception as e:
        if not reduce:
            raise
        kind = type(e)
        least = programs.smaller(plan, lambda p: raises(p, device, kind))
        raise AssertionError(f"{type(e).__name__}: {str(e)[:500]}\nsmallest failing plan: {least}") from e
    if found is not None:
        least = programs.smaller(plan, lambda p: differs(p, device)) if reduce else plan
        found = difference(least, device)
        where = f"{place(least, device, found)}\nerrors: {errors(least, device)}" if found else "(only the complete plan fails)"
        raise AssertionError(f"seed {plan.seed} differs\nsmallest failing plan: {least}\n{where}")


def errors(plan, device):
    """Returns abbreviated errors of the compiled run of a plan."""
    torch._dynamo.reset()
    world = programs.World(plan, device, compiling)
    programs.run(plan, device, world=world)
    return [e[:300] for e in world.errors[:3]]


def differs(plan, device):
    try:
        return difference(plan, device) is not None
    except Exception:
        return False


def raises(plan, device, kind):
    try:
        difference(plan, device)
    except kind:
        return True
    except Exception:
        pass
    return False


def place(plan, device, found):
    """Returns the call, or the part of the final state, where a difference was found."""
    labels = [x for x in programs.run(plan, device)[:found[0]] if isinstance(x, str) and not x.startswith("torch.")]
    return f"{labels[-3:]}: {str(found[1:])[:400]}"


# ----------------------------------------------------------- every word and every change separately
@pytest.mark.slow
@pytest.mark.parametrize("name", programs.WORDS)
def test_word(name, npu):
    check(Plan(1, words=(name,), calls=4, out=("loss", "view of state")), npu, reduce=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", programs.OUTS)
def test_output(name, npu):
    check(Plan(2, words=("write shared", "state"), calls=4, out=(name,), changes=((2, "share", 1),), read="late"), npu, reduce=False)


#: change -> what it needs to have a visible effect; changes that only enable the next one are
#: listed as well
NEEDS = {
    "eps": {"optimizer": "Adam"}, "norm settings": {"net": "norm"}, "write buffer": {"net": "norm"}, "new buffer": {"net": "norm"},
    "global number": {"words": ("global",)}, "closure number": {"words": ("closure",)}, "attribute number": {"words": ("attribute",)},
    "attribute tensor": {"words": ("attribute",)}, "list of numbers": {"words": ("loop",)}, "one of the list": {"words": ("loop",)}, "raise next": {"words": ("raise",)},
    "share": {"words": ("write shared",)}, "shared parameter": {"net": "tied", "changes": ((1, "new parameter", 1), (4, "shared parameter", 1))}, "grads to none": {"zero": "not"},
    "grads to zero": {"zero": "not"}, "grads by hand": {"zero": "not"}, "write grads": {"zero": "not"}, "default dtype of torch": {"words": ("default dtype",)},
    "scale of scaler": {"backward": "scaler"}, "input grad": {"words": ("write input",)}, "backward outside": {"backward": "none", "out": ("with history",)}, "step counts": {"optimizer": "Adam"},
    "load": {"changes": ((1, "save", 0), (4, "load", 1))}, "unhook": {"changes": ((1, "tensor hook", 0), (4, "unhook", 1))}, "new data": {"words": ("state",)},
    "swapped data": {"words": ("state",)}, "write data of input": {"changes": ((1, "same data", 0), (4, "write data of input", 1))},
    "seed": {"words": ("random numbers",)}, "train a part": {"net": "mlp", "changes": ((4, "train a part", 2),)}, "train": {"net": "mlp"}, "dropout p": {"net": "mlp"}, "dtype": {"changes": ((4, "dtype", 0),)}, "layout": {"changes": ((4, "layout", 6),)},
}
# without a visible effect of their own under this plan
UNSEEN = {"save", "grads to none", "grads to zero"}


def plan_of(change):
    plan = {"optimizer": "SGD", "changes": ((4, change, 3),), "calls": 7, "net": "linear", "out": ("loss", "list"), **NEEDS.get(change, {})}
    return Plan(3, **plan)


#: Changes that interact with something else in a network with dropout, or that once failed there.
#: They run with that network by default, and with the plain one as a slow test.
WITH_DROPOUT = {"seed", "train", "train a part", "dropout p", "grad mode", "autocast around", "backward outside", "scale of scaler", "forward hook", "unhook",
                "input grad", "freeze", "new parameter", "share", "layout", "batch", "lr"}


@pytest.mark.parametrize("name, net", [pytest.param(c, net, marks=[pytest.mark.slow] if (net == "mlp") != (c in WITH_DROPOUT and NEEDS.get(c, {}).get("net", "linear") == "linear") else [])
                                       for c in programs.CHANGES for net in ("linear", "mlp")])
def test_change(name, net, npu):
    """Two calls are compiled, two run from the cache, then the change is applied."""
    plan = plan_of(name)
    if net == "mlp":  # with dropout
        if plan.net != "linear":
            pytest.skip("this change needs another network")
        plan = dataclasses.replace(plan, net=net)
    want = programs.run(plan, npu)
    if name not in UNSEEN:
        assert networks.differ(want, programs.run(plan, npu, without=len(plan.changes) - 1), TOLERANCE) is not None, "a stale value would pass"
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["mindspore"]["graph_runs"]
    found = networks.differ(want, programs.run(plan, npu, compiling), TOLERANCE)
    assert found is None, (place(plan, npu, found), plan, errors(plan, npu))
    assert torch._dynamo.utils.counters["mindspore"]["graph_runs"] > before, "nothing was compiled: it shows nothing"


# ------------------------------------------------------------------ random programs
@pytest.mark.parametrize("seed", [pytest.param(s, marks=[pytest.mark.slow] if s >= 3 else []) for s in range(10)])
def test_random_programs(seed, npu):
    check(programs.random_plan(seed), npu)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(int(os.environ.get("MINDTORCH_GRAPH_PROGRAMS", "10")) // 10))
def test_more_random_programs(block, npu):
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        check(programs.random_plan(seed), npu)


def check_networks(seeds, npu):
    for seed in seeds:
        want, _ = networks.run(seed, "eager", device=npu)
        for how in ("model", "step"):
            torch._dynamo.reset()
            got, _ = networks.run(seed, how, device=npu, **OPTIONS)
            found = networks.differ(want, got, TOLERANCE)
            if found:
                nearby, _ = networks.run(seed, "eager", device=npu, moved=True)
                found = networks.differ(want, got, TOLERANCE, nearby)
            assert found is None, (seed, how, found)


def test_random_networks(npu):
    check_networks(range(1), npu)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_more_random_networks(npu):
    check_networks([1, 2, *range(100, 104)], npu)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(10, 40), marks=pytest.mark.slow)], ids=["few", "more"])
def test_changes_have_visible_effects(seeds, npu):
    """Leaving out a change alters the eager result for most changes, so a stale value would be
    detected."""
    tried, visible = collections.Counter(), collections.Counter()
    for seed in seeds:
        plan = programs.random_plan(seed)
        want = programs.run(plan, "cpu")
        for k, (_, name, _) in enumerate(plan.changes):
            tried[name] += 1
            visible[name] += networks.differ(want, programs.run(plan, "cpu", without=k), TOLERANCE) is not None
    assert sum(visible.values()) > 0.4 * sum(tried.values()), (visible, tried)


# ------------------------------------------------------------------ shared memory
def _written(a, b, x):
    a.add_(0.5)
    return x + b


def _written_in_part(a, b, x):
    x = x + b * 0.1
    a[1:3] = x[0, :2]
    return x + b


@pytest.mark.parametrize("step", [_written, _written_in_part])
def test_arguments_that_begin_to_share_memory(step, npu):
    """Two tensors become views of one tensor: a write through one name is visible through the
    other."""
    use = compiling(step)
    for i in range(9):
        runs = []
        for f in (step, use):
            torch.manual_seed(i)
            a, b, x = (torch.randn(*s).to(npu) for s in ((8,), (8,), (5, 4)))
            b = a[2:6] if 4 <= i < 7 else b
            runs.append([networks.array(t) for t in (f(a[:4], b[:4], x), a, b)])
        assert networks.differ(runs[0], runs[1], TOLERANCE) is None


# ------------------------------------------------------------------ numbers
@pytest.mark.parametrize("rates", [(0.2, 0.2, 0.0, 0.2, 0.2, 0.0, 0.4, 0.4), (0.2, 0.3, 0.3, 0.0, 0.0, 0.3, 1.0, 1.0, 0.2), (0.0, 0.0, 0.3, 0.0, 0.2, 0.2)])
def test_scalar_that_decides_the_number_of_results(rates, npu):
    """Attention returns a mask only if the dropout rate is nonzero."""
    def attention(q, rate):
        y = torch.nn.functional.scaled_dot_product_attention(q, q * 0.5, q + 1, dropout_p=rate)
        y.square().sum().backward()
        return y.detach() * 1
    use = compiling(attention)
    for i, rate in enumerate(rates):
        runs = []
        for f in (attention, use):
            torch.manual_seed(i)
            q = torch.randn(2, 3, 4, 2).to(npu).requires_grad_()
            runs.append([networks.array(t) for t in (f(q, rate), q.grad)])
        assert networks.differ(runs[0], runs[1], TOLERANCE) is None


# ------------------------------------------------------------------ threads
def test_only_one_thread_records_a_session(npu):
    """Of two threads that start at the same time, one defers its kernels and the other runs
    eagerly."""
    both, found = threading.Barrier(2), []

    def work():
        with replay.session(replay.Trace()) as session:
            found.append(session)
            both.wait(60)
    threads = [threading.Thread(target=work) for _ in range(2)]
    with device_state.DEVICE_LOCK:
        for t in threads:
            t.start()
        time.sleep(0.2)  # both wait for the lock
    for t in threads:
        t.join()
    assert len(found) == 2 and found.count(None) == 1
    assert replay.current.session is None


@pytest.mark.parametrize("seed", range(2))
def test_two_threads(seed, npu):
    """One compiled function, called from two threads with two independent states."""
    step = compiling(_graph_programs.step)
    plans = [Plan(seed + k, net="norm", optimizer="Adam", words=("attribute", "state", "branch", "write view"), calls=10,
                  changes=((4, "lr", k), (5, "attribute number", k), (7, "batch", k), (8, "train", k))) for k in (0, 1)]
    # the last entry is the random-number state, which all threads share
    want, got = [programs.run(p, npu)[:-1] for p in plans], [None, None]
    worlds = [programs.World(p, npu, lambda f: step if f is _graph_programs.step else f) for p in plans]

    def work(k):
        try:
            got[k] = programs.run(plans[k], npu, world=worlds[k])[:-1]
        except BaseException as e:
            got[k] = e
    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in (0, 1):
        assert isinstance(got[k], list), got[k]
        # Which parts become graphs depends on timing here, and so does the rounding, which ten
        # steps magnify.
        found = networks.differ(want[k], got[k], 1e-5)
        assert found is None or networks.differ(want[k], got[k], 1e-5, programs.run(plans[k], npu, jitter=1e-6)[:-1]) is None, found
