"""torch.fx.tensor_type: tensor types with partially known shapes."""
__all__ = ["TensorType", "Dyn", "is_consistent", "is_more_precise"]


class _DynType:
    """The type of an unknown dimension or value."""

    def __init__(self):
        self.__name__ = "_DynType"

    def __eq__(self, other):
        return isinstance(other, _DynType)

    def __hash__(self):
        return hash(_DynType)

    def __str__(self):
        return "Dyn"

    __repr__ = __str__

    def __reduce__(self):
        return "Dyn"


Dyn = _DynType()


class TensorType:
    """A tensor type with these sizes; Dyn marks an unknown size: TensorType((2, Dyn))."""

    def __init__(self, dim):
        self.__origin__, self.__args__ = TensorType, dim

    def __repr__(self):
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other):
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self):
        return hash(tuple(self.__args__))

    @staticmethod
    def __class_getitem__(*args):
        return TensorType(args[0] if len(args) == 1 and isinstance(args[0], tuple) else tuple(args))


def is_consistent(t1, t2):
    """True if a value can have both types."""
    return _related(t1, t2, lambda a, b: a == Dyn or b == Dyn)


def is_more_precise(t1, t2):
    """True if t1 is at least as precise as t2."""
    return _related(t1, t2, lambda a, b: b == Dyn)


def _related(a, b, unknown):
    if a == b or unknown(a, b):
        return True
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return len(a.__args__) == len(b.__args__) and all(_related(x, y, unknown) for x, y in zip(a.__args__, b.__args__))
    return False
