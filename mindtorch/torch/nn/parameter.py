"""Parameter, Buffer and their uninitialized forms
(https://pytorch.org/docs/stable/nn.html#parameters)."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter, Tensor

__all__ = ["Parameter", "UninitializedParameter", "is_lazy", "Buffer", "UninitializedBuffer",
           "UninitializedTensorMixin"]


class _BufferMeta(type):
    def __instancecheck__(cls, obj):
        if type.__instancecheck__(cls, obj):
            return True
        return cls is Buffer and isinstance(obj, Tensor) and getattr(obj, "_is_buffer", False)


class Buffer(metaclass=_BufferMeta):
    """A tensor that a Module registers as a buffer when it is assigned to an attribute.

    `Buffer(data, persistent=True)` returns `data` detached and marked as a buffer; its class stays
    Tensor.
    """

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = torch.empty(0)
        t = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


_NO_SHAPE = ("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
             "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call "
             "`forward` to initialize the parameters before accessing their attributes.")


def _unusable(what):
    return ValueError(f"Attempted to use an uninitialized parameter in {what}. This error happens when you are using a "
                      "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. "
                      "When using LazyModules Call `forward` with a dummy batch to initialize the parameters before "
                      "calling torch functions")


class UninitializedTensorMixin:
    """A tensor without a shape, until `materialize` allocates it."""

    cls_to_become = None

    def materialize(self, shape, device=None, dtype=None):
        """Becomes an ordinary parameter or buffer with this shape and uninitialized values.

        `device` and `dtype` default to those of the constructor.
        """
        kept = {"device": self.device if device is None else device, "dtype": self.dtype if dtype is None else dtype}
        self.__class__ = self.cls_to_become
        self.data = torch.empty(shape, **kept)

    @property
    def shape(self):
        raise RuntimeError(_NO_SHAPE)

    def share_memory_(self):
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize "
                           "the parameters before calling `module.share_memory()`.")

    def __repr__(self):
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    def __deepcopy__(self, memo):
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return found

    def __reduce_ex__(self, proto):
        return type(self), (self.requires_grad, self.device, self.dtype)


def _refuse(name):
    def refused(self, *args, **kwargs):
        raise _unusable(f"method '{name}' of Tensor")
    refused.__name__ = name
    return refused


# Methods that read values or shapes raise. Those needed to move and load a lazy module stay usable.
for _name in ("__len__ __iter__ __getitem__ __setitem__ __bool__ __float__ __int__ __add__ __radd__ __iadd__ __sub__ "
              "__rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__ __matmul__ "
              "__rmatmul__ __pow__ __rpow__ __neg__ __abs__ add sub mul div matmul mm bmm numel nelement dim view "
              "reshape transpose permute numpy tolist item sum mean std var min max norm normal_ uniform_ fill_ zero_ "
              "add_ mul_ clone").split():
    setattr(UninitializedTensorMixin, _name, _refuse(_name))
del _name


def is_lazy(param):
    """True for a parameter or buffer without a shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter with unknown shape, as in lazy modules before their first forward."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        p = Parameter(torch.empty(0, device=device, dtype=dtype), requires_grad)
        p.__class__ = cls
        return p

    def __init__(self, *args, **kwargs):
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer with unknown shape."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        t = torch.empty(0, device=device, dtype=dtype).requires_grad_(requires_grad)
        t.__class__ = cls
        t.persistent = persistent
        t._is_buffer = True
        return t

    def __init__(self, *args, **kwargs):
        pass
