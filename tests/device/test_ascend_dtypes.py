"""What the chip's kernels refuse is not launched: the table of element types, and that each of its primitives has a kernel of which it takes something."""
import numpy as np
from mindtorch.backend.mindspore import kernels
from mindtorch.backend.mindspore.kernels import ascend_dtypes
from mindtorch.tools import _kernels


def _refused():
    for names, primitives in ascend_dtypes.REFUSED.items():
        for name in primitives.split():
            yield name, names.split()


def test_kernels_for_ascend_take_none_of_it():
    taken = _kernels.of_target("Ascend")
    for name, types in _refused():
        assert taken.get(name), f"{name} has no kernel on Ascend, or one for any element type"
        assert not set(taken[name]) & set(types), name
    assert {"float64", "int64", "bool"} <= set(taken["index_put_3"]) and not taken["index_select"]


def test_a_kernel_is_restricted_apart_from_others_under_the_same_function():
    def fn(a, *, k=1):
        return a, k
    fn.only, fn.numbers = None, True
    new = kernels._restricted(fn, kernels.stypes("float64"))
    assert new is not fn and fn.only is None and new(3, k=2) == (3, 2) and new.numbers and new.__kwdefaults__ == {"k": 1}
    assert new.only == kernels.ALL - {np.dtype("float64")}
    builtin = kernels._restricted(abs, kernels.stypes("complex64 complex128"))
    assert builtin(-2) == 2 and kernels.ALL - builtin.only == {np.dtype("complex64"), np.dtype("complex128")}
    assert kernels._restricted(new, kernels.stypes("bfloat16")).only == new.only - kernels.stypes("bfloat16")
