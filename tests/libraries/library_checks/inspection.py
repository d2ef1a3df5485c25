"""Checks of libraries for inspection of networks: summaries, number of operations, pruning,
attribution, event logs."""
import tempfile

from library_checks.registry import check, place, train


def _small(torch):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


@check("torchinfo")
def torchinfo():
    """summary of a network"""
    import torch
    from torchinfo import summary
    s = summary(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), (1, 3, 8, 8), verbose=0)
    params, products = s.total_params, s.total_mult_adds
    assert params == 112 and products == 4 * 28 * 36


@check("fvcore", "iopath", "yacs")
def fvcore():
    """focal loss, parameter counts"""
    import torch
    from fvcore.nn import parameter_count, sigmoid_focal_loss_jit
    assert parameter_count(torch.nn.Linear(3, 4))[""] == 16
    loss = sigmoid_focal_loss_jit(torch.zeros(2), torch.ones(2), 0.25, 2, "mean")
    assert loss.item() > 0


@check("torchsummary")
def torchsummary():
    """summary of a network, by hooks on its modules"""
    import contextlib
    import io
    import torch
    from torchsummary import summary
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        # (the library accepts these two; cuda is npu's other name)
        summary(_small(torch), (3, 8, 8), device="cpu" if place() == "cpu" else "cuda")
    assert "Total params: 130" in said.getvalue() and "[-1, 4, 6, 6]" in said.getvalue()


@check("thop", placed=True)
def thop():
    """multiplications and parameters of a network"""
    import torch
    from thop import profile
    macs, params = profile(_small(torch).to(place()), (torch.randn(1, 3, 8, 8, device=place()),), verbose=False)
    assert params == 130 and macs >= 4 * 27 * 36


@check("ptflops")
def ptflops():
    """multiplications of a network by hooks and by the calls of torch's functions"""
    import torch
    from ptflops import get_model_complexity_info
    found = [get_model_complexity_info(_small(torch), (3, 8, 8), as_strings=False, print_per_layer_stat=False, backend=b) for b in ("pytorch", "aten")]
    assert all(params == 130 and macs >= 4 * 27 * 36 for macs, params in found), found


@check("torch-pruning")
def torch_pruning():
    """the graph of a network's dependencies, a group of channels pruned, a step of training afterwards"""
    import torch
    import torch_pruning as tp
    net, x = _small(torch), torch.randn(2, 3, 8, 8)
    group = tp.DependencyGraph().build_dependency(net, example_inputs=x).get_pruning_group(net[0], tp.prune_conv_out_channels, idxs=[1, 3])
    group.prune()
    assert net[0].weight.shape == (2, 3, 3, 3) and net[1].num_features == net[5].in_features == 2
    train(net, (x,))


@check("captum")
def captum():
    """IntegratedGradients, Saliency, GradientShap"""
    import torch
    from captum.attr import GradientShap, IntegratedGradients, Saliency
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(2, 3)
    a, b = IntegratedGradients(m).attribute(x, target=1, n_steps=8), Saliency(m).attribute(x, target=0)
    c = GradientShap(m).attribute(x, torch.zeros(2, 3), target=1)
    assert a.shape == b.shape == c.shape


@check("tensorboardX")
def tensorboardX():
    """SummaryWriter over tensors"""
    import os
    import torch
    from tensorboardX import SummaryWriter
    with tempfile.TemporaryDirectory() as d:
        with SummaryWriter(d) as w:
            w.add_scalar("a", torch.tensor(1.0), 0)
            w.add_histogram("h", torch.randn(10), 0)
            w.add_image("i", torch.rand(3, 4, 4), 0)
        assert os.listdir(d)


@check("tensorboard")
def tensorboard():
    """SummaryWriter: scalars, histograms, images, a module's graph, hyperparameters, read back"""
    import torch
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter
    assert "tensorboardX" not in SummaryWriter.__module__
    with tempfile.TemporaryDirectory() as d:
        with SummaryWriter(d) as w:
            for step in range(3):
                w.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
            w.add_histogram("h", torch.randn(10), 0)
            w.add_image("i", torch.rand(3, 4, 4), 0)
            w.add_graph(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), torch.ones(1, 3))
            w.add_hparams({"lr": 0.1}, {"acc": 1.0})
        read = EventAccumulator(d)
        read.Reload()
        assert [(e.step, round(e.value, 3)) for e in read.Scalars("loss")] == [(0, 1.0), (1, 0.5), (2, 0.333)]
        assert len(read.Images("i")) == len(read.Histograms("h")) == 1
        assert "aten::relu" in {n.op for n in read.Graph().node}
