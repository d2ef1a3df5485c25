"""What a worker process of the loader runs."""

import multiprocessing
import os
import pickle
import queue
import random
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindtorch.core import device as _device, rng
from mindtorch.torch._utils import ExceptionWrapper
from mindtorch.torch.utils.data._utils import _transport, collate, fetch

# Seconds that a batch in work has left once the loader is gone; then the process ends without it.
_GRACE = 5.0


@dataclass
class WorkerInfo:
    """What a dataset in a worker may know: worker `id` of `num_workers`, its `seed`, its copy of the `dataset`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str = "multiprocessing"


_worker_info = None


def get_worker_info():
    """The `WorkerInfo` in a worker process, None in the main process."""
    return _worker_info


def _generate_state(base_seed, worker_id):
    """Four words for NumPy's generator in a worker, as NumPy's own SeedSequence makes them."""
    return [int(v) for v in np.random.SeedSequence([worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)]


def _seed_all(seed, base_seed, worker_id):
    random.seed(seed)
    rng.default_generator.manual_seed(seed)
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))


class _Inbox(threading.Thread):
    """Reads what the loader asks for, so that it never waits to send; ends the process if the loader is gone."""

    def __init__(self, conn):
        super().__init__(daemon=True, name="mindtorch-data-inbox")
        self._conn = conn
        self.tasks = queue.SimpleQueue()
        self.epoch = 0

    def run(self):
        try:
            while True:
                task = self._conn.recv()
                # Batches asked for before the last reset are of no interest any more.
                self.epoch = task[0]
                self.tasks.put(task)
        except (EOFError, OSError):
            self.tasks.put(None)
        except Exception:
            # An index that cannot be unpickled here; the loader reports the end of this process.
            traceback.print_exc()
            os._exit(1)
        time.sleep(_GRACE)
        os._exit(1)


def _send(sender, epoch, number, kind, obj, where):
    try:
        sender.send(epoch, number, kind, obj)
        return
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception:
        error = ExceptionWrapper(where=where)
    try:
        pickle.dumps(error)
    except Exception:
        # A class the other side cannot name, such as one defined in a function: its text has to do.
        error.exc_type = RuntimeError
    sender.send(epoch, number, _transport.ERROR, error)


def _worker_loop(
    make_fetcher,
    dataset,
    conn,
    auto_collation,
    collate_fn,
    drop_last,
    base_seed,
    init_fn,
    worker_id,
    num_workers,
    segments,
):
    """Answers the loader's tasks until it closes the pipe."""
    global _worker_info
    # A forked process cannot use the device of its parent, and its batches travel through the host's memory.
    _device.set_default(None)
    where = f"in DataLoader worker process {worker_id}"
    try:
        inbox = _Inbox(conn)
        inbox.start()
        sender = _transport.Sender(conn, segments)
        if sender.pool is not None:
            collate.set_allocator(sender.pool.allocate)
        seed = base_seed + worker_id
        _seed_all(seed, base_seed, worker_id)
        _worker_info = WorkerInfo(worker_id, num_workers, seed, dataset)
        failed = None
        try:
            if init_fn is not None:
                init_fn(worker_id)
        except Exception:
            failed = ExceptionWrapper(where=where)
        fetcher, ended = None, False
        while True:
            task = inbox.tasks.get()
            if task is None:
                return
            epoch, number, index, returned = task
            if returned and sender.pool is not None:
                sender.pool.given_back(returned)
            if number is None:
                fetcher, ended = None, False  # a new epoch: iterable datasets start anew
                continue
            if epoch != inbox.epoch or ended:
                continue
            kind = _transport.ERROR
            if failed is not None:
                data, failed = failed, None
            else:
                try:
                    if fetcher is None:
                        fetcher = make_fetcher(dataset, auto_collation, collate_fn, drop_last)
                    data, kind = fetcher.fetch(index), _transport.DATA
                except Exception as e:
                    if isinstance(e, StopIteration) and make_fetcher is fetch._IterableDatasetFetcher:
                        data, kind, ended = None, _transport.END, True
                    else:
                        data = ExceptionWrapper(where=where)
            _send(sender, epoch, number, kind, data, where)
            # Not kept while waiting: the memory may be used again.
            data = None
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        # Ctrl-C reaches every process of the terminal, and the loader answers for it; without a loader there is
        # nothing to do.
        return
    finally:
        if multiprocessing.parent_process() is not None:
            conn.close()
