"""Worker processes: what they send, how they fail, and that none is left running."""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import mindtorch.torch as mine
from mindtorch.torch.utils.data._utils import _transport


from _loaders import BOTH, dataset, plain, seeded, state

pytestmark = [
    pytest.mark.forks,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded"),
]


# ------------------------------------------------------------------ workers
def D(**kw):
    return mine.utils.data.DataLoader(**kw)


def children():
    found = set()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as f:
            found.update(int(p) for p in f.read().split() if alive(p))
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = children()
    yield
    if children() - before:
        gc.collect()  # frees a loader that an exception's traceback references
    end = time.monotonic() + 8
    while children() - before and time.monotonic() < end:
        time.sleep(0.05)
    assert not children() - before


class Failing:
    def __init__(self, what, at=5):
        self.what, self.at = what, at

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == self.at:
            self.what()
        return i


def planted():
    raise ValueError("planted: item five is damaged")


def by_key():
    return {}["planted"]


class Two(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def two():
    raise Two(1, 2)


def test_an_exception_arrives_with_its_traceback():
    with pytest.raises(ValueError) as e:
        list(D(dataset=Failing(planted), batch_size=2, num_workers=2))
    assert "Caught ValueError in DataLoader worker process 0" in str(e.value) and "in planted" in str(e.value)
    with pytest.raises(KeyError, match="planted") as e:
        list(D(dataset=Failing(by_key), num_workers=1))
    assert str(e.value).count("\n") > 3
    with pytest.raises(RuntimeError, match="in two"):
        list(D(dataset=Failing(two), num_workers=1))
    with pytest.raises(ValueError, match="^planted: item five is damaged$"):
        list(D(dataset=Failing(planted)))
    loader = D(dataset=Failing(planted), batch_size=2, num_workers=2)
    it, got = iter(loader), []
    while True:
        try:
            got.append(next(it).tolist())
        except StopIteration:
            break
        except ValueError:
            got.append("error")
    assert got == [[0, 1], [2, 3], "error", [6, 7]]


def test_unsendable_samples_are_reported():
    class Local(Exception):
        pass

    def local():
        raise Local("of a function")

    with pytest.raises(Exception, match="Local") as e:
        list(D(dataset=Failing(local), num_workers=1))
    assert "of a function" in str(e.value) or "pickle" in str(e.value)
    with pytest.raises(Exception, match="pickle"):
        list(D(dataset=[lambda: 1], num_workers=1, batch_size=None))
    with pytest.raises(RuntimeError, match="detach"):
        w = mine.nn.Parameter(mine.from_numpy(np.ones(2)))
        list(D(dataset=range(2), num_workers=1, collate_fn=lambda b: w * 2))


def test_init_function_and_its_errors():
    def init(i):
        global STARTED
        STARTED = 40 + i

    got = [int(x) for x in D(dataset=range(4), num_workers=2, worker_init_fn=init, collate_fn=lambda b: STARTED)]
    assert got == [40, 41, 40, 41]
    with pytest.raises(ValueError, match="planted"):
        list(D(dataset=range(4), num_workers=2, worker_init_fn=lambda i: planted()))


STARTED = 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "how, text",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal: Killed"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "killed by signal: Terminated"),
        (lambda: os._exit(3), "exit code 3"),
        (lambda: sys.exit(0), "exited unexpectedly"),
    ],
)
def test_a_dead_worker_is_reported_at_once(how, text, workers):
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid.*" + text):
        list(D(dataset=Failing(how), batch_size=2, num_workers=workers))
    assert time.monotonic() - start < 15


def test_a_worker_killed_from_outside():
    def wait():
        time.sleep(30)

    for persistent in (False, True):
        it = iter(D(dataset=Failing(wait), batch_size=2, num_workers=2, persistent_workers=persistent))
        next(it)
        for w in it._workers:
            os.kill(w.pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="Killed"):
            list(it)
        assert time.monotonic() - start < 15
        with pytest.raises(StopIteration):
            next(it)


def test_timeout():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.4 seconds"):
        list(D(dataset=Failing(lambda: time.sleep(20)), num_workers=1, timeout=0.4))
    assert time.monotonic() - start < 15


def test_loader_can_be_stopped_early_and_reused():
    for persistent in (False, True):
        loader = D(dataset=range(60), batch_size=3, num_workers=2, persistent_workers=persistent)
        for n in (0, 1, 7):
            for i, b in enumerate(loader):
                assert b.tolist() == [3 * i, 3 * i + 1, 3 * i + 2]
                if i == n:
                    break
        assert [x for b in loader for x in b.tolist()] == list(range(60))


def test_persistent_workers_stay_and_keep_their_state():
    class Counting(Failing):
        seen = 0

        def __getitem__(self, i):
            Counting.seen += 1
            return os.getpid(), Counting.seen

    loader = D(dataset=Counting(planted), batch_size=None, num_workers=2, persistent_workers=True, collate_fn=tuple)
    first, second = list(loader), list(loader)
    assert {p for p, _ in first} == {p for p, _ in second} and max(n for _, n in second) == 8


class Large(Failing):
    """Samples that need shared memory, unusual memory layouts, and a long message."""

    def __getitem__(self, i):
        big = np.full((100, 120), i, np.float32)
        return {
            "big": mine.from_numpy(big),
            "array": np.full(20_000, i),
            "text": "x" * 40_000 + str(i),
            "half": mine.from_numpy(big).to(mine.bfloat16),
            "turned": mine.from_numpy(big).t(),
            "tiny": i,
            "every": mine.from_numpy(big)[::2, ::3],
        }


def _is(b, items):
    items = np.array(items)
    for k, shape in (("big", (100, 120)), ("turned", (120, 100)), ("every", (50, 40)), ("array", (20_000,))):
        assert np.array_equal(
            b[k].numpy(), np.broadcast_to(items.reshape(-1, *[1] * len(shape)), (len(items), *shape))
        ), k
    assert b["half"].dtype == mine.bfloat16 and np.array_equal(b["half"].float().numpy()[:, 3, 4], items)
    assert list(b["text"]) == ["x" * 40_000 + str(i) for i in items] and b["tiny"].tolist() == list(items)


def test_shared_memory_is_reused_only_when_unreferenced():
    loader = D(dataset=Large(planted), batch_size=2, num_workers=2, persistent_workers=True)
    kept, views = [], []
    for epoch in range(12):
        for i, b in enumerate(loader):
            _is(b, [2 * i, 2 * i + 1])
            if (epoch + i) % 3 == 0:
                kept.append((b, i))
            else:
                views.append((b["big"][1:].transpose(0, 2)[5], 2 * i + 1))
                b["turned"].zero_()
                b["array"][:] = -1
    for b, i in kept:
        _is(b, [2 * i, 2 * i + 1])
    for v, x in views:
        assert (v.numpy() == x).all()
    assert _transport.CAN_SHARE and any(w.receiver._maps for w in loader._iterator._team)
    del kept, views, b, v
    for _ in range(20):
        for i, b in enumerate(loader):
            _is(b, [2 * i, 2 * i + 1])
    # Unused memory maps have been released.
    assert max(len(w.receiver._maps) for w in loader._iterator._team) < 60


def test_nothing_leaks():
    def fds():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    list(D(dataset=Large(planted), batch_size=2, num_workers=2))
    before, shared = fds(), set(os.listdir("/dev/shm"))
    for _ in range(3):
        for _b in D(dataset=Large(planted), batch_size=2, num_workers=2):
            pass
        it = iter(D(dataset=Large(planted), batch_size=2, num_workers=2))
        next(it)
        del it
    del _b
    # files of other or killed processes do not count
    assert fds() <= before + 1 and not [n for n in os.listdir("/dev/shm") if "mindtorch" in n and n not in shared]


@pytest.mark.parametrize("limit", [0, 3])
def test_batches_arrive_without_enough_shared_memory(monkeypatch, limit):
    monkeypatch.setattr(_transport, "_MAX_SEGMENTS", limit)
    monkeypatch.setattr(_transport, "CAN_SHARE", limit > 0)
    kept = list(D(dataset=Large(planted), batch_size=2, num_workers=2))
    for i, b in enumerate(kept):
        _is(b, [2 * i, 2 * i + 1])


def test_uncollated_samples_keep_layouts_and_flags():
    t = mine.from_numpy(np.arange(24_000.0).reshape(20, 30, 40))
    samples = [
        t,
        t.permute(2, 0, 1),
        t[:, ::2],
        t[3],
        mine.nn.Parameter(t[0]),
        t[0, 0, 0],
        mine.from_numpy(np.arange(4.0)).requires_grad_(),
        mine.from_numpy(np.zeros((0, 4))),
    ]
    got = list(D(dataset=samples, batch_size=None, num_workers=1))
    for a, b in zip(samples, got, strict=True):
        assert type(a) is type(b) and a.requires_grad == b.requires_grad and a.tolist() == b.tolist()
    assert got[1].stride() == samples[1].stride()


def test_workers_run_ops_after_ops_in_the_parent():
    x = mine.from_numpy(np.random.RandomState(0).randn(4, 8).astype(np.float32))
    layer = mine.nn.Linear(8, 8)
    layer(x).sum().backward()

    class Works(Failing):
        def __getitem__(self, i):
            with mine.no_grad():
                return layer(x * i).relu().sum(0)

    start = time.monotonic()
    got = mine.cat(list(D(dataset=Works(planted), batch_size=2, num_workers=2)))
    want = mine.stack([Works(planted)[i] for i in range(8)])
    assert np.allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-5) and time.monotonic() - start < 20


SCRIPT = """
    import os, sys, time
    from mindtorch.tools import mstorch_enable
    import torch, numpy as np
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    class Items(Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, i):
            time.sleep({sleep})
            assert os.path.basename(os.path.dirname(torch.__file__)) == "torch" and "mindtorch" in torch.__file__
            return torch.full((50, 50), float(i)), torch.tensor([get_worker_info().id])

    def main():
        it = iter(DataLoader(Items(), batch_size=4, num_workers=2, multiprocessing_context="{context}",
                             worker_init_fn=started))
        if {sleep} < 1:
            x, w = next(it)
            assert x[:, 0, 0].tolist() == [0, 1, 2, 3] and w.tolist() == [[0]] * 4
        print("READY", *[p.pid for p in it._workers], flush=True)
        {then}

    def started(i):
        assert get_worker_info().num_workers == 2

    if __name__ == "__main__":
        main()
"""


def _heed_interrupts():
    """Restores SIGINT in a child: a shell starts background processes with SIGINT ignored, and the
    script would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    "context, sleep, then, end",
    [
        pytest.param("fork", 0.01, "list(it)", signal.SIGINT, marks=pytest.mark.slow),
        ("fork", 0.01, "list(it)", signal.SIGKILL),
        ("fork", 30, "list(it)", signal.SIGINT),
        ("fork", 0.001, "list(it)", None),
        ("fork", 0.01, "sys.exit(0)", None),
        pytest.param("spawn", 0.001, "list(it)", None, marks=pytest.mark.slow),
        pytest.param("forkserver", 0.01, "list(it)", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("spawn", 0.01, "list(it)", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_no_process_outlives_the_script(tmp_path, context, sleep, then, end):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(context=context, sleep=sleep, then=then)))
    root = os.path.dirname(os.path.dirname(os.path.abspath(mine.__path__[0])))
    p = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    line = p.stdout.readline()
    assert line.startswith("READY"), p.communicate()[1]
    workers = [int(x) for x in line.split()[1:]]
    assert len(workers) == 2
    if end is not None:
        time.sleep(0.3)
        # Ctrl-C signals all processes of a terminal.
        (os.killpg if end == signal.SIGINT else os.kill)(p.pid, end)
    _, err = p.communicate(timeout=30)
    assert p.returncode == {None: 0, signal.SIGINT: -signal.SIGINT, signal.SIGKILL: -signal.SIGKILL}[end], err
    limit = time.monotonic() + 8
    while any(map(alive, workers)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    if end is None:
        assert not err.strip(), err
    elif end == signal.SIGINT:
        assert err.count("KeyboardInterrupt") == 1


@pytest.mark.slow
def test_many_killed_workers():
    for i in range(50):
        it = iter(
            D(
                dataset=Failing(lambda: time.sleep(0.002), at=i % 8),
                batch_size=1 + i % 3,
                num_workers=1 + i % 2,
                persistent_workers=bool(i % 3),
            )
        )
        time.sleep(random.Random(i).uniform(0, 0.03))
        os.kill(it._workers[i % len(it._workers)].pid, signal.SIGKILL)
        start = time.monotonic()
        try:
            list(it)
        except RuntimeError as e:
            assert "Killed" in str(e)
        assert time.monotonic() - start < 15


def two_hundred_loaders():
    r = random.Random(1)
    for k in range(200):
        n, workers = r.randint(1, 40), r.choice([0, 0, 1, 2])
        options = dict(batch_size=r.choice([1, 2, 5, None]), shuffle=r.random() < 0.5, num_workers=workers)
        if options["batch_size"]:
            options["drop_last"] = r.random() < 0.3
        if workers:
            options.update(prefetch_factor=r.randint(1, 4), persistent_workers=r.random() < 0.5)
        results = []
        for T in BOTH:
            seeded(T, k)
            loader = T.utils.data.DataLoader(dataset(T, n), **options)
            results.append(([[plain(b) for b in loader] for _ in range(2)], state(T)))
        assert results[0] == results[1], options
    print("compared")


@pytest.mark.slow
def test_two_hundred_loaders():
    """Runs in a separate process: the loaders fork about 400 times, and forking a process that has
    run a thousand tests costs several times as much (26 s on its own, more than 120 s after all
    tests)."""
    path = os.pathsep.join([*sys.path, os.path.dirname(__file__)])
    p = subprocess.run([sys.executable, "-W", "ignore", "-c", "import test_data_workers as t; t.two_hundred_loaders()"],
                       env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=110)
    assert p.returncode == 0 and p.stdout.endswith("compared\n"), p.stdout[-2000:] + p.stderr[-4000:]
