"""torch.distributed.ReduceOp."""
import enum


class RedOpType(enum.Enum):
    """Kinds of reductions."""

    __module__ = "torch._C._distributed_c10d"

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class _Meta(type):
    def __instancecheck__(cls, x):
        return isinstance(x, (RedOpType, PremulSum)) or type.__instancecheck__(cls, x)


class ReduceOp(metaclass=_Meta):
    """Reductions of a collective: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR."""

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX
    BAND, BOR, BXOR, PREMUL_SUM = RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR, RedOpType.PREMUL_SUM

    def __new__(cls, op):
        if not isinstance(op, ReduceOp):
            raise TypeError(f"ReduceOp(): incompatible constructor argument {op!r}")
        return op


class PremulSum:
    """SUM of the ranks' tensors, each multiplied by a factor first."""

    name = "PREMUL_SUM"

    def __init__(self, factor):
        self.factor = factor


def make_premul_sum(factor):
    """Returns ReduceOp.PREMUL_SUM with its factor, a scalar or a one-element tensor."""
    return PremulSum(factor)


class _Deprecated:
    def __getattr__(self, name):
        import warnings
        warnings.warn("`torch.distributed.reduce_op` is deprecated, please use `torch.distributed.ReduceOp` instead",
                      FutureWarning, stacklevel=2)
        return getattr(ReduceOp, name)


reduce_op = _Deprecated()
