"""Exception raised when one or more ranks fail to save or load a checkpoint."""
import traceback

__all__ = ["CheckpointException"]


def wrap_exception(exc):
    """Returns (exception, stack summary), the form that is sent to the other ranks."""
    return exc, traceback.extract_tb(exc.__traceback__)


def is_wrapped_exception(obj):
    """True if obj was returned by `wrap_exception`."""
    return isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[0], BaseException) and \
        (obj[1] is None or isinstance(obj[1], traceback.StackSummary))


class CheckpointException(BaseException):
    """Raised when saving or loading failed. `failures` maps a rank to (exception, stack summary or
    None)."""

    def __init__(self, msg, failures):
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self):
        return self._failures

    def __str__(self):
        text = f"CheckpointException ranks:{self._failures.keys()}\n"
        for rank, (exc, tb) in self._failures.items():
            text += f"Traceback (most recent call last): (RANK {rank})\n"
            if tb is not None:
                text += "".join(traceback.format_list(tb))
            text += "".join(traceback.format_exception_only(type(exc), value=exc))
        return text
