"""The meta device: shapes, strides, dtypes and autograd history like PyTorch's, without values or
memory."""
import copy
import io
import resource

import pytest
import torch

import mindtorch.torch as mt

PROGRAMS = """
x + y; x * 2; x / y; x > 0; x.exp(); -x; x ** 2; x.abs(); x.clamp(0, 1); x.sigmoid(); T.where(x > 0, x, y); T.maximum(x, y)
x.sum(); x.sum(1); x.mean((0, 2), keepdim=True); x.max(); x.max(1).values; x.argmax(-1); x.std(); x.var(1); x.all(); x.amax(2); x.norm(); x.logsumexp(1); x.prod(0)
x.view(6, 4); x.reshape(-1); x.permute(2, 0, 1); x.transpose(0, 2); x.mT; x[0]; x[:, 1:]; x[..., ::2]; x[None]; x[:, i]; x.unsqueeze(1); x.squeeze(); x.flatten(1)
x.expand(5, 2, 3, 4); x.repeat(2, 1, 1); x.chunk(2, 2)[1]; x.split(2, 1)[0]; x.unbind(0)[1]; x.select(1, 2); x.narrow(2, 1, 2); x.roll(1, 0); x.flip(0); x.tril(); x.diagonal(dim1=1, dim2=2)
x.contiguous(); x.permute(2, 0, 1).contiguous(); x.clone(); x.permute(2, 0, 1).clone(); x.to(T.float64); x.half() + 1; x.bfloat16() @ y.bfloat16().mT; x.long() + 1; x.int() / 2; x.double() + x
x @ y.mT; T.matmul(x, w); T.bmm(x, y.mT); T.einsum("bij,bkj->bik", x, y); T.mm(x[0], w); x[0] @ w[:, 0]; T.addmm(w[0, :5], x[0], w); T.outer(x[0, 0], y[0, 0])
T.cat([x, y], 1); T.stack([x, y], 2); T.nn.functional.pad(x, (1, 2)); x.cumsum(1); x.sort(1).values; x.topk(2).indices; x.gather(1, i3); x.argsort(0)
F.linear(x, w.mT); F.relu(x); F.gelu(x); F.softmax(x, -1); F.log_softmax(x, 1); F.layer_norm(x, (4,)); F.dropout(x, 0.5); F.embedding(i, x[0]); F.silu(x); F.normalize(x)
F.conv2d(im, k, None, 2, 1); F.conv2d(im, k[:, :1], None, 1, 2, 2, 3); F.conv_transpose2d(im, k.transpose(0, 1), None, 2); F.conv1d(im[..., 0], k[..., 0]); F.max_pool2d(im, 2); F.avg_pool2d(im, 3, 1, 1)
F.adaptive_avg_pool2d(im, 1); F.interpolate(im, scale_factor=2, mode="bilinear", align_corners=False); F.batch_norm(im, None, None, training=True); F.group_norm(im, 3); F.pixel_shuffle(im.repeat(1, 4, 1, 1), 2)
F.scaled_dot_product_attention(x, y, y); F.cross_entropy(x[0], i); F.mse_loss(x, y); F.unfold(im, 3); F.grid_sample(im, g); F.instance_norm(im); T.zeros_like(x); T.empty_like(x, dtype=T.int64)
x.new_zeros(3, 2); x.new_tensor([1, 2]); x.type_as(i); x.real; x.mH; x.detach(); x.data; x.to("meta"); T.fft.rfft(x); x.unfold(2, 2, 1); x.as_strided((2, 2), (4, 1)); x.masked_fill(x > 0, 1.0)
T.baddbmm(x, x, T.ones(2, 4, 4, device=x.device)); T.linalg.norm(x, dim=1); x.index_select(1, i); x.scatter_add(1, i3, y); T.lerp(x, y, 0.5); x.isnan(); x.new_full((2,), 1.5); x.square().mean().sqrt(); T.complex(x, y)
""".replace("\n", ";")


def tensors(T, device):
    torch.manual_seed(0)
    make = dict(x=torch.randn(2, 3, 4), y=torch.randn(2, 3, 4), w=torch.randn(4, 5), i=torch.tensor([0, 2, 1]), i3=torch.zeros(2, 3, 4, dtype=torch.long),
                im=torch.randn(2, 3, 8, 8), k=torch.randn(6, 3, 3, 3), g=torch.zeros(2, 5, 5, 2))
    return {n: (v if T is torch else T.from_numpy(v.numpy().copy())).to(device) for n, v in make.items()}


@pytest.mark.parametrize("program", sorted({p.strip() for p in PROGRAMS.split(";") if p.strip()}))
def test_shapes_match_real_results(program):
    real = eval(program, {"T": torch, "F": torch.nn.functional, **tensors(torch, "cpu")})
    got = eval(program, {"T": mt, "F": mt.nn.functional, **tensors(mt, "meta")})
    assert got.device == mt.device("meta") and got.is_meta
    assert tuple(got.shape) == tuple(real.shape) and str(got.dtype) == str(real.dtype)
    if real.numel() and all(n > 1 for n in real.shape):
        assert got.stride() == real.stride()


def test_creation_uses_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = mt.empty(1 << 20, 1 << 15, device="meta")
    lin = mt.nn.Linear(1 << 15, 1 << 17, device="meta")
    y = mt.nn.functional.gelu(lin(x)).sum(-1)
    assert y.shape == (1 << 20,)
    mt.nn.init.normal_(lin.weight)
    mt.nn.init.kaiming_uniform_(lin.weight)
    lin.weight.data.zero_()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("what", ["x.item()", "x[0].item()", "x.tolist()", "x.numpy()", "bool(x[0] > 0)", "float(x.sum())", "x.nonzero()", "x[x > 0]",
                                  "x.cpu()", "x.to('cpu')", "T.ones(3).copy_(x)", "x.unique()", "x.masked_select(x > 0)", "x + T.ones(3)", "T.equal(x, x)",
                                  "T.bincount(x.long())", "x.repeat_interleave(x.long())", "T.where(x > 0)"])
def test_reading_values_raises(what):
    errors = []
    for T in (torch, mt):
        x = T.ones(3, device="meta")
        with pytest.raises((RuntimeError, TypeError)) as e:
            eval(what, {"T": T, "x": x})
        errors.append(e.type)
    assert errors[0] is errors[1]


@pytest.mark.parametrize("make", ["T.zeros(2, 3)", "T.ones(2)", "T.rand(2)", "T.arange(5)", "T.full((2,), 1)", "T.tensor([1, 2])", "T.linspace(0, 1, 3)", "T.eye(3)",
                         "T.randint(3, (2,))", "T.randperm(4)", "T.empty(2)", "T.hann_window(4)", "T.as_tensor([1.0])", "T.Tensor(3)",
                         "T.zeros_like(c)", "c.new_zeros(2)", "T.nn.Linear(2, 3).weight", "T.nn.LSTM(2, 3).weight_ih_l0", "T.nn.BatchNorm1d(2).running_mean"])
def test_device_context(make):
    got = []
    for T in (torch, mt):
        c = T.zeros(3)
        with T.device("meta"):
            r = eval(make, {"T": T, "c": c})
        got.append((str(r.device), tuple(r.shape), str(r.dtype)))
        assert str(T.zeros(1).device) == "cpu"
    assert got[0] == got[1]


def test_repr_and_storage():
    for T in (torch, mt):
        x = T.ones(2, 3, device="meta", dtype=T.float64)
        assert repr(x) == "tensor(..., device='meta', size=(2, 3), dtype=torch.float64)"
        assert repr(T.nn.Parameter(x)).endswith("requires_grad=True)")
        assert x.data_ptr() == 0 and x.untyped_storage().data_ptr() == 0 and x.untyped_storage().nbytes() == 48
        assert x[1].storage_offset() == 3 and x.t().stride() == (1, 3)


def test_history_and_backward():
    for T in (torch, mt):
        lin = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.BatchNorm1d(4), T.nn.ReLU(inplace=True), T.nn.Linear(4, 2)).to("meta")
        x = T.ones(5, 3, device="meta", requires_grad=True)
        out = lin(x)
        assert out.requires_grad and type(out.grad_fn).__name__ == "AddmmBackward0"
        loss = T.nn.functional.cross_entropy(out, T.zeros(5, dtype=T.long, device="meta"))
        loss.backward()
        loss2 = lin(x).sum()
        loss2.backward()
        for p in (x, *lin.parameters()):
            assert p.grad.is_meta and p.grad.shape == p.shape
        g, = T.autograd.grad(lin(x).sum(), x)
        assert g.is_meta and g.shape == (5, 3)


def test_in_place():
    x = mt.zeros(2, 3, device="meta")
    assert x.add_(1) is x and x.normal_() is x and x.copy_(mt.ones(3)) is x and x.mul_(x) is x
    x[0] = 1
    x[:, 1:] = mt.zeros(2, 2)
    with pytest.raises(RuntimeError):
        x.copy_(mt.ones(4))
    with pytest.raises(RuntimeError):
        x.add_(mt.ones(4, 2, 3, device="meta"))
    p = mt.nn.Parameter(x)
    with pytest.raises(RuntimeError, match="leaf"):
        p.add_(1)


def test_modules_without_values():
    with mt.device("meta"):
        m = mt.nn.Sequential(mt.nn.Linear(3, 4), mt.nn.LSTM(4, 2))
    assert all(p.is_meta for p in m.parameters())
    with pytest.raises(NotImplementedError, match="to_empty"):
        m.to("cpu")
    m = m.to_empty(device="cpu")
    assert not any(p.is_meta for p in m.parameters())
    given = mt.nn.Linear(3, 4)
    x = mt.randn(2, 3)
    empty = mt.nn.Linear(3, 4, device="meta")
    with pytest.warns(UserWarning, match="no-op"):
        empty.load_state_dict(given.state_dict())
    assert empty.weight.is_meta
    empty.load_state_dict(given.state_dict(), assign=True)
    assert mt.equal(empty(x), given(x)) and empty.weight.requires_grad and isinstance(empty.weight, mt.nn.Parameter)
    lin = mt.nn.utils.skip_init(mt.nn.Linear, 3, 4)
    assert lin.weight.shape == (4, 3) and not lin.weight.is_meta
    assert (m.to("meta")[0].weight).is_meta


def test_copies_and_files():
    lin = mt.nn.Linear(3, 4, device="meta")
    again = copy.deepcopy(lin)
    assert again.weight.is_meta and again.weight is not lin.weight and again.weight.shape == (4, 3)
    f = io.BytesIO()
    mt.save({"w": lin.weight, "b": mt.ones(2, 3, device="meta")[1]}, f)
    f.seek(0)
    back = mt.load(f, weights_only=True)
    theirs = torch.load(io.BytesIO(f.getvalue()), weights_only=True)
    assert theirs["w"].is_meta and tuple(theirs["w"].shape) == (4, 3)
    g = io.BytesIO()
    torch.save({"w": torch.ones(3, 4, device="meta").t()}, g)
    g.seek(0)
    assert mt.load(g)["w"].stride() == (1, 4)
    assert all(t.is_meta for t in mt.load(_saved(), map_location="meta").values())
    assert back["w"].is_meta and back["w"].shape == (4, 3) and back["b"].shape == (3,)


def _saved():
    f = io.BytesIO()
    mt.save(mt.nn.Linear(2, 3).state_dict(), f)
    f.seek(0)
    return f


def test_layer_is_removed_with_the_last_meta_tensor():
    from mindtorch.core.dispatch import dispatcher, meta
    x = mt.ones(3, device="meta")
    assert dispatcher.is_enabled("ops", "meta")
    del x
    import gc
    gc.collect()
    y = mt.ones(2)
    if not meta.alive():
        for _ in range(600):
            y = y + 0
        assert not dispatcher.is_enabled("ops", "meta")
    assert y.tolist() == [1.0, 1.0]
    assert mt.ones(2, device="meta").is_meta


def test_transformer_shapes():
    with mt.device("meta"):
        m = mt.nn.TransformerEncoder(mt.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False)
        conv = mt.nn.Sequential(mt.nn.Conv2d(3, 8, 3, stride=2), mt.nn.BatchNorm2d(8), mt.nn.ReLU(), mt.nn.MaxPool2d(2), mt.nn.Flatten(), mt.nn.LazyLinear(5))
        assert m(mt.randn(2, 7, 32)).shape == (2, 7, 32)
        assert m.eval()(mt.randn(2, 7, 32)).shape == (2, 7, 32)
        assert conv(mt.randn(2, 3, 32, 32)).shape == (2, 5)
        out, (h, c) = mt.nn.LSTM(4, 6, batch_first=True)(mt.randn(2, 5, 4))
        assert out.shape == (2, 5, 6) and h.is_meta and c.shape == (1, 2, 6)


def test_real_memory_is_never_mistaken_for_meta(process):
    """Checks that addresses of an outgrown meta region are not given to arrays with memory.

    A larger meta tensor needs a larger region.
    """
    said = process.ok("""
        import gc
        import numpy as np
        import mindtorch.torch as torch
        for size in (4, 1 << 41, 1 << 43):
            t = torch.empty(size, dtype=torch.uint8, device="meta")
            del t
            gc.collect()
        kept = [torch.from_numpy(np.full(1 << n, 2.0, np.float32)) for n in (8, 16, 20, 22, 23) for _ in range(4)]
        for t in kept:
            assert t.numel() == t._sizes[0] and (t.asnumpy() == 2).all() and (t + 1).asnumpy().shape == t.shape, t.shape
        from mindtorch.backend.meta.arrays import is_meta_array
        assert not any(is_meta_array(t._array) for t in kept) and is_meta_array(torch.empty(3, device="meta")._array)
        print("all have memory")
        """)
    assert "all have memory" in said
