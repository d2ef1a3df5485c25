"""torch.testing._internal.common_utils: tests written with it are generated, pass and fail as in
PyTorch."""
import importlib
import io
import unittest

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine

# (PyTorch's version needs expecttest, which provides the base of its test class.)
pytest.importorskip("expecttest")


def utils(T):
    return importlib.import_module(f"{T.__name__}.testing._internal.common_utils")


def both(make):
    """Returns what `make(T, common_utils)` returns on both sides."""
    return [make(T, utils(T)) for T in (real, mine)]


def passes(T, x, y, **options):
    case = utils(T).TestCase()
    try:
        case.assertEqual(x, y, **options)
    except (AssertionError, TypeError, ValueError):
        return False
    return True


PAIRS = {
    "floats": lambda T: (T.tensor([1.0, 2.0]), T.tensor([1.0, 2.0 + 1e-6])), "not so close": lambda T: (T.tensor([1.0]), T.tensor([1.1])),
    "dtypes": lambda T: (T.tensor([1.0]), T.tensor([1])), "shapes": lambda T: (T.ones(2), T.ones(1, 2)), "nan": lambda T: (T.tensor([float("nan")]),) * 2,
    "a list": lambda T: (T.tensor([1, 2]), [1, 2]), "a list before": lambda T: ([1.5, 2], T.tensor([1.5, 2])), "another list": lambda T: (T.tensor([1, 2]), [1, 3]),
    "an array": lambda T: (T.ones(2), np.ones(2, np.float32)), "an array of another dtype": lambda T: (T.ones(2), np.ones(2)),
    "a number": lambda T: (T.tensor(3.0), 3), "a number before": lambda T: (3, T.tensor([3.0])), "a number and two elements": lambda T: (T.ones(2), 1),
    "numbers": lambda T: (1.0, 1.0 + 1e-7), "numbers apart": lambda T: (1.0, 1.001), "an int and a float": lambda T: (1, 1.0), "ints": lambda T: (1, 2),
    "bools": lambda T: (True, True), "a bool and a number": lambda T: (True, 1), "strings": lambda T: ("a", "a"), "strings apart": lambda T: ("a", "b"),
    "None": lambda T: (None, None), "None and 0": lambda T: (None, 0), "sets": lambda T: ({1, 2}, {2, 1}), "sets apart": lambda T: ({1}, {2}),
    "dicts": lambda T: ({"a": T.ones(2), "b": [1, 2.0]}, {"b": [1, 2.0], "a": T.ones(2)}), "keys": lambda T: ({"a": 1}, {"b": 1}),
    "sequences": lambda T: ([T.ones(2), (1, None)], (T.ones(2), [1, None])), "lengths": lambda T: ([1], [1, 2]),
    "inside": lambda T: ({"a": [T.zeros(2)]}, {"a": [T.ones(2)]}), "dtypes as objects": lambda T: (T.float32, T.float32), "two dtypes": lambda T: (T.float32, T.int8),
    "types": lambda T: (int, int), "sizes": lambda T: (T.ones(2, 3).shape, (2, 3)), "sizes apart": lambda T: (T.ones(2, 3).shape, (3, 2)),
    "half": lambda T: (T.tensor([1.0]).half(), T.tensor([1.0005]).half()), "complex": lambda T: (1 + 2j, 1 + 2j), "a tensor and a string": lambda T: (T.ones(1), "a"),
    "devices": lambda T: (T.device("cpu"), T.device("cpu")), "sparse": lambda T: (T.eye(2).to_sparse(), T.eye(2).to_sparse()), "inf": lambda T: (float("inf"),) * 2,
    "sparse and dense": lambda T: (T.eye(2).to_sparse(), T.eye(2)), "bytes": lambda T: (b"a", b"a"), "nan as a number": lambda T: (float("nan"), float("nan")),
}
OPTIONS = {"": {}, "tolerances": {"rtol": 0, "atol": 0.2}, "any dtype": {"exact_dtype": False}, "no nan": {"equal_nan": False}, "half of them": {"atol": 1},
           "layout": {"exact_layout": True}, "text": {"msg": "told"}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("pair", PAIRS)
def test_assert_equal_matches_torch(pair, options):
    a, b = [passes(T, *PAIRS[pair](T), **OPTIONS[options]) for T in (real, mine)]
    assert a == b


def test_precision_attribute_of_a_test_class():
    def compare(T, U):
        class Loose(U.TestCase):
            pass

        case = Loose()
        case.precision = 0.1
        case.assertEqual(T.tensor([1.0]), T.tensor([1.05]))
        case.assertNotEqual(T.tensor([1.0]), T.tensor([1.2]))
        with pytest.raises(AssertionError):
            case.assertNotEqual(T.ones(1), T.ones(1))
        with pytest.raises(AssertionError, match="told"):
            case.assertEqual(T.ones(1), T.zeros(1), "told")
        case.assertEqualIgnoreType(T.ones(1), T.ones(1).double())
        case.assertNotWarn(lambda: None)

    both(compare)


def made(T, U):
    seen = []

    @U.instantiate_parametrized_tests
    class Tests(U.TestCase):
        @U.parametrize("x", [1, 2])
        @U.parametrize("y", ["a", "b"])
        def test_two(self, x, y):
            seen.append(("two", x, y))

        @U.parametrize("x,y", [(1, 0.5), U.subtest((2, None), name="named"), U.subtest((3, 1), decorators=[unittest.expectedFailure])])
        def test_pairs(self, x, y):
            seen.append(("pairs", x, y))
            self.assertNotEqual(x, 3)

        @U.parametrize("dtype", [T.float32, T.int64])
        def test_dtypes(self, dtype):
            seen.append(("dtypes", str(dtype)))

        @U.parametrize("f", [len, max], name_fn=lambda f: f.__name__)
        def test_named(self, f):
            seen.append(("named", f.__name__))

        @U.decorateIf(unittest.skip("why"), lambda p: p["x"] == 2)
        @U.parametrize("x", [1, 2])
        def test_some(self, x):
            seen.append(("some", x))

        @U.slowTest
        def test_slow(self):
            seen.append("slow")

        @U.skipIfRocm
        def test_here(self):
            seen.append(("here", T.rand(1).item(), np.random.rand()))

        @U.skipIfTorchDynamo("why")
        def test_also_here(self):
            seen.append("also here")

        @U.wrapDeterministicFlagAPITest
        def test_settings(self):
            T.use_deterministic_algorithms(True)

        def test_fails(self):
            self.assertEqual(T.ones(1), T.zeros(1))

    result = unittest.TextTestRunner(io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(Tests))
    assert not T.are_deterministic_algorithms_enabled()
    return (sorted(n for n in dir(Tests) if n.startswith("test_")), seen, result.testsRun, len(result.failures), len(result.errors), len(result.skipped),
            len(result.expectedFailures))


def test_generated_test_class_matches_torch():
    a, b = both(made)
    assert a == b


def test_invalid_parametrization_raises():
    def errors(T, U):
        told = []
        for values in ([], [(1, 2, 3)]):
            try:
                U.instantiate_parametrized_tests(type("Tests", (U.TestCase,), {"test_x": U.parametrize("a,b", values)(lambda self, a, b: None)}))
            except Exception as e:
                told.append(type(e).__name__)
        return told

    a, b = both(errors)
    assert a == b == ["ValueError", "RuntimeError"]


def test_small_helpers():
    def values(T, U):
        with U.TemporaryFileName() as f, U.TemporaryDirectoryName() as d, U.BytesIOContext() as b:
            names = [type(f), type(d), b.write(b"abc")]
        T.manual_seed(3)
        with U.freeze_rng_state():
            T.rand(3)
        drawn = T.rand(1).item()
        with U.set_default_dtype(T.float64):
            wide = str(T.ones(1).dtype)
        apart = U.noncontiguous_like(T.arange(4.0).reshape(2, 2))
        calls = []

        @U.retry(ValueError, tries=2, delay=0)
        def fails():
            calls.append(1)
            raise ValueError("no")

        with pytest.raises(ValueError):
            fails()
        U.set_rng_seed(5)
        x = T.arange(3.0, dtype=T.float64).requires_grad_()
        return (names, b.getvalue(), drawn, wide, apart.tolist(), apart.stride(), list(U.iter_indices(T.ones(2, 2))), list(U.iter_indices(T.ones(3))),
                list(U.iter_indices(T.ones(()))), U.is_iterable(3), U.is_iterable_of_tensors([T.ones(1)]), U.is_iterable_of_tensors([]), len(calls),
                U.get_function_arglist(lambda a, b=1: 0), T.rand(1).item(), U.gradcheck(T.sin, (x,)), U.gradgradcheck(T.sin, (x,)), U.dtype_name(T.int8))

    a, b = both(values)
    assert a == b


def test_machine_constants_match_torch():
    names = """IS_LINUX IS_WINDOWS IS_MACOS IS_X86 IS_ARM64 IS_PPC IS_FBCODE IS_SANDCASTLE IS_CI TEST_NUMPY TEST_SCIPY TEST_CUDA TEST_WITH_ROCM TEST_WITH_SLOW
     TEST_WITH_ASAN TEST_XPU TEST_MPS TEST_DILL SEED FILE_SCHEMA GRADCHECK_NONDET_TOL TEST_WITH_TORCHDYNAMO TEST_WITH_CROSSREF""".split()
    a, b = both(lambda T, U: {n: getattr(U, n) for n in names})
    assert a == b
    a, b = both(lambda T, U: {k.__name__: str(d) for k, d in U.numpy_to_torch_dtype_dict.items()})
    assert a == b
    cuda = importlib.import_module("mindtorch.torch.testing._internal.common_cuda")
    assert not cuda.SM80OrLater and not cuda.TEST_CUDNN


def test_import_error_names_the_missing_name():
    with pytest.raises(ImportError, match="CudaMemoryLeakCheck"):
        exec("from mindtorch.torch.testing._internal.common_utils import CudaMemoryLeakCheck")
