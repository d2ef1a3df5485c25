"""mindtorch.tools.CachedDataset: items are computed once, equal, independent and bounded in size,
and no files are left behind."""
import fcntl
import glob
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import threading
import time

import numpy as np
import pytest

import mindtorch.torch as mine
from mindtorch.tools import CachedDataset
from mindtorch.tools import _cache

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded"),
]

DataLoader = mine.utils.data.DataLoader


class Counted(mine.utils.data.Dataset):
    """Every access adds a line to a file that all processes share."""

    classes = ["a", "b"]

    def __init__(self, log, n=12):
        self.log, self.n = str(log), n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with open(self.log, "a") as f:
            f.write(f"{i}\n")
        x = mine.from_numpy(np.random.RandomState(i).randn(3, 50).astype(np.float32))
        return {"x": x, "t": x.t(), "half": x.bfloat16(), "i": i, "a": np.arange(i), "text": "n" * i, "none": None}

    def seen(self):
        with open(self.log) as f:
            return sorted(int(line) for line in f)


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, mine.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and mine.equal(a, b)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            same(a[k], b[k])
    else:
        assert a == b


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("first", [0, 2])
def test_each_item_is_computed_once_in_all_processes_and_epochs(tmp_path, where, first):
    data = Counted(tmp_path / "log")
    cached = CachedDataset(data, None if where == "memory" else tmp_path / "cache")
    plain = [data[i] for i in range(12)]
    os.unlink(tmp_path / "log")
    for workers in (first, 2 - first, 2):
        for persistent in (False, True):
            options = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
            loader = DataLoader(cached, batch_size=None, shuffle=True, **options)
            for _ in range(2):
                got = list(loader)
                assert sorted(x["i"] for x in got) == list(range(12))
                for x in got:
                    x["a"] = x["a"].numpy()  # default_convert turns arrays into tensors
                    same(x, plain[x["i"]])
    assert data.seen() == list(range(12)) and len(cached) == 12
    assert cached.stored()[0] == 12


def test_items_are_independent(tmp_path):
    kept = [mine.zeros(3) for _ in range(2)]
    cached = CachedDataset(kept)
    for _ in range(3):
        a, b = cached[0], cached[0]
        assert a.tolist() == b.tolist() == [0, 0, 0] and a is not b
        a.add_(1)
        assert b.tolist() == [0, 0, 0] and cached[0].tolist() == [0, 0, 0]
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    again = CachedDataset([mine.as_tensor(frozen)])
    again[0].add_(1)
    assert again[0].tolist() == [0, 1, 2]


def test_indices(tmp_path):
    data = Counted(tmp_path / "log")
    cached = CachedDataset(data)
    same(cached[-1], cached[11])
    same(cached[np.int64(3)], cached[mine.tensor(3)])
    assert data.seen() == [3, 11]
    with pytest.raises(IndexError):
        cached[-13]
    with pytest.raises(TypeError):
        cached[1.5]
    assert CachedDataset({"a": 1, "b": [2]})["b"] == [2]
    with pytest.raises(KeyError):
        CachedDataset({"a": 1})["c"]
    assert cached.classes == ["a", "b"] and cached.dataset is data
    with pytest.raises(AttributeError):
        cached.nothing  # noqa: B018
    with pytest.raises(TypeError, match="IterableDataset"):
        CachedDataset(mine.utils.data.ChainDataset([]))
    with pytest.raises(TypeError, match="__getitem__"):
        CachedDataset(5)


def test_transform_runs_every_time(tmp_path):
    data = Counted(tmp_path / "log")
    cached = CachedDataset(data, transform=lambda item: random.random())
    assert len({cached[0] for _ in range(5)}) == 5 and data.seen() == [0]


def test_dataset_error_is_not_cached(tmp_path):
    calls = []

    class Fails(list):
        def __getitem__(self, i):
            calls.append(i)
            raise ValueError("planted")

    cached = CachedDataset(Fails([1]))
    for _ in range(2):
        with pytest.raises(ValueError, match="planted"):
            cached[0]
    assert calls == [0, 0]


def test_cache_on_disk_persists_to_the_next_run(tmp_path):
    folder = tmp_path / "a" / "cache"
    data = Counted(tmp_path / "log")
    want = CachedDataset(data, folder, key="v1")[4]
    again = CachedDataset(data, folder, key="v1")
    same(again[4], want)
    assert data.seen() == [4]
    with pytest.raises(ValueError, match="filled with key 'v1'"):
        CachedDataset(data, folder, key="v2")
    with pytest.raises(ValueError, match="length '12'"):
        CachedDataset(Counted(tmp_path / "log", 13), folder, key="v1")
    again.clear()
    assert again.stored()[0] == 0
    same(again[4], want)
    assert data.seen() == [4, 4]
    again.close()
    same(again[4], want)  # a closed cache can be used again


def test_damaged_cache_file_raises(tmp_path):
    (tmp_path / "items.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.raises(RuntimeError, match="delete it if it is damaged"):
        CachedDataset([1], tmp_path)


def test_limit(tmp_path):
    data = [mine.full((30_000,), float(i)) for i in range(20)]
    cached = CachedDataset(data, max_bytes=1_000_000)
    with pytest.warns(UserWarning, match="limit of 1000000 bytes") as seen:
        for _ in range(3):
            for i in range(20):
                assert cached[i][-1].item() == i
    assert len(seen) == 1
    n, size = cached.stored()
    assert 3 < n < 20 and size <= 1_000_000
    cached.clear()
    assert cached[19][0].item() == 19 and cached.stored()[0] == 1


def test_full_disk_warns_without_error(monkeypatch):
    cached = CachedDataset([mine.ones(3), mine.zeros(100_000)])
    assert cached[0].tolist() == [1, 1, 1]
    with cached._file as db:
        pages = db.execute("pragma page_count").fetchone()[0]
        db.execute(f"pragma max_page_count={pages}")
    with pytest.warns(UserWarning, match="full"):
        assert cached[1].sum().item() == 0
    assert cached[1].sum().item() == 0 and cached[0].tolist() == [1, 1, 1] and cached.stored()[0] == 1


def folders():
    return set(glob.glob(_cache._MEMORY + "/" + _cache._PREFIX + "*"))


def _hold(ready):
    cached = CachedDataset([mine.ones(3)])
    cached[0]
    ready.put(cached.folder)
    time.sleep(60)


def test_cache_memory_is_released():
    before = folders()
    cached = CachedDataset([mine.ones(3)])
    cached[0]
    assert len(folders() - before) == 1
    copy = pickle.loads(pickle.dumps(cached))
    del copy
    assert cached[0].tolist() == [1, 1, 1] and os.path.isdir(cached.folder)
    p = multiprocessing.get_context("fork").Process(target=len, args=(cached,))
    p.start()
    p.join()
    assert p.exitcode == 0 and os.path.isdir(cached.folder)
    del cached
    assert folders() == before
    # Creating the next cache removes the files of a killed process; a cache in use stays.
    ctx = multiprocessing.get_context("fork")
    ready = ctx.Queue()
    p = ctx.Process(target=_hold, args=(ready,), daemon=True)
    p.start()
    folder = ready.get(timeout=30)
    CachedDataset([1])
    assert os.path.isdir(folder)
    os.kill(p.pid, signal.SIGKILL)
    p.join()
    assert os.path.isdir(folder)
    CachedDataset([1])
    assert not os.path.isdir(folder)
    unfinished = os.path.join(_cache._MEMORY, _cache._PREFIX + "x")
    os.mkdir(unfinished)
    try:
        CachedDataset([1])
        assert os.path.isdir(unfinished)
        with open(os.path.join(unfinished, "lock"), "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            CachedDataset([1])
            assert os.path.isdir(unfinished)
    finally:
        shutil.rmtree(unfinished)


def test_threads_and_forks_at_once(tmp_path):
    cached = CachedDataset([mine.full((2000,), float(i)) for i in range(60)], tmp_path)
    errors = []

    def read(seed):
        try:
            r = random.Random(seed)
            for _ in range(150):
                i = r.randrange(60)
                assert cached[i][3].item() == i
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=read, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for _ in range(4):
        for b in DataLoader(cached, batch_size=10, num_workers=2):
            assert (b[:, 0] == b[:, -1]).all()
    for t in threads:
        t.join()
    assert not errors
    assert [int(cached[i][0]) for i in range(60)] == list(range(60))


def test_forks_while_caches_open_and_close(process):
    """SQLite has one lock for all its files: a child forked while another thread of the parent
    holds it would deadlock."""
    process.file("script.py", """
        import os, tempfile, threading, time
        from mindtorch.tools import CachedDataset

        def come_and_go(folder):
            while not done.is_set():
                CachedDataset(range(3), folder)[0]

        cached = CachedDataset(range(3))
        done = threading.Event()
        threads = [threading.Thread(target=come_and_go, args=(tempfile.mkdtemp(),)) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            for _ in range(150):
                child = os.fork()
                if not child:
                    os._exit(cached[1])
                end = time.monotonic() + 20
                while True:
                    found, status = os.waitpid(child, os.WNOHANG)
                    if found:
                        assert os.waitstatus_to_exitcode(status) == 1
                        break
                    if time.monotonic() > end:
                        os.kill(child, 9)
                        raise AssertionError("the child waits for ever")
                    time.sleep(0.001)
            assert all(t.is_alive() for t in threads)
        finally:
            done.set()
        print("all ended")
        """)
    done = process.run("script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all ended\n" and not done.stderr


def _fill_for_ever(folder, ready):
    cached = CachedDataset([np.full(20_000, i) for i in range(40)], folder)
    ready.set()
    while True:
        for i in range(40):
            cached[i]
        cached.clear()


def test_kill_while_writing_keeps_the_cache_valid(tmp_path):
    ctx = multiprocessing.get_context("fork")
    for k in range(8):
        ready = ctx.Event()
        p = ctx.Process(target=_fill_for_ever, args=(tmp_path, ready), daemon=True)
        p.start()
        ready.wait(30)
        time.sleep(random.Random(k).uniform(0, 0.1))
        os.kill(p.pid, signal.SIGKILL)
        p.join()
        cached = CachedDataset([np.full(20_000, i) for i in range(40)], tmp_path)
        for i in range(40):
            assert (cached[i] == i).all()


@pytest.mark.slow
def test_spawned_workers_share_it(process):
    process.file("script.py", """
        import os, sys
        from mindtorch.tools import mstorch_enable, CachedDataset
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Items(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, i):
                with open("log", "a") as f:
                    f.write(f"{i}\\n")
                return torch.full((4,), float(i))

        if __name__ == "__main__":
            data = CachedDataset(Items())
            for _ in range(2):
                loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="spawn")
                assert [b[:, 0].tolist() for b in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert sorted(map(int, open("log"))) == list(range(8))
    """)
    done = process.run("script.py")
    assert done.returncode == 0, done.stderr
