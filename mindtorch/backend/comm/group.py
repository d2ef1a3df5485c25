"""A process group whose collectives run over mindtorch's own connections.

Every collective has a sequence number and a signature (operation, reduction, dtype, root, size),
which is sent ahead of its data on every connection that it uses. Two ranks that call different
collectives therefore get an error and never each other's data. A collective that fails (a dead or
late peer, a different signature) ends the group: its connections are closed on all ranks, and every
later call on it raises the same error.

Arrays are one-dimensional and contiguous. Large transfers use ring algorithms: an all-reduce of N
bytes sends 2 (n-1)/n N from each of n ranks. Up to 32 KB (and 8 ranks) every rank sends all its
data to every other rank, which takes one step.
"""
import collections
import struct
import threading
import time

import numpy as np

from mindtorch.backend.comm import reduce as comm_reduce
from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.backend.comm.transport import StreamingReduce, TransportTimeout, PeerDisconnected, pump
from mindtorch.backend.comm.p2p import Mailbox

_SIGNATURE = struct.Struct("<4sIBBBxiQQ")
_MAGIC = b"mtop"
CODES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier",
         "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
SMALL = 1 << 15  # bytes up to which at most `FEW` ranks exchange everything at once
FEW = 8
SEGMENT = 1 << 18  # bytes of a segment; one is reduced or forwarded while the next one arrives


class Aborted(Exception):
    """The group has failed on another rank, or was aborted."""


def raw(a):
    """Returns the bytes of a contiguous array."""
    return memoryview(a.view(np.uint8)) if a.size else memoryview(b"")


class _Call:
    """A collective in progress on this rank."""

    __slots__ = ("number", "name", "red", "dtype", "root", "total", "end", "timeout", "size")

    def __init__(self, number, name, red, dtype, root, total, timeout):
        self.number, self.name, self.red, self.dtype, self.root, self.total = number, name, red, dtype, root, total
        self.timeout, self.end = timeout, None

    def sign(self, nbytes):
        return _SIGNATURE.pack(_MAGIC, self.number & 0xffffffff, CODES.index(self.name), self.red, self.dtype, self.root,
                               self.total, nbytes)


def _describe(fields):
    _, number, code, red, dtype, root, total, nbytes = fields
    name = CODES[code] if code < len(CODES) else f"operation {code}"
    text = f"{name} (number {number}"
    if red < len(comm_reduce.OPS):
        text += f", {comm_reduce.OPS[red]}"
    if dtype < len(comm_reduce.DTYPES):
        text += f", dtype {comm_reduce.DTYPES[dtype]}"
    if root >= 0:
        text += f", root {root}"
    return text + f", {total} bytes, message of {nbytes} bytes)"


class SocketGroup:
    """A process group over sockets.

    `ranks` are the members' ranks in the fabric, ordered by their rank in the group; this process
    is one of them.
    """

    name = "sockets"

    def __init__(self, fabric, key, ranks, timeout, label):
        self.fabric, self.key, self.ranks, self.timeout, self.label = fabric, key, list(ranks), timeout, label
        self.size, self.me = len(self.ranks), self.ranks.index(fabric.rank)
        self.failed = None
        self.closed = False
        self._links, self._number = {}, 0
        self._queue, self._worker = collections.deque(), None
        self._more = threading.Condition()
        self._working = False
        self._scratch = None
        fabric.groups[key] = self
        self.mailbox = Mailbox(self)

    # ---- ordering: one collective at a time, in call order
    def call(self, fn):
        """Runs fn after all previously submitted functions: in this thread if none is pending, else
        in the group's thread."""
        with self._more:
            idle = not self._queue and not self._working
            if idle:
                self._working = True
        if not idle:
            box, done = [], threading.Event()
            self.submit(fn, lambda error: (box.append(error), done.set()))
            done.wait()
            if box[0] is not None:
                raise box[0]
            return
        try:
            fn()
        finally:
            with self._more:
                self._working = False
                self._more.notify_all()

    def submit(self, fn, done):
        """Runs fn in the group's thread, then calls done(error or None)."""
        with self._more:
            self._queue.append((fn, done))
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, daemon=True, name="mindtorch-collectives")
                self._worker.start()
            self._more.notify_all()

    def _work(self):
        more = self._more
        while True:
            with more:
                while not self._queue or self._working:
                    if self.closed and not self._queue:
                        return
                    more.wait()
                fn, done = self._queue.popleft()
                self._working = True
            error = None
            try:
                fn()
            except BaseException as e:  # passed to `done`
                error = e
            with more:
                self._working = False
                more.notify_all()
            done(error)
            fn = done = error = None

    # ---- failure
    def alive(self):
        """Raises Aborted if the group has failed."""
        if self.failed is not None:
            raise Aborted(self.failed)

    def fail(self, why, notify=True):
        """Ends the group for the given reason; with `notify`, notifies the other members."""
        if self.failed is None:
            self.failed = why
            if notify:
                self.fabric.notify_failure(self, why)
        self._abort()

    def _abort(self):
        for link in list(self._links.values()):
            link.abort()
        self.mailbox.wake()

    def notified(self, peer, why):
        """Handles a failure notice: the group has failed on rank `peer`."""
        if self.failed is None and not self.closed:
            self.failed = why
            self._abort()

    def departed(self, peer):
        """Handles a member's goodbye: messages still expected from it never arrive."""
        if not self.closed:
            self.mailbox.departed(peer)

    def give_up(self, why):
        """Fails the group because a member has died."""
        if not self.closed:
            self.fail(why)

    def close(self):
        """Leaves the group."""
        self.closed = True
        if self.failed is None:
            self.failed = "the process group has been destroyed"
        self.fabric.groups.pop(self.key, None)
        with self._more:
            self._more.notify_all()
        for link in self._links.values():
            link.sock.close()
        self.mailbox.close()

    def after_fork(self):
        self.failed, self.closed = "a forked child cannot use its parent's process group", True
        for link in self._links.values():
            link.sock.close()
        self.mailbox.after_fork()

    # ---- moving data
    def begin(self, name, red=255, dtype=255, root=-1, total=0, timeout=None):
        """Numbers a collective and returns its `_Call`; must be called in the order of the
        collectives."""
        if self.failed is not None:
            raise DistBackendError(self._text(f"{name} cannot run", f"the group has failed: {self.failed}"))
        self._number += 1
        return _Call(self._number, name, red, dtype, root, total, self.timeout if timeout is None else timeout)

    def _text(self, what, why):
        return f"[Rank {self.fabric.rank}] {what} in process group {self.label}: {why}"

    def run(self, call, body):
        """Runs the steps of a collective. If one fails, the group ends and DistBackendError is
        raised."""
        call.end = time.monotonic() + call.timeout
        what = f"{call.name} (number {call.number}) failed"
        try:
            self.alive()
            body()
            return
        except PeerDisconnected as e:
            fate = self.fabric.fate(e.peer)
            why = self.failed or fate  # the peer may have sent the reason before it left
        except TransportTimeout as e:
            who = ", ".join(str(p) for p in e.peers)
            why = f"timed out after {call.timeout:g} s, waiting for rank{'s' if len(e.peers) > 1 else ''} {who}"
            if e.peers and self.failed is None:
                why += f" in {call.name} (number {call.number})"
        except Aborted as e:
            why = str(e)
        except DistBackendError as e:
            why = str(e)
        except BaseException as e:
            # KeyboardInterrupt and the like: the collective is half done, and the other ranks must
            # not block on the rest.
            self.fail(f"rank {self.fabric.rank} was interrupted in {call.name} (number {call.number}): {e!r}")
            raise
        self.fail(why)
        raise DistBackendError(self._text(what, why)) from None

    def _link(self, index, call):
        link = self._links.get(index)
        if link is None:
            link = self._links[index] = self.fabric.link(self.ranks[index], f"g{self.key}", call.end, self.alive)
            if self.failed is not None:
                link.abort()
        return link

    def exchange(self, call, outs, ins):
        """Sends and receives concurrently: outs is [(rank in the group, memoryview)], ins is
        [(rank, memoryview or Fold)]."""
        members = {i for i, _ in outs} | {i for i, _ in ins}
        # Connect to lower ranks first: this side initiates those connections, so they never block
        # on a peer.
        links = {i: self._link(i, call) for i in sorted(members, key=lambda i: self.ranks[i])}
        send, receive = [], []
        for i, view in outs:
            link = links[i]
            if link.last_sent != call.number:
                link.last_sent = call.number
                send.append((link, [memoryview(call.sign(len(view))), view]))
            else:
                send.append((link, [view]))
        for i, view in ins:
            link = links[i]
            if link.last_received != call.number:
                link.last_received = call.number
                n = view.left if view.__class__ is StreamingReduce else len(view)
                receive.append((link, [self._expect(call, n, link), view]))
            else:
                receive.append((link, [view]))
        pump(self.fabric, send, receive, call.end, self.alive)

    def _expect(self, call, nbytes, link):
        buffer = memoryview(bytearray(_SIGNATURE.size))
        mine = call.sign(nbytes)

        def compare(_):
            if buffer != mine:
                theirs = _SIGNATURE.unpack(buffer)
                if theirs[0] != _MAGIC:
                    raise DistBackendError(f"rank {link.peer} has sent an invalid collective header (are the collectives out of sync?)")
                raise DistBackendError(f"the ranks call different collectives: rank {self.fabric.rank} calls "
                                       f"{_describe(_SIGNATURE.unpack(mine))}, rank {link.peer} calls {_describe(theirs)}")
        return StreamingReduce(buffer, _SIGNATURE.size, compare)

    def _folding(self, target, fold):
        """Returns a Fold that receives as many bytes as `target` has and folds them in, segment by
        segment."""
        if self._scratch is None:
            self._scratch = np.empty(SEGMENT, np.uint8)
        scratch = self._scratch
        at = 0

        def take(n):
            nonlocal at
            count = n // target.itemsize
            fold(target[at:at + count], scratch[:n].view(target.dtype))
            at += count
        return StreamingReduce(memoryview(scratch), target.nbytes, take)

    # ---- collectives
    def all_reduce(self, call, a, op):
        """Replaces `a` by the reduction over all ranks."""
        n, me, fold = self.size, self.me, comm_reduce.folder(op, a.dtype)
        if n > 1 and a.nbytes <= SMALL and n <= FEW:
            others = [i for i in range(n) if i != me]
            got = {i: np.empty_like(a) for i in others}
            self.exchange(call, [(i, raw(a)) for i in others], [(i, raw(got[i])) for i in others])
            got[me] = a
            # Reduce in rank order on every rank, so all ranks get bitwise identical results.
            total = got[0].copy()
            for i in range(1, n):
                fold(total, got[i])
            a[...] = total
        elif n > 1:
            parts = _split(a, n)
            self._ring_reduce(call, parts, fold)
            self._ring_gather(call, [raw(p) for p in parts])
        if op == "AVG":
            comm_reduce.divide(a, n)

    def _ring_reduce(self, call, parts, fold):
        """Makes parts[me] the reduction over all ranks; the other parts end up with intermediate
        values."""
        n, me = self.size, self.me
        for step in range(n - 1):
            out, into = parts[(me - step - 1) % n], parts[(me - step - 2) % n]
            self.exchange(call, [((me + 1) % n, raw(out))], [((me - 1) % n, self._folding(into, fold))])

    def _ring_gather(self, call, views):
        n, me = self.size, self.me
        for step in range(n - 1):
            self.exchange(call, [((me + 1) % n, views[(me - step) % n])], [((me - 1) % n, views[(me - step - 1) % n])])

    def reduce(self, call, a, op, root):
        """Replaces `a` on the root by the reduction; the other ranks' `a` is unchanged."""
        n, me, fold = self.size, self.me, comm_reduce.folder(op, a.dtype)
        if n > 2 and a.nbytes > SMALL:
            work = a if me == root else a.copy()
            parts = _split(work, n)
            self._ring_reduce(call, parts, fold)
            if me == root:
                self.exchange(call, [], [(i, raw(parts[i])) for i in range(n) if i != me])
            else:
                self.exchange(call, [(root, raw(parts[me]))], [])
        elif me == root:
            got = {i: np.empty_like(a) for i in range(n) if i != me}
            self.exchange(call, [], [(i, raw(b)) for i, b in got.items()])
            got[me] = a
            total = got[0].copy()
            for i in range(1, n):
                fold(total, got[i])
            a[...] = total
        else:
            self.exchange(call, [(root, raw(a))], [])
        if op == "AVG" and me == root:
            comm_reduce.divide(a, n)

    def broadcast(self, call, view, root):
        """Copies the root's bytes into every rank's view."""
        n, position = self.size, (self.me - root) % self.size
        if n <= 2 or len(view) <= SMALL:
            # A tree: in each round every rank that has the data passes it on.
            have = 1
            while have < n:
                if position < have and position + have < n:
                    self.exchange(call, [((position + have + root) % n, view)], [])
                elif have <= position < 2 * have:
                    self.exchange(call, [], [((position - have + root) % n, view)])
                have *= 2
            return
        # A chain: every rank forwards one segment while it receives the next, so each rank sends
        # the data once.
        before, after = (self.me - 1) % n, (self.me + 1) % n
        pieces = [view[i:i + SEGMENT] for i in range(0, len(view), SEGMENT)]
        last = position == n - 1
        for k in range(len(pieces) + 1):
            outs = [] if last else [(after, pieces[k - 1])] if k and position else \
                [(after, pieces[k])] if position == 0 and k < len(pieces) else []
            ins = [(before, pieces[k])] if position and k < len(pieces) else []
            if outs or ins:
                self.exchange(call, outs, ins)

    def all_gather(self, call, views):
        """Fills views[i] with rank i's bytes; views[me] is this rank's input."""
        n, me = self.size, self.me
        if max(len(v) for v in views) <= SMALL and n <= FEW:
            others = [i for i in range(n) if i != me]
            self.exchange(call, [(i, views[me]) for i in others], [(i, views[i]) for i in others])
        else:
            self._ring_gather(call, views)

    def reduce_scatter(self, call, parts, op):
        """Replaces parts[me] by the reduction over all ranks' parts[me]; the other parts are
        overwritten."""
        fold = comm_reduce.folder(op, parts[self.me].dtype)
        self._ring_reduce(call, parts, fold)
        if op == "AVG":
            comm_reduce.divide(parts[self.me], self.size)

    def gather(self, call, mine, views, root):
        """Fills views[i] on the root with rank i's bytes."""
        if self.me == root:
            self.exchange(call, [], [(i, views[i]) for i in range(self.size) if i != root])
        else:
            self.exchange(call, [(root, mine)], [])

    def scatter(self, call, mine, views, root):
        """Fills `mine` with the root's views[me]."""
        if self.me == root:
            self.exchange(call, [(i, views[i]) for i in range(self.size) if i != root], [])
        else:
            self.exchange(call, [], [(root, mine)])

    def all_to_all(self, call, outs, ins):
        """Fills ins[i] with rank i's outs[me]."""
        others = [i for i in range(self.size) if i != self.me]
        self.exchange(call, [(i, outs[i]) for i in others], [(i, ins[i]) for i in others])

    def barrier(self, call):
        """Returns once all ranks have called it."""
        nothing, distance = memoryview(b""), 1
        while distance < self.size:
            self.exchange(call, [((self.me + distance) % self.size, nothing)], [((self.me - distance) % self.size, nothing)])
            distance *= 2

    def monitored_barrier(self, call, wait_all_ranks):
        """Runs a barrier in which rank 0 reports the ranks that did not arrive."""
        nothing, n = memoryview(b""), self.size
        if self.me:
            self.exchange(call, [(0, nothing)], [(0, nothing)])
            return
        try:
            self.exchange(call, [], [(i, nothing) for i in range(1, n)])
        except TransportTimeout as e:
            late = e.peers if wait_all_ranks else e.peers[:1]
            who = f"Ranks {', '.join(map(str, late))}" if len(late) > 1 else f"Rank {late[0]}"
            raise DistBackendError(f"[Rank 0]: {who} failed to pass monitoredBarrier in {round(call.timeout * 1000)} ms") from None
        self.exchange(call, [(i, nothing) for i in range(1, n)], [])


def _split(a, n):
    """Splits `a` into n nearly equal parts."""
    cuts = [len(a) * i // n for i in range(n + 1)]
    return [a[i:j] for i, j in zip(cuts, cuts[1:])]
