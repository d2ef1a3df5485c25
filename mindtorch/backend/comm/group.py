"""A group of processes and its collectives over our own connections.

Every collective has a number and a signature (operation, reduction, dtype, root, size) that travels ahead of its data on
every connection it uses, so two ranks that call different things get an error and never each other's numbers.  A
collective that fails (a dead or late peer, another signature) ends the group: its connections are closed on all ranks, and
whatever is called on it later raises the same error.

Arrays are one-dimensional and contiguous.  Sizes are those of the ring algorithms: an all-reduce of N bytes sends
2 (n-1)/n N from each of n ranks; up to 32 KB every rank sends all it has to every other, which takes one step.
"""
import collections
import struct
import threading
import time

import numpy as np

from mindtorch.backend.comm import reduce as comm_reduce
from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.backend.comm.link import Fold, Late, Lost, pump
from mindtorch.backend.comm.mailbox import Mailbox

_SIGNATURE = struct.Struct("<4sIBBBxiQQ")
_MAGIC = b"mtop"
CODES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier",
         "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
SMALL = 1 << 15                 # bytes up to which few ranks exchange everything at once
FEW = 8
SEGMENT = 1 << 18               # bytes of a piece that is reduced or passed on while the next one comes


class Aborted(Exception):
    """The group has failed elsewhere, or was given up."""


def raw(a):
    """The bytes of a contiguous array."""
    return memoryview(a.view(np.uint8)) if a.size else memoryview(b"")


class _Call:
    """One collective under way on this rank."""

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
    """`ranks` are the members' ranks in the fabric, in order of their ranks in the group; this process is one of them."""

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

    # ---- order: one collective at a time, in the order of the calls
    def call(self, fn):
        """Runs fn after what was submitted before it, in this thread if nothing is."""
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
        """Runs fn in the group's thread, then done(error or None)."""
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
            except BaseException as e:      # handed to whoever waits
                error = e
            with more:
                self._working = False
                more.notify_all()
            done(error)
            fn = done = error = None

    # ---- failure
    def alive(self):
        """Raises if the group has failed meanwhile."""
        if self.failed is not None:
            raise Aborted(self.failed)

    def fail(self, why, tell=True):
        """Ends the group for the given reason."""
        if self.failed is None:
            self.failed = why
            if tell:
                self.fabric.tell_failure(self, why)
        self._abort()

    def _abort(self):
        for link in list(self._links.values()):
            link.abort()
        self.mailbox.wake()

    def told(self, peer, why):
        """Another member says that the group has failed there."""
        if self.failed is None and not self.closed:
            self.failed = why
            self._abort()

    def departed(self, peer):
        """A member has said goodbye: what has been asked of it in vain never comes."""
        if not self.closed:
            self.mailbox.departed(peer)

    def give_up(self, why):
        """A member has died."""
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
        self.failed, self.closed = "a forked child has no part in its parent's process group", True
        for link in self._links.values():
            link.sock.close()
        self.mailbox.after_fork()

    # ---- moving data
    def begin(self, name, red=255, dtype=255, root=-1, total=0, timeout=None):
        """Numbers a collective; to be called in the order of the calls."""
        if self.failed is not None:
            raise DistBackendError(self._text(f"{name} cannot run", f"the group has failed: {self.failed}"))
        self._number += 1
        return _Call(self._number, name, red, dtype, root, total, self.timeout if timeout is None else timeout)

    def _text(self, what, why):
        return f"[Rank {self.fabric.rank}] {what} in process group {self.label}: {why}"

    def run(self, call, body):
        """Runs the steps of a collective; DistBackendError, and the end of the group, if one fails."""
        call.end = time.monotonic() + call.timeout
        what = f"{call.name} (number {call.number}) failed"
        try:
            self.alive()
            body()
            return
        except Lost as e:
            fate = self.fabric.fate(e.peer)
            why = self.failed or fate       # the peer may have said why before it left
        except Late as e:
            who = ", ".join(str(p) for p in e.peers)
            why = f"timed out after {call.timeout:g} s, waiting for rank{'s' if len(e.peers) > 1 else ''} {who}"
            if e.peers and self.failed is None:
                why += f" in {call.name} (number {call.number})"
        except Aborted as e:
            why = str(e)
        except DistBackendError as e:
            why = str(e)
        except BaseException as e:
            # KeyboardInterrupt and the like: half a collective is done, and the others must not wait for the rest.
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
        """Sends and receives at once: [(rank in the group, memoryview)], [(rank, memoryview or Fold)]."""
        members = {i for i, _ in outs} | {i for i, _ in ins}
        # Connections to lower ranks first: they are made from this side, and nobody has to wait for them.
        links = {i: self._link(i, call) for i in sorted(members, key=lambda i: self.ranks[i])}
        send, receive = [], []
        for i, view in outs:
            link = links[i]
            if link.said != call.number:
                link.said = call.number
                send.append((link, [memoryview(call.sign(len(view))), view]))
            else:
                send.append((link, [view]))
        for i, view in ins:
            link = links[i]
            if link.heard != call.number:
                link.heard = call.number
                n = view.left if view.__class__ is Fold else len(view)
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
                    raise DistBackendError(f"rank {link.peer} has sent something that is no collective's beginning")
                raise DistBackendError(f"the ranks do not call the same: rank {self.fabric.rank} calls "
                                       f"{_describe(_SIGNATURE.unpack(mine))}, rank {link.peer} calls {_describe(theirs)}")
        return Fold(buffer, _SIGNATURE.size, compare)

    def _folding(self, target, fold):
        """Receives a piece of target's size and folds it in, segment by segment."""
        if self._scratch is None:
            self._scratch = np.empty(SEGMENT, np.uint8)
        scratch = self._scratch
        at = 0

        def take(n):
            nonlocal at
            count = n // target.itemsize
            fold(target[at:at + count], scratch[:n].view(target.dtype))
            at += count
        return Fold(memoryview(scratch), target.nbytes, take)

    # ---- collectives
    def all_reduce(self, call, a, op):
        """`a` becomes the reduction over all ranks."""
        n, me, fold = self.size, self.me, comm_reduce.folder(op, a.dtype)
        if n > 1 and a.nbytes <= SMALL and n <= FEW:
            others = [i for i in range(n) if i != me]
            got = {i: np.empty_like(a) for i in others}
            self.exchange(call, [(i, raw(a)) for i in others], [(i, raw(got[i])) for i in others])
            got[me] = a
            # In the order of the ranks, whoever computes it: all ranks get the same bits.
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
        """Afterwards parts[me] is the reduction of everybody's; the other parts hold something in between."""
        n, me = self.size, self.me
        for step in range(n - 1):
            out, into = parts[(me - step - 1) % n], parts[(me - step - 2) % n]
            self.exchange(call, [((me + 1) % n, raw(out))], [((me - 1) % n, self._folding(into, fold))])

    def _ring_gather(self, call, views):
        n, me = self.size, self.me
        for step in range(n - 1):
            self.exchange(call, [((me + 1) % n, views[(me - step) % n])], [((me - 1) % n, views[(me - step - 1) % n])])

    def reduce(self, call, a, op, root):
        """`a` of the root becomes the reduction; the others' stays."""
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
        """The root's bytes in everybody's view."""
        n, place = self.size, (self.me - root) % self.size
        if n <= 2 or len(view) <= SMALL:
            # A tree: in each round everybody who has it passes it on.
            have = 1
            while have < n:
                if place < have and place + have < n:
                    self.exchange(call, [((place + have + root) % n, view)], [])
                elif have <= place < 2 * have:
                    self.exchange(call, [], [((place - have + root) % n, view)])
                have *= 2
            return
        # A chain: every rank passes on one segment while the next one comes, so each sends everything once.
        before, after = (self.me - 1) % n, (self.me + 1) % n
        pieces = [view[i:i + SEGMENT] for i in range(0, len(view), SEGMENT)]
        last = place == n - 1
        for k in range(len(pieces) + 1):
            outs = [] if last else [(after, pieces[k - 1])] if k and place else \
                [(after, pieces[k])] if place == 0 and k < len(pieces) else []
            ins = [(before, pieces[k])] if place and k < len(pieces) else []
            if outs or ins:
                self.exchange(call, outs, ins)

    def all_gather(self, call, views):
        """views[i] becomes rank i's bytes; views[me] is this rank's own."""
        n, me = self.size, self.me
        if max(len(v) for v in views) <= SMALL and n <= FEW:
            others = [i for i in range(n) if i != me]
            self.exchange(call, [(i, views[me]) for i in others], [(i, views[i]) for i in others])
        else:
            self._ring_gather(call, views)

    def reduce_scatter(self, call, parts, op):
        """parts[me] becomes the reduction of everybody's parts[me]; the other parts are used up."""
        fold = comm_reduce.folder(op, parts[self.me].dtype)
        self._ring_reduce(call, parts, fold)
        if op == "AVG":
            comm_reduce.divide(parts[self.me], self.size)

    def gather(self, call, mine, views, root):
        """At the root views[i] becomes rank i's bytes."""
        if self.me == root:
            self.exchange(call, [], [(i, views[i]) for i in range(self.size) if i != root])
        else:
            self.exchange(call, [(root, mine)], [])

    def scatter(self, call, mine, views, root):
        """`mine` becomes the root's views[me]."""
        if self.me == root:
            self.exchange(call, [(i, views[i]) for i in range(self.size) if i != root], [])
        else:
            self.exchange(call, [], [(root, mine)])

    def all_to_all(self, call, outs, ins):
        """ins[i] becomes what rank i has in outs[me]."""
        others = [i for i in range(self.size) if i != self.me]
        self.exchange(call, [(i, outs[i]) for i in others], [(i, ins[i]) for i in others])

    def barrier(self, call):
        """Returns when all ranks have called it."""
        nothing, distance = memoryview(b""), 1
        while distance < self.size:
            self.exchange(call, [((self.me + distance) % self.size, nothing)], [((self.me - distance) % self.size, nothing)])
            distance *= 2

    def monitored_barrier(self, call, wait_all_ranks):
        """A barrier in which rank 0 names those that did not come."""
        nothing, n = memoryview(b""), self.size
        if self.me:
            self.exchange(call, [(0, nothing)], [(0, nothing)])
            return
        try:
            self.exchange(call, [], [(i, nothing) for i in range(1, n)])
        except Late as e:
            late = e.peers if wait_all_ranks else e.peers[:1]
            who = f"Ranks {', '.join(map(str, late))}" if len(late) > 1 else f"Rank {late[0]}"
            raise DistBackendError(f"[Rank 0]: {who} failed to pass monitoredBarrier in {round(call.timeout * 1000)} ms") from None
        self.exchange(call, [(i, nothing) for i in range(1, n)], [])


def _split(a, n):
    """n nearly equal parts."""
    cuts = [len(a) * i // n for i in range(n + 1)]
    return [a[i:j] for i, j in zip(cuts, cuts[1:])]
