"""Point-to-point messages of a group, matched by sender and tag in the order of sending.

The sender connects to the receiver. Each group that uses messages has one thread, which receives
them and sends the data that the network did not accept at once. A message without a matching
receive is buffered in memory.
"""
import collections
import os
import select
import struct
import threading
import time

import numpy as np

from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.backend.comm.transport import PeerDisconnected
from mindtorch.backend.comm.reduce import DTYPES, dtype_index

_HEAD = struct.Struct("<4sqBxxxxxxxQ")  # magic, tag, dtype index, bytes
_MAGIC = b"mtpp"
# bytes of one sender's messages without a matching receive, beyond which its connection is not read
_KEEP = 1 << 28
_GRACE = 1.0  # seconds in which messages of a leaving process may still arrive


class _Send:
    __slots__ = ("peer", "tag", "views", "done", "end", "timeout", "hold")

    def __init__(self, peer, tag, views, done, timeout, hold):
        self.peer, self.tag, self.views, self.done, self.timeout, self.hold = peer, tag, views, done, timeout, hold
        self.end = time.monotonic() + timeout


class _Receive:
    __slots__ = ("peer", "tag", "array", "done", "end", "timeout", "source")

    def __init__(self, peer, tag, array, done, timeout):
        self.peer, self.tag, self.array, self.done, self.timeout = peer, tag, array, done, timeout
        self.end = time.monotonic() + timeout
        self.source = peer


class _Inlet:
    """The receiving end of one sender's connection."""

    __slots__ = ("sock", "peer", "head", "view", "message", "waiting", "open")

    def __init__(self, sock, peer):
        self.sock, self.peer, self.open, self.waiting = sock, peer, True, 0
        self.restart()

    def restart(self):
        self.head, self.message = bytearray(_HEAD.size), None
        self.view = memoryview(self.head)


class Mailbox:
    """Messages between the members of one group."""

    def __init__(self, group):
        self.group, self.fabric, self.channel = group, group.fabric, f"p{group.key}"
        self.lock = threading.RLock()
        self.outlets = {}           # peer -> (socket, deque of _Send)
        self.inlets = {}
        self.posted = []  # receives without a message yet
        self.broken = None  # why a connection can no longer be read
        # (peer, tag, kind, bytes): messages without a matching receive, in order of arrival
        self.unmatched = []
        self.gone = {}  # peer -> deadline for messages still under way
        self.thread = None
        self.closed = False
        self.wake_in = self.wake_out = None

    def _start(self):
        if self.thread is None:
            self.wake_in, self.wake_out = os.pipe()
            os.set_blocking(self.wake_in, False)
            os.set_blocking(self.wake_out, False)
            for peer in self.group.ranks:
                if peer in self.fabric.left:
                    self.gone.setdefault(peer, time.monotonic() + _GRACE)
            self.thread = threading.Thread(target=self._run, daemon=True, name="mindtorch-messages")
            self.thread.start()
            self.fabric.on_arrival(self.channel, self._arrived)

    def wake(self):
        """Makes the thread check everything again."""
        out = self.wake_out
        if out is not None:
            try:
                os.write(out, b"x")
            except BlockingIOError:
                pass  # the pipe is full, so a wake-up is already pending

    def _arrived(self, peer, sock):
        with self.lock:
            if peer in self.inlets:
                raise ValueError(f"rank {peer} has a connection for messages already")
            self.inlets[peer] = _Inlet(sock, peer)
        self.wake()

    def departed(self, peer):
        """Handles a member's goodbye."""
        with self.lock:
            if self.thread is not None:
                self.gone.setdefault(peer, time.monotonic() + _GRACE)
        self.wake()

    # ---- calls by the program
    def send(self, peer, tag, array, done, timeout):
        """Sends an array to a rank of the fabric; calls done(error or None) once the network has
        accepted it."""
        if self.group.failed is not None:
            raise DistBackendError(self.group._text("send cannot run", f"the group has failed: {self.group.failed}"))
        with self.lock:
            self._start()
            if peer not in self.outlets:
                try:
                    self.outlets[peer] = self.fabric.to(peer, self.channel, time.monotonic() + timeout), collections.deque()
                except PeerDisconnected:
                    why = self.fabric.fate(peer)
                    raise DistBackendError(self.group._text(f"send to rank {peer} failed", why)) from None
            head = _HEAD.pack(_MAGIC, tag, dtype_index(array.dtype), array.nbytes)
            views = [memoryview(head)]
            if array.nbytes:
                views.append(memoryview(array.view(np.uint8)))
            item = _Send(peer, tag, views, done, timeout, array)
            sock, queue = self.outlets[peer]
            queue.append(item)
            finished = self._push(peer, sock, queue) if len(queue) == 1 else []
            rest = bool(queue)
        for s, error in finished:
            s.done(error)
        if rest:
            self.wake()

    def receive(self, peer, tag, array, done, timeout):
        """Receives into an array from a rank of the fabric, or from any rank if `peer` is None;
        calls done(error or None). Returns the item, whose `source` is then the sender."""
        if self.group.failed is not None:
            raise DistBackendError(self.group._text("recv cannot run", f"the group has failed: {self.group.failed}"))
        item = _Receive(peer, tag, array, done, timeout)
        with self.lock:
            self._start()
            for k, (source, t, kind, data) in enumerate(self.unmatched):
                if t == tag and peer in (None, source):
                    del self.unmatched[k]
                    inlet = self.inlets.get(source)
                    if inlet is not None:
                        inlet.waiting -= len(data)
                    item.source = source
                    error = self._mismatch(item, source, kind, len(data))
                    if error is None and len(data):
                        item.array.view(np.uint8)[...] = np.frombuffer(data, np.uint8)
                    break
            else:
                self.posted.append(item)
                self.wake()
                return item
        if error is not None:
            self.group.fail(str(error))
        done(error)
        self.wake()
        return item

    def _mismatch(self, item, source, kind, nbytes):
        mine = dtype_index(item.array.dtype)
        if kind == mine and nbytes == item.array.nbytes:
            return None
        names = [DTYPES[c] if c < len(DTYPES) else f"dtype {c}" for c in (kind, mine)]
        return DistBackendError(self.group._text(
            f"recv from rank {source} (tag {item.tag}) failed",
            f"rank {source} sends {nbytes} bytes of {names[0]}, the receive is for {item.array.nbytes} bytes of {names[1]}"))

    # ---- the thread
    def _push(self, peer, sock, queue):
        """Sends as much as the network accepts; returns [(item, error)] of the finished sends."""
        finished = []
        while queue:
            item = queue[0]
            try:
                n = sock.sendmsg(item.views) if len(item.views) > 1 else sock.send(item.views[0])
            except BlockingIOError:
                break
            except OSError:
                why = self.group.failed or self.fabric.fate(peer)
                error = DistBackendError(self.group._text(f"send to rank {peer} (tag {item.tag}) failed", why))
                finished += [(s, error) for s in queue]
                queue.clear()
                break
            self.fabric.sent[0] += n
            while item.views and n >= len(item.views[0]):
                n -= len(item.views.pop(0))
            if n:
                item.views[0] = item.views[0][n:]
            if not item.views:
                finished.append((queue.popleft(), None))
        return finished

    def _pull(self, inlet):
        """Receives the available data; returns [(item, error)] of the finished receives."""
        finished = []
        while inlet.open:
            try:
                n = inlet.sock.recv_into(inlet.view)
            except BlockingIOError:
                break
            except OSError:
                n = 0
            if n == 0:
                inlet.open = False
                break
            self.fabric.received[0] += n
            inlet.view = inlet.view[n:]
            if not len(inlet.view):
                self._filled(inlet, finished)
                if inlet.waiting > _KEEP:
                    break
        return finished

    def _filled(self, inlet, finished):
        if inlet.message is None:
            magic, tag, kind, nbytes = _HEAD.unpack(inlet.head)
            if magic != _MAGIC:
                inlet.open, self.broken = False, f"rank {inlet.peer} has sent an invalid message header"
                return
            item = next((r for r in self.posted if r.tag == tag and r.peer in (None, inlet.peer)), None)
            data = None
            if item is not None:
                self.posted.remove(item)
                item.source = inlet.peer
                error = self._mismatch(item, inlet.peer, kind, nbytes)
                if error is not None:
                    finished.append((item, error))
                    inlet.open = False
                    return
                target = item.array.view(np.uint8) if nbytes else b""
            else:
                try:
                    target = data = bytearray(nbytes)
                except (MemoryError, OverflowError):
                    inlet.open, self.broken = False, f"out of memory for a message of {nbytes} bytes (tag {tag}) from rank {inlet.peer}"
                    return
            inlet.message = item, tag, kind, data
            inlet.view = memoryview(target)
            if nbytes:
                return
        item, tag, kind, data = inlet.message
        inlet.restart()
        if item is not None:
            finished.append((item, None))
            return
        # A receive may have been posted while the message was arriving.
        item = next((r for r in self.posted if r.tag == tag and r.peer in (None, inlet.peer)), None)
        if item is None:
            self.unmatched.append((inlet.peer, tag, kind, data))
            inlet.waiting += len(data)
            return
        self.posted.remove(item)
        item.source = inlet.peer
        error = self._mismatch(item, inlet.peer, kind, len(data))
        if error is None and len(data):
            item.array.view(np.uint8)[...] = np.frombuffer(data, np.uint8)
        finished.append((item, error))

    def _wanted(self, inlet):
        return inlet.open and (inlet.waiting <= _KEEP or any(r.peer in (None, inlet.peer) for r in self.posted))

    def _run(self):
        try:
            self._loop()
        except Exception as e:
            # Without this thread nothing is received any more: pending calls and the other ranks
            # get an error.
            self.group.fail(f"rank {self.fabric.rank} cannot handle messages any more: {e!r}")
            with self.lock:
                finished = []
                self._hopeless(finished)
            for item, error in finished:
                item.done(error)

    def _loop(self):
        while True:
            with self.lock:
                if self.closed:
                    os.close(self.wake_in)
                    return
                poll = select.poll()
                poll.register(self.wake_in, select.POLLIN)
                for inlet in self.inlets.values():
                    if self._wanted(inlet):
                        poll.register(inlet.sock, select.POLLIN)
                for sock, queue in self.outlets.values():
                    if queue:
                        poll.register(sock, select.POLLOUT)
                ends = [r.end for r in self.posted] + [q[0].end for _, q in self.outlets.values() if q]
                if self.posted:
                    now = time.monotonic()
                    ends += [t for t in self.gone.values() if t > now]
            wait = None if not ends else max(0.0, min(ends) - time.monotonic()) * 1000 + 1
            poll.poll(wait)
            try:
                os.read(self.wake_in, 4096)
            except BlockingIOError:
                pass
            with self.lock:
                finished = []
                for peer, (sock, queue) in self.outlets.items():
                    finished += self._push(peer, sock, queue)
                for inlet in list(self.inlets.values()):
                    if self._wanted(inlet):
                        finished += self._pull(inlet)
                if self.broken is not None and self.group.failed is None:
                    self.group.fail(self.broken)
                late = self._hopeless(finished)
            for item, error in finished:
                item.done(error)
            bad = next((e for _, e in finished if e is not None), None)
            if bad is not None and (late or self.group.failed is None):
                self.group.fail(str(bad))

    def _hopeless(self, finished):
        """Fails the items that can no longer complete: the peer is gone, the timeout has expired,
        or the group has failed. Returns True if a timeout has expired."""
        now, late = time.monotonic(), False
        failed = self.group.failed
        for r in list(self.posted):
            who = "any rank" if r.peer is None else f"rank {r.peer}"
            what = f"recv from {who} (tag {r.tag}) failed"
            if failed is not None:
                why = failed
            elif r.peer is not None and self._silent(r.peer, now):
                why = self.fabric.dead.get(r.peer) or self.fabric.left.get(r.peer) or f"rank {r.peer} has closed the connection"
            elif now >= r.end:
                why, late = f"timed out after {r.timeout:g} s", True
            else:
                continue
            self.posted.remove(r)
            finished.append((r, DistBackendError(self.group._text(what, why))))
        for peer, (_, queue) in self.outlets.items():
            if queue and (failed is not None or now >= queue[0].end):
                why = failed or f"timed out after {queue[0].timeout:g} s: rank {peer} does not receive"
                late = late or failed is None
                error = DistBackendError(self.group._text(f"send to rank {peer} (tag {queue[0].tag}) failed", why))
                finished += [(s, error) for s in queue]
                queue.clear()
        return late

    def _silent(self, peer, now):
        inlet = self.inlets.get(peer)
        if inlet is not None and not inlet.open:
            return True
        return inlet is None and peer in self.gone and now >= self.gone[peer]

    def close(self):
        """Ends the thread and the connections."""
        with self.lock:
            self.closed = True
            if self.thread is not None:
                self.wake()
                if threading.current_thread() is not self.thread:
                    self.lock.release()
                    try:
                        self.thread.join(5.0)
                    finally:
                        self.lock.acquire()
                os.close(self.wake_out)
                self.wake_out = self.thread = None
            self._shut()

    def _shut(self):
        for sock in [*(i.sock for i in self.inlets.values()), *(s for s, _ in self.outlets.values())]:
            sock.close()

    def after_fork(self):
        self.lock = threading.RLock()
        self.closed = True
        self._shut()
        for fd in (self.wake_in, self.wake_out):
            if fd is not None:
                os.close(fd)
        self.wake_in = self.wake_out = self.thread = None
