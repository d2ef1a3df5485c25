"""Views on the npu device share memory like PyTorch's: geometry, bases, storage, and writes through
each view."""
import gc
import traceback
import weakref

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from _alias_programs import On

pytestmark = pytest.mark.smoke

VIEWS = {
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[1],
    "new_axis": lambda x: x[:, None, 1],
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "mT": lambda x: x.mT,
    "T": lambda x: x[0].T,
    "H": lambda x: x[0].H,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "expand": lambda x: x[:1].expand(3, 3, 4),
    "as_strided": lambda x: x.as_strided((2, 2), (5, 2), 3),
    "as_strided_of_view": lambda x: x[1, 1:].as_strided((2, 3), (1, 4), 0),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "unfold_strided": lambda x: x.transpose(0, 2).unfold(0, 2, 2),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "view": lambda x: x.view(6, 4),
    "view_of_strided": lambda x: x[:, 1:].view(2, 2, 2, 2),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(3, 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "view_int": lambda x: x.view((real if isinstance(x, real.Tensor) else mine).int32),
    "view_wider": lambda x: x.view((real if isinstance(x, real.Tensor) else mine).int64),
    "view_bytes": lambda x: x[0].t()[1:].t().view((real if isinstance(x, real.Tensor) else mine).int32),
    "alias": lambda x: x[...],
    "empty": lambda x: x[:, 3:],
    "chain": lambda x: x.permute(1, 2, 0)[1:, ::2].transpose(0, 2)[1].unsqueeze(0).expand(2, -1, -1)[1],
}


def _array(x):
    return x.detach().cpu().resolve_conj().numpy() if hasattr(x, "resolve_conj") else x.detach().cpu().numpy()


@pytest.mark.parametrize("name", VIEWS)
def test_geometry_values_and_writes(name, npu):
    view = VIEWS[name]
    there, here = On(npu).arange(24.0).view(2, 3, 4), real.arange(24.0).view(2, 3, 4)
    for x in (there, here):
        x.mul_(2)
    v, r = view(there), view(here)
    assert tuple(v.shape) == tuple(r.shape) and v.device == npu and str(v.dtype) == str(r.dtype)
    assert [s for s, n in zip(v.stride(), r.shape) if n > 1] == [s for s, n in zip(r.stride(), r.shape) if n > 1] or 0 in r.shape
    assert v.is_contiguous() == r.is_contiguous()
    if r.numel():
        assert v.storage_offset() == r.storage_offset()
    assert v._is_view() == r._is_view() and (v._base is not None) == (r._base is not None)
    assert _array(v).tolist() == _array(r).tolist()
    if name not in ("expand", "unfold", "chain"):
        if r.dtype == real.float32:
            v.add_(1), r.add_(1)
        v[...] = v.clone().flip(0) if v.ndim and name != "empty" else 5
        r[...] = r.clone().flip(0) if r.ndim and name != "empty" else 5
        assert _array(there).tolist() == _array(here).tolist()
        assert there._version == here._version or name in ("data", "split", "chunk", "unbind")
    there.mul_(3), here.mul_(3)
    assert _array(v).tolist() == _array(r).tolist()


def test_complex_numbers_as_pairs(npu):
    def run(T):
        x = T.tensor([[1 + 2j, 3 - 1j, 2 + 0j], [0 + 1j, 5 + 5j, -1 - 1j]])
        p = (T if T is real else mine).view_as_real(x[:, 1:])
        p[0, 1, 1] = 7
        x.real.mul_(2)
        x.t().imag[1] += 1
        q = (T if T is real else mine).view_as_complex(p[:, :1])
        q.mul_(1j)
        c = (T if T is real else mine).view_as_complex(T.arange(12.0).view(3, 2, 2)[1:])
        c[0] = 1 - 1j
        return x, p, q, c, x.mT.real.t().contiguous()
    for a, b in zip(run(On(npu)), run(real)):
        assert a.stride() == b.stride() and _array(a).tolist() == _array(b).tolist()


def test_writes_through_a_conjugate_view(npu):
    def run(T):
        x = T.tensor([1 + 2j, 3 - 1j])
        seen = []
        for v in (x.conj(), x.conj()[1:], x.unsqueeze(0).mH):
            v.add_(1j)
            v[0] = 1 + 3j
            x.conj().imag.mul_(2)
            seen += [x.clone(), v.resolve_conj(), v.conj()]
        return seen
    for a, b in zip(run(On(npu)), run(real)):
        assert _array(a).tolist() == _array(b).tolist()


def test_resize_set_and_data_assignment(npu):
    """resize_, resize_as_, set_, as_strided_ and .data assignment use the same memory as in
    PyTorch."""
    def run(T):
        out = []
        x = T.arange(6.0)
        v = x[1:4]
        v.resize_(2, 2)
        v.fill_(9)
        out += [x, v, v.storage_offset()]
        x.resize_(2)
        out += [x.clone(), x.stride()]
        x.resize_(2, 3)
        out += [x, x._version]
        y = T.arange(4.0)
        y.resize_as_(T.zeros(2, 1))
        out.append(y)
        z = T.zeros(1)
        z.set_(x, 1, (2, 2), (1, 2))
        z.mul_(2)
        out += [z, x, z.storage_offset(), z.stride()]
        z.set_(T.ones(3))
        out.append(z)
        w = T.zeros(2, 2)
        t = w.t()
        w.data = T.arange(4.0).view(2, 2)
        w.add_(1)
        out += [w, t]
        w.as_strided_((3,), (1,), 1)
        w.t_().transpose_(0, 0).unsqueeze_(0)
        out += [w, w.stride()]
        e = T.empty(0)
        (T if T is real else mine).add(w, 1, out=e)
        return out + [e]
    for a, b in zip(run(On(npu)), run(real)):
        assert (_array(a).tolist(), tuple(a.shape)) == (_array(b).tolist(), tuple(b.shape)) if isinstance(b, real.Tensor) else a == b


def test_a_copy_to_the_device_keeps_dense_strides(npu):
    x = mine.arange(24.0).view(2, 3, 4)
    for v in (x.permute(2, 0, 1), x.transpose(1, 2), x[:, ::2], x[:1].expand(2, 3, 4)):
        r = real.from_numpy(v.contiguous().numpy()).as_strided(v.shape, v.stride()) if v.numel() == 24 and v.stride(0) else None
        got = v.to(npu)
        assert got.cpu().tolist() == v.tolist()
        if r is not None:
            assert got.stride() == v.stride()
    image = mine.rand(2, 3, 4, 5).to(memory_format=mine.channels_last)
    assert image.to(npu).is_contiguous(memory_format=mine.channels_last)


def test_views_keep_their_memory_alive(npu):
    rows = [(mine.full((64, 8), float(i)).to(npu) + 1)[i % 60:, 1::2] for i in range(50)]
    wholes = [(mine.full((64, 8), float(i)).to(npu) + 1).t().contiguous().view(-1)[8:].view(mine.int32) for i in range(50)]
    gc.collect()
    for _ in range(50):
        mine.zeros(64, 8).to(npu) + 5
    assert all([(r.cpu() == i + 1).all() for i, r in enumerate(rows)])
    assert all([(w.view(mine.float32).cpu() == i + 1).all() for i, w in enumerate(wholes)])


def test_memory_of_views_is_freed_without_gc(npu):
    """A handle and its views form no reference cycle: memory is freed without the garbage
    collector."""
    gc.collect()
    gc.disable()
    try:
        dead = []
        for make in (lambda: mine.ones(8, 8).to(npu), lambda: mine.ones(8, 8).to(npu) + 1, lambda: mine.ones(8, 8).to(npu).t().clone()):
            x = make().contiguous()
            views = [x.t()[1:], x[2], x.view(-1).view(mine.int32), x.t().t()[::2].t()]
            dead.append(weakref.ref(x._handle))
            dead += [weakref.ref(v._handle) for v in views]
            del x, views
        assert not [r for r in dead if r() is not None]
    finally:
        gc.enable()


def test_a_long_chain_of_views(npu):
    x = mine.arange(6.0).view(2, 3).to(npu)
    v = x
    for _ in range(2000):
        v = v.t()
    v[0, 1] = 9
    assert x.cpu().tolist() == [[0, 9, 2], [3, 4, 5]] and v._base is not None and v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_storages_are_shared(npu):
    def run(T):
        x = T.arange(12.0).view(3, 4)
        y, s = x[1], x.untyped_storage()
        told = [y.untyped_storage().data_ptr() == s.data_ptr(), y[1:].untyped_storage().data_ptr() == s.data_ptr(), y.data_ptr() - x.data_ptr(),
                y[1:].data_ptr() - x.t()[2].data_ptr(), s.nbytes(), y[1:].storage_offset(), x.clone().untyped_storage().data_ptr() == s.data_ptr(),
                y.is_set_to(x[1]), x.detach().data_ptr() == x.data_ptr(), x.data.untyped_storage().data_ptr() == s.data_ptr()]
        z = T.empty(0)
        z.set_(s)
        z.set_(s, 2, (2, 2), (4, 1))
        z.mul_(10)
        return told, [_array(x).tolist(), _array(z).tolist()]
    assert run(On(npu)) == run(real)


def test_errors_of_views_can_be_printed(npu):
    """Many tools print the local variables of traceback frames, so none of them may be an array
    with unreadable memory."""
    x = mine.zeros(3, 4).to(npu)
    for wrong in (lambda: x.t().view(-1), lambda: x.view(5), lambda: x[7], lambda: x.__setitem__(9, 1.0), lambda: x.expand(4, 4), lambda: x.unfold(0, 9, 1)):
        with pytest.raises((RuntimeError, IndexError)) as e:
            wrong()
        at = e.value
        while at is not None:
            frames = [f for f, _ in traceback.walk_tb(at.__traceback__)]
            assert not [v for f in frames for v in f.f_locals.values() if type(v) is np.ndarray]
            at = at.__context__


def test_scatter_ops_on_overlapping_views(npu):
    def run(T):
        x = T.arange(6.0)
        w = x.unfold(0, 3, 1)
        P = T if T is real else mine
        return (P.slice_scatter(w, T.zeros(4, 1), 1, 1, 2), P.select_scatter(w, T.zeros(3), 0, 1), P.diagonal_scatter(w, T.zeros(3)),
                P.select_scatter(x.expand(2, 6), T.zeros(6), 0, 1), P.slice_scatter(x.view(2, 3).t(), T.zeros(1, 2), 0, 1, 2))
    for a, b in zip(run(On(npu)), run(real)):
        assert _array(a).tolist() == _array(b).tolist()
