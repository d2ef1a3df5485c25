"""torch.futures: results of asynchronous calls."""
import threading

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that is set once. `then` and `add_done_callback` run when it is set."""

    def __init__(self, *, devices=None):
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._value = self._error = None
        self._callbacks = []

    def __class_getitem__(cls, item):
        """Returns the class itself, for annotations such as Future[T]."""
        return cls

    def done(self):
        """True once a result or an exception is set."""
        return self._done.is_set()

    def wait(self):
        """Blocks until completion. Returns the value, or raises the exception that was set."""
        self._done.wait()
        return self.value()

    def value(self):
        """Returns the value of a completed future. RuntimeError before completion."""
        if not self.done():
            raise RuntimeError("the future is not completed yet")
        if self._error is not None:
            raise self._error
        return self._value

    def _finish(self, value, error):
        with self._lock:
            if self.done():
                raise RuntimeError("Future can only be completed once")
            self._value, self._error = value, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for c in callbacks:
            c(self)

    def set_result(self, result):
        self._finish(result, None)

    def set_exception(self, result):
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def add_done_callback(self, callback):
        """Calls callback(self) on completion, or at once if the future is already completed."""
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback):
        """Returns a Future of the result of callback(self)."""
        new = Future()

        def run(fut):
            try:
                r = callback(fut)
            except Exception as err:  # propagated to the waiters of the new future
                new.set_exception(err)
            else:
                new.set_result(r)
        self.add_done_callback(run)
        return new


def collect_all(futures):
    """Returns a Future of the list of all futures, completed when all of them are."""
    futures = list(futures)
    new, left, lock = Future(), [len(futures)], threading.Lock()

    def one(_):
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            new.set_result(futures)
    if not futures:
        new.set_result([])
    for f in futures:
        f.add_done_callback(one)
    return new


def wait_all(futures):
    """Blocks until all futures are completed and returns their values."""
    return [f.wait() for f in collect_all(futures).wait()]
