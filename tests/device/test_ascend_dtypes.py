"""What the chip's kernels refuse is not launched: the table of element types, and that each of its primitives has a kernel of which it takes something."""
import numpy as np
from mindtorch.backend.mindspore.kernels import ascend_dtypes, stypes
from mindtorch.tools import _kernels


def _refused():
    for names, primitives in ascend_dtypes.REFUSED.items():
        for name in primitives.split():
            yield name, names.split()


def test_kernels_for_ascend_take_none_of_it():
    kernels = _kernels.of_target("Ascend")
    for name, types in _refused():
        assert kernels.get(name), f"{name} has no kernel on Ascend, or one for any element type"
        assert not set(kernels[name]) & set(types), name
    for k in (1, 3):
        for name in (f"index_{k}", f"index_put_{k}", f"index_backward_{k}"):
            assert "float64" in kernels[name] and "int64" in kernels[name] and "complex64" not in kernels[name]
    assert kernels["index_select"] == _kernels.of_target("CPU")["index_select"] == ()         # (by its name of no family)


def test_a_kernel_is_restricted_apart_from_others_under_the_same_function():
    def fn(a, *, k=1):
        return a, k
    fn.only, fn.numbers = None, True
    table = {"sort": fn, "argsort": fn, "sum": fn, "roll": abs}
    ascend_dtypes.restrict(table)
    assert table["sum"] is fn and fn.only is None
    for name in ("sort", "argsort"):
        new = table[name]
        assert new is not fn and new(3, k=2) == (3, 2) and new.numbers and new.__kwdefaults__ == {"k": 1}
        assert stypes("float64").isdisjoint(new.only) and stypes("float32 bfloat16 int64 bool") <= new.only
    assert table["roll"](-2) == 2 and np.dtype("complex64") not in table["roll"].only
