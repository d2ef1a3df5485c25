"""torch.distributed.Work: a pending collective."""
import threading

from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.backend.comm.store import seconds
from mindtorch.torch.futures import Future

__all__ = ["Work"]


class Work:
    """Result of an asynchronous collective. `wait` returns when the results are available and
    raises any error."""

    def __init__(self, what="", result=()):
        self._what, self._result = what, list(result)
        self._event, self._lock = threading.Event(), threading.Lock()
        self._error = self._future = None
        self._item = None  # the receive of a point-to-point message, which records its sender

    def _finish(self, error=None):
        with self._lock:
            self._error = error
            self._event.set()
            future = self._future
        if future is not None:
            self._set_future(future)

    def _set_future(self, future):
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error if isinstance(self._error, Exception) else RuntimeError(repr(self._error)))

    def wait(self, timeout=None):
        """Returns True on completion. Raises the operation's error, or DistBackendError after
        `timeout` (a timedelta)."""
        limit = None if timeout is None else seconds(timeout)
        if not self._event.wait(limit if limit else None):
            raise DistBackendError(f"wait() timed out after {round(limit * 1000)}ms: {self._what} is not finished")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self):
        """Like `wait`: there are no streams on the CPU."""
        self.wait()

    def block_current_stream(self):
        """Like `wait`."""
        self.wait()

    def is_completed(self):
        """True if the operation has ended, successfully or not."""
        return self._event.is_set()

    def is_success(self):
        """True if the operation has ended successfully."""
        return self._event.is_set() and self._error is None

    def exception(self):
        """Returns the operation's error, or None."""
        return self._error

    def result(self):
        """Returns the output tensors."""
        return list(self._result)

    def get_future(self):
        """Returns a torch.futures.Future of the list of output tensors."""
        with self._lock:
            if self._future is None:
                self._future = Future()
                ready = self._event.is_set()
            else:
                return self._future
        if ready:
            self._set_future(self._future)
        return self._future

    def _source_rank(self):
        if self._item is None:
            raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or "
                               "recv-from-any call.")
        return self._item.source

    def source_rank(self):
        """Returns the global rank of a received message's sender."""
        return self._source_rank()

    def boxed(self):
        """Returns the work itself."""
        return self

    unbox = boxed
