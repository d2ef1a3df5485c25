"""torch.distributed.elastic.multiprocessing.errors: how a worker reports its exception to the
launcher."""
import functools
import json
import os
import time
import traceback

from mindtorch.backend.comm.launch_agent import Failure as ProcessFailure
from mindtorch.backend.comm.launch_agent import WorkersFailed as ChildFailedError

__all__ = ["ProcessFailure", "ChildFailedError", "record", "ErrorHandler", "get_error_handler"]


class ErrorHandler:
    """Writes an exception to the file named by TORCHELASTIC_ERROR_FILE, if that variable is set."""

    def initialize(self):
        """Does nothing."""

    def record_exception(self, e):
        """Writes the exception and its traceback as JSON."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if path:
            message = {"message": {"message": f"{type(e).__name__}: {e}",
                                   "extraInfo": {"py_callstack": "".join(traceback.format_exception(e)),
                                                 "timestamp": str(int(time.time()))}}}
            with open(path, "w") as f:
                json.dump(message, f)


def get_error_handler():
    """Returns a new `ErrorHandler`."""
    return ErrorHandler()


def record(fn, error_handler=None):
    """Decorator for a script's main function. An exception, with its traceback, goes into the
    launcher's report."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit:
            raise
        except Exception as e:
            handler.record_exception(e)
            raise
    return wrapper
