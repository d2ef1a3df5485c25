"""Connections between the processes of one job, and data transfer over them.

Every process listens on a TCP port and, for processes of the same machine, on a local socket; their
addresses are published in the store. A *control* connection to every other process detects at once
when that process dies, and carries the reason why a group has failed. Data uses separate
connections, one per group and pair of ranks, opened on first use: the higher rank connects to the
lower.
"""
import array
import errno
import logging
import os
import select
import selectors
import socket
import struct
import threading
import time
import uuid

from mindtorch.backend.comm.errors import DistBackendError, DistNetworkError, DistStoreError
from mindtorch.backend.comm.store import at_fork
from mindtorch.backend.comm.tcpstore import connect

log = logging.getLogger("torch.distributed")

_HELLO = struct.Struct("<4s16sIH")      # magic, the listener's token, rank, length of the channel's name
_NOTE = struct.Struct("<BI")            # kind, length of the text
_MAGIC = b"mtcl"
_BYE, _FAILED = 1, 2
_HELLO_TIME = 10.0  # seconds in which a new connection must identify itself
_NAME_MOST, _NOTE_MOST = 4096, 1 << 16  # maximum bytes of a channel's name, of a note's text
# seconds between detecting a dead process and giving up on data that may still be in the sockets
_GRACE = 1.0
# seconds to wait until the reason of a lost connection arrives on the control connection
_REASON_TIME = 0.5
_BUFFER = 1 << 22


def machine():
    """Returns an id that two processes share if they can connect by a local socket: that of the
    kernel's boot and network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip() + os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def local_address(towards):
    """Returns the address at which other machines reach this one: that of the network interface
    that routes to the store's host."""
    given = os.environ.get("MINDTORCH_HOST_ADDRESS")
    if given:
        return given
    name = os.environ.get("MINDTORCH_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
    if name:
        return _address_of(name.split(",")[0])
    if towards is None:
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"
    host, port = towards
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.connect(address)
        return s.getsockname()[0]


def _address_of(interface):
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            raw = fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", interface.encode()[:15]))      # SIOCGIFADDR
        except OSError as e:
            raise DistNetworkError(f"no address of network interface {interface!r}: {e}") from e
    return socket.inet_ntoa(raw[20:24])


def _tune(sock):
    sock.setblocking(False)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A machine that disappears silently (power, network) is detected after half a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Link:
    """One end of a data connection to a peer."""

    __slots__ = ("sock", "peer", "last_sent", "last_received")

    def __init__(self, sock, peer):
        self.sock, self.peer = sock, peer
        self.last_sent = self.last_received = -1  # the last operation whose signature was sent, was received

    def abort(self):
        """Shuts the connection down while another thread may be using it. The file stays open, so
        its descriptor is not reused."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer has already closed it


class PeerDisconnected(Exception):
    """The connection to a peer was closed."""

    def __init__(self, peer):
        super().__init__(peer)
        self.peer = peer


class TransportTimeout(Exception):
    """A timeout expired before `peers` delivered their data."""

    def __init__(self, peers):
        super().__init__(peers)
        self.peers = peers


class Transport:
    """This process's end of all connections of one job.

    Keys in `store` start with `prefix`, which must be unique for each job on the same store.
    """

    def __init__(self, store, prefix, rank, size, timeout, host=None):
        self.store, self.prefix, self.rank, self.size, self.timeout = store, prefix, rank, size, timeout
        self.pid = os.getpid()
        self.closed = False
        self.groups = {}  # key -> group; groups have `give_up`, `departed` and `notified`
        self.left, self.dead = {}, {}  # rank -> reason
        self.sent = array.array("q", [0])  # bytes sent, including signatures
        self.received = array.array("q", [0])
        self._arrived, self._changed = {}, threading.Condition()
        self._token = uuid.uuid4().bytes
        self._control, self._addresses, self._handlers = {}, {}, {}
        self._listen(host)
        at_fork(self)
        self._acceptor = threading.Thread(target=self._accept, daemon=True, name="mindtorch-accept")
        self._acceptor.start()
        self._publish()
        self._meet()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="mindtorch-watch")
        self._watcher.start()

    # ---- rendezvous
    def _listen(self, towards):
        self.host = address = local_address(towards)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._tcp = socket.create_server((address, 0), family=family, backlog=512)
        self._listeners, self._local = [self._tcp], b""
        if machine():
            self._local = b"\0mindtorch-" + uuid.uuid4().hex.encode()
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.bind(self._local)
            s.listen(512)
            self._listeners.append(s)
        self._stop_in, self._stop_out = socket.socketpair()

    def _publish(self):
        host, port = self._tcp.getsockname()[:2]
        text = "\n".join([host, str(port), machine(), self._local[1:].decode(), self._token.hex()])
        self.store.set(f"{self.prefix}/{self.rank}", text)

    def _address(self, peer):
        if peer not in self._addresses:
            text = self.store.get(f"{self.prefix}/{peer}")
            try:
                host, port, where, local, token = text.decode().split("\n")
                found = host, int(port), where, local, bytes.fromhex(token)
                if len(found[4]) != len(self._token) or not 0 < found[1] < 1 << 16:
                    raise ValueError("port or token")
            except ValueError as e:
                raise DistStoreError(f"the store has an invalid address for rank {peer} ({e}): {text[:100]!r}") from None
            self._addresses[peer] = found
        return self._addresses[peer]

    def _meet(self):
        end = time.monotonic() + self.timeout
        for peer in range(self.size):
            if peer != self.rank:
                self._address(peer)
        for peer in range(self.rank):
            self._control[peer] = self._connect(peer, "control", end)
        for peer in range(self.rank + 1, self.size):
            sock = self._await(peer, "control", end)
            if sock is None:
                raise DistNetworkError(f"rank {peer} has not connected to rank {self.rank} within {self.timeout:g} s")
            self._control[peer] = sock

    def _connect(self, peer, channel, end):
        host, port, where, local, token = self._address(peer)
        sock = None
        if local and where == machine():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(b"\0" + local.encode())
            except OSError as e:
                sock.close()
                raise DistNetworkError(f"rank {peer} cannot be reached: it no longer listens ({e})") from e
        if sock is None:
            sock = connect(host, port, max(0.1, end - time.monotonic()))
        name = channel.encode()
        sock.settimeout(_HELLO_TIME)
        try:
            sock.sendall(_HELLO.pack(_MAGIC, token, self.rank, len(name)) + name)
        except OSError as e:
            raise DistNetworkError(f"rank {peer} cannot be reached: {e}") from e
        _tune(sock)
        return sock

    def _await(self, peer, channel, end, alive=lambda: None):
        """Returns the connection that the peer opens; None after the deadline."""
        with self._changed:
            while (peer, channel) not in self._arrived:
                left = end - time.monotonic()
                if left <= 0:
                    return None
                alive()
                self._changed.wait(min(left, 0.5))
            return self._arrived.pop((peer, channel))

    def _accept(self):
        # A client that sends nothing, or slowly, must not delay the others: each is read as its
        # data arrives.
        poll = select.poll()
        by_fd = {s.fileno(): s for s in self._listeners}
        for fd in [*by_fd, self._stop_in.fileno()]:
            poll.register(fd, select.POLLIN)
        strangers = {}  # file -> [socket, received bytes, deadline], oldest first

        def forget(fd, keep=False):
            sock = strangers.pop(fd)[0]
            poll.unregister(fd)
            if not keep:
                sock.close()

        while not self.closed:
            ends = [s[2] for s in strangers.values()]
            for fd, _ in poll.poll(max(0.0, min(ends) - time.monotonic()) * 1000 + 1 if ends else None):
                if self.closed:
                    break
                if fd in by_fd:
                    try:
                        sock, _ = by_fd[fd].accept()
                    except OSError as e:
                        if e.errno in (errno.EMFILE, errno.ENFILE):
                            if strangers:
                                forget(next(iter(strangers)))
                            else:
                                time.sleep(0.05)
                        continue  # else: the client disconnected before accept()
                    sock.setblocking(False)
                    strangers[sock.fileno()] = [sock, b"", time.monotonic() + _HELLO_TIME]
                    poll.register(sock, select.POLLIN)
                elif fd in strangers:
                    try:
                        who = self._greet(strangers[fd])
                        if who is None:
                            continue
                        sock = strangers[fd][0]
                        forget(fd, keep=True)
                        self._admit(sock, *who)
                    except (OSError, ValueError) as e:
                        log.warning("rank %d closes a connection from an unknown client: %s", self.rank, e)
                        if fd in strangers:
                            forget(fd)
                        else:
                            sock.close()
            now = time.monotonic()
            for fd in [fd for fd, s in strangers.items() if s[2] <= now]:
                forget(fd)
        for sock, _, _ in strangers.values():
            sock.close()

    def _greet(self, stranger):
        """Returns (rank, channel) once a new connection has sent its greeting, None until then;
        OSError or ValueError if it sends anything else."""
        sock, received, _ = stranger
        size = _HELLO.size
        if len(received) >= size:
            size += _HELLO.unpack_from(received)[3]
        try:
            # Read no byte beyond the greeting: what follows belongs to the code that gets the
            # connection.
            part = sock.recv(size - len(received))
        except BlockingIOError:
            return None
        if not part:
            raise OSError("it was closed")
        received = stranger[1] = received + part
        if len(received) < _HELLO.size:
            return None
        magic, token, peer, n = _HELLO.unpack_from(received)
        if magic != _MAGIC or token != self._token:
            raise ValueError("it does not belong to this job")
        if peer >= self.size or peer == self.rank or not 0 < n <= _NAME_MOST:
            raise ValueError(f"it claims to be rank {peer} with a name of {n} bytes")
        if len(received) < _HELLO.size + n:
            return None
        return peer, received[_HELLO.size:].decode()

    def _admit(self, sock, peer, name):
        _tune(sock)
        with self._changed:
            handler = self._handlers.get(name)
            if handler is None:
                if name == "control" and (peer in self._control or (peer, name) in self._arrived):
                    raise ValueError(f"rank {peer} has a control connection already")
                # left from an earlier group of this name
                unused = self._arrived.pop((peer, name), None)
                if unused is not None:
                    unused.close()
                self._arrived[peer, name] = sock
                self._changed.notify_all()
        if handler is not None:
            handler(peer, sock)

    def on_arrival(self, channel, handler):
        """Calls handler(peer, socket) for every connection on a channel, including those already
        open."""
        with self._changed:
            self._handlers[channel] = handler
            there = [k for k in self._arrived if k[1] == channel]
            found = [(peer, self._arrived.pop((peer, name))) for peer, name in there]
        for peer, sock in found:
            handler(peer, sock)

    def to(self, peer, channel, end):
        """Opens a connection to a peer from this side; Lost(peer) if the peer is gone."""
        if peer in self.dead or peer in self.left:
            raise PeerDisconnected(peer)
        try:
            return self._connect(peer, channel, end)
        except DistNetworkError:
            raise PeerDisconnected(peer) from None

    def link(self, peer, channel, end, alive):
        """Returns a data connection. `alive()` is called periodically and may raise. Late([peer])
        after `end`."""
        if peer < self.rank:
            return Link(self.to(peer, channel, end), peer)

        def check():
            alive()
            if peer in self.dead or peer in self.left:
                raise PeerDisconnected(peer)
        sock = self._await(peer, channel, end, check)
        if sock is None:
            raise TransportTimeout([peer])
        return Link(sock, peer)

    # ---- monitoring
    def _watch(self):
        selector = selectors.DefaultSelector()
        for peer, sock in self._control.items():
            selector.register(sock, selectors.EVENT_READ, [peer, bytearray()])
        selector.register(self._stop_in, selectors.EVENT_READ, None)
        pending = []  # (when, peer): processes that died, and when to give up on data they had sent
        while not self.closed:
            wait = max(0.0, min(t for t, _ in pending) - time.monotonic()) if pending else None
            for key, _ in selector.select(wait):
                if key.data is None or self.closed:
                    continue
                peer, inbox = key.data
                try:
                    raw = key.fileobj.recv(1 << 16)
                except BlockingIOError:
                    continue
                except OSError:
                    raw = b""
                inbox += raw
                why = f"rank {peer} has died (its connection is closed)"
                try:
                    self._notes(peer, inbox)
                except ValueError as e:
                    raw, why = b"", f"rank {peer} has sent an invalid control message ({e})"
                if not raw:
                    selector.unregister(key.fileobj)
                    if peer not in self.left:
                        self.dead[peer] = why
                        pending.append((time.monotonic() + _GRACE, peer))
                        with self._changed:
                            self._changed.notify_all()
            now = time.monotonic()
            for when, peer in [p for p in pending if p[0] <= now]:
                pending.remove((when, peer))
                for group in list(self.groups.values()):
                    if peer in group.ranks:
                        group.give_up(self.dead[peer])
        selector.close()

    def _notes(self, peer, inbox):
        while len(inbox) >= _NOTE.size:
            kind, n = _NOTE.unpack_from(inbox)
            if kind not in (_BYE, _FAILED) or n > _NOTE_MOST:
                raise ValueError(f"kind {kind}, {n} bytes")
            if len(inbox) < _NOTE.size + n:
                return
            text = bytes(inbox[_NOTE.size:_NOTE.size + n]).decode(errors="replace")
            del inbox[:_NOTE.size + n]
            if kind == _BYE:
                self.left[peer] = f"rank {peer} has left the process group"
                with self._changed:
                    self._changed.notify_all()
                for group in list(self.groups.values()):
                    if peer in group.ranks:
                        group.departed(peer)
            else:
                key, _, why = text.partition("\n")
                if key in self.groups:
                    self.groups[key].notified(peer, why)

    def _note(self, peer, kind, text=""):
        raw = text.encode("utf-8", "replace")[:_NOTE_MOST]
        sock = self._control.get(peer)
        if sock is None or peer in self.dead or peer in self.left:
            return
        message = memoryview(_NOTE.pack(kind, len(raw)) + raw)
        end = time.monotonic() + 1.0
        try:
            while message and time.monotonic() < end:
                try:
                    message = message[sock.send(message):]
                except BlockingIOError:
                    select.select([], [sock], [], 0.1)
        except (OSError, ValueError):
            return  # the peer is gone

    def notify_failure(self, group, why):
        """Sends the other members of a group the reason why it has failed here."""
        for peer in group.ranks:
            if peer != self.rank:
                self._note(peer, _FAILED, f"{group.key}\n{why}")

    def fate(self, peer):
        """Returns the reason why a peer's connection was closed; waits briefly for it to arrive."""
        end = time.monotonic() + _REASON_TIME
        while time.monotonic() < end:
            for known in (self.dead, self.left):
                if peer in known:
                    return known[peer]
            time.sleep(0.01)
        return f"rank {peer} has closed the connection"

    # ---- shutdown
    def close(self):
        """Sends a goodbye to all peers and closes everything."""
        if self.closed or os.getpid() != self.pid:
            return
        for peer in self._control:
            self._note(peer, _BYE)
        self.closed = True
        for group in list(self.groups.values()):
            group.close()
        self._stop_out.send(b"x")
        self._acceptor.join(5.0)
        self._watcher.join(5.0)
        self._shut()

    def _shut(self):
        for sock in [*self._listeners, *self._control.values(), *self._arrived.values(), self._stop_in, self._stop_out]:
            sock.close()

    def after_fork(self):
        # If a forked child (a DataLoader worker) kept these open, the peers could not detect this
        # process's death.
        self.closed = True
        self._changed = threading.Condition()
        self._shut()
        for group in list(self.groups.values()):
            group.after_fork()


class StreamingReduce:
    """Receives into a small buffer and passes it on piece by piece, while the data is in the CPU
    cache."""

    __slots__ = ("buffer", "left", "take", "at")

    def __init__(self, buffer, total, take):
        self.buffer, self.left, self.take, self.at = buffer, total, take, 0


def pump(fabric, outs, ins, end, alive):
    """Sends and receives concurrently until everything is transferred.

        outs  [(link, [memoryview, ...])]
        ins   [(link, [memoryview or Fold, ...])]

    Raises Lost(peer), Late(peers) after `end` (in time.monotonic), or what `alive()` raises.
    """
    outs = [[link, [v for v in views if len(v)]] for link, views in outs]
    ins = [[link, list(views)] for link, views in ins]
    outs = [o for o in outs if o[1]]
    active = [i for i in (_Incoming(link, views) for link, views in ins) if i.next()]
    sent = received = 0
    poll = None
    try:
        while outs or active:
            moved = 0
            for o in outs:
                n = _send(o)
                sent += n
                moved += n
            for i in active:
                n = i.receive()
                received += n
                moved += n
            if moved:
                outs = [o for o in outs if o[1]]
                active = [i for i in active if i.view is not None]
                continue
            left = end - time.monotonic()
            if left <= 0:
                raise TransportTimeout(sorted({i.link.peer for i in active} or {o[0].peer for o in outs}))
            alive()
            poll = select.poll()
            for i in active:
                poll.register(i.link.sock, select.POLLIN)
            for o in outs:
                poll.register(o[0].sock, select.POLLOUT | (select.POLLIN if any(i.link is o[0] for i in active) else 0))
            poll.poll(min(left, 1.0) * 1000)
    except (OSError, ValueError) as e:
        alive()  # raises if this side has closed the link
        raise DistBackendError(f"connection error: {e}") from e
    finally:
        fabric.sent[0] += sent
        fabric.received[0] += received


def _send(o):
    link, views = o
    try:
        n = link.sock.sendmsg(views[:16]) if len(views) > 1 else link.sock.send(views[0])
    except BlockingIOError:
        return 0
    except (BrokenPipeError, ConnectionResetError):
        raise PeerDisconnected(link.peer) from None
    rest = n
    while views and rest >= len(views[0]):
        rest -= len(views.pop(0))
    if rest:
        views[0] = views[0][rest:]
    return n


class _Incoming:
    """The pieces still to be received over one link."""

    __slots__ = ("link", "items", "item", "view")

    def __init__(self, link, items):
        self.link, self.items, self.item, self.view = link, items, None, None

    def next(self):
        """Advances to the next piece; False if there is none."""
        while True:
            fold = self.item
            if fold.__class__ is StreamingReduce:
                if fold.at:
                    n, fold.at = fold.at, 0
                    fold.take(n)
                if fold.left:
                    n = min(len(fold.buffer), fold.left)
                    fold.left -= n
                    fold.at = n
                    self.view = fold.buffer[:n]
                    return True
            if not self.items:
                self.view = None
                return False
            self.item = self.items.pop(0)
            if self.item.__class__ is not StreamingReduce and len(self.item):
                self.view = self.item
                return True

    def receive(self):
        try:
            n = self.link.sock.recv_into(self.view)
        except BlockingIOError:
            return 0
        except ConnectionResetError:
            n = 0
        if n == 0:
            raise PeerDisconnected(self.link.peer)
        if n == len(self.view):
            self.next()
        else:
            self.view = self.view[n:]
        return n
