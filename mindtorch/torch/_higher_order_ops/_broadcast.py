"""Evaluates functions of scalars on entire tensors by broadcasting, if that is certain to be
equivalent."""
from mindtorch.core.dispatch.dispatcher import DISPATCH_ENTRIES
from mindtorch.core.dispatch.op_schema import tagged
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.overrides import TorchFunctionMode

#: functions and methods that compute each result element from one element of each operand: the ops
#: with the tag "pointwise", conversions and operators
_ELEMENTWISE = frozenset([n.rpartition(".")[2] for n in tagged("pointwise") if n[-1] != "_"]).union("""
 float double half bfloat16 int long short bool to type_as detach
 __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __neg__ __pos__ __abs__
 __invert__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__ __rshift__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__""".split())
#: functions that create a tensor of a given size and use only the operand's dtype and device
_MAKE = frozenset("new_zeros new_ones new_full new_tensor new_empty".split())
_ASK = frozenset("is_floating_point is_complex element_size size dim".split())


class Unsure(Exception):
    """Raised for a call that may have another meaning for entire tensors."""


class _Watch(TorchFunctionMode):
    """Mode that tracks what is computed from the given tensors. Raises Unsure at a call that is not
    known to be equivalent under broadcasting."""

    def __init__(self, tensors):
        super().__init__()
        # holds the tensors, so that their ids stay valid
        self.followed = {id(t): t for t in tensors}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [t for t in (*args, *kwargs.values()) if is_tensor(t)]
        nested = [t for a in (*args, *kwargs.values()) if a.__class__ in (list, tuple) for t in a if is_tensor(t)]
        mine = [t for t in tensors if id(t) in self.followed]
        if not mine and not any([id(t) in self.followed for t in nested]):
            return func(*args, **kwargs)
        entry = DISPATCH_ENTRIES.get(func)
        name = "" if entry is None else entry.name.rpartition(".")[2]
        if name == "__getitem__":
            index = args[1] if args[1].__class__ is tuple else (args[1],)
            if id(args[0]) in self.followed or len(index) != args[0].ndim or not all([i.__class__ is int or is_tensor(i) and (id(i) in self.followed or not i.ndim) for i in index]) or (
                    any([is_tensor(i) and i.dtype.is_floating_point for i in index])):
                raise Unsure
        elif name in _MAKE:
            return func(*args, **kwargs)
        elif name not in _ELEMENTWISE or nested or "out" in kwargs or any([id(t) not in self.followed and t.ndim for t in tensors]):
            raise Unsure
        r = func(*args, **kwargs)
        if not is_tensor(r):
            raise Unsure
        self.followed[id(r)] = r
        return r


def over_indices(fn, shape, score, places, more=()):
    """Returns fn([score,] b, h, m, n, *more) for index vectors as a tensor of the given shape.

    Raises Unsure if the calls inside fn do not show that broadcasting is equivalent.
    """
    at = [t.reshape([-1 if i == k else 1 for k in range(4)]) for i, t in enumerate(places)]
    given = at if score is None else [score, *at]
    watch = _Watch(given)
    with watch:
        r = fn(*given, *more)
    if not is_tensor(r) or id(r) not in watch.followed and r.ndim or r.ndim > 4:
        raise Unsure
    return r.expand(shape)
