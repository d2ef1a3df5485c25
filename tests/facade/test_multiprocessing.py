"""torch.multiprocessing: tensors in shared memory, queues and pipes, spawn; compared with PyTorch
where it defines the behavior."""
import contextlib
import gc
import os
import threading
import time
import warnings
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch as real
import torch.multiprocessing  # noqa: F401

import mindtorch.torch as mine
import mindtorch.torch.multiprocessing as mp
from mindtorch.backend import cpython

pytestmark = [pytest.mark.forks, pytest.mark.filterwarnings("ignore:.*multi-threaded", "ignore:TypedStorage")]
BOTH = (real, mine)


def both(f):
    a, b = (f(T) for T in BOTH)
    assert a == b
    return b


# ------------------------------------------------------------------ shared memory
def test_share_memory_moves_a_tensor_with_its_views():
    def run(T):
        t = T.arange(12.0).reshape(3, 4)
        row, turned = t[1], t.t()[2:, ::2]
        before = t.data_ptr()
        out = [t.is_shared(), turned.share_memory_() is turned, t.is_shared(), row.is_shared(), t.data_ptr() != before]
        row[0] = 50.0
        turned[1, 1] = 60.0
        t.add_(1)
        out += [t.tolist(), row.tolist(), turned.tolist(), turned.stride(), turned.storage_offset(), t.untyped_storage().nbytes()]
        return out + [t.untyped_storage().is_shared(), t.storage().is_shared(), T.ones(2).is_shared(), T.empty(0).is_shared()]

    both(run)


@pytest.mark.parametrize("frozen", [False, True])
def test_share_memory_finds_detached_tensors(frozen):
    def run(T):
        t = T.nn.Parameter(T.ones(4))
        d, e, s = t.detach(), t.data, t.untyped_storage()
        if frozen:
            gc.freeze()  # as programs do before they fork
        t.share_memory_()
        d[0] = 5.0
        e[1] = 6.0
        return [t.tolist(), d.is_shared(), e.is_shared(), s.is_shared(), s.data_ptr() == t.data_ptr(), t.requires_grad, t.is_leaf]

    both(run)


def test_storages_are_shared():
    def run(T):
        t = T.ones(4)
        s = t.untyped_storage()
        out = [s.is_shared(), s.share_memory_() is s, s.is_shared(), t.is_shared(), t.data_ptr() == s.data_ptr()]
        new = T.UntypedStorage._new_shared(8)
        return out + [new.is_shared(), new.nbytes()]

    both(run)


def test_gradients_work_after_sharing():
    w = mine.nn.Parameter(mine.ones(3))
    y = (w * 2).sum()
    w.share_memory_()
    y.backward()
    with mine.no_grad():
        w -= w.grad
    assert w.tolist() == [-1, -1, -1] and w.grad.tolist() == [2, 2, 2]
    mine.optim.SGD([w], lr=1.0).step()
    assert w.tolist() == [-3, -3, -3] and w.is_shared()


def test_mindspore_sees_shared_memory():
    import mindspore as ms

    t = mine.ones(4).share_memory_()
    t[1] = 5
    assert ms.ops.add(t, 1).asnumpy().tolist() == [2, 6, 2, 2]


def test_shared_memory_is_released():
    def fds():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    mine.ones(3).share_memory_()
    before = fds()
    kept = [mine.ones(1000).share_memory_() for _ in range(20)]
    assert fds() > before
    del kept
    assert fds() == before


def test_module_share_memory():
    def run(T):
        m = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.BatchNorm1d(3))
        kept = dict(m.named_parameters())
        same = m.share_memory() is m
        return [same, [p.is_shared() for p in m.parameters()], [b.is_shared() for b in m.buffers()],
                all(kept[n] is p for n, p in m.named_parameters())]

    both(run)


# ------------------------------------------------------------------ queues
def test_queues_share_memory():
    def run(T):
        q = T.multiprocessing.get_context("fork").Queue()
        base = T.arange(10.0)
        q.put(base[2:6])
        got = q.get(timeout=20)
        got[0] = 77.0
        out = [base.tolist(), got.tolist(), base.is_shared(), got.is_shared(), got.storage_offset(), got.requires_grad]
        p = T.nn.Parameter(T.ones(2))
        q.put([p, {"x": T.tensor([True]), "e": T.zeros(0, 3), "h": T.ones(2, dtype=T.bfloat16)}])
        (p2, d) = q.get(timeout=20)
        p2.data[0] = 3.0
        out += [type(p2).__name__, p2.requires_grad, p.tolist(), d["x"].tolist(), tuple(d["e"].shape), str(d["h"].dtype)]
        q.put((base, base.t()))
        a, b = q.get(timeout=20)
        a[1] = -1.0
        return out + [b[1].item(), base[1].item()]

    both(run)


def test_sending_non_leaf_tensors_raises():
    for T in BOTH:
        w = T.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="detach"):
            ForkingPickler.dumps(w * 2)
        assert len(ForkingPickler.dumps(w)) > 0


def test_read_only_arrays_are_sent_by_value():
    a = np.arange(3.0)
    a.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t = mine.from_numpy(a)
    q = mp.SimpleQueue()
    q.put(t)
    assert q.get().tolist() == [0, 1, 2] and not t.is_shared()


def _adds(i, t, q):
    t[i] += 1 + i
    q.put((i, t[i].clone()))


def _serves(pipe):
    while True:
        t = pipe.recv()
        if t is None:
            return
        t.mul_(2)
        pipe.send(t.sum())


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_work_on_one_tensor(method):
    ctx = mp.get_context(method)
    t, q = mine.zeros(3).share_memory_(), ctx.Queue()
    team = [ctx.Process(target=_adds, args=(i, t, q)) for i in range(2)]
    for p in team:
        p.start()
    got = sorted((q.get(timeout=60) for _ in team), key=lambda x: x[0])
    assert [(i, x.item()) for i, x in got] == [(0, 1.0), (1, 2.0)]
    for p in team:
        p.join(30)
        assert p.exitcode == 0
    assert t.tolist() == [1, 2, 0]


def test_pipes():
    ctx = mp.get_context("fork")
    here, there = ctx.Pipe()
    p = ctx.Process(target=_serves, args=(there,), daemon=True)
    p.start()
    t = mine.ones(1000)
    for k in range(5):
        here.send(t)
        assert here.recv().item() == 1000 * 2 ** (k + 1)
    assert t[999].item() == 32
    here.send(None)
    p.join(20)
    assert p.exitcode == 0


def _hogwild(rank, w):
    for _ in range(50):
        with mine.no_grad():
            w[rank] += 1.0


def _fails(rank):
    if rank == 1:
        raise ValueError("planted in a process")
    time.sleep(30)


def _leaves(rank):
    os._exit(7)


def test_start_processes_and_failures():
    w = mine.zeros(2).share_memory_()
    mp.start_processes(_hogwild, (w,), nprocs=2, start_method="fork")
    assert w.tolist() == [50, 50]
    start = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match="planted in a process") as e:
        mp.start_processes(_fails, nprocs=2, start_method="fork")
    assert e.value.error_index == 1 and "Traceback" in str(e.value) and time.monotonic() - start < 20
    with pytest.raises(mp.ProcessExitedException) as e:
        mp.start_processes(_leaves, nprocs=1, start_method="fork")
    assert e.value.exit_code == 7


@pytest.mark.slow
def test_spawn():
    w = mine.zeros(2).share_memory_()
    assert mp.spawn(_hogwild, (w,), nprocs=2) is None
    assert w.tolist() == [50, 50]
    with pytest.warns(FutureWarning, match="start_method=spawn"):
        context = mp.spawn(_hogwild, (w,), nprocs=1, join=False, start_method="fork")
    while not context.join():
        pass
    assert w.tolist() == [100, 50]


def test_names_and_strategies():
    for n in real.multiprocessing.__all__:
        assert hasattr(mp, n), n
    both(lambda T: (T.multiprocessing.get_sharing_strategy(), T.multiprocessing.get_all_sharing_strategies()))
    for name in ("file_system", "file_descriptor"):
        mp.set_sharing_strategy(name)
        assert mp.get_sharing_strategy() == name
    with pytest.raises(AssertionError, match="invalid sharing strategy"):
        mp.set_sharing_strategy("telepathy")


def test_a_queue_used_by_threads():
    q, out = mp.Queue(), []

    def take():
        for _ in range(30):
            out.append(q.get(timeout=30))

    threads = [threading.Thread(target=take) for _ in range(2)]
    for t in threads:
        t.start()
    for i in range(60):
        q.put(mine.full((10,), float(i)))
    for t in threads:
        t.join()
    assert sorted(x[9].item() for x in out) == list(range(60))


# ------------------------------------------------------------------ storages of arrays
SLICES = [
    lambda a: a[2:8:2],
    lambda a: a.reshape(3, 4).T[1:],
    lambda a: a.reshape(3, 4)[:, :1],
    lambda a: a.reshape(3, 4)[1],
    lambda a: a[5:5],
    lambda a: a.reshape(2, 3, 2)[:, 1:, ::2],
    lambda a: a.astype(np.int16)[3:],
    lambda a: np.broadcast_to(a[3:5], (2, 2)).copy()[:, 1],
    lambda a: a,
]


@pytest.mark.parametrize("k", range(len(SLICES)))
@pytest.mark.parametrize("maker", ["from_numpy", "as_tensor", "asarray"])
def test_tensors_of_array_slices_have_minimal_storages(k, maker, tmp_path):
    def run(T):
        a = SLICES[k](np.arange(12.0))
        t = getattr(T, maker)(a)
        s = t.untyped_storage()
        out = [s.nbytes(), t.storage_offset(), t.stride() if t.numel() else None, t.tolist()]
        if t.numel():
            t.add_(1)
            assert np.array_equal(t.numpy(), a)
        T.save(t, tmp_path / "t.pth")
        u = T.load(tmp_path / "t.pth")
        return out + [u.tolist(), u.untyped_storage().nbytes(), u.stride() if u.numel() else None]

    both(run)


def test_locks_of_threads_in_a_fork():
    """A child has none of its parent's threads, so nothing in it may wait for a lock that one of
    them holds."""
    there, done = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as held:
            for namespace, name, _ in cpython._locks:
                held.enter_context(namespace[name])
            there.set()
            done.wait()

    def child(q):
        free = [namespace[name].acquire(timeout=0) for namespace, name, _ in cpython._locks]
        for namespace, name, _ in cpython._locks:
            namespace[name].release()
        t = mine.arange(3.0).share_memory_()
        q.put((free, t.tolist()))

    holder = threading.Thread(target=hold)
    gc.disable()  # collecting objects of other tests may need a lock that is held
    holder.start()
    there.wait()
    try:
        assert len(cpython._locks) > 10
        ctx = mp.get_context("fork")
        q = ctx.SimpleQueue()
        p = ctx.Process(target=child, args=(q,))
        p.start()
        p.join(30)
        assert p.exitcode == 0
        assert q.get() == ([True] * len(cpython._locks), [0.0, 1.0, 2.0])
    finally:
        done.set()
        gc.enable()
        holder.join()
        p.kill()
