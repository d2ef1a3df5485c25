"""Creation ops against PyTorch: values, dtypes, memory sharing, legacy constructors, errors."""
import gc

import numpy as np
import pytest
import torch as real
from _expressions import compare
from _parity import In, check, values
from hypothesis import given, strategies as st

import mindtorch.torch as mine

CREATE = [
    "L([[1, 2], [3]])", "L([[1, 2, 3], [1, 2]])", "L([1, [2]])", "L([[1], 2])", "L([])", "L([[]])", "L([1, 2.5])",
    "L([True, 2])", "L([True, 1.5])", "L([1, 2j])", "L(True)", "L(2**40)", "L(2**63)", "L(2**64)", "L(-2**63)",
    "L([1, None])", "L('a')", "L(['a'])", "L(None)", "L([np.float32(1), 2])", "L([np.float64(1), 2])",
    "L(np.float64(1))", "L(np.float32(1))", "L(np.int32(1))", "L([np.int32(1)])", "L([L(1.), L(2)])",
    "L([L([1.]), L([2])])", "L([L([1., 2.]), L([2.])])", "L(np.arange(3))", "L([np.arange(3), np.arange(3)])",
    "L(np.array(['a']))", "L(range(3))", "L((1, 2))", "L({1})", "L([1., 2.], dtype=torch.int32)",
    "L([1.7], dtype=torch.int32)", "L(1.7, dtype=torch.bool)", "L([300], dtype=torch.uint8)",
    "L([-1], dtype=torch.uint8)", "L([1j], dtype=torch.float32)", "L(L([1., 2.]))", "L([1], requires_grad=True)",
    "L([1.], requires_grad=True)", "L([float('inf')], dtype=torch.int32)", "L([1e300])",
    "L([1e40], dtype=torch.float16)", "L(np.array([1, 2], dtype='>i4'))", "L(np.arange(4)[::-1])", "L([[[]]])",
    "L([b'a'])", "L(b'ab')", "L([1, 2], dtype=torch.complex64)", "L([0.1], dtype=torch.bfloat16)",
    "L(torch.Size([1, 2]))", "L([torch.float32])", "L(3, dtype=float)", "L([1.0], device='cpu')", "L(data=[1])",
    "L(np.bool_(True))", "L([np.bool_(True)])", "L([True, np.int64(2)])", "L(bytearray(b'ab'))", "L(np.array(5))",
    "L([np.array(5), 1])", "L([np.array([5]), [1]])", "L([[True, False], [1, 0]])", "L(1+0j)",
    "L(1.5, dtype=torch.int64)", "L([[1, 2], [3, 4.5]])", "L([2**40], dtype=torch.int32)",
    "torch.as_tensor(np.arange(3))", "torch.as_tensor([1, 2])", "torch.as_tensor(L([1.]), dtype=torch.int64)",
    "torch.from_numpy(np.arange(3.))", "torch.from_numpy([1])", "torch.from_numpy(np.array('a'))",
    "torch.from_numpy(np.arange(3)[::-1])", "torch.frombuffer(bytearray(b'abcd'), dtype=torch.uint8)",
    "torch.frombuffer(bytearray(b'abcd'), dtype=torch.int16, offset=2)",
    "torch.frombuffer(bytearray(b'abcd'), dtype=torch.int32, count=2)",
    "torch.frombuffer(bytearray(b''), dtype=torch.int32)", "torch.frombuffer(bytearray(b'abcde'), dtype=torch.int32)",
    "torch.asarray([1, 2])", "torch.asarray(np.arange(3))", "torch.asarray(5)", "torch.zeros(2, 3).shape",
    "torch.zeros((2, 3)).shape", "torch.zeros([2]).shape", "torch.zeros(())", "torch.zeros()", "torch.zeros(2.)",
    "torch.zeros(-1)", "torch.zeros(2, dtype=torch.int8)", "torch.zeros(size=(2, ))", "torch.zeros(L(2)).shape",
    "torch.zeros(np.int64(2)).shape", "torch.zeros(2, dtype=torch.int32, requires_grad=True)",
    "torch.zeros(2, requires_grad=True)", "torch.zeros(2, names=None)", "torch.full((2, ), 1)",
    "torch.full((2, ), 1.)", "torch.full((2, ), True)", "torch.full((2, ), 1j)", "torch.full((2, ), L(3.))",
    "torch.full(2, 3)", "torch.full((2, ), 1.5, dtype=torch.int64)", "torch.full([2], fill_value=7)",
    "torch.empty((1, 2, 3, 4), memory_format=torch.channels_last).stride()", "torch.arange(5)", "torch.arange(5.)",
    "torch.arange(1, 5)", "torch.arange(1, 5, 2)", "torch.arange(1, 5, .5)", "torch.arange(5, 1)",
    "torch.arange(5, 1, -1)", "torch.arange(0, 1, 0)", "torch.arange(L(3))", "torch.arange(L(3.))",
    "torch.arange(0, 5, dtype=torch.float16)", "torch.arange(True)", "torch.arange(end=5)",
    "torch.arange(start=1, end=3)", "torch.arange(float('nan'))", "torch.arange(0, float('inf'))",
    "torch.arange(2.5, dtype=torch.int64)", "torch.arange(0.5, 5.5, dtype=torch.int64)",
    "torch.arange(5, dtype=torch.bool)", "torch.arange(2, dtype=torch.bool)", "torch.arange(1j)",
    "torch.arange(0, 1, .1)", "torch.range(0, 5)", "torch.range(0, 1, .25)", "torch.range(1, 0)",
    "torch.linspace(0, 1, 5)", "torch.linspace(0, 1, 1)", "torch.linspace(0, 1, 0)", "torch.linspace(0, 1, -1)",
    "torch.linspace(0, 10, 5, dtype=torch.int64)", "torch.linspace(0, 1+1j, 3)", "torch.linspace(L(0.), L(1.), 3)",
    "torch.linspace(0, 1, 3.)", "torch.logspace(0, 2, 3)", "torch.logspace(0, 2, 3, base=2)",
    "torch.logspace(0, 2, 3, dtype=torch.int64)", "torch.eye(3)", "torch.eye(2, 3)", "torch.eye(-1)",
    "torch.eye(2, dtype=torch.bool)", "torch.eye(3, 0).shape", "torch.empty_strided((2, 3), (1, 2)).stride()",
    "torch.complex(L([1.]), L([2.]))", "torch.complex(L([1]), L([2]))",
    "torch.complex(L([1.]), L([2.], dtype=torch.float64))", "torch.polar(L([1.]), L([2.]))", "torch.scalar_tensor(3)",
    "torch.scalar_tensor(3).dtype", "torch.scalar_tensor(True)", "torch.zeros_like(L([1, 2]))",
    "torch.zeros_like(L([1, 2]), dtype=torch.float32)", "torch.ones_like(L([1., 2]), requires_grad=True)",
    "torch.full_like(L([1, 2]), 1.5)", "torch.full_like(L([1, 2]), 1.5, dtype=torch.float32)",
    "torch.zeros_like([1])", "torch.zeros(2, 3).t().contiguous().stride()",
    "torch.zeros_like(torch.zeros(2, 3).t()).stride()",
    "torch.empty_like(torch.zeros(2, 3).t(), memory_format=torch.contiguous_format).stride()",
    "L([1.]).new_zeros(2, 3).shape", "L([1.]).new_zeros((2, 3)).shape", "L([1]).new_tensor([1.5])",
    "L([1]).new_tensor(1.5)", "L([1.]).new_tensor([1])", "L([1]).new_full((2, ), 1.5)",
    "L([1.]).new_empty(2, dtype=torch.int32).dtype", "L([1]).new_ones(2)", "L([1]).new_ones(size=(2, ))",
    "L([1.]).new([1, 2])", "L([1.]).new(2).shape", "L([1.]).new()", "torch.Tensor(2, 3).shape",
    "torch.Tensor([1, 2])", "torch.Tensor(3).shape", "torch.Tensor()", "torch.Tensor((1, 2))",
    "torch.Tensor(torch.Size([2])).shape", "torch.Tensor(L([1., 2.]))", "torch.Tensor(L([1, 2]))",
    "torch.Tensor(np.arange(3.))", "torch.Tensor(np.arange(3.).astype('f'))", "torch.Tensor('a')",
    "torch.Tensor(2.5)", "torch.Tensor([[1], [2]])", "torch.Tensor(range(3))", "torch.Tensor(L(3)).shape",
    "torch.LongTensor([1, 2])", "torch.LongTensor([1.5])", "torch.LongTensor(2).shape",
    "torch.FloatTensor(2, 3).shape", "torch.LongTensor(np.arange(3))", "torch.LongTensor(np.arange(3.))",
    "torch.BoolTensor([1, 0])", "torch.ByteTensor([255])", "torch.ByteTensor([256])", "torch.HalfTensor([1])",
    "torch.LongTensor(L([1.]))", "torch.FloatTensor(torch.Size([2, 3])).shape", "torch.Tensor(1, device='cpu').shape",
]

MORE = [
    "torch.zeros(3, out=torch.ones(2)).shape", "torch.ones(2, out=torch.zeros(2, dtype=torch.int64))", "torch.arange(3, out=torch.zeros(0))",
    "torch.linspace(0, 1, 3, out=torch.zeros(3))", "torch.eye(2, out=torch.zeros(0))", "torch.full((2,), 3, out=torch.zeros(2))",
    "torch.zeros(2, dtype=torch.float32, out=torch.zeros(2, dtype=torch.int64))", "torch.zeros(2, layout=torch.strided)",
    "torch.zeros(2, device='cpu', pin_memory=False)", "torch.zeros(2, device='nowhere')", "torch.tensor(1, device=torch.device('cpu'))",
    "torch.ones(2, 3).new_zeros(torch.Size([1, 2])).shape", "torch.asarray([1.0], dtype=torch.float64)", "torch.asarray(L([1.0]), copy=True)",
    "torch.asarray(np.arange(2), dtype=torch.float32, copy=False)", "torch.as_tensor(3.5)", "torch.as_tensor(np.float32(3.5))",
    "torch.tensor([[L(1), 2], [3, L(4)]])", "torch.tensor([L(1.5), 2])", "torch.tensor([np.float16(1), np.float32(2)])",
    "torch.tensor([np.int8(1), True])", "torch.tensor([[1, 2]] * 3).shape", "torch.tensor([[]] * 3).shape", "torch.tensor([[[1], [2]], [[3]]])",
    "torch.tensor(range(0))", "torch.tensor([range(2), range(2)])", "torch.tensor((1, (2, 3)))", "torch.tensor([1 + 0j, 2.0])",
    "torch.full((2,), 2 ** 40)", "torch.full((2,), 300, dtype=torch.uint8)", "torch.full((2,), -1, dtype=torch.uint8)",
    "torch.full_like(L([1], dtype=torch.uint8), 256)", "torch.full((), 1j, dtype=torch.float32)", "torch.scalar_tensor(1.5, dtype=torch.int32)",
    "torch.empty_strided((2,), (1, 2))", "torch.empty_permuted((2, 3, 4), (0, 2, 1)).stride()", "torch.empty_permuted((2,), (1,))",
    "torch.LongTensor([2 ** 40, 1])", "torch.IntTensor([[1, 2]])", "torch.DoubleTensor([1]).dtype", "torch.FloatTensor(L([1.0, 2.0]))",
    "torch.Tensor(2, 'a')", "torch.Tensor([1.5, None])", "torch.Tensor(size=(2, 3)).shape", "L([1.5]).new([1, 2])", "L([1]).new_tensor([2.5])",
    "torch.complex(L(1.0), L([2.0, 3.0]))", "torch.polar(L([1.0]), L([0.5], dtype=torch.float64))", "torch.arange(1, 10, 2.5)",
    "torch.arange(3, dtype=torch.float64)", "torch.arange(-1.0, 1.0, 0.25)", "torch.arange(5, 0, -2)", "torch.arange(0, -8.000001, -4.0, dtype=torch.int64)",
    "torch.linspace(3, 10, 5)", "torch.linspace(-10, 10, steps=6)", "torch.linspace(1, 1, 3)", "torch.linspace(L([1.0]), 2, 3)",
    "torch.linspace(0, 100, 7, dtype=torch.int32)", "torch.linspace(0, 1, 4, dtype=torch.bfloat16)", "torch.logspace(-1, 2, 4, dtype=torch.float64)",
    "torch.frombuffer(bytearray(8), dtype=torch.float32)", "torch.frombuffer(b'', dtype=torch.uint8)", "torch.frombuffer(bytearray(8), dtype=torch.float32, offset=9)",
    "torch.from_numpy(np.arange(3, dtype=np.uint16)).dtype", "torch.tensor(np.array(['a']))", "torch.tensor(np.array([object()]))",
    "torch.arange(1, 3, 1.)", "torch.arange(1, True, 1.)", "torch.arange(1, 3, 1., dtype=torch.int64)", "torch.arange(L(1), 3, L(1.))",
    "L([0, 'a'])", "L([[1, 2], 'ab'])", "L((lambda z: [z.append(z), z][1])([0]))", "L([float('nan'), 0, -2**63 - 1], dtype=torch.bool)",
    "L([2**64], dtype=torch.float32)", "L([2**64], dtype=torch.int64)", "L([2**63], dtype=torch.uint64).tolist()", "L([2**63], dtype=torch.int32)",
    "L([1.5, 2**64])", "L([(7, np.array(5)), (np.array(9), 5.)])", "L([(7, 5), (9, np.array(5.))])", "L((5, np.array(3)))",
    "int(torch.Tensor([]))", "float(torch.ones(2))", "complex(torch.ones(2))", "torch.ones(2).item()",
    "torch.asarray(torch.ones(2), dtype=torch.float64, copy=False)", "torch.asarray(np.ones(2), dtype=torch.float32, copy=False)",
    "torch.asarray(np.float64(.5), copy=False)", "torch.asarray(np.float64(.5))", "torch.asarray([1], copy=False)",
    "torch.cat([torch.zeros(0), torch.zeros(0)], dim=1)", "torch.cat([torch.zeros(0), torch.zeros(2)], dim=1)", "torch.cat([torch.zeros(0)], dim=-4)",
    "torch.meshgrid(L([1]), L([2], device='meta'))",
]


def test_forms_and_errors():
    compare([e for e in CREATE if not e.startswith("torch.empty(2")] + MORE)


@given(st.floats(-50, 50), st.floats(-50, 50), st.floats(0.05, 3), st.sampled_from(["float32", "float64", "int64", "float16"]))
def test_arange(start, end, step, dtype):
    lo, hi = sorted((start, end))
    for args in ((lo, hi, step), (hi, lo, -step)):
        if dtype != "int64" or int(args[2]):
            a, b = [T.arange(*args, dtype=getattr(T, dtype)) for T in (real, mine)]
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-6 if dtype != "float16" else 2e-3, atol=1e-6)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.integers(0, 40), st.sampled_from(["float32", "float64"]))
def test_linspace(start, end, steps, dtype):
    a, b = [T.linspace(start, end, steps, dtype=getattr(T, dtype)) for T in (real, mine)]
    np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-6, atol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.host_only("DLPack has no name for an NPU's memory")
def test_asarray_of_dlpack_capsules():
    compare(["torch.asarray(torch.utils.dlpack.to_dlpack(L([1, 2])), dtype=torch.float32)",
            "torch.asarray(torch.utils.dlpack.to_dlpack(L([1., 2.], dtype=torch.bfloat16)), copy=False)"])


@pytest.mark.host_only("arrays share the host's memory")
def test_memory_sharing_with_numpy():
    a = np.arange(6.0).reshape(2, 3)
    for T in (mine,):
        t = T.from_numpy(a)
        t[0, 0] = 9
        assert a[0, 0] == 9 and np.shares_memory(t.numpy(), a) and np.shares_memory(T.as_tensor(a).numpy(), a)
        assert not np.shares_memory(T.tensor(a).numpy(), a) and np.shares_memory(T.asarray(a).numpy(), a)
        assert T.as_tensor(t) is t and T.from_numpy(a.T).stride() == (1, 3)
        buffer = bytearray(4)
        T.frombuffer(buffer, dtype=T.uint8)[1] = 7
        assert buffer == b"\x00\x07\x00\x00"


def test_memory_outlives_its_array():
    t = mine.from_numpy(np.arange(100000.0).reshape(1000, 100)[:, ::2])
    gc.collect()
    other = [np.full(100000, 7.0) for _ in range(5)]
    assert t[3, 4] == 308 and len(other) == 5


@pytest.mark.host_only("arrays share the host's memory")
def test_read_only_arrays():
    a = np.arange(3.0)
    a.flags.writeable = False
    with pytest.warns(UserWarning, match="non-writable"):
        t = mine.from_numpy(a)
    assert (t + 1).tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="read-only"):
        t.add_(1)


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"])
def test_like_keeps_the_memory_order(name):
    for make in (lambda T: T.zeros(2, 3, 4).permute(2, 0, 1), lambda T: T.zeros(3, 1).expand(3, 4), lambda T: T.zeros(4, 6)[:, ::2],
                 lambda T: T.zeros(2, 3, 4, 5).contiguous(memory_format=T.channels_last)):
        for kwargs in ({}, {"dtype": "float64"}, {"memory_format": "contiguous_format"}):
            made = []
            for T in (real, mine):
                k = {n: getattr(T, v) for n, v in kwargs.items()}
                r = getattr(T, name)(make(T), *((2.5,) if name == "full_like" else ()), **k)
                made.append((r.stride(), tuple(r.shape), str(r.dtype)))
            assert made[0] == made[1]


def test_gradients_of_complex():
    a, b = In(values(1, (3,), "float32"), grad=True), In(values(2, (3,), "float32"), grad=True)
    check(lambda T, x, y: T.complex(x, y), a, b, second=True)
    check(lambda T, x, y: T.polar(x, y), a, b, second=True)
    check(lambda T, x, y: T.complex(x, y), In(values(1, (3,), "float64"), grad=True), In(values(2, (2, 1), "float64"), grad=True))


def test_requires_grad():
    for T in (real, mine):
        for t in (T.zeros(2, requires_grad=True), T.tensor([1.0], requires_grad=True), T.randn(2, requires_grad=True), T.eye(2, requires_grad=True),
                  T.ones_like(T.zeros(2), requires_grad=True), T.arange(2.0, requires_grad=True), T.zeros(1).new_full((2,), 3.0, requires_grad=True)):
            assert t.requires_grad and t.is_leaf


def test_default_dtype():
    for T in (real, mine):
        T.set_default_dtype(T.float64)
        try:
            made = [T.zeros(1), T.tensor([1.0]), T.tensor(1j), T.arange(2.0), T.full((1,), 0.5), T.eye(1), T.rand(1), T.Tensor(1), T.linspace(0, 1, 2)]
            assert [str(t.dtype) for t in made] == ["torch.float64", "torch.float64", "torch.complex128"] + ["torch.float64"] * 6
        finally:
            T.set_default_dtype(T.float32)


def test_unsupported_layout_is_named_in_the_error():
    with pytest.raises(NotImplementedError, match="'zeros' is not implemented for layout torch.jagged"):
        mine.zeros(2, layout=mine.jagged)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "cosine", "hamming", "hann", "nuttall", "gaussian", "kaiser", "exponential"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "bool", "complex64"])
def test_dtype_of_signal_windows(name, dtype):
    def outcome(T):
        kw = {"std": 2.0} if name == "gaussian" else {}
        try:
            return str(getattr(T.signal.windows, name)(4, dtype=getattr(T, dtype), **kw).dtype)
        except Exception as e:
            return type(e).__name__
    assert outcome(mine) == outcome(real)
