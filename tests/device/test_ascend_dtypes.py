"""Kernels are not launched with dtypes that the chip rejects: tests the table of element types, and
that each of its primitives has a kernel that supports some dtype."""
import numpy as np
from mindtorch.backend.kernels import KernelFlags, flags_of, set_flags
from mindtorch.backend.mindspore import kernels
from mindtorch.backend.mindspore.kernels import ascend_dtypes
from mindtorch.tools import _kernels


def _refused():
    for names, primitives in ascend_dtypes.REFUSED.items():
        for name in primitives.split():
            yield name, names.split()


def test_ascend_kernels_exclude_unsupported_dtypes():
    taken = _kernels.of_target("Ascend")
    for name, types in _refused():
        assert taken.get(name), f"{name} has no kernel on Ascend, or a kernel for every dtype"
        assert not set(taken[name]) & set(types), name
    assert {"float64", "int64", "bool"} <= set(taken["index_put_3"]) and not taken["index_select"]


def test_restricting_a_kernel_copies_its_function():
    def fn(a, *, k=1):
        return a, k
    set_flags(fn, KernelFlags(scalars=True))
    new = kernels._restricted(fn, kernels.np_dtypes("float64"))
    assert new is not fn and flags_of(fn).only is None and new(3, k=2) == (3, 2) and flags_of(new).scalars and new.__kwdefaults__ == {"k": 1}
    assert flags_of(new).only == kernels.ALL - {np.dtype("float64")}
    builtin = kernels._restricted(abs, kernels.np_dtypes("complex64 complex128"))
    assert builtin(-2) == 2 and kernels.ALL - flags_of(builtin).only == {np.dtype("complex64"), np.dtype("complex128")}
    assert flags_of(kernels._restricted(new, kernels.np_dtypes("bfloat16"))).only == flags_of(new).only - kernels.np_dtypes("bfloat16")
