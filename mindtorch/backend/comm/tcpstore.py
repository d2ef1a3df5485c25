"""TCPStore: one process serves a table of keys and values, the others access it over TCP.

There is no authentication: any process that reaches the port can read and write the table, as with
PyTorch's store. So the server listens only where the job's processes can reach it, every field has
a size limit, and a connection that violates the protocol is closed without affecting the others.
"""
import collections
import datetime
import errno
import heapq
import ipaddress
import logging
import os
import selectors
import socket
import struct
import sys
import threading
import time
import weakref
from typing import Any

from mindtorch.backend.comm.errors import DistNetworkError, DistStoreError, QueueEmptyError
from mindtorch.backend.comm.store import Store, Table, as_bytes, at_fork, missing_text, seconds

log = logging.getLogger("torch.distributed")

(_SET, _GET, _ADD, _COMPARE, _WAIT, _CHECK, _DELETE, _COUNT, _LIST, _APPEND, _PUSH, _POP, _LENGTH, _MULTI_GET,
 _MULTI_SET) = range(15)
# Number of keys and values of a request; None: any number, and the same for both.
_ARITY = {_SET: (1, 1), _GET: (1, 0), _ADD: (1, 1), _COMPARE: (1, 2), _WAIT: (None, 0), _CHECK: (None, 0), _DELETE: (1, 0), _COUNT: (0, 0),
          _LIST: (0, 0), _APPEND: (1, 1), _PUSH: (1, 1), _POP: (1, 0), _LENGTH: (1, 0), _MULTI_GET: (None, 0), _MULTI_SET: (None, None)}
_OK, _TIMEOUT, _BAD, _EMPTY, _OVER = range(5)
_HEAD = struct.Struct("<BII")  # request kind (or status), timeout in ms, length of the rest
_LEN = struct.Struct("<I")
_HELLO = b"mtstore1"  # the client's greeting
_HELLO_TIME = 10.0  # seconds in which the greeting must arrive
_SLACK = 5.0  # seconds a client waits for an answer beyond the server's own timeout
_PAUSE = 0.1  # seconds without accepting connections after file descriptors ran out

# Limits in bytes; those of a key, a value and the number of keys are PyTorch's.
MAX_KEY, MAX_VALUE, MAX_KEYS, MAX_MESSAGE = 8 << 10, 8 << 20, 128 << 10, 64 << 20


def pack(kind, parts, timeout=0):
    """Packs a request or answer: a header followed by a list of byte strings."""
    body = b"".join(_LEN.pack(len(p)) + p for p in parts)
    return _HEAD.pack(kind, timeout, len(body)) + body


def unpack(body):
    """Splits a body into its byte strings; ValueError if it is malformed."""
    parts, at, end = [], 0, len(body)
    while at < end:
        if end - at < _LEN.size:
            raise ValueError("a length is cut off")
        n, = _LEN.unpack_from(body, at)
        at += _LEN.size
        if n > end - at:
            raise ValueError(f"a field of {n} bytes where {end - at} are left")
        parts.append(bytes(body[at:at + n]))
        at += n
    return parts


def fields(kind, parts):
    """Returns (keys as text, values) of a request; ValueError if there are too many or too few, or
    one is too long."""
    if kind not in _ARITY:
        raise ValueError(f"unknown request {kind}")
    keys, values = _ARITY[kind]
    if keys is None:
        keys, remainder = divmod(len(parts), 2) if values is None else (len(parts), 0)
        values = keys + remainder if values is None else 0
        if remainder:
            raise ValueError("as many values as keys are needed")
    if keys + values != len(parts):
        raise ValueError(f"{keys + values} fields are needed, not {len(parts)}")
    if keys > MAX_KEYS:
        raise ValueError(f"{keys} keys at once; the most is {MAX_KEYS}")
    for what, most, some in (("key", MAX_KEY, parts[:keys]), ("value", MAX_VALUE, parts[keys:])):
        longest = max(map(len, some), default=0)
        if longest > most:
            raise ValueError(f"a {what} of {longest} bytes; the most is {most}")
    return [p.decode() for p in parts[:keys]], parts[keys:]


class _Over(Exception):
    """An answer or value exceeds its size limit."""


class _Client:
    """The server's side of one connection."""

    def __init__(self, sock):
        self.sock, self.inbox, self.outbox = sock, bytearray(), bytearray()


class _Server(threading.Thread):
    """Thread that serves a table to all connections until it is closed."""

    def __init__(self, addresses, port, listen_fd=None):
        super().__init__(daemon=True, name="mindtorch-store")
        self.addresses = None
        if listen_fd is not None:
            self.listeners = [socket.socket(fileno=listen_fd)]
        else:
            self.listeners, self.addresses = _listen(addresses, port)
        self.port = self.listeners[0].getsockname()[1]
        self.pid, self.users = os.getpid(), 0
        self.table, self.clients, self.parked = Table(), {}, {}     # parked: client -> its unanswered wait
        # client that has not sent its greeting -> deadline
        self.strangers = collections.OrderedDict()
        self.selector = selectors.DefaultSelector()
        self.wake_in, self.wake_out = socket.socketpair()
        self.closing, self.resume = False, None
        self.deadlines = []
        self._hear(True)
        self.selector.register(self.wake_in, selectors.EVENT_READ)
        at_fork(self)
        self.start()

    def _hear(self, on):
        """Enables or disables accepting new connections."""
        for s in self.listeners:
            s.setblocking(False)
            if on:
                self.selector.register(s, selectors.EVENT_READ)
            else:
                self.selector.unregister(s)
        self.resume = None if on else time.monotonic() + _PAUSE

    def run(self):
        try:
            while not self.closing:
                self._turn()
        finally:
            # In any case close the connections, so that clients that wait for an answer get an
            # error.
            for s in [*self.clients, *self.listeners]:
                s.close()
            self.selector.close()

    def _turn(self):
        ends = [self.deadlines[0][0]] if self.deadlines else []
        if self.strangers:
            ends.append(next(iter(self.strangers.values())))
        if self.resume is not None:
            ends.append(self.resume)
        for key, events in self.selector.select(max(0.0, min(ends) - time.monotonic()) if ends else None):
            if key.fileobj is self.wake_in:
                self.wake_in.recv(64)
            elif key.data is None:
                self._accept(key.fileobj)
            else:
                try:
                    self._serve(key.data, events)
                except Exception as e:
                    # Bad data from one connection, or a bug in serving it, must not end the service
                    # for the others.
                    log.warning("TCPStore on port %d closes a connection that does not keep to the protocol: %s", self.port, e)
                    self._drop(key.data)
        now = time.monotonic()
        while self.strangers and next(iter(self.strangers.values())) <= now:
            self._drop(next(iter(self.strangers)))
        if self.resume is not None and self.resume <= now:
            self._hear(True)
        self._expire(now)

    def _accept(self, listener):
        try:
            sock, _ = listener.accept()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                if self.strangers:
                    self._drop(next(iter(self.strangers)))
                elif self.resume is None:
                    self._hear(False)
            return  # else: the client disconnected before accept()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()  # the client has disconnected
            return
        c = _Client(sock)
        self.clients[sock] = c
        self.strangers[c] = time.monotonic() + _HELLO_TIME
        self.selector.register(sock, selectors.EVENT_READ, c)

    def _drop(self, c):
        if self.clients.pop(c.sock, None) is not None:
            self.selector.unregister(c.sock)
            c.sock.close()
            self.parked.pop(c, None)
            self.strangers.pop(c, None)

    def _serve(self, c, events):
        if c.sock not in self.clients:
            return  # dropped earlier in this iteration
        if events & selectors.EVENT_WRITE:
            self._flush(c)
        if not events & selectors.EVENT_READ or c.sock not in self.clients:
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
        if c in self.parked or c.outbox:
            raise ValueError("a request before the last one was answered")
        c.inbox += raw
        if c in self.strangers:
            if c.inbox[:len(_HELLO)] != _HELLO[:len(c.inbox)]:
                raise ValueError("not a client of this store")
            if len(c.inbox) < len(_HELLO):
                return
            del c.inbox[:len(_HELLO)], self.strangers[c]
        if len(c.inbox) < _HEAD.size:
            return
        kind, timeout, n = _HEAD.unpack_from(c.inbox)
        if n > MAX_MESSAGE:
            raise ValueError(f"a request of {n} bytes; the most is {MAX_MESSAGE}")
        if len(c.inbox) < _HEAD.size + n:
            return
        if len(c.inbox) > _HEAD.size + n:
            raise ValueError("a request before the last one was answered")
        body, c.inbox = memoryview(c.inbox)[_HEAD.size:], bytearray()
        self._request(c, kind, timeout / 1000, *fields(kind, unpack(body)))

    def _request(self, c, kind, timeout, keys, values):
        t = self.table
        key = keys[0] if keys else None
        changed = False
        if kind in (_WAIT, _GET, _MULTI_GET):
            def answer():
                return [] if kind == _WAIT else [t.values[k] for k in keys]
            self._when(c, lambda: t.check(keys), answer, timeout, keys)
            return
        if kind == _POP:
            if timeout == 0 and not t.length(key):
                self._answer(c, _EMPTY, [])
            else:
                self._when(c, lambda: t.length(key), lambda: [t.pop(key)], timeout, keys)
            return
        try:
            if kind == _SET:
                r, changed = t.set(key, values[0]), True
            elif kind == _APPEND:
                if len(t.values.get(key, b"")) + len(values[0]) > MAX_MESSAGE - _LEN.size:
                    raise _Over(f"the value of key {key!r} would grow beyond {MAX_MESSAGE} bytes")
                r, changed = t.append(key, values[0]), True
            elif kind == _ADD:
                r, changed = str(t.add(key, int(values[0]))).encode(), True
            elif kind == _COMPARE:
                r, changed = t.compare_set(key, *values), True
            elif kind == _MULTI_SET:
                for k, v in zip(keys, values):
                    t.set(k, v)
                r, changed = None, True
            elif kind == _PUSH:
                r, changed = t.push(key, values[0]), True
            elif kind == _CHECK:
                r = b"1" if t.check(keys) else b"0"
            elif kind == _DELETE:
                r = b"1" if t.delete(key) else b"0"
            elif kind == _COUNT:
                r = str(len(t.values)).encode()
            elif kind == _LENGTH:
                r = str(t.length(key)).encode()
            else:
                self._answer(c, _OK, [k.encode() for k in t.values])
                return
        except (ValueError, _Over) as e:
            self._answer(c, _BAD if isinstance(e, ValueError) else _OVER, [str(e).encode()])
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
        if len(self.deadlines) > 2 * len(self.parked) + 64:  # most of them have been answered
            self.deadlines = sorted((p[2], id(c)) for c, p in self.parked.items())
        else:
            heapq.heappush(self.deadlines, (deadline, id(c)))

    def _wake(self):
        for c, (ready, answer, *_rest) in list(self.parked.items()):
            if c in self.parked and ready():
                del self.parked[c]
                self._answer(c, _OK, answer())

    def _expire(self, now):
        if not self.deadlines or self.deadlines[0][0] > now:
            return
        while self.deadlines and self.deadlines[0][0] <= now:
            heapq.heappop(self.deadlines)
        for c, (_, _, deadline, keys, timeout) in list(self.parked.items()):
            if deadline <= now and self.parked.pop(c, None) is not None:
                missing = [k for k in keys if k not in self.table.values]
                self._answer(c, _TIMEOUT, [missing_text(timeout, missing).encode()])

    def _answer(self, c, how, parts):
        n = sum(map(len, parts)) + _LEN.size * len(parts)
        if n > MAX_MESSAGE:
            how, parts = _OVER, [f"the answer has {n} bytes; the most is {MAX_MESSAGE}".encode()]
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
        """Stops the server; all connections are closed when it returns."""
        if os.getpid() == self.pid and not self.closing:
            self.closing = True
            self.wake_out.send(b"x")
            if threading.current_thread() is not self:
                self.join(5)  # (a request being served may stay unanswered)

    def after_fork(self):
        # The thread exists only in the parent. The child must not keep the port open after the
        # parent has exited.
        for s in [*self.listeners, self.wake_in, self.wake_out, *self.clients]:
            s.close()
        self.closing = True


def _addresses(host, all_here):
    """Returns the addresses to listen at for clients that connect to `host`; None for all
    interfaces.

    An IP address means itself, localhost this machine. Any other name may resolve differently on
    another machine (a machine's own name is often one of its loopback addresses), so it selects the
    addresses only if all processes are on this machine.
    """
    if host in ("", "*", "0.0.0.0", "::"):
        return None
    name = host.lower().rstrip(".")
    if not all_here and name not in ("localhost", "localhost.localdomain", "ip6-localhost") and not name.endswith(".localhost"):
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None
    try:
        return list(dict.fromkeys(a[4][0] for a in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)))
    except OSError:
        return None  # clients that connect raise the error


# no IPv6, or an address of another machine (a gateway in front of this one)
_NO_SUCH = errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL


def _listen(addresses, port):
    """Returns (sockets, the addresses they listen at or None for all). This process itself connects
    to 127.0.0.1."""
    for attempt in range(16):
        made, at = [], []
        try:
            for address in dict.fromkeys([*(addresses or ()), "127.0.0.1"]) if addresses else ():
                try:
                    s = socket.create_server((address, made[0].getsockname()[1] if made else port), backlog=1024,
                                             family=socket.AF_INET6 if ":" in address else socket.AF_INET)
                except OSError as e:
                    if e.errno in _NO_SUCH:
                        continue
                    raise
                made.append(s)
                at.append(address)
            if set(at) & set(addresses or ()):
                return made, frozenset(at)
            for s in made:
                s.close()
            return [_listen_everywhere(port)], None
        except OSError as e:
            for s in made:
                s.close()
            if made and port == 0 and attempt < 15:
                continue  # the port was free at one address but not at the other
            name = errno.errorcode.get(e.errno, str(e.errno))
            raise DistNetworkError(f"The server socket has failed to listen on any local network address. port: {port}, "
                                   f"code: -{e.errno}, name: {name}, message: {os.strerror(e.errno).lower()}") from e


def _listen_everywhere(port):
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        except OSError as e:
            if e.errno not in _NO_SUCH:
                raise
    return socket.create_server(("", port), backlog=1024)


_servers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()     # port -> server of this process, for multi_tenant


def connect(host, port, timeout):
    """Opens a TCP connection to a server that may not be running yet; DistNetworkError after the
    timeout."""
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
            # A connection to an ephemeral port without a listener can, by chance, connect to
            # itself.
            sock.close()
            time.sleep(pause)
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock


# Number of fields in the answer to a request, where it is fixed.
_ANSWERS = {_GET: 1, _ADD: 1, _COMPARE: 1, _CHECK: 1, _DELETE: 1, _COUNT: 1, _POP: 1, _LENGTH: 1}


class TCPStore(Store):
    """Store served over TCP by the process with is_master; port 0 picks a free port (see `port`).

    The master listens at the address of `host_name`: localhost or 127.0.0.1 accept only this
    machine; a machine's name or 0.0.0.0 accept connections on all interfaces. With `world_size` and
    `wait_for_workers` the master waits until that many clients have connected. Limits are 8 KB for
    a key, 8 MB for a value and 64 MB for a request, as in PyTorch: DistNetworkError beyond that.
    """

    def __init__(self, host_name, port, world_size=None, is_master=False, timeout=datetime.timedelta(seconds=300),
                 wait_for_workers=True, multi_tenant=False, master_listen_fd=None, use_libuv=True, *, _all_here=False):
        super().__init__()
        self.set_timeout(timeout)
        self.host, self.world_size, self.is_master = host_name, world_size, is_master
        self.libuvBackend = bool(use_libuv)
        self._server = None
        if is_master:
            addresses = _addresses(host_name, _all_here)
            there = _servers.get(port) if multi_tenant else None
            if there is not None and (there.addresses is None or addresses is not None and there.addresses >= set(addresses)):
                self._server = there
            else:
                self._server = _Server(addresses, port, master_listen_fd)
                _servers[self._server.port] = self._server
            self._server.users += 1
            port = self._server.port
        self.port = port
        self._lock = threading.Lock()
        self._dial()
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

    def _dial(self):
        sock = connect("127.0.0.1" if self._server is not None else self.host, self.port, seconds(self._timeout))
        try:
            sock.sendall(_HELLO)
        except OSError as e:
            sock.close()
            raise DistNetworkError(f"the store at {self.host}:{self.port} has closed the connection: {e}") from e
        self._sock = sock

    def _request(self, kind, parts, timeout=0.0):
        try:
            fields(kind, parts)
        except ValueError as e:
            raise DistNetworkError(f"TCPStore: {e}") from None
        message = pack(kind, parts, min(max(round(timeout * 1000), 0), 0xffffffff))
        if len(message) > MAX_MESSAGE:
            raise DistNetworkError(f"TCPStore: a request of {len(message)} bytes; the most is {MAX_MESSAGE}")
        with self._lock:
            try:
                if self._sock is None:
                    self._dial()
                self._sock.settimeout(None if timeout > 1e6 else timeout + seconds(self._timeout) + _SLACK)
                self._sock.sendall(message)
                how, _, n = _HEAD.unpack(self._exactly(_HEAD.size))
                try:
                    if how > _OVER or n > MAX_MESSAGE:
                        raise ValueError(f"an answer {how} of {n} bytes")
                    answer = unpack(self._exactly(n))
                    if how == _OK and _ANSWERS.get(kind, len(answer)) != len(answer):
                        raise ValueError(f"{len(answer)} fields to request {kind}")
                except ValueError as e:
                    raise DistNetworkError(f"the server at {self.host}:{self.port} is not a mindtorch TCPStore: it sent {e}") from None
            except BaseException as e:
                # Part of an answer may still be under way: this connection cannot be reused.
                if self._sock is not None:
                    self._sock.close()
                    self._sock = None
                if isinstance(e, OSError):
                    raise DistNetworkError(f"the store at {self.host}:{self.port} does not answer: {e}") from e
                raise
        if how == _OK:
            return answer
        text = answer[0].decode(errors="replace") if answer else ""
        if how == _TIMEOUT:
            raise DistStoreError(text)
        if how == _EMPTY:
            raise QueueEmptyError("queue is empty")
        if how == _OVER:
            raise DistNetworkError(f"TCPStore: {text}")
        raise ValueError(text)

    def _exactly(self, n):
        raw = bytearray()
        while len(raw) < n:
            part = self._sock.recv(min(n - len(raw), 1 << 20))
            if not part:
                raise DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server "
                                       f"shutdown or crash? (the store at {self.host}:{self.port})")
            raw += part
        return raw

    def set(self, key, value):
        self._request(_SET, [key.encode(), as_bytes(value)])

    def get(self, key):
        return self._request(_GET, [key.encode()], seconds(self._timeout))[0]

    def add(self, key, value):
        return int(self._request(_ADD, [key.encode(), str(int(value)).encode()])[0])

    def compare_set(self, key, expected_value, desired_value):
        return self._request(_COMPARE, [key.encode(), as_bytes(expected_value), as_bytes(desired_value)])[0]

    def wait(self, keys, timeout=None):
        self._request(_WAIT, [k.encode() for k in keys], seconds(self._timeout if timeout is None else timeout))

    def check(self, keys):
        return self._request(_CHECK, [k.encode() for k in keys])[0] == b"1"

    def delete_key(self, key):
        return self._request(_DELETE, [key.encode()])[0] == b"1"

    def num_keys(self):
        return int(self._request(_COUNT, [])[0])

    def list_keys(self):
        return [k.decode() for k in self._request(_LIST, [])]

    def append(self, key, value):
        self._request(_APPEND, [key.encode(), as_bytes(value)])

    def multi_get(self, keys):
        return self._request(_MULTI_GET, [k.encode() for k in keys], seconds(self._timeout))

    def multi_set(self, keys, values):
        if len(keys) != len(values):
            raise ValueError("multi_set needs as many values as keys")
        self._request(_MULTI_SET, [*(k.encode() for k in keys), *(as_bytes(v) for v in values)])

    def queue_push(self, key, value):
        self._request(_PUSH, [key.encode(), as_bytes(value)])

    def queue_pop(self, key, block=True):
        return self._request(_POP, [key.encode()], seconds(self._timeout) if block else 0.0)[0]

    def queue_len(self, key):
        return int(self._request(_LENGTH, [key.encode()])[0])

    def has_extended_api(self):
        return True

    def clone(self):
        other = TCPStore.__new__(TCPStore)
        other.__dict__.update(self.__dict__)
        other._lock, other.is_master, other._server, other._sock = threading.Lock(), False, None, None
        if self._server is not None:
            other.host = "127.0.0.1"
        other._dial()
        at_fork(other)
        return other

    def after_fork(self):
        # The child opens its own connection when it needs one; the parent keeps this one.
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
            return  # the server's thread no longer runs
        if getattr(self, "_sock", None) is not None or getattr(self, "_server", None) is not None:
            self.close()


