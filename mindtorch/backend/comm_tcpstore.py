"""TCPStore: one process serves a table of keys and values, all others ask it over TCP."""
import datetime
import errno
import heapq
import os
import selectors
import socket
import struct
import sys
import threading
import time
import weakref

from mindtorch.backend.comm_errors import DistNetworkError, DistStoreError, QueueEmptyError
from mindtorch.backend.comm_store import Store, Table, as_bytes, at_fork, missing_text, seconds

(_SET, _GET, _ADD, _COMPARE, _WAIT, _CHECK, _DELETE, _COUNT, _LIST, _APPEND, _PUSH, _POP, _LENGTH, _MULTI_GET,
 _MULTI_SET) = range(15)
_OK, _TIMEOUT, _BAD, _EMPTY = range(4)
_HEAD = struct.Struct("<BII")       # what (or how it went), timeout in ms, length of the rest
_LEN = struct.Struct("<I")
_SLACK = 5.0                        # seconds a client waits for an answer beyond the server's own timeout


def pack(kind, parts, timeout=0):
    """A request or answer: a list of byte strings behind a head."""
    body = b"".join(_LEN.pack(len(p)) + p for p in parts)
    return _HEAD.pack(kind, timeout, len(body)) + body


def unpack(body):
    """The byte strings of a body."""
    parts, at = [], 0
    while at < len(body):
        n, = _LEN.unpack_from(body, at)
        at += _LEN.size
        parts.append(bytes(body[at:at + n]))
        at += n
    return parts


class _Client:
    """The server's side of one connection."""

    def __init__(self, sock):
        self.sock, self.inbox, self.outbox = sock, bytearray(), bytearray()
        self.parked = None      # an unanswered wait: (needs, answer, deadline)


class _Server(threading.Thread):
    """Serves a table until it is closed; one thread for all connections."""

    def __init__(self, port, listen_fd=None):
        super().__init__(daemon=True, name="mindtorch-store")
        if listen_fd is not None:
            self.listener = socket.socket(fileno=listen_fd)
        else:
            self.listener = _listen(port)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.pid, self.users = os.getpid(), 0
        self.table, self.clients, self.parked = Table(), {}, {}
        self.selector = selectors.DefaultSelector()
        self.wake_in, self.wake_out = socket.socketpair()
        self.closing = False
        self.deadlines = []
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.wake_in, selectors.EVENT_READ)
        at_fork(self)
        self.start()

    def run(self):
        while not self.closing:
            wait = None
            if self.deadlines:
                wait = max(0.0, self.deadlines[0][0] - time.monotonic())
            for key, events in self.selector.select(wait):
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj is self.wake_in:
                    self.wake_in.recv(64)
                else:
                    self._serve(key.data, events)
            self._expire()
        for c in list(self.clients.values()):
            c.sock.close()
        self.selector.close()
        self.listener.close()

    def _accept(self):
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        c = _Client(sock)
        self.clients[sock] = c
        self.selector.register(sock, selectors.EVENT_READ, c)

    def _drop(self, c):
        if self.clients.pop(c.sock, None) is not None:
            self.selector.unregister(c.sock)
            c.sock.close()
            self.parked.pop(c, None)

    def _serve(self, c, events):
        if events & selectors.EVENT_WRITE:
            self._flush(c)
        if not events & selectors.EVENT_READ:
            return
        try:
            raw = c.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if not raw:
            self._drop(c)
            return
        c.inbox += raw
        while len(c.inbox) >= _HEAD.size:
            kind, timeout, n = _HEAD.unpack_from(c.inbox)
            if len(c.inbox) < _HEAD.size + n:
                break
            parts = unpack(c.inbox[_HEAD.size:_HEAD.size + n])
            del c.inbox[:_HEAD.size + n]
            self._request(c, kind, timeout / 1000, parts)

    def _request(self, c, kind, timeout, parts):
        t = self.table
        keys = [p.decode() for p in parts[:1]] if kind not in (_WAIT, _CHECK, _MULTI_GET) else [p.decode() for p in parts]
        changed = False
        if kind in (_WAIT, _GET, _MULTI_GET):
            def answer():
                return [] if kind == _WAIT else [t.values[k] for k in keys]
            self._when(c, lambda: t.check(keys), answer, timeout, keys)
            return
        if kind == _POP:
            if timeout == 0 and not t.length(keys[0]):
                self._answer(c, _EMPTY, [])
            else:
                self._when(c, lambda: t.length(keys[0]), lambda: [t.pop(keys[0])], timeout, keys)
            return
        try:
            if kind == _SET:
                r, changed = t.set(keys[0], parts[1]), True
            elif kind == _APPEND:
                r, changed = t.append(keys[0], parts[1]), True
            elif kind == _ADD:
                r, changed = str(t.add(keys[0], int(parts[1]))).encode(), True
            elif kind == _COMPARE:
                r, changed = t.compare_set(keys[0], parts[1], parts[2]), True
            elif kind == _MULTI_SET:
                half = len(parts) // 2
                for k, v in zip(parts[:half], parts[half:]):
                    t.set(k.decode(), v)
                r, changed = None, True
            elif kind == _PUSH:
                r, changed = t.push(keys[0], parts[1]), True
            elif kind == _CHECK:
                r = b"1" if t.check(keys) else b"0"
            elif kind == _DELETE:
                r = b"1" if t.delete(keys[0]) else b"0"
            elif kind == _COUNT:
                r = str(len(t.values)).encode()
            elif kind == _LENGTH:
                r = str(t.length(keys[0])).encode()
            elif kind == _LIST:
                self._answer(c, _OK, [k.encode() for k in t.values])
                return
            else:
                raise ValueError(f"unknown request {kind}")
        except ValueError as e:
            self._answer(c, _BAD, [str(e).encode()])
            return
        self._answer(c, _OK, [] if r is None else [r])
        if changed:
            self._wake()

    def _when(self, c, ready, answer, timeout, keys):
        if ready():
            self._answer(c, _OK, answer())
            return
        deadline = time.monotonic() + timeout
        self.parked[c] = (ready, answer, deadline, keys, timeout)
        heapq.heappush(self.deadlines, (deadline, id(c)))

    def _wake(self):
        for c, (ready, answer, *_rest) in list(self.parked.items()):
            if ready():
                del self.parked[c]
                self._answer(c, _OK, answer())

    def _expire(self):
        now = time.monotonic()
        while self.deadlines and self.deadlines[0][0] <= now:
            heapq.heappop(self.deadlines)
            for c, (_, _, deadline, keys, timeout) in list(self.parked.items()):
                if deadline <= now:
                    del self.parked[c]
                    missing = [k for k in keys if k not in self.table.values]
                    self._answer(c, _TIMEOUT, [missing_text(timeout, missing).encode()])

    def _answer(self, c, how, parts):
        c.outbox += pack(how, parts)
        self._flush(c)

    def _flush(self, c):
        try:
            while c.outbox:
                n = c.sock.send(c.outbox)
                del c.outbox[:n]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(c)
            return
        if c.sock in self.clients:
            self.selector.modify(c.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if c.outbox else 0), c)

    def close(self):
        """Ends the service; all connections are closed when it returns."""
        if os.getpid() == self.pid and not self.closing:
            self.closing = True
            self.wake_out.send(b"x")
            if threading.current_thread() is not self:
                self.join(5)        # (a request that is being served may not be answered after this)

    def after_fork(self):
        # The thread is in the parent alone; the child must not keep the port busy once the parent is gone.
        for s in [self.listener, self.wake_in, self.wake_out, *self.clients]:
            s.close()
        self.closing = True


def _listen(port):
    try:
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024) \
            if socket.has_dualstack_ipv6() else socket.create_server(("", port), backlog=1024)
    except OSError as e:
        if e.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):     # a machine without IPv6
            try:
                return socket.create_server(("", port), backlog=1024)
            except OSError as again:
                e = again
        name = errno.errorcode.get(e.errno, str(e.errno))
        raise DistNetworkError(f"The server socket has failed to listen on any local network address. port: {port}, "
                               f"code: -{e.errno}, name: {name}, message: {os.strerror(e.errno).lower()}") from e


_servers = weakref.WeakValueDictionary()     # port -> server of this process, for multi_tenant


def connect(host, port, timeout):
    """TCP connection to a server that may not be there yet; DistNetworkError after the timeout."""
    end, pause = time.monotonic() + timeout, 0.02
    while True:
        left = end - time.monotonic()
        try:
            sock = socket.create_connection((host, port), max(0.05, min(left, 10.0)))
        except OSError as e:
            if end - time.monotonic() <= 0:
                raise DistNetworkError(f"The client socket has timed out after {round(timeout * 1000)}ms while trying to "
                                       f"connect to ({host}, {port}).") from e
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(pause * 1.5, 0.5)
            continue
        if sock.getsockname() == sock.getpeername():
            # A port of the ephemeral range that nobody listens on can, by chance, be connected to itself.
            sock.close()
            time.sleep(pause)
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock


class TCPStore(Store):
    """Store served over TCP by the process that says is_master; port 0 takes a free one (see `port`).

    With `world_size` and `wait_for_workers` the master waits until that many have connected.
    """

    def __init__(self, host_name, port, world_size=None, is_master=False, timeout=datetime.timedelta(seconds=300),
                 wait_for_workers=True, multi_tenant=False, master_listen_fd=None, use_libuv=True):
        super().__init__()
        self.set_timeout(timeout)
        self.host, self.world_size, self.is_master = host_name, world_size, is_master
        self.libuvBackend = bool(use_libuv)
        self._server = None
        if is_master:
            if multi_tenant and port in _servers:
                self._server = _servers[port]
            else:
                self._server = _Server(port, master_listen_fd)
                _servers[self._server.port] = self._server
            self._server.users += 1
            port = self._server.port
        self.port = port
        self._lock = threading.Lock()
        self._sock = connect("127.0.0.1" if is_master else host_name, port, seconds(self._timeout))
        at_fork(self)
        if wait_for_workers and world_size:
            n = self.add("init/", 1)
            end = time.monotonic() + seconds(self._timeout)
            while is_master and n < world_size:
                if time.monotonic() > end:
                    raise DistStoreError(f"Timed out after {round(seconds(self._timeout))} seconds waiting for clients. "
                                         f"{n}/{world_size} clients joined.")
                time.sleep(0.005)
                n = self.add("init/", 0)

    def __repr__(self):
        return f"TCPStore(host={self.host!r}, port={self.port}, is_master={self.is_master})"

    def _ask(self, kind, parts, timeout=0.0):
        message = pack(kind, parts, min(round(timeout * 1000), 0xffffffff))
        with self._lock:
            try:
                if self._sock is None:
                    self._sock = connect(self.host, self.port, seconds(self._timeout))
                self._sock.settimeout(None if timeout > 1e6 else timeout + seconds(self._timeout) + _SLACK)
                self._sock.sendall(message)
                how, _, n = _HEAD.unpack(self._exactly(_HEAD.size))
                answer = unpack(self._exactly(n))
            except BaseException as e:
                # Perhaps half an answer is still under way: this connection cannot be used again.
                if self._sock is not None:
                    self._sock.close()
                    self._sock = None
                if isinstance(e, OSError):
                    raise DistNetworkError(f"the store at {self.host}:{self.port} does not answer: {e}") from e
                raise
        if how == _OK:
            return answer
        text = answer[0].decode() if answer else ""
        if how == _TIMEOUT:
            raise DistStoreError(text)
        if how == _EMPTY:
            raise QueueEmptyError("queue is empty")
        raise ValueError(text)

    def _exactly(self, n):
        raw = bytearray()
        while len(raw) < n:
            part = self._sock.recv(n - len(raw))
            if not part:
                raise DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server "
                                       f"shutdown or crash? (the store at {self.host}:{self.port})")
            raw += part
        return raw

    def set(self, key, value):
        self._ask(_SET, [key.encode(), as_bytes(value)])

    def get(self, key):
        return self._ask(_GET, [key.encode()], seconds(self._timeout))[0]

    def add(self, key, value):
        return int(self._ask(_ADD, [key.encode(), str(int(value)).encode()])[0])

    def compare_set(self, key, expected_value, desired_value):
        return self._ask(_COMPARE, [key.encode(), as_bytes(expected_value), as_bytes(desired_value)])[0]

    def wait(self, keys, timeout=None):
        self._ask(_WAIT, [k.encode() for k in keys], seconds(self._timeout if timeout is None else timeout))

    def check(self, keys):
        return self._ask(_CHECK, [k.encode() for k in keys])[0] == b"1"

    def delete_key(self, key):
        return self._ask(_DELETE, [key.encode()])[0] == b"1"

    def num_keys(self):
        return int(self._ask(_COUNT, [])[0])

    def list_keys(self):
        return [k.decode() for k in self._ask(_LIST, [])]

    def append(self, key, value):
        self._ask(_APPEND, [key.encode(), as_bytes(value)])

    def multi_get(self, keys):
        return self._ask(_MULTI_GET, [k.encode() for k in keys], seconds(self._timeout))

    def multi_set(self, keys, values):
        if len(keys) != len(values):
            raise ValueError("multi_set needs as many values as keys")
        self._ask(_MULTI_SET, [*(k.encode() for k in keys), *(as_bytes(v) for v in values)])

    def queue_push(self, key, value):
        self._ask(_PUSH, [key.encode(), as_bytes(value)])

    def queue_pop(self, key, block=True):
        return self._ask(_POP, [key.encode()], seconds(self._timeout) if block else 0.0)[0]

    def queue_len(self, key):
        return int(self._ask(_LENGTH, [key.encode()])[0])

    def has_extended_api(self):
        return True

    def clone(self):
        other = TCPStore.__new__(TCPStore)
        other.__dict__.update(self.__dict__)
        other._lock, other.is_master, other._server = threading.Lock(), False, None
        other._sock = connect("127.0.0.1" if self._server is not None else self.host, self.port, seconds(self._timeout))
        at_fork(other)
        return other

    def after_fork(self):
        # The child makes a connection of its own when it needs one; the parent keeps this one.
        if self._sock is not None:
            self._sock.close()
        self._sock, self._server, self._lock = None, None, threading.Lock()

    def close(self):
        """Closes the connection, and the service of a master."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        server, self._server = self._server, None
        if server is not None:
            server.users -= 1
            if server.users == 0:
                server.close()

    def __del__(self):
        if sys is None or sys.is_finalizing():
            return          # the service's thread does not run any more
        if getattr(self, "_sock", None) is not None or getattr(self, "_server", None) is not None:
            self.close()


