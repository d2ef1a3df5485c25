"""DataLoader: batches of a dataset, loaded in this process or in worker processes."""

import itertools
import math
import multiprocessing
import multiprocessing.connection
import os
import select
import signal
import threading
import time
import warnings
import weakref
from typing import Any, Generic, TypeVar
from collections.abc import Callable

from mindtorch.core.device import device as _device
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.torch.utils.data import _utils
from mindtorch.torch.utils.data._utils import _transport, fetch
from mindtorch.torch.utils.data._utils.collate import default_collate, default_convert
from mindtorch.torch.utils.data._utils.worker import _worker_loop, get_worker_info
from mindtorch.torch.utils.data.dataset import IterableDataset
from mindtorch.torch.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "get_worker_info", "default_collate", "default_convert"]

_T_co = TypeVar("_T_co", covariant=True)
_worker_init_fn_t = Callable[[int], None]
_collate_fn_t = Callable[[list], Any]


class _DatasetKind:
    """Kind of a dataset: map-style or iterable."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        return _FETCHERS[kind](dataset, auto_collation, collate_fn, drop_last)


_FETCHERS = {_DatasetKind.Map: fetch._MapDatasetFetcher, _DatasetKind.Iterable: fetch._IterableDatasetFetcher}


class _InfiniteConstantSampler(Sampler):
    """Infinite sampler that requests the next sample of a stream."""

    def __iter__(self):
        return itertools.repeat(None)


class DataLoader(Generic[_T_co]):
    """Iterable over a dataset in batches
    (https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader).

    It supports all of PyTorch's arguments, and the order of samples for a given seed is PyTorch's.
    `pin_memory` is accepted and has no effect, since there is no pinned host memory.
    """

    dataset: Any
    batch_size: "int | None"
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Any
    pin_memory_device: str
    prefetch_factor: "int | None"
    _iterator: Any = None
    __initialized = False

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing. Let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if num_workers == 0 and persistent_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.in_order = in_order
        self.multiprocessing_context = multiprocessing_context
        self._dataset_kind = _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        if self._dataset_kind == _DatasetKind.Iterable:
            # A stream determines its own order.
            if shuffle:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
                )
            for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
                if given is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self.__initialized = True
        self._iterator = None
        self._IterableDataset_len_called = None
        self.check_worker_number_rationality()

    @property
    def multiprocessing_context(self):
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if self.num_workers <= 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                known = multiprocessing.get_all_start_methods()
                if context not in known:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {known!r}, but got "
                        f"multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the "
                    "start method, "
                    f"but got multiprocessing_context={context}"
                )
        self.__multiprocessing_context = context

    def __setattr__(self, name, value):
        if self.__initialized and name in (
            "batch_size",
            "batch_sampler",
            "sampler",
            "drop_last",
            "dataset",
            "persistent_workers",
        ):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self):
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)

    def __iter__(self):
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self):
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        # Length reported by the dataset; the iterator warns if it turns out to be wrong.
        n = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is not None:
            n = n // self.batch_size if self.drop_last else math.ceil(n / self.batch_size)
        return n

    def check_worker_number_rationality(self):
        """Warns if there are more workers than CPU cores."""
        if not self.num_workers:
            return
        try:
            cores = len(os.sched_getaffinity(0))
        except AttributeError:
            cores = os.cpu_count()
        if cores is not None and self.num_workers > cores:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number "
                "of worker in "
                f"current system is {cores}, which is smaller than what this DataLoader is going to create. Please "
                "be aware "
                "that excessive worker creation might get DataLoader running slow or even freeze, lower the worker "
                "number "
                "to avoid potential slowness/freeze if necessary.",
                stacklevel=3,
            )


class _BaseDataLoaderIter:
    """One iteration over a loader."""

    def __init__(self, loader):
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._pin_memory = False
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._persistent_workers = loader.persistent_workers
        self._sampler_iter = iter(self._index_sampler)
        # Drawn even without workers, so that the following random numbers match PyTorch's.
        self._base_seed = draw_seed(loader.generator)
        self._num_yielded = 0
        if loader.pin_memory and not _device.accelerator():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't "
                "be used.",
                stacklevel=4,
            )

    def __iter__(self):
        return self

    def _reset(self, loader, first_iter=False):
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self):
        return next(self._sampler_iter)

    def _next_data(self):
        raise NotImplementedError

    def __next__(self):
        try:
            data = self._next_data()
        except Exception as e:
            hide_internal_frames(e)
            raise
        self._num_yielded += 1
        told = self._IterableDataset_len_called
        if told is not None and self._dataset_kind == _DatasetKind.Iterable and self._num_yielded > told:
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {told} (when accessing "
                "len(dataloader)), but "
                f"{self._num_yielded} samples have been fetched. "
                + (
                    "For multiprocessing data-loading, this could be caused by not properly configuring the "
                    "IterableDataset "
                    "replica at each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data."
                    "IterableDataset for examples."
                    if self._num_workers
                    else ""
                ),
                stacklevel=2,
            )
        return data

    def __len__(self):
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Iterator that loads batches on request."""

    def __init__(self, loader):
        super().__init__(loader)
        if self._timeout != 0 or self._num_workers != 0:
            raise AssertionError("timeout requires worker processes (num_workers > 0)")
        self._dataset_fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self):
        return self._dataset_fetcher.fetch(self._next_index())


class _Worker:
    """The loader's handle of one worker process."""

    def __init__(self, process, conn):
        self.process = process
        self.conn = conn
        self.receiver = _transport.Receiver(conn)
        self.active = True  # False once the worker has reported the end of its data in this epoch
        self.outstanding = 0

    def send(self, task):
        """Sends a task; returns False if the worker has exited."""
        try:
            self.conn.send(task)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True


# Seconds that the other workers have to exit after one of them failed.
_SHORT = 0.3


def _end(workers, pid, patience):
    """Ends worker processes: closes their pipes, and terminates those still running after
    `patience[0]` seconds."""
    if os.getpid() != pid:
        return  # a forked copy of the loader, which does not own the processes
    for w in workers:
        w.conn.close()
    deadline = time.monotonic() + patience[0]
    for w in workers:
        w.process.join(max(deadline - time.monotonic(), 0))
    for stop in ("terminate", "kill"):
        rest = [w for w in workers if w.process.is_alive()]
        for w in rest:
            getattr(w.process, stop)()
        for w in rest:
            w.process.join(1.0)
    workers.clear()


def _check_thread(context):
    """Raises RuntimeError if processes would be forked in a thread created by MindSpore (as in
    mindspore.dataset).

    MindSpore prepares a fork while it holds the GIL. If another thread is inside a MindSpore op at
    that moment, the two deadlock.
    """
    if context.get_start_method() == "fork" and isinstance(threading.current_thread(), threading._DummyThread):
        raise RuntimeError(
            "DataLoader worker processes cannot be forked in a thread of mindspore.dataset, where MindSpore could deadlock: "
            "create the loader with persistent_workers=True and call iter(loader) once before passing it on, or "
            "use another multiprocessing_context, or num_workers=0"
        )


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Iterator over batches that worker processes load ahead of time, in turn.

    Batch n is requested when batch n - workers * prefetch_factor is returned, so samplers are
    called as in PyTorch.
    """

    def __init__(self, loader):
        super().__init__(loader)
        self._prefetch_factor = loader.prefetch_factor
        if not self._prefetch_factor > 0:
            raise AssertionError("prefetch_factor must be positive with worker processes")
        self._in_order = loader.in_order
        self._worker_init_fn = loader.worker_init_fn
        self._epoch = 0
        self._team = []
        self._shutdown = False
        context = loader.multiprocessing_context or multiprocessing
        _check_thread(context)
        self._patience = [_utils.MP_STATUS_CHECK_INTERVAL]
        self._finalizer = weakref.finalize(self, _end, self._team, os.getpid(), self._patience)
        try:
            for i in range(self._num_workers):
                self._start(context, i)
        except BaseException:
            self._finalizer()
            raise
        # PyTorch's name; tests and tools look up the processes here.
        self._workers = [w.process for w in self._team]
        # File descriptors that become readable when a worker has sent something or has exited.
        self._sources = {source: w for w in self._team for source in (w.conn, w.process.sentinel)}
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            fds = {(s if isinstance(s, int) else s.fileno()): w for s, w in self._sources.items()}
            for fd in fds:
                self._poll.register(fd, select.POLLIN)
            self._sources = fds
        self._reset(loader, first_iter=True)

    def _start(self, context, i):
        here, there = context.Pipe(duplex=True)
        _transport.keep_from_children(here)
        try:
            process = context.Process(
                target=_worker_loop,
                daemon=True,
                args=(
                    _FETCHERS[self._dataset_kind],
                    self._dataset,
                    there,
                    self._auto_collation,
                    self._collate_fn,
                    self._drop_last,
                    self._base_seed,
                    self._worker_init_fn,
                    i,
                    self._num_workers,
                    _transport.segments_per_worker(self._num_workers),
                ),
            )
            process.start()
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        self._team.append(_Worker(process, here))

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._epoch += 1
        self._send_idx = 0  # number of the next batch to request
        self._rcvd_idx = 0  # number of the next batch to return
        self._owner = {}  # number of a batch that is in progress or has arrived -> worker
        self._arrived = {}  # number -> (kind, function that returns the data)
        self._tasks_outstanding = 0
        self._turn = itertools.cycle(self._team)
        for w in self._team:
            w.active, w.outstanding = True, 0
            if not first_iter and not w.send((self._epoch, None, None, w.receiver.take_returned())):
                self._fail(w)
        for _ in range(self._prefetch_factor * self._num_workers):
            self._ask()

    # ---- requests
    def _ask(self):
        """Requests the next batch from the worker whose turn it is."""
        worker = self._next_worker()
        if worker is None:
            return
        try:
            index = self._next_index()
        except StopIteration:
            return
        if not worker.send((self._epoch, self._send_idx, index, worker.receiver.take_returned())):
            self._fail(worker)
        self._owner[self._send_idx] = worker
        worker.outstanding += 1
        self._tasks_outstanding += 1
        self._send_idx += 1

    def _next_worker(self):
        active = sum(w.active for w in self._team)
        for w in itertools.islice(self._turn, self._num_workers):
            if w.active and (self._in_order or w.outstanding < self._prefetch_factor * self._num_workers // active):
                return w
        return None

    # ---- receiving
    def _wait(self, timeout):
        """Waits until workers have sent something or exited, at most `timeout` seconds (None: no
        limit); returns these workers."""
        if self._poll is None:
            ready = multiprocessing.connection.wait(list(self._sources), timeout)
        else:
            ready = [fd for fd, _ in self._poll.poll(None if timeout is None else math.ceil(timeout * 1000))]
        return {self._sources[s] for s in ready}

    def _receive(self):
        """Receives at least one message; raises RuntimeError if a worker died or on timeout."""
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left < 0:
                self._close(_SHORT)
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
            got = False
            for worker in self._wait(left):
                # Messages that a dead worker sent before it died are still valid.
                if not worker.conn.poll():
                    self._check_alive(worker)
                    continue
                try:
                    epoch, number, kind, load = worker.receiver.receive()
                except (EOFError, OSError):
                    self._fail(worker)
                if epoch != self._epoch:
                    continue
                got = True
                worker.outstanding -= 1
                self._tasks_outstanding -= 1
                self._arrived[number] = kind, load
            if got:
                return

    def _check_alive(self, worker):
        if not worker.process.is_alive():
            self._fail(worker)

    def _fail(self, worker):
        """Raises an error for a worker that ended unexpectedly."""
        process = worker.process
        process.join(1.0)
        code = process.exitcode
        self._close(_SHORT)
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = str(-code)
            how = f"is killed by signal: {signal.strsignal(-code) or name} ({name})."
            if -code == signal.SIGKILL:
                how += " It was killed by another process, or the system ran out of memory."
            raise RuntimeError(f"DataLoader worker (pid {process.pid}) {how}")
        raise RuntimeError(
            f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly"
            + (f" with exit code {code}" if code else "")
        )

    def _next_data(self):
        if self._shutdown:
            raise StopIteration
        while True:
            number = self._next_number()
            if number is None:
                if not self._persistent_workers:
                    self._close()
                raise StopIteration
            if number not in self._arrived:
                self._receive()
                continue
            kind, load = self._arrived.pop(number)
            worker = self._owner.pop(number)
            if number == self._rcvd_idx:
                self._rcvd_idx += 1
            if kind == _transport.END:
                # This worker's stream has ended, so its other requested batches will not arrive
                # either.
                worker.active = False
                self._ask()
                continue
            self._ask()
            data = load()
            if kind == _transport.ERROR:
                data.reraise()
            return data

    def _next_number(self):
        """Returns the number of the next batch to return, which may not have arrived yet; None at
        the end."""
        if not self._in_order and self._arrived:
            return next(iter(self._arrived))
        while self._rcvd_idx < self._send_idx:
            number = self._rcvd_idx
            worker = self._owner.get(number)
            if worker is not None and (number in self._arrived or worker.active):
                return number
            self._rcvd_idx += 1
        return None

    def _close(self, patience=_utils.MP_STATUS_CHECK_INTERVAL):
        self._shutdown = True
        self._patience[0] = patience
        self._finalizer()

    _shutdown_workers = _close
