"""The npu as users of PyTorch see it: device names, streams, memory, transfers, and unsupported
operations."""
import copy
import pickle

import numpy as np
import pytest

import mindtorch.torch as mt

MIXED = "Expected all tensors to be on the same device, but found at least two devices"


# ------------------------------------------------------------------ torch.device
def test_one_device_has_two_names(npu):
    assert mt.device("cuda:0") == npu and hash(mt.device("cuda", 0)) == hash(npu) and mt.device("cuda") == mt.device("npu") != npu
    assert mt.device(0) == npu and str(npu) == "npu:0" and pickle.loads(pickle.dumps(npu)) == npu
    x = mt.zeros(2, device="cuda")
    assert str(x.device) == "cuda:0" and x.device == npu and x.is_cuda and x.is_npu and not x.is_cpu and x.get_device() == 0
    y = mt.zeros(2).to(npu)
    assert str(y.device) == "npu:0" and y.is_cuda and y.is_npu and not y.is_cpu
    assert y.to("cuda") is y and y.npu() is y and (x + y).device == npu


MADE = {"cuda": lambda x: x.cuda(), "npu": lambda x: x.npu(), "to npu": lambda x: x.to("npu"), "to cuda": lambda x: x.to("cuda:0"),
        "view": lambda x: x.npu()[0], "result": lambda x: x.npu() + 1, "conj": lambda x: x.npu().to(mt.complex64).conj(), "empty": lambda x: mt.empty(0, device="npu"),
        "parameter": lambda x: mt.nn.Parameter(x.npu()), "sparse": lambda x: x.npu().to_sparse(), "default": lambda x: mt.zeros(2, device=mt.device("npu")),
        "packed": lambda x: mt.nn.utils.rnn.pack_sequence([x.npu()]), "storage": lambda x: x.npu().storage(), "subclass": lambda x: x.npu().as_subclass(Sub)}


class Sub(mt.Tensor):
    """A user's Tensor subclass."""


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_is_cuda_is_true_for_npu_objects(npu, make):
    # A script that finds `torch.cuda.is_available()` uses `is_cuda` to decide where to put the next
    # tensor.
    x = make(mt.ones(2, 2))
    assert mt.cuda.is_available() and x.is_cuda is True
    assert mt.ones(2).to("cuda" if x.is_cuda else "cpu").device == npu


@pytest.mark.parametrize("make", [lambda: mt.ones(2), lambda: mt.ones(2, device="meta"), lambda: mt.ones(2).to_sparse(), lambda: mt.ones(2).storage(),
                                  lambda: mt.nn.utils.rnn.pack_sequence([mt.ones(2, 2)])])
def test_is_cuda_is_false_for_other_objects(npu, make):
    assert make().is_cuda is False


def test_cuda_tensor_types_match_npu_tensors(npu):
    for x in (mt.ones(2).cuda(), mt.ones(2).npu()):
        assert isinstance(x, mt.cuda.FloatTensor) and not isinstance(x, mt.cuda.DoubleTensor) and not isinstance(x, mt.FloatTensor)
    assert not isinstance(mt.ones(2), mt.cuda.FloatTensor)


@pytest.mark.parametrize("make, error", [
    (lambda: mt.device("npu", -1), "Device index must not be negative"), (lambda: mt.device(-1), "Device index must not be negative"),
    (lambda: mt.device("npu:-1"), "Invalid device string: 'npu:-1'"), (lambda: mt.zeros(1, device="npu:1"), "invalid device ordinal"),
    (lambda: mt.zeros(1).to(3), "invalid device ordinal"), (lambda: mt.npu.set_device(2), "invalid device ordinal")])
def test_invalid_device_ordinals_raise(npu, make, error):
    with pytest.raises(RuntimeError, match=error):
        make()


# ------------------------------------------------------------------ creation
CREATORS = {
    "zeros": lambda **k: mt.zeros(2, **k), "ones": lambda **k: mt.ones(2, **k), "full": lambda **k: mt.full((2,), 3, **k), "empty": lambda **k: mt.empty(2, **k),
    "arange": lambda **k: mt.arange(3, **k), "linspace": lambda **k: mt.linspace(0, 1, 3, **k), "logspace": lambda **k: mt.logspace(0, 1, 3, **k),
    "eye": lambda **k: mt.eye(2, **k), "empty_strided": lambda **k: mt.empty_strided((2, 2), (1, 2), **k), "tensor": lambda **k: mt.tensor([1.], **k),
    "as_tensor": lambda **k: mt.as_tensor(np.ones(2), **k), "asarray": lambda **k: mt.asarray([1.], **k), "scalar_tensor": lambda **k: mt.scalar_tensor(1, **k),
    "rand": lambda **k: mt.rand(2, **k), "randn": lambda **k: mt.randn(2, **k), "randint": lambda **k: mt.randint(3, (2,), **k),
    "randperm": lambda **k: mt.randperm(3, **k), "tril_indices": lambda **k: mt.tril_indices(3, 3, **k), "triu_indices": lambda **k: mt.triu_indices(3, 3, **k),
    "hann_window": lambda **k: mt.hann_window(4, **k), "fftfreq": lambda **k: mt.fft.fftfreq(4, **k), "complex": lambda **k: mt.zeros(2, dtype=mt.complex64, **k)}


@pytest.mark.parametrize("name", CREATORS)
def test_creation_with_a_device(npu, name):
    make = CREATORS[name]
    there = make(device=npu)
    assert there.device == npu
    with npu:
        assert make().device == npu and make(device="cpu").device.type == "cpu"
    if name not in ("empty", "empty_strided") and not name.startswith("rand"):
        np.testing.assert_array_equal(there.cpu().numpy(), make().numpy())


def test_creation_like_another_tensor(npu):
    x, c = mt.randn(2, 3).to(npu), mt.zeros(2, 3)
    for f in (mt.zeros_like, mt.ones_like, mt.empty_like, mt.rand_like, mt.randn_like):
        assert f(x).device == npu and f(c, device=npu).device == npu and f(x, device="cpu").device.type == "cpu"
    assert x.new_zeros(2).device == x.new_tensor([1]).device == x.new_full((2,), 1).device == x.new(2, 2).device == npu
    assert c.new_ones(1, device=npu).device == npu and x.new_ones(1, device="cpu").device.type == "cpu"
    assert mt.tensor([mt.tensor(1., device=npu), 2.]).tolist() == [1, 2] and mt.asarray(x, device="cpu").device.type == "cpu"
    with pytest.raises(ValueError, match="can't alias tensor from device 'npu:0' to 'cpu'"):
        mt.asarray(x, device="cpu", copy=False)


def test_default_device(npu):
    mt.set_default_device("npu")
    try:
        assert mt.get_default_device() == npu and mt.nn.Linear(2, 2).weight.device == npu and mt.from_numpy(np.ones(2)).device.type == "cpu"
    finally:
        mt.set_default_device(None)
    assert mt.get_default_device().type == "cpu"


# --------------------------------------------------------- torch.npu, torch.cuda, torch.accelerator
def test_npu_and_cuda_modules_describe_the_device(npu):
    for m in (mt.npu, mt.cuda):
        assert m.is_available() and m.device_count() == 1 and m.current_device() == 0 and m.is_bf16_supported() and isinstance(m.get_device_name(), str)
        m.set_device(0)
        m.set_device("npu:0")
        with m.device(0), m.device_of(mt.zeros(1, device=npu)), m.device_of(mt.zeros(1)):
            m.synchronize()
        m.empty_cache()
        assert m.get_device_properties().total_memory == m.mem_get_info()[1] > m.mem_get_info()[0] > 0
        with pytest.raises(AttributeError, match="multi_processor|total_memory"):
            getattr(m.get_device_properties(), "warp_size")     # noqa: B009
        assert m.get_device_capability() == m.get_device_capability("npu:0") == (0, 0)
    assert mt.accelerator.current_accelerator() == mt.device("npu") and mt.accelerator.current_device_index() == 0
    assert mt.get_device_module("npu") is mt.npu and mt.get_device_module() is mt.npu
    for refused in (lambda: mt.cuda.CUDAGraph(), lambda: mt.cuda.make_graphed_callables(None, None), lambda: mt.cuda.memory_snapshot()):
        with pytest.raises(NotImplementedError):
            refused()
    with pytest.raises(ValueError, match="Expected a npu device"):
        mt.npu.synchronize("cpu")


def test_streams_and_events(npu):
    s, start, end = mt.npu.Stream(), mt.npu.Event(enable_timing=True), mt.npu.Event(enable_timing=True)
    assert mt.npu.current_stream() == mt.npu.default_stream() != s
    with mt.npu.stream(s):
        assert mt.npu.current_stream() == s
        start.record()
        x = mt.randn(64, 64, device=npu)
        x = x @ x
        end.record(s)
    assert mt.npu.current_stream() == mt.npu.default_stream()
    s.wait_event(end)
    s.wait_stream(mt.npu.current_stream())
    end.synchronize()
    s.synchronize()
    assert s.query() and end.query() and start.elapsed_time(end) > 0 and s.record_event().query()
    with pytest.raises(ValueError, match="enable_timing=True"):
        mt.npu.Event().elapsed_time(end)
    with pytest.raises(ValueError, match="must be recorded before"):
        mt.npu.Event(enable_timing=True).elapsed_time(end)
    with s:
        assert mt.accelerator.current_stream() == s
    x.record_stream(s)


def test_memory_is_counted(npu):
    mt.npu.reset_peak_memory_stats()
    before = mt.npu.memory_allocated()
    x = mt.zeros(1000, device=npu)
    y = x[10:]
    assert mt.npu.memory_allocated() - before == 4000
    assert mt.npu.memory_stats()["allocated_bytes.all.current"] == before + 4000 and "allocated" in mt.npu.memory_summary()
    del x, y
    assert mt.npu.memory_allocated() == before


def test_host_fallbacks_are_counted(npu):
    mt.npu.reset_host_fallbacks()
    assert mt.npu.host_fallbacks() == {}
    mt.linalg.eigh(mt.eye(2, device=npu))
    found = mt.npu.host_fallbacks()
    assert found and all(isinstance(k, str) and n > 0 for k, n in found.items())
    mt.npu.reset_host_fallbacks()


# ------------------------------------------------------------------ transfers
def test_to(npu):
    from mindtorch.core.device import device_dispatch
    c = mt.randn(2, 3, 4, 5)
    ups = device_dispatch.COPIES.up
    assert c.to(npu, mt.float64, non_blocking=True).dtype is mt.float64 and device_dispatch.COPIES.up == ups + 1
    x = c.to(npu)
    assert x.to("npu") is x and x.to(npu, copy=True) is not x and x.to(c).device.type == "cpu" and c.to(x).device == npu and c.cuda(0).is_cuda
    assert c.npu(device="npu:0").device == npu and x.to(device="cpu", dtype=mt.int32).dtype is mt.int32 and x.cpu().device.type == "cpu"
    np.testing.assert_array_equal(x.to("cpu", mt.float64).numpy(), c.double().numpy())
    b = (c > 0).to(npu, mt.float32)
    np.testing.assert_array_equal(b.cpu().numpy(), (c > 0).numpy().astype(np.float32))
    for t in (c.to(npu, memory_format=mt.channels_last), c.to(memory_format=mt.channels_last).to(npu), x.to(memory_format=mt.channels_last)):
        assert t.stride() == (60, 1, 15, 3)
        np.testing.assert_array_equal(t.cpu().numpy(), c.numpy())
        assert t.cpu().stride() == t.stride()
    assert c[0, 0].t().to(npu).stride() == (1, 5)
    assert x.type() == "torch.npu.FloatTensor" and c.cuda().type() == "torch.cuda.FloatTensor" and x.type("torch.DoubleTensor").device.type == "cpu"
    assert c.type("torch.cuda.HalfTensor").device == npu and c.type_as(x).device == npu and not isinstance(x, mt.FloatTensor)
    assert isinstance(c.cuda(), mt.cuda.FloatTensor) and mt.cuda.LongTensor([1, 2]).tolist() == [1, 2]


@pytest.mark.parametrize("move", [lambda x, npu: x.to(npu), lambda x, npu: x.to(npu, mt.float64), lambda x, npu: x.cuda(), lambda x, npu: x.to(npu).cpu().npu()])
def test_gradients_flow_through_device_transfers(npu, move):
    h = mt.ones(3, requires_grad=True)
    (move(h, npu) * 2).sum().backward()
    assert h.grad.device.type == "cpu" and h.grad.dtype is mt.float32 and h.grad.tolist() == [2, 2, 2]
    x = mt.ones(3, requires_grad=True, device=npu)
    (x.cpu() * 3).sum().backward()
    assert x.grad.device == npu and x.grad.tolist() == [3, 3, 3]


def test_modules_move(npu):
    m = mt.nn.Sequential(mt.nn.Linear(2, 3), mt.nn.BatchNorm1d(3))
    weight = m[0].weight
    m(mt.randn(4, 2)).sum().backward()
    assert m.to(npu) is m and m[0].weight is weight and weight.device == npu and weight.grad.device == npu and weight.is_leaf and weight.requires_grad
    assert m[1].running_mean.device == npu and m(mt.randn(4, 2, device=npu)).device == npu
    assert m.cpu()[0].weight.device.type == "cpu" and weight.grad.device.type == "cpu" and m.cuda()[0].weight.is_cuda and m.npu(0)[1].running_var.device == npu
    d = copy.deepcopy(m)
    assert d[0].weight.device == npu and d[0].weight is not weight and mt.equal(d[0].weight, weight)
    o = mt.optim.Adam(m.parameters())
    m(mt.randn(4, 2, device=npu)).square().sum().backward()
    o.step()
    assert copy.deepcopy(o).state_dict()["state"][0]["exp_avg"].device == npu


# ------------------------------------------------------------------ values
def test_values(npu):
    x, z = mt.arange(6., device=npu).reshape(2, 3), mt.tensor(2, device=npu)
    assert z.item() == int(z) == float(z) == 2 and bool(z) and [0, 1, 5][z] == 5 and x.tolist() == [[0, 1, 2], [3, 4, 5]] and f"{z}" == "2"
    assert len(x) == 2 and [float(r.sum()) for r in x] == [3, 12] and 4 in x
    for f in (x.numpy, lambda: np.asarray(x), lambda: np.array(x), x.__array__):
        with pytest.raises(TypeError, match="can't convert npu:0 device type tensor to numpy. Use Tensor.cpu\\(\\) to copy the tensor to host memory first."):
            f()
    np.testing.assert_array_equal(x.numpy(force=True), x.cpu().numpy())
    with pytest.raises(BufferError, match="only tensors in host memory"):
        mt.from_dlpack(x)
    with pytest.raises(BufferError, match="Can't export a tensor on device npu:0"):
        x.__dlpack__()
    assert not hasattr(x, "__cuda_array_interface__") and not hasattr(x.cpu(), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="Can't get __cuda_array_interface__ on non-CUDA tensor type: torch.FloatTensor"):
        getattr(mt.zeros(1), "__cuda_array_interface__")        # noqa: B009
    for f in (x.share_memory_, mt.nn.Linear(1, 1).to(npu).share_memory):
        with pytest.raises(NotImplementedError, match="share_memory_ of a tensor on device npu:0"):
            f()
    assert not x.is_shared() and not x.is_pinned() and not x.cpu().pin_memory().is_pinned()
    with pytest.raises(RuntimeError, match="cannot pin 'torch.npu.FloatTensor' only dense CPU tensors can be pinned"):
        x.pin_memory()


def test_printing(npu):
    x = mt.tensor([1., 2.], device=npu, requires_grad=True)
    assert repr(x) == "tensor([1., 2.], device='npu:0', requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], device='npu:0', grad_fn=<MulBackward0>)"
    assert repr(mt.nn.Parameter(x.detach())) == "Parameter containing:\ntensor([1., 2.], device='npu:0', requires_grad=True)"
    assert repr(mt.zeros(0, 3, device="cuda")) == "tensor([], device='cuda:0', size=(0, 3))"
    assert repr(mt.zeros(1, device=npu, dtype=mt.bfloat16)) == "tensor([0.], device='npu:0', dtype=torch.bfloat16)"


# ------------------------------------------------------------------ two devices
def _pair(npu):
    c = mt.randn(2, 3)
    return c.to(npu), c


@pytest.mark.parametrize("f", [
    lambda x, c: x + c, lambda x, c: c + x, lambda x, c: c + x.sum(), lambda x, c: x @ c.t(), lambda x, c: mt.cat([x, c]), lambda x, c: mt.stack([c, x]),
    lambda x, c: mt.where(x > 0, x, c), lambda x, c: mt.where(c > 0, x, x), lambda x, c: x.add_(c), lambda x, c: c.add_(x), lambda x, c: c.mul_(x[0, 0]),
     lambda x, c: x.index_select(0, mt.tensor([0])),
    lambda x, c: x.gather(0, mt.tensor([[0, 0, 0]])), lambda x, c: mt.add(x, x, out=c), lambda x, c: mt.add(c, c, out=x), lambda x, c: mt.mm(x, x.t(), out=mt.empty(2, 2)),
    lambda x, c: mt.nn.Linear(3, 2)(x), lambda x, c: mt.nn.Linear(3, 2).to(x.device)(c), lambda x, c: mt.nn.functional.mse_loss(x, c),
    lambda x, c: mt.nn.functional.cross_entropy(x, mt.tensor([0, 1])), lambda x, c: mt.nn.functional.embedding(mt.tensor([0]), x),
    lambda x, c: mt.nn.BatchNorm1d(3)(x), lambda x, c: mt.equal(x, c), lambda x, c: x.masked_fill(c > 0, 0.), lambda x, c: x == c])
def test_ops_on_two_devices_raise(npu, f):
    with pytest.raises(RuntimeError, match=MIXED):
        f(*_pair(npu))


def test_cpu_scalar_tensors_mix_with_npu_tensors(npu):
    x, c = _pair(npu)
    one = mt.tensor(1.)
    for y in (x + one, one * x, mt.where(x > 0, x, one), x.clamp(one), x ** one, mt.lerp(x, x, one), x.masked_fill(x > 0, one)):
        assert y.device == npu
    assert (mt.tensor(1., device=npu) + one).device == npu


def test_cpu_indices_work_on_npu_tensors(npu):
    x, c = _pair(npu)
    i, m = mt.tensor([1, 0]), c > 0
    np.testing.assert_array_equal(x[i].cpu().numpy(), c[i].numpy())
    np.testing.assert_array_equal(x[m].cpu().numpy(), c[m].numpy())
    np.testing.assert_array_equal(x[:, i].cpu().numpy(), c[:, i].numpy())
    x[i], c[i] = 1., 1.
    x[m], c[m] = mt.tensor(2.), 2.
    np.testing.assert_array_equal(x.cpu().numpy(), c.numpy())
    assert x.index_put((i,), mt.tensor(1., device=npu)).device == npu
    with pytest.raises(RuntimeError, match=MIXED):
        x[i] = c
    w = mt.ones(3, requires_grad=True)
    y = x * 1
    y[0] = w
    y[i[:1]] = mt.tensor(3., requires_grad=True)
    y.sum().backward()
    assert w.grad.tolist() == [1, 1, 1] and y[1].tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device npu:0 but got cpu"):
        mt.autograd.backward((x * 1).requires_grad_() * 2, mt.ones(2, 3))
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device as the indexed tensor \\(cpu\\)"):
        c[i.to(npu)]


def test_copies_across_devices(npu):
    x, c = _pair(npu)
    a, b = c.clone(), x.clone()
    assert mt.equal(a.mul_(0).copy_(x), c) and mt.equal(b.mul_(0).copy_(c), x)
    a[0], b[0] = x[1], c[1]
    assert mt.equal(a[0], c[1]) and mt.equal(b[0], x[1])
    assert c.clone().fill_(x[0, 0]).device.type == "cpu" and x.clone().fill_(mt.tensor(2.)).device == npu
    w = mt.ones(2, 3, requires_grad=True)
    (mt.zeros(2, 3, device=npu).copy_(w) * x).sum().backward()
    assert mt.equal(w.grad, c)


def test_data_grad_and_set_across_devices(npu):
    x, c = _pair(npu)
    p = mt.nn.Parameter(c.clone())
    p.data = x
    assert p.device == npu
    for t, g in ((mt.zeros(2, 3, requires_grad=True), x), (mt.zeros(2, 3, requires_grad=True, device=npu), c)):
        with pytest.raises(RuntimeError, match="attempting to assign a gradient with device type '.*' to a tensor with device type"):
            t.grad = g
    with pytest.raises(RuntimeError, match='Attempted to set the storage of a tensor on device "npu:0" to a storage on different device "cpu"'):
        x.clone().set_(c)


def test_out_of_memory(npu):
    x = mt.ones(1 << 20, 1, device=npu)
    y = mt.zeros(3, device=npu)
    with pytest.raises(mt.OutOfMemoryError, match="NPU out of memory.*npu:0 by primitive"):
        x @ mt.ones(1, 1 << 22, device=npu)
    with pytest.raises(mt.cuda.OutOfMemoryError):
        mt.zeros(1 << 44, device=npu)
    assert y.tolist() == [0, 0, 0]


# ------------------------------------------------------------------ autocast
def _kinds(x, **ops):
    return {k: str(f(x).dtype).removeprefix("torch.") for k, f in ops.items()}


@pytest.mark.parametrize("name", ["npu", "cuda"])
def test_autocast_uses_the_accelerator_op_lists(npu, name):
    f = mt.nn.functional
    x, h, m = mt.rand(3, 3).to(npu), mt.rand(3, 3).to(npu, mt.float16), mt.nn.Linear(3, 3).to(npu)
    with mt.autocast(name):
        assert mt.is_autocast_enabled("cuda") and mt.is_autocast_enabled("npu") and not mt.is_autocast_enabled("cpu") and mt.get_autocast_dtype(name) is mt.float16
        assert set(_kinds(x, linear=m, matmul=lambda x: x @ x, mm=lambda x: x.mm(h), einsum=lambda x: mt.einsum("ij,jk", x, x), mv=lambda x: mt.mv(x, h[0])).values()) == {
            "float16"}
        assert set(_kinds(h, softmax=lambda h: f.softmax(h, -1), exp=mt.exp, pow=lambda h: h ** 2, sum=mt.sum, norm=mt.norm, cumsum=lambda h: h.cumsum(0),
                          layer_norm=lambda h: f.layer_norm(h, (3,)), mse=lambda h: f.mse_loss(h, h), log=mt.log, logsumexp=lambda h: h.logsumexp(0),
                          ce=lambda h: f.cross_entropy(h, mt.zeros(3, dtype=mt.int64, device=npu))).values()) == {"float32"}
        assert set(_kinds(h, relu=mt.relu, add=lambda h: h + h, max=lambda h: h.max(), mean=mt.mean, tanh=mt.tanh, exp_=lambda h: h.clone().exp_()).values()) == {"float16"}
        assert mt.dot(h[0], x[0]).dtype is mt.float32 and (x.double() @ x.double()).dtype is mt.float64
        with pytest.raises(RuntimeError, match="are unsafe to autocast"):
            f.binary_cross_entropy(x, x)
        c = mt.rand(3, 3)
        assert (c @ c).dtype is mt.float32  # this autocast region is for another device
        with mt.autocast("cpu", mt.bfloat16):
            assert (c @ c).dtype is mt.bfloat16 and (x @ x).dtype is mt.float16
        with mt.autocast(name, enabled=False):
            assert (x @ x).dtype is mt.float32
        with mt.autocast("npu", mt.bfloat16):
            assert (x @ x).dtype is mt.bfloat16
        assert (x @ x).dtype is mt.float16
    with mt.autocast("cpu", mt.bfloat16):
        assert m(x).dtype is mt.float32 and not mt.is_autocast_enabled(name)
    assert m(x).dtype is mt.float32
    y = m(x).square().mean()
    with mt.autocast(name):
        z = m(x).square().mean()
    a, = mt.autograd.grad(y, m.weight)
    b, = mt.autograd.grad(z, m.weight)
    assert b.dtype is mt.float32 and mt.allclose(a.cpu(), b.cpu(), rtol=2e-2, atol=1e-2)


def test_grad_scaler_is_enabled(npu):
    for s in (mt.amp.GradScaler(), mt.amp.GradScaler("npu"), mt.cuda.amp.GradScaler(), mt.npu.amp.GradScaler()):
        assert s.is_enabled() and s.state_dict()["scale"] == 65536.
    with mt.cuda.amp.autocast(), mt.npu.amp.autocast(dtype=mt.bfloat16):
        assert (mt.ones(2, 2, device=npu) @ mt.ones(2, 2, device=npu)).dtype is mt.bfloat16


# ------------------------------------------------------------------ the rest
def test_sparse_tensor_parts_share_one_device(npu):
    i, v = mt.tensor([[0, 2]]), mt.tensor([1., 2.])
    for s in (mt.sparse_coo_tensor(i, v, (3,), device=npu), mt.sparse_coo_tensor(i, v, (3,)).to(npu), mt.sparse_coo_tensor(i, v, (3,)).npu(),
              mt.sparse_coo_tensor(i, v.to(npu), (3,)), mt.tensor([1., 0, 2.], device=npu).to_sparse()):
        assert s.device == s.coalesce().indices().device == s.coalesce().values().device == npu and s.to_dense().tolist() == [1, 0, 2]
        assert s.cpu().coalesce().indices().device.type == "cpu" and s.get_device() == 0


def test_default_tensor_type(npu):
    try:
        for t in (mt.cuda.FloatTensor, "torch.cuda.FloatTensor"):
            mt.set_default_tensor_type(t)
            assert mt.zeros(2).is_cuda
            mt.set_default_tensor_type(mt.FloatTensor)
            assert mt.zeros(2).device.type == "cpu"
    finally:
        mt.set_default_device(None)
    assert mt.zeros(2).type(mt.cuda.HalfTensor).type() == "torch.cuda.HalfTensor" and mt.zeros(2, device=npu).type(mt.FloatTensor).device.type == "cpu"


def test_loaders(npu):
    data = mt.utils.data.TensorDataset(mt.arange(4.))
    for loader in (mt.utils.data.DataLoader(data, batch_size=2, pin_memory=True, pin_memory_device="cuda"),
                   mt.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=1)):
        assert [b.to(npu, non_blocking=True).tolist() for b, in loader] == [[0, 1], [2, 3]]
    assert [b.device for b, in mt.utils.data.DataLoader(mt.utils.data.TensorDataset(mt.arange(4.).npu()), batch_size=4)] == [npu]


def test_npu_tensors_cannot_be_sent_to_processes(npu):
    from multiprocessing.reduction import ForkingPickler
    with pytest.raises(NotImplementedError, match="on device npu:0"):
        ForkingPickler.dumps(mt.zeros(1, device=npu))


def test_generic_streams(npu):
    s, e = mt.Stream("npu"), mt.Event("npu")
    e.record(s)
    assert s.device == npu and e.query() and isinstance(mt.npu.Stream(), mt.Stream) and mt._C._get_accelerator() == mt.device("npu")


def test_raw_cuda_stream_is_unsupported():
    """Libraries import this name when they find a "cuda" device, but their kernels cannot be
    launched on its stream here."""
    take = mt._C._cuda_getCurrentRawStream
    with pytest.raises(NotImplementedError, match=r"torch\._C\..*_cuda_getCurrentRawStream is not supported: .*npu"):
        take(0)
