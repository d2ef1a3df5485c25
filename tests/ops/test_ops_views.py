"""View ops against PyTorch: values, first and second gradients, strides, shared memory, errors."""
import math

import numpy as np
import pytest
import torch as real
from _expressions import compare
from _parity import In, check, values
from hypothesis import given, strategies as st

import mindtorch.torch as mine

# name -> (shape, function of a tensor)
CASES = {
    "view": ((2, 6), lambda T, x: x.view(3, -1)), "view_list": ((2, 6), lambda T, x: x.view([4, 3])),
    "reshape": ((2, 6), lambda T, x: T.reshape(x, (3, 4))), "reshape_method": ((2, 6), lambda T, x: x.reshape(-1)),
    "view_as": ((2, 6), lambda T, x: x.reshape_as(T.zeros(4, 3))), "ravel": ((2, 3), lambda T, x: x.ravel()),
    "flatten": ((2, 3, 2), lambda T, x: x.flatten(1)), "flatten_scalar": ((), lambda T, x: x.flatten()),
    "unflatten": ((2, 6), lambda T, x: x.unflatten(1, (2, -1))), "unsqueeze": ((2, 3), lambda T, x: x.unsqueeze(-2)),
    "squeeze": ((1, 3, 1), lambda T, x: x.squeeze()), "squeeze_dim": ((1, 3, 1), lambda T, x: x.squeeze(-1)),
    "squeeze_dims": ((1, 3, 1), lambda T, x: x.squeeze((0, 1))), "transpose": ((2, 3, 4), lambda T, x: x.transpose(0, -1)),
    "swapaxes": ((2, 3), lambda T, x: T.swapaxes(x, 0, 1)), "t": ((2, 3), lambda T, x: x.t()), "T": ((2, 3), lambda T, x: x.T),
    "mT": ((2, 3, 4), lambda T, x: x.mT), "H": ((2, 3), lambda T, x: x.H), "mH": ((2, 3, 4), lambda T, x: x.mH),
    "adjoint": ((2, 3), lambda T, x: x.adjoint()), "permute": ((2, 3, 4), lambda T, x: x.permute(2, 0, 1)),
    "permute_function": ((2, 3, 4), lambda T, x: T.permute(x, (1, -1, 0))),
    "movedim": ((2, 3, 4), lambda T, x: x.movedim((0, 1), (2, 0))), "moveaxis": ((2, 3, 4), lambda T, x: T.moveaxis(x, 0, -1)),
    "select": ((2, 3), lambda T, x: x.select(1, -2)), "narrow": ((4, 3), lambda T, x: x.narrow(0, 1, 2)),
    "expand": ((3, 1), lambda T, x: x.expand(2, -1, 4)), "expand_as": ((3, 1), lambda T, x: x.expand_as(T.zeros(3, 5))),
    "broadcast_to": ((3, 1), lambda T, x: T.broadcast_to(x, (2, 3, 2))), "broadcast_method": ((3,), lambda T, x: x.broadcast_to(2, 3)),
    "broadcast_tensors": ((3, 1), lambda T, x: T.broadcast_tensors(x, T.zeros(2))[0]),
    "chunk": ((5, 2), lambda T, x: x.chunk(2)), "chunk_more": ((2, 2), lambda T, x: T.chunk(x, 5, 1)),
    "split": ((5, 2), lambda T, x: x.split(2)), "split_sizes": ((5, 2), lambda T, x: T.split(x, [1, 4])),
    "split_with_sizes": ((2, 5), lambda T, x: x.split_with_sizes([2, 3], 1)), "tensor_split": ((5, 2), lambda T, x: x.tensor_split(3)),
    "tensor_split_at": ((5, 2), lambda T, x: T.tensor_split(x, (1, 3))), "hsplit": ((2, 4), lambda T, x: x.hsplit(2)),
    "vsplit": ((4, 2), lambda T, x: x.vsplit([1])), "dsplit": ((1, 2, 4), lambda T, x: T.dsplit(x, 2)),
    "unbind": ((3, 2), lambda T, x: x.unbind(1)), "unbind_some": ((3, 2), lambda T, x: x.unbind()[1]),
    "unsafe_chunk": ((4, 2), lambda T, x: x.unsafe_chunk(2)), "unsafe_split": ((4, 2), lambda T, x: T.unsafe_split(x, 3)),
    "unfold": ((7, 2), lambda T, x: x.unfold(0, 3, 2)), "unfold_overlapping": ((5,), lambda T, x: x.unfold(0, 3, 1)),
    "diagonal": ((3, 4), lambda T, x: x.diagonal()), "diagonal_offset": ((2, 3, 4), lambda T, x: T.diagonal(x, -1, 0, 2)),
    "atleast_1d": ((), lambda T, x: T.atleast_1d(x)), "atleast_2d": ((3,), lambda T, x: T.atleast_2d(x)),
    "atleast_3d": ((3, 2), lambda T, x: T.atleast_3d(x, x)), "alias": ((3, 2), lambda T, x: T.alias_copy(x)),
    "view_copy": ((3, 2), lambda T, x: T.view_copy(x, (6,))), "narrow_copy": ((3, 2), lambda T, x: x.narrow_copy(0, 1, 2)),
    "empty": ((0, 3), lambda T, x: x.transpose(0, 1).reshape(3, 0, 1)), "empty_split": ((0, 3), lambda T, x: x.split(2)),
}


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    shape, fn = CASES[name]
    if dtype == "complex64" and name in ("H", "mH", "adjoint"):
        fn = (lambda f: lambda T, x: f(T, x).resolve_conj())(fn)
    for layout in ("plain", "strided"):
        if layout != "plain" and (name.startswith("view") and name != "view_as" or name == "unflatten"):
            continue
        check(fn, In(values(1, shape, dtype), dtype, layout, grad=True), second=dtype == "float32")


@pytest.mark.parametrize("name", CASES)
def test_strides_and_memory_sharing(name):
    """Strides and offsets equal PyTorch's, and in-place ops on the view modify the base."""
    shape, fn = CASES[name]
    made = []
    for T in (real, mine):
        x = T.arange(float(np.prod(shape))).reshape(shape)
        r = fn(T, x)
        made.append((x, list(r) if isinstance(r, (tuple, list)) else [r]))
    (x, a), (y, b) = made
    for p, q in zip(a, b, strict=True):
        assert p.stride() == q.stride() or not p.numel(), (p.stride(), q.stride())
        if p.numel():
            assert p.data_ptr() - x.data_ptr() == q.data_ptr() - y.data_ptr() or name.endswith("copy") or name == "alias"
        assert p._is_view() == q._is_view()
    if a[0].numel() and not any(s == 0 for s in a[0].stride()) and not name.startswith("unfold"):
        a[0].mul_(2)
        b[0].mul_(2)
        np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_as_strided():
    for size, stride, offset in [((2, 2), (3, 1), 1), ((3,), (2,), 0), ((2, 3), (1, 1), 0), ((4,), (0,), 2), ((), (), 3), ((0, 2), (1, 1), 0)]:
        check(lambda T, x: T.as_strided(x, size, stride, offset), In(values(2, (3, 4), "float32"), grad=True), second=True)
        check(lambda T, x: x.t().as_strided(size, stride, offset), In(values(2, (3, 4), "float32"), grad=True))
    # For an expanded input, the elements that alias a memory location share its gradient equally.
    check(lambda T, x: x.expand(2, 3).as_strided((3,), (1,)), In(values(2, (3,), "float32"), grad=True))


def test_complex_parts():
    c = In(values(3, (2, 3), "complex64"), grad=True)
    check(lambda T, x: T.view_as_real(x), c, second=True)
    check(lambda T, x: T.view_as_real(x.t()), c)
    check(lambda T, x: T.view_as_complex(x), In(values(3, (4, 2), "float32"), grad=True), second=True)
    check(lambda T, x: T.view_as_complex(x.unflatten(0, (2, 2)).transpose(0, 1)), In(values(3, (4, 2), "float32"), grad=True))
    check(lambda T, x: (x.real, x.imag), c, second=True)


def test_dtype_views():
    a = values(4, (2, 4), "float32")
    for name in ("int32", "int16", "uint8", "float64", "int64", "complex64"):
        check(lambda T, x: x.view(getattr(T, name)), In(a))
    check(lambda T, x: x[:, ::2].view(T.int32), In(a))
    for T in (real, mine):
        x = T.zeros(2)
        x.view(T.int32)[0] = 0x3F800000
        assert x.tolist() == [1.0, 0.0] and x._version == 1


def test_in_place_geometry():
    for T in (real, mine):
        x = T.arange(6.0).reshape(2, 3)
        y = x
        assert x.t_() is x and x.shape == (3, 2) and x.unsqueeze_(0).shape == (1, 3, 2) and x.squeeze_(0).shape == (3, 2)
        assert x.transpose_(0, 1).tolist() == [[0, 1, 2], [3, 4, 5]] and x.swapaxes_(0, 1).stride() == (1, 3)
        assert y is x and x.as_strided_((2,), (3,)).tolist() == [0, 3]
        leaf = T.ones(2, 3, requires_grad=True)
        z = (leaf * 2).t_()
        (z * T.arange(6.0).reshape(3, 2)).sum().backward()
        assert leaf.grad.tolist() == [[0, 4, 8], [2, 6, 10]]


VIEWS = [
    "x.view(-2, 3)", "x.view(5)", "x.view(-1, -1)", "x.view(-1, 0)", "torch.zeros(0).view(-1, 0)",
    "torch.zeros(0).view(0, -1)", "torch.zeros(0).view(-1).shape", "x.t()", "x.T.shape", "x.mT.shape",
    "torch.zeros(3).mT", "torch.zeros(3).H", "torch.zeros(()).mT", "torch.zeros(()).T", "torch.zeros(3).T", "x.H",
    "x.transpose(0, 3)", "x.permute(0, 1)", "x.permute(0, 1, 1)", "x.permute(0, 1, 5)", "x.permute([0, 2, 1]).shape",
    "x.unsqueeze(4)", "x.unsqueeze(-5)", "x.squeeze(3)", "x.squeeze((0, 0))", "x[:1, :, :1].squeeze(0, 2).shape", "x[:1, :1].squeeze(-2, 0).shape", "x.squeeze(0, 0)", "x.squeeze(0, (1,))",
    "x.squeeze(axis=0).shape", "x[:1, :1].squeeze_(0, 1).shape", "torch.squeeze(x, 0, 1)", "x.count_nonzero(0, 2)", "x.count_nonzero((0, 2))", "torch.count_nonzero(x, 0, 1)", "x.select(0, 2)", "x.select(3, 0)",
    "torch.tensor(1.).select(0, 0)", "x.narrow(0, 1, 2)", "x.narrow(0, -1, 1)", "x.narrow(0, 0, -1)",
    "x.narrow(0, 3, 0)", "x.narrow(0, torch.tensor(1), 1).shape", "x.expand(2)", "x.expand(3, 3, 4)",
    "x.expand(-1, -1, -1).shape", "x.expand(-1, 2, 3, 4)", "x.expand(4, -1, 3, 4).shape", "torch.zeros(1).expand(-2)",
    "torch.zeros(1).expand(0).shape", "x.chunk(0)", "x.chunk(-1)", "x.chunk(5, 1)", "x.chunk(2, 5)", "x.split(0)",
    "x.split(-1)", "x.split([1, 2])", "x.split([1, -1, 2])", "torch.zeros(0, 2).split(0)", "torch.zeros(()).split(1)",
    "torch.zeros(()).chunk(1)", "torch.zeros(()).unbind()", "x.unbind(3)", "x.tensor_split(0)",
    "x.tensor_split((1, 5))", "x.tensor_split(torch.tensor([1, 2]), 1)", "x.tensor_split(torch.tensor(2))",
    "x.hsplit(2)", "x.hsplit(5)", "torch.zeros(()).hsplit(1)", "x.vsplit(3)", "torch.zeros(3).vsplit(1)",
    "torch.zeros(3, 3).dsplit(1)", "x.unfold(0, 3, 1)", "x.unfold(0, 1, 0)", "x.unfold(0, -1, 1)",
    "torch.tensor(1.).unfold(0, 1, 1).shape", "torch.tensor(1.).unfold(0, 0, 1).shape", "x.diagonal(0, 1, 1)",
    "x.diagonal(10).shape", "x.diagonal(-10).shape", "x.flatten(2, 1)", "torch.tensor(1.).flatten().shape",
    "x.flatten(0, 5)", "x.unflatten(1, (3, 1)).shape", "x.unflatten(1, (2, 2))", "x.unflatten(1, (-1, 3)).shape",
    "x.unflatten(1, ())", "x.unflatten(1, (-1, -1))", "x.as_strided((2, 2), (1, 1), 100)",
    "x.as_strided((2, 2), (1, ))", "x.as_strided((2, ), (-1, ))", "x.as_strided((2, ), (1, ), -1)",
    "x.as_strided((), ()).shape", "x.view_as(5)", "torch.view_as_real(x)", "torch.view_as_complex(x)",
    "torch.view_as_complex(torch.zeros(3, 2).t())", "torch.view_as_complex(torch.zeros(2, 3)[:, :2])",
    "torch.view_as_complex(torch.zeros(2, 2, dtype=torch.long))", "torch.view_as_complex(torch.tensor(1.))",
    "x.view(torch.int32).dtype", "x.view(torch.float64).shape", "x.view(torch.int16).shape",
    "x[:, :, :3].view(torch.float64)", "x.transpose(0, 2).view(torch.int16)",
    "x.transpose(0, 2).view(torch.int32).stride()", "x.view(dtype=torch.int32).dtype", "x.view('a')", "x.view(2.0)",
    "x.view(size=(24, )).shape", "x.movedim(0, 2).shape", "x.movedim((0, 1), (1, ))", "x.movedim((0, 0), (1, 2))",
    "x.swapaxes(0, 1).shape", "torch.swapaxes(x, axis0=0, axis1=1).shape", "x.broadcast_to((2, 2, 3, 4)).shape",
    "torch.broadcast_tensors(torch.zeros(2), torch.zeros(3))", "torch.atleast_2d(torch.zeros(()), torch.zeros(3))",
    "x.adjoint().shape", "torch.zeros(3).adjoint()", "torch.tensor(1.).adjoint()", "x.view_as(torch.zeros(24)).shape",
    "x.reshape(5)", "x.reshape(())", "torch.zeros(1).reshape(()).shape", "x.view(()).shape", "x.squeeze().shape",
    "x.ravel().shape", "torch.tensor(1.).squeeze(0).shape", "torch.tensor(1.).squeeze(1)",
    "torch.tensor(1.).unsqueeze(1)", "torch.tensor(1.).transpose(0, 0).shape", "torch.tensor(1.).transpose(0, 1)",
    "torch.tensor(1.).diagonal()", "x.permute(()).shape", "torch.tensor(1.).permute(()).shape", "x.view(True)",
    "x.view(torch.tensor(24)).shape", "x.view(np.int64(24)).shape", "x.view((torch.tensor(2), 12)).shape",
    "x.view([24]).shape", "x.view(torch.Size([24])).shape", "x.expand((2, 2, 3, 4), ).shape",
    "x.flatten(start_dim=1).shape", "x.expand(2, 3, 4)._is_view()", "x.reshape(24)._is_view()",
    "x.transpose(0, 1).reshape(24)._is_view()", "x.split(2, dim=3)", "x.split((2, 1), dim=1)[0].shape",
    "x.chunk(2, -1)[0].shape", "type(x.split(1))", "type(x.chunk(1))", "type(x.unbind())",
    "type(torch.broadcast_tensors(x))", "type(x.tensor_split(2))", "type(torch.meshgrid(x[0, 0]))",
    "type(torch.atleast_1d(x, x))", "type(torch.atleast_1d(x))", "type(torch.atleast_1d((x, )))",
]


def test_forms_and_errors():
    compare(VIEWS, lambda T: {"x": T.arange(24.0).reshape(2, 3, 4)})


@given(st.data())
def test_as_strided_beyond_its_base(data):
    """The region may lie before, behind, within or across the tensor's own elements; tests
    gradients of a read and of a write."""
    start = data.draw(st.integers(0, 6), "start")
    step = data.draw(st.integers(1, 3), "step")
    shape = data.draw(st.sampled_from([(2, 2), (4,), (3,), (1, 3)]), "shape")
    size = data.draw(st.sampled_from([(3,), (2, 2), (1,), (2, 1, 2), (5,), (0,)]), "size")
    strides = tuple(data.draw(st.integers(0, 3), "stride") for _ in size)
    offset = data.draw(st.integers(0, 9), "offset")
    places = np.arange(100)[np.lib.stride_tricks.as_strided(np.arange(100), size, tuple([8 * n for n in strides]))] if 0 not in size else np.empty(0)
    # writing the same element twice is undefined
    write = len(set(places.flat)) == places.size and data.draw(st.booleans(), "write")

    def outcome(T):
        memory = T.arange(24.0, dtype=T.float64)
        leaf = memory[start:start + step * 4:step][:math.prod(shape)].reshape(shape).detach().requires_grad_()
        x = leaf * 1 if write else leaf
        try:
            region = x.as_strided(size, strides, offset)
            if write:
                region.mul_(T.arange(2.0, region.numel() + 2, dtype=T.float64).view(size))
            y = (region * T.arange(1.0, region.numel() + 1, dtype=T.float64).view(size)).sum() + (0 if not write else (x * x).sum())
            return y.item(), T.autograd.grad(y, leaf)[0].tolist()
        except RuntimeError:
            return "refused"
    assert outcome(mine) == outcome(real)


COPIES = ["diagonal_copy(x)", "permute_copy(x, (1, 0))", "view_copy(x, (2, 3, 1))", "t_copy(x)", "transpose_copy(x, 0, 1)", "select_copy(x, 0, 1)",
          "unsqueeze_copy(x, 0)", "squeeze_copy(x)", "expand_copy(x, (2, 2, 3))", "split_copy(x, 2, 1)", "unbind_copy(x)", "slice_copy(x, 1, 0, 2)",
          "as_strided_copy(x, (2, 2), (1, 1))", "unfold_copy(x, 1, 2, 1)", "alias_copy(x)"]


@pytest.mark.parametrize("call", COPIES)
def test_copy_variants_accept_out(call):
    """The copies are contiguous whatever the view's layout is; out= tensors receive them in their
    own memory."""
    x = mine.arange(6.0).reshape(3, 2).t()
    f = eval("lambda **kw: ns." + call[:-1] + ", **kw)", {"x": x, "ns": mine.ops.aten if call.startswith("slice") else mine})
    want = f()
    many = want if isinstance(want, (tuple, list)) else (want,)
    assert all(w.is_contiguous() for w in many)
    out = tuple([mine.full(w.shape, 9.0) for w in many])
    f(out=out if len(many) > 1 else out[0])
    assert [o.tolist() for o in out] == [w.tolist() for w in many]
    with pytest.raises(RuntimeError, match="dtype"):
        f(out=tuple([o.double() for o in out]) if len(many) > 1 else out[0].double())


@pytest.mark.host_only("MindSpore's views end at 8 dimensions")
def test_many_dimensions():
    shape = (1, 1, 2, 1, 1, 1, 1, 1, 3)
    a, b = [T.arange(6.0).reshape(shape).transpose(2, 8) for T in (real, mine)]
    assert b.view(3, 1, 1, 1, 1, 1, 1, 1, 2).tolist() == a.view(3, 1, 1, 1, 1, 1, 1, 1, 2).tolist() and b.stride() == a.stride()
    b.view(3, 2).mul_(2)
    assert b.flatten().tolist() == (a * 2).flatten().tolist()


def test_view_as_another_dtype():
    names = ["float16", "float32", "float64", "int32", "complex64"]
    for a, b in [(a, b) for a in names for b in names]:
        out = []
        for T in (real, mine):
            d, to = getattr(T, a), getattr(T, b)
            found = []
            for x in (T.ones(4, 8, dtype=d), T.ones(4, 9, dtype=d)[:, 1:], T.ones(4, 10, dtype=d)[:, 2:], T.ones((), dtype=d), T.ones(8, 4, dtype=d).t(),
                      T.ones(4, 3, dtype=d), T.ones(40, dtype=d).as_strided((4, 4, 4), (4, 1, 1))):
                try:
                    v = (x.requires_grad_() if a[0] in "fc" else x).view(to)
                    found.append((str(v.dtype), tuple(v.shape), v.stride(), v.storage_offset(), v.requires_grad))
                except RuntimeError as e:
                    found.append(str(e).partition(" to view")[0])
            out.append(found)
        assert out[0] == out[1], (a, b)
