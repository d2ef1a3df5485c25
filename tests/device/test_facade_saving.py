"""Serialization and copies of npu tensors: torch.save, pickle, deepcopy. Shared storages stay
shared."""
import copy
import io
import pickle

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt

DTYPES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64".split()


def _saved(obj, **kw):
    b = io.BytesIO()
    mt.save(obj, b, **kw)
    return b


def _loaded(b, *args, **kw):
    b.seek(0)
    return mt.load(b, *args, **kw)


@pytest.mark.parametrize("zip_format", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_survive_saving(npu, dtype, zip_format):
    c = (mt.arange(6).reshape(2, 3) - 2).to(getattr(mt, dtype))
    b = _saved(c.to(npu), _use_new_zipfile_serialization=zip_format)
    x = _loaded(b)
    assert x.device == npu and x.dtype is c.dtype and mt.equal(x.cpu(), c)
    assert mt.equal(_loaded(b, map_location="cpu"), c)
    b.seek(0)
    assert real.load(b, map_location="cpu").tolist() == c.tolist()


def test_map_location_selects_the_device(npu):
    x = mt.arange(3., device=npu)
    b = _saved(x)
    for where, kind in [("cpu", "cpu"), ("cuda", "cuda"), ("cuda:0", "cuda"), (mt.device("npu"), "npu"), ({"npu:0": "cuda:0"}, "cuda"), ({"npu:0": "cpu"}, "cpu"),
                        ({"xpu:0": "cpu"}, "npu"), (lambda s, tag: s, "cpu"), (lambda s, tag: s.npu(), "npu"), (lambda s, tag: None, "npu"), (None, "npu")]:
        y = _loaded(b, where)
        assert y.device.type == kind and y.tolist() == [0, 1, 2]
    assert _loaded(b, "meta").device.type == "meta"
    assert _loaded(_saved(x.cpu())).device.type == "cpu" and _loaded(_saved(x.cpu()), "npu").device == npu
    assert str(_loaded(_saved(x.cpu().cuda())).device) == "cuda:0"
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on NPU device 4 but torch.npu.device_count\\(\\) is 1"):
        _loaded(b, "npu:4")
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a XPU device but torch.xpu.is_available\\(\\) is False"):
        _loaded(b, "xpu")


def _of_cuda(t):
    """Returns a file as PyTorch writes it on a CUDA machine: the storage tags name cuda."""
    b = io.BytesIO()
    real.save(t, b, _use_new_zipfile_serialization=False)
    data = b.getvalue()
    tag = b"X\x03\x00\x00\x00cpu"
    assert tag in data
    return io.BytesIO(data.replace(tag, b"X\x06\x00\x00\x00cuda:0"))


def test_cuda_files_load_on_the_npu(npu):
    b = _of_cuda({"w": real.arange(4.)})
    assert str(_loaded(b)["w"].device) == "cuda:0" and _loaded(b)["w"].tolist() == [0, 1, 2, 3]
    assert _loaded(b, map_location="cpu")["w"].device.type == "cpu"


def test_models_and_optimizers(npu):
    m = mt.nn.Linear(3, 2).to(npu)
    o = mt.optim.Adam(m.parameters())
    m(mt.randn(4, 3, device=npu)).square().sum().backward()
    o.step()
    b = _saved({"m": m.state_dict(), "o": o.state_dict()})
    for where in (None, "cpu"):
        s = _loaded(b, where)
        m2 = mt.nn.Linear(3, 2).to(npu)
        o2 = mt.optim.Adam(m2.parameters())
        m2.load_state_dict(s["m"])
        o2.load_state_dict(s["o"])
        assert m2.weight.device == npu and mt.equal(m2.weight, m.weight) and o2.state_dict()["state"][0]["exp_avg"].device == npu
        m2(mt.ones(4, 3, device=npu)).sum().backward()
        o2.step()
    whole = _loaded(_saved(m), weights_only=False)
    assert whole.weight.device == npu and isinstance(whole.weight, mt.nn.Parameter) and mt.equal(whole.weight, m.weight)
    b.seek(0)
    r = real.load(b, map_location="cpu")
    np.testing.assert_array_equal(r["m"]["weight"].numpy(), m.weight.detach().cpu().numpy())


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles(npu, protocol):
    x = mt.arange(6., device=npu).reshape(2, 3)
    y, p = pickle.loads(pickle.dumps([x, mt.nn.Parameter(x)], protocol))
    assert y.device == npu and mt.equal(x, y) and isinstance(p, mt.nn.Parameter) and p.device == npu and p.requires_grad and mt.equal(p, x)


def test_copies(npu):
    x = mt.arange(6., device=npu).reshape(2, 3)
    same, p = copy.copy(x), copy.copy(mt.nn.Parameter(x))
    assert same.data_ptr() == x.data_ptr() == p.data_ptr() and same.device == npu and isinstance(p, mt.nn.Parameter)
    other = copy.deepcopy(x)
    other.add_(1)
    assert x[0, 0] == 0 and other[0, 0] == 1 and other.data_ptr() != x.data_ptr()
    leaf = mt.ones(2, device=npu, requires_grad=True)
    leaf.grad = mt.ones(2, device=npu)
    c = copy.deepcopy(leaf)
    assert c.requires_grad and c.grad.tolist() == [1, 1] and c.grad.device == npu
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(leaf * 2)


def test_storages(npu):
    x = mt.arange(6., device=npu).reshape(2, 3)
    s = x.untyped_storage()
    assert s.device == npu and s.nbytes() == 24 and s.data_ptr() == x.data_ptr() and x.t().untyped_storage() is s and s.is_cuda and s.is_npu and x.storage().is_cuda
    assert s.tolist() == x.cpu().untyped_storage().tolist() and s.cpu().device.type == "cpu" and x.storage().tolist() == [0, 1, 2, 3, 4, 5]
    assert x[1].storage_offset() == 3 and x[1].data_ptr() - x.data_ptr() == 12
    x.storage()[1] = 7
    assert x[0, 1] == 7
    s.fill_(0)
    assert not x.any()
    s.copy_(mt.ones(2, 3).untyped_storage())
    assert x.all() and s.clone().data_ptr() != s.data_ptr() and mt.UntypedStorage(8, device="npu").nbytes() == 8
    with pytest.raises(NotImplementedError, match="npu:0"):
        s.share_memory_()


def _tied(npu):
    x = mt.arange(6., device=npu).reshape(2, 3)
    return {"x": x, "row": x[1], "t": x.t(), "flat": x.view(-1)[2:], "last": mt.randn(1, 2, 2, 3).to(npu, memory_format=mt.channels_last)}


@pytest.mark.parametrize("again", [lambda d: _loaded(_saved(d)), lambda d: _loaded(_saved(d, _use_new_zipfile_serialization=False)), copy.deepcopy,
                                   lambda d: pickle.loads(pickle.dumps(d, 5)), lambda d: _loaded(_saved(d), "cuda")])
def test_shared_memory_survives_saving_and_copying(npu, again):
    d = _tied(npu)
    e = again(d)
    for k in d:
        assert e[k].device == npu and e[k].stride() == d[k].stride() and mt.equal(e[k].cpu(), d[k].cpu()), k
    assert e["row"].storage_offset() == 3 and e["x"].untyped_storage() is e["t"].untyped_storage() is e["flat"].untyped_storage()
    e["row"].fill_(9)
    assert e["x"][1].tolist() == [9, 9, 9] and e["t"][0].tolist() == [0, 9] and e["flat"].tolist() == [2, 9, 9, 9] and d["x"].sum() == 15
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w = mt.ones(2, device=npu, requires_grad=True)
        y = (e["x"][:, 0] * w).sum()
        e["t"].add_(1)
        y.backward()


@pytest.mark.parametrize("again", [lambda v: _loaded(_saved(v)), copy.deepcopy, lambda v: mt.tensor([], dtype=v.dtype, device=v.device).set_(v.untyped_storage(), v.storage_offset(), v.shape, v.stride())],
                         ids=["save", "deepcopy", "set_"])
@pytest.mark.parametrize("view", [lambda c, f: c.imag, lambda c, f: c.imag[1:], lambda c, f: c[1:].imag, lambda c, f: mt.view_as_real(c)[..., 1], lambda c, f: f.view(mt.int16)[3:],
                                  lambda c, f: f.view(mt.int16)[3::2], lambda c, f: f[1:].view(mt.int8)[5:], lambda c, f: f[2:].view(mt.float64)[1:]],
                         ids="imag imag_part part_imag as_real int16 int16_steps int8 float64".split())
def test_views_that_begin_inside_an_element_of_their_storage(npu, view, again):
    c, f = mt.tensor([1 + 2j, 3 + 4j, 5 - 6j]), mt.arange(1., 7.)
    want, v = view(c, f), view(c.to(npu), f.to(npu))
    r = again(v)
    assert r.device == npu and r.dtype == want.dtype and r.stride() == want.stride() and mt.equal(r.cpu(), want) and mt.equal(v.cpu(), want)


def test_torch_reads_saved_views_with_shared_storage(npu):
    d = _tied(npu)
    b = _saved(d)
    b.seek(0)
    r = real.load(b, map_location="cpu")
    assert r["row"].untyped_storage().data_ptr() == r["x"].untyped_storage().data_ptr() and r["last"].stride() == d["last"].stride()
    for k in d:
        np.testing.assert_array_equal(r[k].numpy(), d[k].cpu().numpy())


def test_set_on_npu_storages(npu):
    x = mt.arange(6., device=npu).reshape(2, 3)
    t = mt.empty(0, device=npu).set_(x.untyped_storage(), 3, (3,), (1,))
    assert t.tolist() == [3, 4, 5]
    t.fill_(1)
    assert x[1].tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 24"):
        mt.empty(0, device=npu).set_(x.untyped_storage(), 4, (3,), (1,))
    with pytest.raises(RuntimeError, match="Attempted to set the storage"):
        mt.empty(0).set_(x.untyped_storage())
