"""Invalid data from unknown or damaged peers: at most their own connection is closed."""
import datetime
import random
import socket
import struct
import threading
import time

import numpy as np
import pytest
import torch.distributed as real_dist

import mindtorch.torch.distributed as dist
from mindtorch.backend.comm import transport as comm_link, tcpstore as comm_tcpstore
from mindtorch.backend.comm.group import SocketGroup
from mindtorch.backend.comm.transport import Transport
from mindtorch.torch.distributed import _objects

TIME = datetime.timedelta(seconds=5)
HELLO = getattr(comm_tcpstore, "_HELLO", b"")


@pytest.fixture
def store():
    s = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=TIME)
    yield s
    s.close()


def dial(port, host="127.0.0.1"):
    return socket.create_connection((host, port), 5)


def answers(store, word):
    store.set(f"honest/{word}", str(word))
    other = store.clone()
    assert other.get(f"honest/{word}") == str(word).encode() and other.add("honest/n", 1) == store.add("honest/n", 0)
    other._sock.close()
    other._sock = None


def closed(sock):
    """True if the other side has closed a connection."""
    sock.settimeout(5)
    try:
        return sock.recv(1 << 16) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("raw", [bytes(9), HELLO + bytes(9), HELLO + struct.pack("<BIII", 0, 0, 4, 9), b"GET / HTTP/1.0\r\n\r\n",
                                 HELLO + comm_tcpstore.pack(0, [b"\xff", b"1"]), HELLO + comm_tcpstore.pack(77, []),
                                 HELLO + comm_tcpstore.pack(3, [b"key"]), HELLO + comm_tcpstore.pack(14, [b"a", b"b", b"c"]),
                                 HELLO + 2 * comm_tcpstore.pack(4, [b"never"], 60000)])
def test_bad_connection_is_closed(store, raw):
    with dial(store.port) as bad:
        bad.sendall(raw)
        assert closed(bad)
        answers(store, "after")


def test_fuzzed_messages(store):
    """Ten thousand messages, each valid except for one mutation. The store keeps answering."""
    draw = random.Random(5)
    pack = comm_tcpstore.pack
    valid = [pack(k, [b"a", b"1", b"2"][:n], t) for k in range(16) for n in range(4) for t in (0, 5)]
    valid += [pack(k, [b"x" * 40] * 6) for k in (4, 5, 13, 14)]

    def mutated():
        raw = bytearray(HELLO + draw.choice(valid))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(raw) + 1)
            how = draw.randrange(5)
            if how == 0 and at < len(raw):
                raw[at] ^= 1 << draw.randrange(8)
            elif how == 1:
                del raw[at:]
            elif how == 2:
                raw[at:at] = draw.randbytes(draw.randint(1, 12))
            elif how == 3:
                raw[at:at + 4] = struct.pack("<I", draw.choice([0, 1, 255, 1 << 16, 1 << 31, 0xffffffff]))
            else:
                raw = bytearray(draw.randbytes(draw.randint(0, 40)))
        return bytes(raw)

    kept = []
    for i in range(10_000):
        s = dial(store.port)
        try:
            s.sendall(mutated())
        except ConnectionError:
            pass  # closed before everything was sent
        if i % 50:
            s.close()
        else:
            kept.append(s)  # an open connection with an incomplete message
        if i % 1000 == 0:
            answers(store, i)
    assert store._server.is_alive()
    for s in kept:
        s.close()
    answers(store, "end")
    end = time.monotonic() + 5
    while len(store._server.clients) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    # all of them are cleaned up
    assert len(store._server.clients) <= 1 and not store._server.parked


def test_announced_sizes_are_bounded(store):
    with dial(store.port) as bad:
        bad.sendall(HELLO + struct.pack("<BII", 0, 0, 0xfffffff0))
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 64 << 20:
                sent += bad.send(b"x" * (1 << 20))
    assert sent < 16 << 20
    answers(store, "after")


def test_pipelined_requests_are_bounded_in_memory(store):
    store.set("long", b"x" * (4 << 20))
    with dial(store.port) as bad:
        bad.settimeout(0.5)
        with pytest.raises(OSError):
            bad.sendall(HELLO)
            for _ in range(1000):
                bad.sendall(comm_tcpstore.pack(1, [b"long"], 1000))
                time.sleep(0.002)
    answers(store, "after")
    assert sum(len(c.outbox) for c in store._server.clients.values()) < 8 << 20


def test_silent_connections_do_not_block_the_store(store, monkeypatch):
    monkeypatch.setattr(comm_tcpstore, "_HELLO_TIME", 0.3, raising=False)
    silent = [dial(store.port) for _ in range(50)]
    for s in silent[::2]:
        s.sendall(HELLO[:3] or b"\0")
    start = time.monotonic()
    answers(store, "beside")
    assert time.monotonic() - start < 6
    assert all(closed(s) for s in silent)
    for s in silent:
        s.close()


def outcome(fn):
    try:
        return fn()
    except Exception as e:
        return [c.__name__ for c in type(e).__mro__ if c.__name__.startswith("Dist")][:1]


@pytest.mark.parametrize("key, value", [((8 << 10) - 1, 8), (9 << 10, 8), (5, (8 << 20) - 64), (5, (8 << 20) + 1)])
def test_store_size_limits_match_torch(key, value):
    found = []
    for d in (real_dist, dist):
        s = d.TCPStore("127.0.0.1", 0, 1, True, timeout=TIME)
        c = d.TCPStore("127.0.0.1", s.port, None, False, timeout=TIME)
        found.append(outcome(lambda: c.set("k" * key, b"v" * value) or len(c.get("k" * key))))
    assert found[0] == found[1]


def test_oversized_store_messages_raise(store):
    for call in (lambda: store.multi_set([f"k{i}" for i in range(9)], [b"v" * (8 << 20)] * 9), lambda: store.wait(["k"] * ((128 << 10) + 1))):
        with pytest.raises(dist.DistNetworkError, match="the most is"):
            call()
    store.multi_set(["a", "b"], [b"v" * (8 << 20)] * 2)
    with pytest.raises(dist.DistNetworkError, match="the answer has .* bytes; the most is"):
        store.multi_get(["a", "b"] * 5)
    for _ in range(7):
        store.append("log", b"v" * (8 << 20))
    with pytest.raises(dist.DistNetworkError, match="would grow beyond"):
        store.append("log", b"v" * (8 << 20))
    answers(store, "after")


def test_connecting_to_another_service_raises():
    for said in (bytes([0, 0, 0, 0, 0, 255, 255, 255, 255]), bytes([9, 0, 0, 0, 0, 0, 0, 0, 0]), comm_tcpstore.pack(0, []), b"HTTP/1.0 400 \r\n\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = dist.TCPStore("127.0.0.1", server.getsockname()[1], None, False, timeout=TIME)
            peer, _ = server.accept()
            peer.sendall(said)
            with pytest.raises(dist.DistNetworkError, match="is not a mindtorch TCPStore"):
                client.get("x")
            peer.close()


def reachable(host, port):
    try:
        dial(port, host).close()
        return True
    except ConnectionRefusedError:
        return False


@pytest.mark.parametrize("host, elsewhere", [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True), ("127.0.0.5", False)])
def test_store_listens_only_on_the_requested_host(host, elsewhere):
    s = dist.TCPStore(host, 0, 1, True, timeout=TIME)
    assert reachable("127.0.0.1", s.port) and reachable(host, s.port)
    assert reachable("127.0.0.2", s.port) == elsewhere  # another address of this machine
    answers(s, "here")
    s.close()


def test_wildcard_master_conflicts_with_a_local_one():
    narrow = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=TIME)
    with pytest.raises(dist.DistNetworkError, match="EADDRINUSE"):
        dist.TCPStore("0.0.0.0", narrow.port, None, True, multi_tenant=True)
    narrow.close()


def test_store_survives_running_out_of_file_descriptors(process):
    process.ok("""
        import resource, socket
        from mindtorch.backend.comm.tcpstore import TCPStore
        s = TCPStore("127.0.0.1", 0, 1, True)
        import os
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, used + 20))
        some = []
        try:
            while True:
                some.append(socket.create_connection(("127.0.0.1", s.port)))
        except OSError:
            pass
        s.set("a", "1")
        for c in some:
            c.close()
        assert s.clone().get("a") == b"1"
        """)


# ---- connections between the processes
@pytest.fixture
def pair():
    store, made = dist.HashStore(), {}

    def make(rank):
        fabric = Transport(store, "job", rank, 2, 20.0, ("127.0.0.1", 1))
        made[rank] = fabric, SocketGroup(fabric, "0", [0, 1], 4.0, "0")
    threads = [threading.Thread(target=make, args=(r,)) for r in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    yield [made[0], made[1]]
    for fabric, _ in made.values():
        fabric.close()


def all_reduce(pair):
    """Returns the sum or the error of each rank."""
    got = [None, None]

    def run(rank):
        group, a = pair[rank][1], np.full(3, rank + 1.0, np.float32)
        try:
            call = group.begin("all_reduce", 0, 6, -1, a.nbytes)
            group.run(call, lambda: group.all_reduce(call, a, "SUM"))
            got[rank] = a.tolist()
        except dist.DistBackendError as e:
            got[rank] = str(e)
    threads = [threading.Thread(target=run, args=(r,)) for r in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    return got


def greeting(fabric, rank, name, token=None):
    return comm_link._HELLO.pack(comm_link._MAGIC, token or fabric._token, rank, len(name)) + name


def test_invalid_greetings_do_not_disturb_the_group(pair):
    """Silent connections, garbage, and a greeting with the right token but an invalid name: the
    next group connects as if there were none."""
    fabric = pair[0][0]
    host, port = fabric._tcp.getsockname()[:2]
    kept = [dial(port, host) for _ in range(12)]
    for s, said in zip(kept[4:], [b"\0" * 26, b"GET / HTTP/1.0\r\n\r\n" * 3, greeting(fabric, 1, b"\xff\xfe"), greeting(fabric, 99, b"g0"),
                                  greeting(fabric, 1, b"g0", bytes(16)), greeting(fabric, 1, b"x" * 5000), greeting(fabric, 1, b"name")[:20],
                                  greeting(fabric, 1, b"control")]):
        s.sendall(said)
    time.sleep(0.2)
    start = time.monotonic()
    assert all_reduce(pair) == [[3.0] * 3] * 2
    assert time.monotonic() - start < 8 and fabric._acceptor.is_alive()
    for s in kept:
        s.close()


def test_invalid_control_message_fails_the_group(pair):
    """A control connection announces 4 GB: the group fails with one clear error."""
    assert all_reduce(pair) == [[3.0] * 3] * 2
    pair[1][0]._control[0].sendall(comm_link._NOTE.pack(2, 0xfffffff0) + b"x" * 100)
    end = time.monotonic() + 5
    while pair[0][1].failed is None and time.monotonic() < end:
        time.sleep(0.01)
    assert "rank 1 has sent an invalid control message" in all_reduce(pair)[0]
    assert pair[0][0]._watcher.is_alive()


@pytest.mark.parametrize("head, why", [(b"mtpp" + struct.pack("<qBxxxxxxxQ", 7, 6, 1 << 62), "out of memory for a message of"),
                                       (b"GET / HTTP/1.0\r\n\r\n" + bytes(40), "an invalid message header")])
def test_invalid_message_header_fails_the_group(pair, head, why):
    fabric, group = pair[0]
    done, errors = threading.Event(), []
    group.mailbox.receive(1, 3, np.zeros(2, np.float32), lambda e: (errors.append(e), done.set()), 15.0)
    sock = pair[1][0].to(0, group.mailbox.channel, time.monotonic() + 5)
    sock.sendall(head)
    assert done.wait(10) and why in str(errors[0])
    assert why in group.failed
    sock.close()


@pytest.mark.parametrize("size", [-1, 1 << 62])
def test_invalid_object_sizes_raise(size):
    with pytest.raises(dist.DistBackendError, match="rank 1 has an invalid size"):
        _objects._checked(np.array([3, size]))


# ---- a store in a file
def test_file_store_after_a_torn_write(tmp_path):
    path = tmp_path / "store"
    a = dist.FileStore(str(path), 2)
    a.set("k", "v")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-3][:12])  # as after a process death in the middle of a write
    b = dist.FileStore(str(path), 2)
    b.set("l", "w")
    assert (a.get("l"), b.get("k"), dist.FileStore(str(path), 2).get("l")) == (b"w", b"v", b"w")


@pytest.mark.parametrize("content", [b"This is a text and no store.\n" * 9, struct.pack("<BII", 0, 3, 0xfffffff0) + b"abc", struct.pack("<BII", 0, 1, 0) + b"\xff"])
def test_invalid_store_file_raises(tmp_path, content):
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(dist.DistStoreError, match="is not a FileStore file, or is corrupt at byte 0"):
        dist.FileStore(str(path), 1)
    assert path.read_bytes() == content
