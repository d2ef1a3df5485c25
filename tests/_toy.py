"""A device in 60 lines: NumPy arrays behind handles that reject every outside access, and the cpu
kernels on top of them.

test_toy_device.py registers it. A primitive that is not in KERNELS raises an error on it.
"""
import numpy as np

from mindtorch.backend.device import Device
from mindtorch.backend.kernels import TABLES, registrar

kernel = registrar("toy")


class Handle:
    """Memory of the toy device: only `_open` can access the array."""

    __slots__ = ("_Handle__a",)

    def __init__(self, a):
        self.__a = a

    def _open(self):
        return self.__a

    def _refuse(self, *args, **kwargs):
        raise AssertionError("the toy's memory was read from outside")

    __array__ = __len__ = __iter__ = __getitem__ = __float__ = __int__ = __bool__ = __array_ufunc__ = _refuse


class Toy(Device):
    type = "toy"
    copies = 0

    def upload(self, array):
        return Handle(np.array(array))

    def download(self, handle):
        Toy.copies += 1
        return handle._open().copy()

    def geometry(self, handle):
        a = handle._open()
        return a.shape, a.dtype, tuple(s // a.itemsize for s in a.strides)

    def view(self, handle, sizes, strides, offset, np_dtype):
        a = handle._open()
        root = a
        while root.base is not None:
            root = root.base
        start = (a.__array_interface__["data"][0] - root.__array_interface__["data"][0]) + offset * np_dtype.itemsize
        return Handle(np.ndarray(sizes, np_dtype, root, start, [s * np_dtype.itemsize for s in strides]))

    def write(self, handle, value):
        handle._open()[...] = value._open()


def put(names, fn):
    """Registers a kernel on arrays as a kernel on handles, under several names."""
    def run(*handles, **kw):
        r = fn(*[None if h is None else h._open() for h in handles], **kw)
        return tuple(None if x is None else Handle(np.array(x)) for x in r) if r.__class__ is tuple else Handle(np.array(r))
    kernel(names, run)


KERNELS = """add add_scaled sub mul neg div sqrt addcmul addcdiv lerp_number mask_grad linear clone clone_format to_copy sum_to_size broadcast new_full relu
 relu_backward matmul_rows fold column_sum cross_entropy_loss cross_entropy_backward""".split()
for n in KERNELS:
    put(n, TABLES["cpu"][n])
