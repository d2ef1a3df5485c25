"""Checks of libraries for tensors as such: rearrangement, containers, decompositions, files."""
import tempfile

from library_checks.registry import check, place, train


@check("einops")
def einops():
    """rearrange, reduce, einsum, layers"""
    import torch
    from einops import einsum, pack, rearrange, reduce, repeat
    from einops.layers.torch import EinMix, Rearrange
    x = torch.randn(2, 3, 4, requires_grad=True)
    reduce(repeat(rearrange(x, "a b c -> (a b) c"), "n c -> n c k", k=2), "n c k -> c", "mean").sum().backward()
    assert x.grad.shape == x.shape and pack([x, x], "* b c")[0].shape == (4, 3, 4)
    products = einsum(x, x, "a b c, a d c -> a b d")
    assert products.shape == (2, 3, 3)
    train(torch.nn.Sequential(EinMix("a b c -> a b d", weight_shape="c d", c=4, d=5), Rearrange("a b d -> a (b d)")), (x.detach(),))


@check("tensordict")
def tensordict():
    """TensorDict: stack, index, a training loop of TensorDictModules, to_module under vmap"""
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    td = TensorDict({"a": torch.zeros(3, 2), "b": {"c": torch.ones(3)}}, batch_size=[3])
    assert td[0]["b", "c"].item() == 1 and torch.stack([td, td]).shape == (2, 3)
    assert td.apply(lambda x: x + 1)["a"].sum().item() == 6
    x = torch.randn(64, 4)
    data = TensorDict({"x": x, "t": x.sum(1, keepdim=True)}, batch_size=[64])
    net = TensorDictSequential(TensorDictModule(torch.nn.Linear(4, 8), in_keys=["x"], out_keys=["h"]),
                               TensorDictModule(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(8, 1)), in_keys=["h"], out_keys=["y"]))
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=1e-2), []
    for _ in range(10):
        for start in range(0, 64, 16):
            batch = net(data[start:start + 16].clone())
            loss = ((batch["y"] - batch["t"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-4:]) < sum(losses[:4]) / 2
    several, module = [torch.nn.Linear(4, 2) for _ in range(3)], torch.nn.Linear(4, 2)

    def call(x, params):
        with params.to_module(module):
            return module(x)
    y = torch.vmap(call, (None, 0))(x, TensorDict.from_modules(*several))
    assert torch.allclose(y, torch.stack([m(x) for m in several]), atol=1e-6)
    assert torch.vmap(lambda t: t.apply(lambda v: v * 2))(data)["x"].shape == (64, 4)


@check("tensorly")
def tensorly():
    """CP and Tucker decompositions on torch's tensors, the gradient through one"""
    import tensorly as tl
    import torch
    from tensorly.decomposition import parafac, tucker
    tl.set_backend("pytorch")
    factors = [torch.rand(n, 2) for n in (4, 5, 3)]
    x = torch.einsum("ir,jr,kr->ijk", *factors)
    cp, tuck = tl.cp_to_tensor(parafac(x, rank=2, n_iter_max=200, random_state=0)), tl.tucker_to_tensor(tucker(x, rank=[2, 2, 2]))
    assert (cp - x).norm() < 0.1 * x.norm() and (tuck - x).norm() < 1e-3 * x.norm()
    core = torch.rand(2, 2, requires_grad=True)
    tl.tenalg.mode_dot(torch.rand(2, 3), core, 0).sum().backward()
    assert core.grad.shape == (2, 2)


@check("safetensors")
def safetensors():
    """save and load, shared tensors, lazy slices"""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model
    with tempfile.TemporaryDirectory() as d:
        t = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.ones(2, dtype=torch.bfloat16), "d": torch.tensor(True)}
        save_file(t, d + "/t.safetensors")
        back = load_file(d + "/t.safetensors", device=place())
        assert all(torch.equal(t[k], back[k]) and t[k].dtype == back[k].dtype for k in t)
        with safe_open(d + "/t.safetensors", "pt", device=place()) as f:
            assert torch.equal(f.get_slice("a")[1:], t["a"][1:])
        m = torch.nn.Linear(2, 3)
        save_model(m, d + "/m.safetensors")
        n = torch.nn.Linear(2, 3)
        load_model(n, d + "/m.safetensors", device=place())
        assert torch.equal(m.weight, n.weight)
