"""torch.testing._internal.common_utils: the base class of tests, decorators, and properties of the
machine.

Names that concern only PyTorch's own suite (its command line, its reports, its lists of slow tests)
are omitted.
"""
import contextlib
import functools
import gc
import importlib.util
import inspect
import io
import itertools
import math
import os
import platform
import random
import socket
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Mapping, Sequence, Set

import numpy as np

import mindtorch.torch as torch
from mindtorch.core.device import device as _device
from mindtorch.torch.testing import assert_close, make_tensor  # noqa: F401
from mindtorch.torch.testing._comparison import default_tolerances
from mindtorch.torch.testing._internal._parametrized import (_TestParametrizer, compose_parametrize_fns, decorateIf, dtype_name,  # noqa: F401
                                                             instantiate_parametrized_tests, parametrize, subtest)


def _there(*modules):
    return all(importlib.util.find_spec(m) is not None for m in modules)


def _asked(variable):
    return os.environ.get(variable) == "1"


SEED = 1234
FILE_SCHEMA = "file:///" if sys.platform == "win32" else "file://"
GRADCHECK_NONDET_TOL = 1e-12
NATIVE_DEVICES = ("cpu", "cuda", "xpu", "meta", "mps", "mtia", "npu")
UNITTEST_ARGS: list[str] = []
IS_LINUX, IS_WINDOWS, IS_MACOS = [sys.platform == p for p in ("linux", "win32", "darwin")]
IS_PPC, IS_S390X = [platform.machine() == m for m in ("ppc64le", "s390x")]
IS_X86, IS_ARM64 = platform.machine() in ("x86_64", "i386"), platform.machine() in ("arm64", "aarch64", "ARM64")
IS_JETSON = IS_FBCODE = IS_SANDCASTLE = IS_REMOTE_GPU = IN_RE_WORKER = False
IS_CI = bool(os.environ.get("CI"))
IS_FILESYSTEM_UTF8_ENCODING = sys.getfilesystemencoding() == "utf-8"
NO_MULTIPROCESSING_SPAWN = False
TEST_NUMPY, TEST_SCIPY, TEST_NUMBA, TEST_DILL, TEST_TRANSFORMERS, TEST_OPT_EINSUM, TEST_Z3, TEST_FAIRSEQ = [
    _there(m) for m in "numpy scipy numba dill transformers opt_einsum z3 fairseq".split()]
TEST_CUDA = torch.cuda.is_available()
TEST_ACCELERATOR = bool(_device.accelerator())
TEST_MULTIACCELERATOR = torch.cuda.device_count() > 1
ACCELERATOR_TYPE = next(iter(_device.accelerator()), None)
TEST_MULTIGPU = TEST_MULTIACCELERATOR
TEST_MPS, TEST_XPU, TEST_MKL = torch.backends.mps.is_available(), torch.xpu.is_available(), torch.backends.mkl.is_available()
TEST_HPU = TEST_WITH_ROCM = TEST_CUDA_GRAPH = TEST_CUDA_CUDSS = TEST_WITH_MTIA = False
TEST_WITH_ASAN, TEST_WITH_TSAN, TEST_WITH_UBSAN, TEST_WITH_SLOW, TEST_SKIP_FAST, TEST_WITH_CROSSREF, TEST_WITH_SLOW_GRADCHECK = [
    _asked(f"PYTORCH_TEST_{v}") for v in ("WITH_ASAN", "WITH_TSAN", "WITH_UBSAN", "WITH_SLOW", "SKIP_FAST", "WITH_CROSSREF", "WITH_SLOW_GRADCHECK")]
TEST_WITH_TORCHINDUCTOR, TEST_WITH_AOT_EAGER, TEST_WITH_TORCHDYNAMO = False, False, False

numpy_to_torch_dtype_dict = {getattr(np, name + ("_" if name == "bool" else "")): getattr(torch, name) for name in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")}
torch_to_numpy_dtype_dict = {d: n for n, d in numpy_to_torch_dtype_dict.items()}
torch_to_numpy_dtype_dict.update({torch.bfloat16: np.float32, torch.complex32: np.complex64})


# ------------------------------------------------------------------ decorators
def lazy_skip_if(condition_fn, reason):
    """Skips a test if condition_fn() is true when the test runs, or a class if it is true at
    decoration time."""
    def decorator(fn):
        if isinstance(fn, type):
            return unittest.skip(reason)(fn) if condition_fn() else fn

        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            if condition_fn():
                raise unittest.SkipTest(reason)
            return fn(*args, **kwargs)
        return wrapper
    return decorator


def _same(fn):
    return fn


def _of_others(func=None, *, msg=""):
    """Decorator that skips nothing, for a feature that is never active here."""
    return _same if func is None or isinstance(func, str) else func


skipIfRocm = skipIfXpu = skipIfTorchDynamo = skipIfTorchInductor = skipRocmIfTorchInductor = skipIfLegacyJitExecutor = _of_others
skipIfHpu = unMarkDynamoStrictTest = xfailIfTorchDynamo = skipIfSlowGradcheckEnv = runOnRocm = _same
skipIfMPS = unittest.skipIf(TEST_MPS, "test doesn't currently work with MPS")
skipIfCrossRef = unittest.skipIf(TEST_WITH_CROSSREF, "test doesn't currently with crossref")
skipIfNoSciPy = unittest.skipIf(not TEST_SCIPY, "test require SciPy, but SciPy not found")
skipIfNoXPU = unittest.skipIf(not TEST_XPU, "test required PyTorched compiled with XPU")
skipIfCompiledWithoutNumpy = skipIfNoLapack = _same
runOnRocm = unittest.skip("test currently only works on the ROCm stack")


def markDynamoStrictTest(cls_or_func=None, nopython=False):
    """Does nothing: tests run without torch.compile."""
    return _same if cls_or_func is None else cls_or_func


def skipIfWindows(func=None, *, msg="test doesn't currently work on the Windows stack"):
    """Skips a test on Windows."""
    skip = unittest.skipIf(IS_WINDOWS, msg)
    return skip if func is None else skip(func)


def slowTest(fn):
    """Marks a test that runs only if PYTORCH_TEST_WITH_SLOW is 1."""
    wrapper = lazy_skip_if(lambda: not TEST_WITH_SLOW, "test is slow; run with PYTORCH_TEST_WITH_SLOW to enable test")(fn)
    wrapper.slow_test = True
    return wrapper


def slowTestIf(condition):
    """Applies `slowTest` if the condition holds."""
    return slowTest if condition else _same


def serialTest(condition=True):
    """Marks a test that must not run in parallel with others."""
    def decorator(fn):
        fn.serial_test = condition
        return fn
    return decorator


def xfailIf(condition):
    """Expects a failure if the condition holds."""
    return unittest.expectedFailure if condition else _same


def skip_but_pass_in_sandcastle_if(condition, reason):
    """Skips a test if the condition holds."""
    return unittest.skipIf(condition, reason)


def skip_but_pass_in_sandcastle(reason):
    """Skips a test."""
    return unittest.skip(reason)


def suppress_warnings(fn):
    """Suppresses the warnings of a test."""
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fn(*args, **kwargs)
    return wrapper


def retry(ExceptionToCheck, tries=3, delay=3, skip_after_retries=False):
    """Calls a function again, `delay` seconds after one of these exceptions.

    The last exception is raised, or skips the test if `skip_after_retries`.
    """
    def decorator(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            for _ in range(tries - 1):
                try:
                    return fn(*args, **kwargs)
                except ExceptionToCheck as e:
                    print(f"{e}, Retrying in {delay:d} seconds...")
                    time.sleep(delay)
            try:
                return fn(*args, **kwargs)
            except ExceptionToCheck as e:
                if skip_after_retries:
                    raise unittest.SkipTest(f"Skipping after {tries} consecutive {e}") from e
                raise
        return wrapper
    return decorator


# ------------------------------------------------------------------ temporary settings
class DeterministicGuard:
    """Context manager that sets the deterministic-algorithms settings."""

    def __init__(self, deterministic, *, warn_only=False, fill_uninitialized_memory=True):
        self.wanted = deterministic, warn_only, fill_uninitialized_memory

    def _set(self, deterministic, warn_only, fill):
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill

    def __enter__(self):
        self.before = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
                       torch.utils.deterministic.fill_uninitialized_memory)
        self._set(*self.wanted)

    def __exit__(self, *exc):
        self._set(*self.before)


def wrapDeterministicFlagAPITest(fn):
    """Restores the deterministic-algorithms settings after a test."""
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        with DeterministicGuard(torch.are_deterministic_algorithms_enabled(), warn_only=torch.is_deterministic_algorithms_warn_only_enabled()):
            fn(*args, **kwargs)
    return wrapper


@contextlib.contextmanager
def freeze_rng_state(*args, **kwargs):
    """Context manager that restores the RNG state at the end of the block."""
    with torch.random.fork_rng(*args, **kwargs):
        yield


@contextlib.contextmanager
def set_default_dtype(dtype):
    """Context manager that sets the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def set_cwd(path):
    """Context manager that sets the working directory."""
    with contextlib.chdir(path) if hasattr(contextlib, "chdir") else _within(path):
        yield


@contextlib.contextmanager
def _within(path):
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def disable_gc():
    """Context manager that disables automatic garbage collection."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@contextlib.contextmanager
def TemporaryFileName(*args, **kwargs):
    """Context manager that returns the name of a temporary file."""
    with tempfile.NamedTemporaryFile(*args, **kwargs) as f:
        yield f.name


@contextlib.contextmanager
def TemporaryDirectoryName(suffix=None):
    """Context manager that returns the name of a temporary directory."""
    with tempfile.TemporaryDirectory(suffix=suffix) as d:
        yield d


class BytesIOContext(io.BytesIO):
    """BytesIO that stays open after `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


# ------------------------------------------------------------------ values
def set_rng_seed(seed=None):
    """Seeds the generators of PyTorch, Python and NumPy (default: SEED)."""
    seed = SEED if seed is None else seed
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def noncontiguous_like(t):
    """Returns a non-contiguous tensor with the same values."""
    if not t.is_contiguous():
        return t
    apart = t.new_empty((*t.shape, 2))
    apart[..., 0] = math.nan if t.dtype.is_floating_point or t.dtype.is_complex else True if t.dtype is torch.bool else 12
    apart[..., 1] = t.detach()
    return apart[..., 1].requires_grad_(t.requires_grad)


def iter_indices(tensor):
    """Iterates over the indices of all elements: integers for a vector, tuples for more dimensions.
    """
    if tensor.dim() < 2:
        return range(tensor.dim() and tensor.size(0))
    return itertools.product(*map(range, tensor.size()))


def is_iterable(obj):
    """True if iter(obj) works."""
    try:
        iter(obj)
    except TypeError:
        return False
    return True


def is_iterable_of_tensors(iterable, include_empty=False):
    """True if all items are tensors; `include_empty` is the result for an empty iterable."""
    if isinstance(iterable, torch.Tensor):
        return False
    try:
        return all(isinstance(t, torch.Tensor) for t in iterable) if len(iterable) else include_empty
    except TypeError:
        return False


def get_function_arglist(func):
    """Returns the names of a function's positional arguments."""
    return inspect.getfullargspec(func).args


def find_free_port():
    """Returns a free local port."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def _checked(check, *args, check_batched_grad=None, fast_mode=None, **kwargs):
    return check(*args, check_batched_grad=True if check_batched_grad is None else check_batched_grad,
                 fast_mode=not TEST_WITH_SLOW_GRADCHECK if fast_mode is None else fast_mode, **kwargs)


def gradcheck(fn, inputs, **kwargs):
    """Like torch.autograd.gradcheck, but in fast mode and with batched gradients by default."""
    return _checked(torch.autograd.gradcheck, fn, inputs, **kwargs)


def gradgradcheck(fn, inputs, grad_outputs=None, **kwargs):
    """Like torch.autograd.gradgradcheck, but in fast mode and with batched gradients by default."""
    return _checked(torch.autograd.gradgradcheck, fn, inputs, grad_outputs, **kwargs)


# ------------------------------------------------------------------ tests
def run_tests(argv=None):
    """Runs the tests of the calling script."""
    unittest.main(argv=argv)


def load_tests(loader, tests, pattern):
    """Implements unittest's load_tests protocol; returns the tests unchanged."""
    return tests


try:
    from expecttest import TestCase as _Base
except ImportError:
    _Base = unittest.TestCase


class TestCase(_Base):
    """Test case whose assertEqual compares tensors, arrays, scalars and containers of them within
    tolerances.

    `precision` and `rel_tol` are the minimum absolute and relative tolerances of all comparisons.
    """

    precision = rel_tol = 0
    maxDiff = None

    def setUp(self):
        super().setUp()
        set_rng_seed(SEED)

    def assertEqual(self, x, y, msg=None, *, atol=None, rtol=None, equal_nan=True, exact_dtype=True, exact_device=False, exact_layout=False,
                    exact_stride=False, exact_is_coalesced=False):
        """Raises AssertionError unless x is close to y; the tolerances depend on the dtype unless
        both are passed."""
        text = (lambda generated: f"{generated}\n{msg}") if isinstance(msg, str) and self.longMessage else msg
        options = {"msg": text, "equal_nan": equal_nan, "check_dtype": exact_dtype, "check_device": exact_device, "check_layout": exact_layout,
                   "check_stride": exact_stride}
        self._same(x, y, (rtol, atol), exact_is_coalesced, options)

    def _same(self, x, y, given, coalesced, options):
        T = torch.Tensor
        if isinstance(x, T) and isinstance(y, Sequence):
            y = torch.as_tensor(y, dtype=x.dtype, device=x.device)
        elif isinstance(y, T) and isinstance(x, Sequence):
            x = torch.as_tensor(x, dtype=y.dtype, device=y.device)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            self._plain(x.keys() == y.keys(), f"The keys of the mappings do not match: {list(x)} and {list(y)}", options)
            for key in x:
                self._same(x[key], y[key], given, coalesced, options)
        elif all(isinstance(v, (Sequence, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)) and not isinstance(v, str) for v in (x, y)):
            self._plain(len(x) == len(y), f"The length of the sequences mismatch: {len(x)} != {len(y)}", options)
            for a, b in zip(x, y):
                self._same(a, b, given, coalesced, options)
        elif isinstance(x, (T, np.ndarray)) or isinstance(y, (T, np.ndarray)):
            self._close(x, y, given, coalesced, options)
        elif all(isinstance(v, (int, float, complex, np.number)) and not isinstance(v, (bool, np.bool_)) for v in (x, y)):
            # Python scalars have the precision of PyTorch's default dtype here.
            kinds = [torch.int64 if isinstance(v, (int, np.integer)) else torch.complex64 if isinstance(v, (complex, np.complexfloating)) else torch.float32
                     for v in (x, y)]
            rtol, atol = self._tolerances(given, kinds)
            assert_close(x, y, rtol=rtol, atol=atol, **{**options, "check_dtype": False})
        else:
            self._plain(x is y or bool(x == y), f"{'Sets' if isinstance(x, Set) else 'Objects'} mismatch: {x!r} != {y!r}", options)

    def _tolerances(self, given, of):
        if (given[0] is None) != (given[1] is None):
            raise ValueError("rtol and atol must both be specified or both be unspecified")
        rtol, atol = default_tolerances(*of) if given[0] is None else given
        return max(rtol, self.rel_tol), max(atol, self.precision)

    def _plain(self, fine, text, options):
        if not fine:
            told = options["msg"]
            raise AssertionError(told(text) if callable(told) else told or text)

    def _close(self, x, y, given, coalesced, options):
        if not all(isinstance(v, (torch.Tensor, np.ndarray, int, float, complex, np.generic)) for v in (x, y)):
            self._plain(False, f"No comparison pair was able to handle inputs of type {type(x)} and {type(y)}.", options)
        numbers = [isinstance(v, (int, float, complex, np.generic)) for v in (x, y)]
        if any(numbers):
            # A scalar equals a one-element tensor regardless of their dtypes.
            other = y if numbers[0] else x
            if math.prod(other.shape) != 1:
                self._plain(False, f"No comparison pair was able to handle inputs of type {type(x)} and {type(y)}.", options)
            kind = other.dtype if isinstance(other, torch.Tensor) else torch.as_tensor(other).dtype
            x, y = [v if isinstance(v, (int, float, complex, np.generic)) else v.item() for v in (x, y)]
            rtol, atol = self._tolerances(given, [kind] if kind.is_floating_point or kind.is_complex else [kind, torch.float32 if isinstance(x, float) or isinstance(
                y, float) else kind])
            return assert_close(x, y, rtol=rtol, atol=atol, **{**options, "check_dtype": False})
        x, y = [v if isinstance(v, torch.Tensor) else torch.as_tensor(v, device="cpu") for v in (x, y)]
        if coalesced and x.is_sparse and y.is_sparse:
            self._plain(x.is_coalesced() == y.is_coalesced(), "The values for attribute 'is_coalesced()' do not match", options)
        rtol, atol = self._tolerances(given, [x, y])
        if not options["check_layout"]:
            x, y = [v.to_dense() if v.layout is not torch.strided and v.layout != o.layout else v for v, o in ((x, y), (y, x))]
        assert_close(x, y if options["check_device"] else y.to(x.device), rtol=rtol, atol=atol, **options)

    def assertNotEqual(self, x, y, msg=None, *, atol=None, rtol=None, **kwargs):
        """Raises AssertionError if assertEqual passes."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, atol=atol, rtol=rtol, **kwargs)

    def assertEqualIgnoreType(self, *args, **kwargs):
        """Like assertEqual, but ignores dtypes."""
        return self.assertEqual(*args, exact_dtype=False, **kwargs)

    def assertObjectIn(self, obj, iterable):
        """Raises AssertionError unless this very object is in the iterable."""
        if not any(e is obj for e in iterable):
            raise AssertionError("object not found in iterable")

    def assertNotWarn(self, callable, msg=""):
        """Raises AssertionError if the call emits a warning."""
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            callable()
        self.assertTrue(len(given) == 0, msg)

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category, regex=""):
        """Raises AssertionError unless the block emits exactly one warning of this category whose
        text matches `regex`."""
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            yield
        self.assertTrue(len(given) == 1 and issubclass(given[0].category, category), f"{[str(w.message) for w in given]}")
        self.assertRegex(str(given[0].message), regex)

    def genSparseTensor(self, *args, **kwargs):
        raise NotImplementedError("torch.testing._internal.common_utils.TestCase.genSparseTensor is not supported: use torch.sparse_coo_tensor")
