"""Checks of libraries for graphs, rotations, equivariant networks, manifolds."""
from library_checks.registry import check, train


@check("torch-geometric")
def torch_geometric():
    """GCN, GAT, SAGE and GIN training steps, batches of graphs, pooling"""
    import torch
    from torch_geometric.data import Batch, Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    x = torch.randn(4, 5)
    for conv in (GCNConv(5, 3), GATConv(5, 3, heads=2), SAGEConv(5, 3), GINConv(torch.nn.Linear(5, 3))):
        train(conv, (x, edges))
    batch = Batch.from_data_list([Data(x=x, edge_index=edges), Data(x=x[:3], edge_index=edges[:, :2])])
    pooled = global_mean_pool(batch.x, batch.batch)
    assert pooled.shape == (2, 5)
    assert sum(b.num_graphs for b in DataLoader([Data(x=x, edge_index=edges)] * 5, batch_size=2)) == 5


@check("e3nn", "opt_einsum_fx", "sympy")
def e3nn():
    """irreps, spherical harmonics, a tensor product's training step"""
    import torch
    from e3nn import o3
    sh = o3.spherical_harmonics([0, 1, 2], torch.randn(5, 3), normalize=True)
    assert sh.shape == (5, 9)
    tp = o3.FullyConnectedTensorProduct("4x0e+2x1o", "1x0e+1x1o", "3x0e+1x1o")
    train(tp, (torch.randn(5, 10), torch.randn(5, 4)))


@check("geoopt")
def geoopt():
    """Poincare ball, RiemannianAdam"""
    import geoopt
    import torch
    p = geoopt.ManifoldParameter(torch.rand(3, 2) * 0.1, manifold=geoopt.PoincareBall())
    opt = geoopt.optim.RiemannianAdam([p], lr=1e-2)
    (p.manifold.dist0(p) - 1).pow(2).sum().backward()
    opt.step()
    assert torch.isfinite(p).all()


@check("roma")
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


@check("pypose")
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
