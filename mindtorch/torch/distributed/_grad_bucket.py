"""Types shared by DistributedDataParallel and its communication hooks."""
import enum


class GradBucket:
    """Argument of a communication hook: the gradients of some parameters in one flat tensor."""

    def __init__(self, index, last, tensor, parameters, views):
        self._index, self._last, self._tensor, self._parameters, self._views = index, last, tensor, parameters, views

    def index(self):
        """Returns the bucket's index in the order in which buckets are sent."""
        return self._index

    def buffer(self):
        """Returns the flat tensor."""
        return self._tensor

    def gradients(self):
        """Returns the parts of the flat tensor in the parameters' shapes."""
        return self._views(self._tensor)

    def parameters(self):
        """Returns the parameters."""
        return list(self._parameters)

    def is_last(self):
        """True if this is the last bucket of this backward pass."""
        return self._last

    def set_buffer(self, tensor):
        """Replaces the flat tensor."""
        self._tensor = tensor


class BuiltinCommHookType(enum.Enum):
    """Communication hooks implemented without a Python function."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1
