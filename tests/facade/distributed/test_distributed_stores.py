"""Stores, rendezvous, single-process groups and errors of the interface; no second process is
needed."""
import datetime
import os
import threading
import time

import pytest
import torch as real
import torch.distributed as real_dist

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
import mindtorch.torch.distributed.nn.functional as functional

SECOND = datetime.timedelta(seconds=1)
MOMENT = datetime.timedelta(milliseconds=80)


def outcome(fn):
    try:
        return fn()
    except Exception as e:
        for base in ("QueueEmptyError", "DistStoreError", "DistNetworkError", "NotImplementedError", "RuntimeError", "ValueError", "TypeError"):
            if any(c.__name__ == base for c in type(e).__mro__):
                return base


def stores(d, folder):
    return {"hash": d.HashStore(), "file": d.FileStore(os.path.join(folder, f"store-{d.__name__}"), 1),
            "tcp": d.TCPStore("127.0.0.1", 0, 1, True, timeout=SECOND)}


def program(s, file):
    """Returns the results of a sequence of store operations, for comparison with PyTorch."""
    s.set_timeout(MOMENT)
    steps = [
        lambda: s.num_keys(), lambda: s.set("a", "1"), lambda: s.get("a"), lambda: s.set("b", b"\x00\xff"), lambda: s.get("b"),
        lambda: s.add("n", 3), lambda: s.add("n", -1), lambda: s.get("n"), lambda: s.add("a", 41), lambda: s.get("a"),
        lambda: s.compare_set("c", "expected", "value"), lambda: s.check(["c"]), lambda: s.compare_set("c", "", "value"),
        lambda: s.compare_set("c", "wrong", "new"), lambda: s.compare_set("c", "value", "new"), lambda: s.get("c"),
        lambda: s.wait(["a", "b"]), lambda: s.check(["a", "b"]), lambda: s.check(["a", "none"]),
        lambda: s.append("log", "1"), lambda: s.append("log", "2"), lambda: s.get("log"),
        lambda: s.multi_set(["m1", "m2"], ["x", "y"]), lambda: s.multi_get(["m1", "m2"]), lambda: s.has_extended_api(),
        lambda: s.num_keys(), lambda: s.timeout,
    ]
    if not file:
        steps += [lambda: s.get("missing"), lambda: s.wait(["missing"]), lambda: s.wait(["missing"], MOMENT),
                  lambda: s.delete_key("a"), lambda: s.delete_key("a"), lambda: s.check(["a"]),
                  lambda: s.queue_push("q", "1"), lambda: s.queue_push("q", "2"), lambda: s.queue_len("q"), lambda: s.queue_pop("q"),
                  lambda: s.queue_pop("q", False), lambda: s.queue_pop("q", False)]
    return [outcome(step) for step in steps]


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
@pytest.mark.parametrize("prefix", [False, True])
def test_store_operations_match_torch(kind, prefix, tmp_path):
    found = []
    for d in (real_dist, dist):
        s = stores(d, tmp_path)[kind]
        if prefix:
            s = d.PrefixStore("outer", d.PrefixStore("inner", s))
        found.append(program(s, kind == "file"))
    assert found[0] == found[1]


def test_prefix_store_names(tmp_path):
    s = dist.HashStore()
    p = dist.PrefixStore("a", dist.PrefixStore("b", s))
    p.set("k", "v")
    assert s.get("b/a/k") == b"v" and p.underlying_store.underlying_store is s


def test_pending_waits_return_when_the_key_is_set(tmp_path):
    """A wait that begins before the key exists, in each store; for TCP with several clients at
    once."""
    for s in stores(dist, tmp_path).values():
        s.set_timeout(datetime.timedelta(seconds=10))
        clients, got = [s.clone() for _ in range(4)], []
        threads = [threading.Thread(target=lambda c=c: got.append(c.get("late"))) for c in clients]
        for t in threads:
            t.start()
        time.sleep(0.1)
        s.set("late", "here")
        for t in threads:
            t.join(10)
        assert got == [b"here"] * 4, type(s)


def test_tcp_errors():
    with pytest.raises(dist.DistNetworkError, match="timed out after 200ms while trying to connect to"):
        dist.TCPStore("127.0.0.1", 1, 1, False, datetime.timedelta(milliseconds=200))
    server = dist.TCPStore("127.0.0.1", 0, 1, True)
    with pytest.raises(dist.DistNetworkError, match="EADDRINUSE"):
        dist.TCPStore("127.0.0.1", server.port, 1, True)
    client = dist.TCPStore("127.0.0.1", server.port, None, False, SECOND)
    assert dist.TCPStore("127.0.0.1", server.port, None, True, multi_tenant=True).port == server.port
    with pytest.raises(dist.DistStoreError, match="wait timeout after 60ms, keys: /x, /y"):
        client.wait(["x", "y"], datetime.timedelta(milliseconds=60))
    with pytest.raises(ValueError):
        client.set("word", "abc") or client.add("word", 1)
    assert client.get("word") == b"abc"  # the server survives it
    big = os.urandom(3 << 20)
    client.set("big", big)
    assert server.get("big") == big
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined"):
        dist.TCPStore("127.0.0.1", 0, 2, True, datetime.timedelta(milliseconds=200))
    port = server.port
    server.close()
    client.set_timeout(datetime.timedelta(milliseconds=300))
    for _ in range(2):
        with pytest.raises(dist.DistNetworkError):
            client.get("word")
    again = dist.TCPStore("127.0.0.1", port, 1, True)  # the port is free at once
    again.close()


def test_file_store_is_removed(tmp_path):
    path = str(tmp_path / "f")
    a, b = dist.FileStore(path, 2), dist.FileStore(path, 2)
    a.set("k", "v")
    assert b.get("k") == b"v"
    del a
    assert os.path.exists(path)
    del b
    assert not os.path.exists(path)


def test_interface_errors_match_torch(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for call in (lambda d: d.get_rank(), lambda d: d.get_world_size(), lambda d: d.barrier(),
                 lambda d: d.init_process_group("gloo"), lambda d: d.init_process_group("gloo", "nowhere://x"),
                 lambda d: d.init_process_group("gloo", "file:///tmp/x"), lambda d: d.init_process_group("gloo", "tcp://127.0.0.1")):
        texts = []
        for d in (real_dist, dist):
            with pytest.raises((ValueError, RuntimeError)) as e:
                call(d)
            texts.append((type(e.value).__name__, str(e.value).splitlines()[0]))
        assert texts[0] == texts[1]
    assert dist.is_available() and not dist.is_initialized() and dist.group.WORLD is None
    assert repr(dist.ReduceOp.SUM) == repr(real_dist.ReduceOp.SUM) and isinstance(dist.ReduceOp.MAX, dist.ReduceOp)
    with pytest.raises(ValueError, match="nonsense"):
        dist.init_process_group("nonsense", rank=0, world_size=1, store=dist.HashStore())
    with pytest.raises(NotImplementedError, match="ucc"):
        dist.init_process_group("ucc", rank=0, world_size=1, store=dist.HashStore())


@pytest.fixture
def alone():
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, timeout=datetime.timedelta(seconds=20))
    yield
    dist.destroy_process_group()


def test_one_process(alone):
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "nccl")
    with pytest.raises(ValueError, match="trying to initialize the default process group twice!"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    t = torch.arange(4.0).reshape(2, 2).t()
    work = dist.all_reduce(t, async_op=True)
    assert work.wait() is True and work.is_success() and work.exception() is None and work.result()[0] is t
    assert work.get_future().wait()[0] is t
    with pytest.raises(RuntimeError, match="sourceRank"):
        work.source_rank()
    for call, error in [(lambda: dist.all_reduce([t]), TypeError), (lambda: dist.broadcast(t, 3), ValueError), (lambda: dist.send(t, 0), ValueError),
                        (lambda: dist.all_reduce(t, op="sum"), TypeError), (lambda: dist.all_gather([t, t], t), ValueError),
                        (lambda: dist.reduce_scatter_tensor(t, torch.ones(3)), ValueError), (lambda: dist.gather(t), ValueError),
                        (lambda: dist.all_gather([t.double()], t), ValueError), (lambda: dist.new_group([5]), ValueError),
                        (lambda: dist.all_reduce(t.to_sparse()), NotImplementedError)]:
        with pytest.raises(error):
            call()
    dist.all_reduce(t)  # rejected calls leave the group unchanged
    g = dist.new_group([0], timeout=SECOND, group_desc="mine")
    assert g.size() == 1 and g.group_desc == "mine" and dist.get_process_group_ranks(g) == [0]
    dist.destroy_process_group(g)
    x = torch.ones(3, requires_grad=True)
    functional.all_reduce(x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    with dist.record_comm("mine"):
        dist.barrier()
    # gloo rejects these dtypes
    for dtype in (torch.int16, torch.uint16, torch.uint32, torch.uint64):
        wide = torch.tensor([1, 2], dtype=dtype)
        dist.all_reduce(wide)
        assert wide.tolist() == [1, 2] and wide.dtype is dtype
    premul = torch.ones(2)
    dist.all_reduce(premul, dist._make_nccl_premul_sum(0.5))
    assert premul.tolist() == [0.5, 0.5]


def test_repeated_init_in_one_process():
    for _ in range(3):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()
        dist.destroy_process_group()
    assert not dist.is_initialized() and not [t for t in threading.enumerate() if t.name in ("mindtorch-accept", "mindtorch-watch")]


def test_public_names_match_torch():
    """Every name in `__all__` of torch.distributed and its modules exists."""
    missing = [n for n in real_dist.__all__ if not hasattr(dist, n)] if hasattr(real_dist, "__all__") else []
    wanted = [n for n, v in vars(real_dist.distributed_c10d).items() if n in real_dist.distributed_c10d.__all__]
    missing += [n for n in wanted if not hasattr(dist.distributed_c10d, n)]
    # PyTorch's CUDA build, the only one for some Python versions, also has NCCL.
    missing = [n for n in missing if n != "ProcessGroupNCCL"]
    assert not missing, missing
    assert real.distributed.is_available()
