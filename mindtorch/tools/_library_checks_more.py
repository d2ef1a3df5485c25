"""More small programs for libraries that are written for torch (see _library_checks.py): profiling
and pruning, optimizers, second derivatives, flows, signals, other forms of attention, reinforcement
learning."""
from mindtorch.tools._library_parts import check as _check, place as _place, train as _train


# ------------------------------------------------------------------ inspection of networks
def _small(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


@_check("torchsummary")
def torchsummary():
    """summary of a network, by hooks on its modules"""
    import contextlib
    import io
    import torch
    from torchsummary import summary
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        # (the library accepts these two; cuda is npu's other name)
        summary(_small(torch), (3, 8, 8), device="cpu" if _place() == "cpu" else "cuda")
    assert "Total params: 130" in said.getvalue() and "[-1, 4, 6, 6]" in said.getvalue()


@_check("thop", placed=True)
def thop():
    """multiplications and parameters of a network"""
    import torch
    from thop import profile
    macs, params = profile(_small(torch).to(_place()), (torch.randn(1, 3, 8, 8, device=_place()),), verbose=False)
    assert params == 130 and macs >= 4 * 27 * 36


@_check("ptflops")
def ptflops():
    """multiplications of a network by hooks and by the calls of torch's functions"""
    import torch
    from ptflops import get_model_complexity_info
    found = [get_model_complexity_info(_small(torch), (3, 8, 8), as_strings=False, print_per_layer_stat=False, backend=b) for b in ("pytorch", "aten")]
    assert all(params == 130 and macs >= 4 * 27 * 36 for macs, params in found), found


@_check("torch-pruning")
def torch_pruning():
    """the graph of a network's dependencies, a group of channels pruned, a step of training afterwards"""
    import torch
    import torch_pruning as tp
    net, x = _small(torch), torch.randn(2, 3, 8, 8)
    group = tp.DependencyGraph().build_dependency(net, example_inputs=x).get_pruning_group(net[0], tp.prune_conv_out_channels, idxs=[1, 3])
    group.prune()
    assert net[0].weight.shape == (2, 3, 3, 3) and net[1].num_features == net[5].in_features == 2
    _train(net, (x,))


@_check("torch-lr-finder")
def torch_lr_finder():
    """a range test of learning rates, state restored afterwards"""
    import torch
    from torch_lr_finder import LRFinder
    net = torch.nn.Linear(4, 1)
    before = net.weight.detach().clone()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
    finder = LRFinder(net, torch.optim.SGD(net.parameters(), 1e-4), torch.nn.MSELoss(), device=_place())
    finder.range_test(data, end_lr=1, num_iter=8)
    assert len(finder.history["loss"]) >= 5
    finder.reset()
    assert torch.equal(net.weight, before)


# ------------------------------------------------------------------ optimizers
def _descends(make, steps=25):
    """Checks that an optimizer reduces a quadratic loss."""
    import torch
    torch.manual_seed(0)
    net, x = torch.nn.Linear(4, 3), torch.randn(16, 4)
    y = x @ torch.randn(4, 3)
    opt = make(net.parameters())
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


@_check("pytorch-optimizer")
def pytorch_optimizer():
    """AdaBelief, Adan, Lion, Shampoo, SAM: each reduces the loss"""
    import pytorch_optimizer as po
    import torch
    for name in ("AdaBelief", "Adan", "Lion", "Shampoo"):
        _descends(lambda parameters, name=name: getattr(po, name)(parameters, lr=2e-2), 30)
    net = torch.nn.Linear(4, 1)
    sam, x = po.SAM(net.parameters(), base_optimizer=torch.optim.SGD, lr=0.1), torch.randn(3, 4)

    def closure():
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss
    first = closure().item()
    sam.step(closure)
    assert net(x).pow(2).mean().item() < first


@_check("prodigyopt")
def prodigyopt():
    """Prodigy finds its step size"""
    from prodigyopt import Prodigy
    _descends(lambda parameters: Prodigy(parameters, lr=1.0), 40)


@_check("adabelief-pytorch", "colorama", "tabulate")
def adabelief_pytorch():
    """AdaBelief with rectification"""
    from adabelief_pytorch import AdaBelief
    _descends(lambda parameters: AdaBelief(parameters, lr=1e-2, eps=1e-12, print_change_log=False))


@_check("pytorch-warmup")
def pytorch_warmup():
    """linear and RAdam warm-up around a scheduler"""
    import pytorch_warmup as warmup
    import torch
    p = torch.nn.Parameter(torch.zeros(2))
    opt = torch.optim.AdamW([p], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
    rising = warmup.LinearWarmup(opt, warmup_period=4)
    rates = []
    for _ in range(5):
        rates.append(opt.param_groups[0]["lr"])
        opt.step()
        with rising.dampening():
            schedule.step()
    assert rates[0] < rates[1] < rates[2] < rates[3]
    assert isinstance(warmup.RAdamWarmup(torch.optim.Adam([p])), warmup.BaseWarmup)


@_check("torch-ema")
def torch_ema():
    """a moving average of parameters, swapped in temporarily"""
    import torch
    from torch_ema import ExponentialMovingAverage
    net = torch.nn.Linear(2, 1)
    ema = ExponentialMovingAverage(net.parameters(), decay=0.5, use_num_updates=False)
    before = net.weight.detach().clone()
    with torch.no_grad():
        net.weight.add_(1)
    ema.update()
    with ema.average_parameters():
        assert torch.allclose(net.weight, before + 0.5)
    assert torch.allclose(net.weight, before + 1)


# ------------------------------------------------------------------ gradients of other kinds
@_check("opacus")
def opacus():
    """per-sample gradients compared with a loop over samples, a private training step"""
    import torch
    from opacus import GradSampleModule, PrivacyEngine
    net, x = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(9, 1)), torch.randn(4, 2, 5)
    whole = GradSampleModule(net, loss_reduction="sum")
    whole(x).sum().backward()
    samples = [p.grad_sample.clone() for p in net.parameters()]
    for i in range(4):
        alone = torch.autograd.grad(net(x[i:i + 1]).sum(), list(net.parameters()))
        assert all(torch.allclose(s[i], g, atol=1e-5) for s, g in zip(samples, alone))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
    net = torch.nn.Linear(4, 1)
    engine = PrivacyEngine(accountant="rdp")
    net, opt, data = engine.make_private(module=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), data_loader=data, noise_multiplier=1.0,
                                         max_grad_norm=1.0)
    for x, y in data:
        opt.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        opt.step()
    assert engine.get_epsilon(1e-5) > 0 and torch.isfinite(net._module.weight).all()


@_check("backpack-for-pytorch", "unfoldnd", "einops")
def backpack_for_pytorch():
    """per-sample gradients, diagonal of the Gauss-Newton matrix"""
    import torch
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad, DiagGGNExact
    net, loss = extend(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 2))), extend(torch.nn.CrossEntropyLoss())
    with backpack(BatchGrad(), DiagGGNExact()):
        loss(net(torch.randn(5, 3)), torch.randint(0, 2, (5,))).backward()
    for p in net.parameters():
        assert torch.allclose(p.grad_batch.sum(0), p.grad, atol=1e-6) and (p.diag_ggn_exact >= 0).all()


@_check("higher")
def higher():
    """two steps of an inner optimizer, the gradient through both"""
    import higher as library
    import torch
    net, x = torch.nn.Linear(2, 1), torch.randn(5, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with library.innerloop_ctx(net, opt, copy_initial_weights=False) as (inner, steps):
        for _ in range(2):
            steps.step(inner(x).pow(2).mean())
        last = inner(x).pow(2).mean()
        last.backward()
    assert net.weight.grad.abs().sum() > 0


@_check("torchjd")
def torchjd():
    """two losses, their Jacobian's rows aggregated so that neither increases"""
    import torch
    from torchjd.aggregation import ConFIG
    from torchjd.autojac import backward
    net, x = torch.nn.Linear(3, 2), torch.randn(6, 3)
    losses = lambda: [net(x)[:, 0].pow(2).mean(), (net(x)[:, 1] - 1).pow(2).mean()]  # noqa: E731
    before = [v.item() for v in losses()]
    backward(losses())
    for p in net.parameters():
        jacobian = p.jac.reshape(2, -1)
        p.grad = ConFIG()(jacobian).reshape(p.shape)
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.01 * p.grad
    assert all(v.item() < b for v, b in zip(losses(), before))


# ------------------------------------------------------------------ densities, equations, geometry
@_check("zuko")
def zuko():
    """a masked autoregressive and a spline flow: training steps, samples"""
    import torch
    import zuko as library
    x = torch.randn(32, 3)
    for flow in (library.flows.MAF(3, transforms=2, hidden_features=(16,)), library.flows.NSF(3, transforms=1, hidden_features=(16,))):
        opt = torch.optim.Adam(flow.parameters(), 1e-2)
        losses = []
        for _ in range(8):
            opt.zero_grad()
            loss = -flow().log_prob(x).mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        sampled = flow().sample((5,))
        assert losses[-1] < losses[0] and sampled.shape == (5, 3)


@_check("nflows")
def nflows():
    """a coupling flow: training steps, the transform and its inverse"""
    import torch
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation
    flow = Flow(CompositeTransform([ReversePermutation(2), MaskedAffineAutoregressiveTransform(2, hidden_features=8)]), StandardNormal([2]))
    x = torch.randn(16, 2)
    z, forth = flow._transform(x)
    back, away = flow._transform.inverse(z)
    assert torch.allclose(back, x, atol=1e-4) and torch.allclose(forth, -away, atol=1e-4)
    _train(flow._transform, (x,), loss=lambda o: o[0].pow(2).mean() - o[1].mean())
    sampled = flow.sample(4)
    assert sampled.shape == (4, 2)


@_check("torchcde", "torchdiffeq")
def torchcde():
    """a controlled differential equation along a cubic spline, with gradients"""
    import torch
    import torchcde as library

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 6)

        def forward(self, t, z):
            return self.linear(z).reshape(*z.shape[:-1], 2, 3).tanh()
    x = torch.randn(4, 6, 3)
    path, field = library.CubicSpline(library.hermite_cubic_coefficients_with_backward_differences(x)), Field()
    assert torch.allclose(path.evaluate(path.grid_points[2]), x[:, 2], atol=1e-5)
    z = library.cdeint(X=path, func=field, z0=torch.zeros(4, 2), t=path.interval, method="rk4", options={"step_size": 0.5})
    z[:, -1].pow(2).sum().backward()
    assert field.linear.weight.grad.abs().sum() > 0


@_check("roma")
def roma():
    """rotations between their forms, registration of points"""
    import roma as library
    import torch
    turn = library.random_rotmat(3)
    again = library.unitquat_to_rotmat(library.rotmat_to_unitquat(turn))
    assert torch.allclose(turn, again, atol=1e-5)
    points = torch.randn(10, 3)
    found, shift = library.rigid_points_registration(points, points @ turn[0].T + 2)
    assert torch.allclose(found, turn[0], atol=1e-4) and torch.allclose(shift, torch.full((3,), 2.0), atol=1e-4)
    v = torch.randn(2, 3, requires_grad=True)
    library.rotvec_to_rotmat(v).sum().backward()
    assert torch.isfinite(v.grad).all()


@_check("pypose")
def pypose():
    """Lie groups: products, logarithm and exponential, a Levenberg-Marquardt step"""
    import pypose as pp
    import torch
    a, b = pp.randn_SE3(4), pp.randn_SE3(4)
    assert torch.allclose((a @ b @ b.Inv() @ a.Inv()).Log().tensor(), torch.zeros(4, 6), atol=1e-4)

    class Inverse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pose = pp.Parameter(pp.randn_SE3(2))

        def forward(self, given):
            return (self.pose @ given).Log().tensor()
    given, net = pp.randn_SE3(2), Inverse()
    opt = pp.optim.LM(net, strategy=pp.optim.strategy.Adaptive(damping=1e-6))
    first = net(given).pow(2).sum().item()
    for _ in range(4):
        opt.step(given)
    assert net(given).pow(2).sum().item() < first


@_check("tensorly")
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


# ------------------------------------------------------------------ signals
@_check("julius")
def julius():
    """resampling, low-pass filters, with gradients"""
    import julius as library
    import torch
    x = torch.randn(2, 400, requires_grad=True)
    fewer = library.resample_frac(x, 4, 3)
    assert fewer.shape == (2, 300)
    low = library.lowpass_filter(x, 0.1)
    low.sum().backward()
    assert low.shape == x.shape and low.std() < x.std() and x.grad is not None


@_check("auraloss")
def auraloss():
    """losses over spectrograms of several resolutions, with gradients"""
    import torch
    from auraloss.freq import MultiResolutionSTFTLoss
    from auraloss.time import SISDRLoss
    x, y = torch.randn(2, 1, 4096, requires_grad=True), torch.randn(2, 1, 4096)
    loss = MultiResolutionSTFTLoss(fft_sizes=[256, 128], hop_sizes=[64, 32], win_lengths=[256, 128])(x, y) + SISDRLoss()(x, y)
    loss.backward()
    assert torch.isfinite(x.grad).all() and x.grad.abs().sum() > 0


# ------------------------------------------------------------------ networks
@_check("linformer")
def linformer():
    """a language model's training step"""
    import torch
    from linformer import LinformerLM
    net = LinformerLM(num_tokens=20, dim=16, seq_len=16, depth=1, heads=2, k=4)
    _train(net, (torch.randint(0, 20, (2, 16)),))


@_check("performer-pytorch", "axial_positional_embedding", "local_attention", "hyper_connections", "einops", placed=True)
def performer_pytorch():
    """a causal language model with random features: training step"""
    import torch
    from performer_pytorch import PerformerLM
    net = PerformerLM(num_tokens=20, max_seq_len=16, dim=16, depth=1, heads=2, dim_head=8, causal=False).to(_place())
    _train(net, (torch.randint(0, 20, (2, 16), device=_place()),))


@_check("local-attention", "hyper_connections", "einops")
def local_attention():
    """windows that attend to themselves and the previous one: training step of a small transformer
    """
    import torch
    from local_attention import LocalAttention
    from local_attention.transformer import LocalTransformer
    q = torch.randn(2, 2, 16, 8, requires_grad=True)
    LocalAttention(dim=8, window_size=4, causal=True)(q, q, q).sum().backward()
    assert q.grad.shape == q.shape
    _train(LocalTransformer(num_tokens=20, dim=16, depth=1, heads=2, dim_head=8, max_seq_len=16, local_attn_window_size=4), (torch.randint(0, 20, (2, 16)),))


@_check("perceiver-pytorch", "einops")
def perceiver_pytorch():
    """a Perceiver on images: training step"""
    import torch
    from perceiver_pytorch import Perceiver
    net = Perceiver(input_channels=3, input_axis=2, num_freq_bands=2, max_freq=4.0, depth=1, num_latents=4, latent_dim=16, cross_heads=1, latent_heads=2,
                    cross_dim_head=8, latent_dim_head=8, num_classes=3)
    _train(net, (torch.randn(2, 6, 6, 3),))


@_check("efficientnet-pytorch")
def efficientnet_pytorch():
    """EfficientNet-B0's training step"""
    import torch
    from efficientnet_pytorch import EfficientNet
    _train(EfficientNet.from_name("efficientnet-b0", num_classes=3, image_size=64), (torch.randn(4, 3, 64, 64),))


@_check("segment-anything", "torchvision", placed=True)
def segment_anything():
    """a small image encoder and mask decoder: boxes to masks, training step"""
    import torch
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer
    sam = Sam(ImageEncoderViT(img_size=32, patch_size=8, embed_dim=16, depth=1, num_heads=2, out_chans=16, use_rel_pos=True, window_size=2),
              PromptEncoder(embed_dim=16, image_embedding_size=(4, 4), input_image_size=(32, 32), mask_in_chans=4),
              MaskDecoder(transformer_dim=16, transformer=TwoWayTransformer(depth=1, embedding_dim=16, num_heads=2, mlp_dim=16), num_multimask_outputs=3))
    sam.to(_place())
    boxes = torch.tensor([[2.0, 2, 20, 20]], device=_place())
    with torch.no_grad():
        found = sam([{"image": torch.rand(3, 32, 32, device=_place()) * 255, "original_size": (32, 32), "boxes": boxes}], multimask_output=True)[0]
    assert found["masks"].shape == (1, 3, 32, 32) and found["masks"].dtype == torch.bool
    sparse, dense = sam.prompt_encoder(points=None, boxes=boxes[None], masks=None)
    masks, _ = sam.mask_decoder(image_embeddings=sam.image_encoder(torch.randn(1, 3, 32, 32, device=_place())), image_pe=sam.prompt_encoder.get_dense_pe(),
                                sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=False)
    masks.pow(2).mean().backward()
    assert sam.image_encoder.patch_embed.proj.weight.grad.abs().sum() > 0


@_check("snntorch")
def snntorch():
    """spiking neurons over time: training step through a surrogate gradient"""
    import snntorch as library
    import torch
    from snntorch import surrogate

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.cell, self.b = torch.nn.Linear(4, 8), library.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid()), torch.nn.Linear(8, 2)

        def forward(self, x):
            mem, total = self.cell.init_leaky(), 0
            for step in x:
                spikes, mem = self.cell(self.a(step), mem)
                total = total + self.b(spikes)
            return total
    _train(Net(), (torch.rand(5, 3, 4) * 3,))


@_check("pytorch-crf")
def pytorch_crf():
    """a conditional random field: likelihood with gradients, the best path"""
    import torch
    from torchcrf import CRF
    crf, mask = CRF(3, batch_first=True), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.uint8)
    scores = torch.randn(2, 4, 3, requires_grad=True)
    (-crf(scores, torch.randint(0, 3, (2, 4)), mask=mask)).backward()
    assert scores.grad[1, 2:].abs().sum() == 0 and crf.transitions.grad.abs().sum() > 0
    best = crf.decode(scores, mask=mask)
    assert [len(p) for p in best] == [4, 2]


@_check("lpips", "torchvision", placed=True)
def lpips():
    """perceptual distance of images with a randomly initialized network, with gradients"""
    import torch
    import lpips as library
    distance = library.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False).to(_place())
    x = torch.rand(1, 3, 64, 64, device=_place(), requires_grad=True)
    d = distance(x, torch.rand(1, 3, 64, 64, device=_place()))
    d.sum().backward()
    assert d.shape == (1, 1, 1, 1) and torch.isfinite(x.grad).all()


# ------------------------------------------------------------------ reinforcement learning
@_check("stable-baselines3", "gymnasium", "farama_notifications", "cloudpickle", "pandas", "matplotlib")
def stable_baselines3():
    """PPO, A2C and DQN learn a little on CartPole, are saved and loaded"""
    import tempfile
    from stable_baselines3 import A2C, DQN, PPO
    for kind, options in ((PPO, {"n_steps": 32, "batch_size": 16, "n_epochs": 1}), (A2C, {"n_steps": 8}),
                          (DQN, {"learning_starts": 16, "buffer_size": 64, "batch_size": 8})):
        model = kind("MlpPolicy", "CartPole-v1", seed=0, device=_place(), policy_kwargs={"net_arch": [8]}, **options)
        model.learn(64)
        with tempfile.TemporaryDirectory() as d:
            model.save(d + "/model")
            again = kind.load(d + "/model", device=_place())
        seen, policy = model.get_env().reset(), model.policy
        assert all(p.isfinite().all() for p in policy.parameters())
        assert (again.predict(seen, deterministic=True)[0] == model.predict(seen, deterministic=True)[0]).all()
