"""What DistributedDataParallel and its communication hooks speak about."""
import enum


class GradBucket:
    """What a communication hook is given: gradients of some parameters, in one flat tensor."""

    def __init__(self, index, last, tensor, parameters, views):
        self._index, self._last, self._tensor, self._parameters, self._views = index, last, tensor, parameters, views

    def index(self):
        """Place in the order in which buckets are sent."""
        return self._index

    def buffer(self):
        """The flat tensor."""
        return self._tensor

    def gradients(self):
        """Its parts in the parameters' shapes."""
        return self._views(self._tensor)

    def parameters(self):
        """The parameters."""
        return list(self._parameters)

    def is_last(self):
        """Whether it is the last one of this backward."""
        return self._last

    def set_buffer(self, tensor):
        """Puts another tensor in the flat one's place."""
        self._tensor = tensor


class BuiltinCommHookType(enum.Enum):
    """Hooks that need no Python function."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1
