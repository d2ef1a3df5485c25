"""Concatenations of copied views, and views of size-1 dimensions, in graphs on the Ascend target.
Results must match eager code. No arguments."""
import json

import mindspore as ms

ms.set_device("Ascend")
import mindtorch.torch as torch          # noqa: E402
from mindtorch.core.compile import replay          # noqa: E402


def t(*s):
    return torch.randn(*s, generator=G).to("npu")


nn = torch.nn.functional
linear = nn.linear
F = {
 "heads": lambda a, b, c: torch.cat([a.transpose(1, 2).reshape(2, 3, 20), b.transpose(1, 2).reshape(2, 3, 20), c.reshape(2, 12, 5)[:, :3].repeat(1, 1, 4)], -1),
 "contig": lambda a, b, c: torch.cat([a.transpose(1, 2).contiguous(), b.transpose(1, 2).contiguous()], 2).sum(0),
 "dim0": lambda a, b, c: torch.cat([a.transpose(0, 1).reshape(8, 3, 5), b.permute(1, 0, 2, 3).reshape(8, 3, 5)], 0)[1:5] * 2,
 "dim1": lambda a, b, c: torch.cat([a.transpose(1, 2).reshape(2, 12, 5), c.reshape(2, 12, 5)], 1).transpose(1, 2) + 1,
 "odd": lambda a, b, c: torch.cat([a.transpose(1, 2).reshape(2, 3, 20), t0[:, :3, :7]], -1) * 3,
 "written": lambda a, b, c: written(a, b),
 "stack": lambda a, b, c: torch.stack([a.transpose(1, 2).reshape(2, 60), b.reshape(2, 60)], 0)[1].view(2, 3, 20).transpose(1, 2) * 1.5,
 "ones": lambda a, b, c: (a.sum((1, 3), keepdim=True).expand(2, 4, 3, 5) * b, (a * b).mean().expand(3, 2) * 2, a.sum(2, keepdim=True)[:, 1:3].transpose(1, 3) + 1),
}

def state(a):
    s0.mul_(1.5)
    y = s0.transpose(0, 1).reshape(2, 6) * 1
    z = s0.transpose(0, 1).reshape(2, 6)
    s0.mul_(0.5)
    s0.add_(1)
    return torch.cat([z, s0.transpose(0, 1).reshape(2, 6), y], -1) + a.sum()


F["linear"] = lambda a, b, c: (linear(a.transpose(1, 3), w[:, :4]), linear((b * 2).transpose(2, 3), w[:, :3]), linear(c[0, 0].t(), w[:, :3]),
                               linear(a[0, 0].t(), w[:, :3]), linear(a[:, 1].transpose(1, 2), w[:, :3].contiguous(), w[:, 0]), linear(a[0], w.t()[:, :5]))
F["product"] = lambda a, b, c: (a.transpose(1, 3) @ w.t()[:4], (b * 2).transpose(2, 3) @ w[:3], a.transpose(0, 2).transpose(1, 3) @ w[:4],
                                b[:, 1].transpose(1, 2) @ w.t()[:3], a.transpose(2, 3) @ b, a[0, 0] @ w.t()[:5])
F["norms"] = lambda a, b, c: (nn.layer_norm(a.transpose(1, 3), (4,)), nn.group_norm(b.transpose(1, 2).transpose(1, 2) * 1, 2), nn.group_norm(a.transpose(0, 1), 2),
                              nn.softmax(b.transpose(1, 2), 1), nn.gelu(a.transpose(1, 3)), nn.rms_norm(b.transpose(1, 3), (4,)))
F["losses"] = lambda a, b, c: (nn.cross_entropy(a.transpose(1, 3), t1), nn.nll_loss(nn.log_softmax(b[:, :, 0].transpose(1, 2), 1), t1[:, 0]), nn.mse_loss(a.transpose(1, 2), c.transpose(1, 2)),
                               nn.embedding(t1.transpose(1, 2), w), nn.binary_cross_entropy_with_logits(b.transpose(1, 3), c.transpose(1, 3).sigmoid()))
F["pools"] = lambda a, b, c: (nn.max_pool2d(a.transpose(2, 3), 2), nn.avg_pool2d(b.transpose(1, 2), 2), nn.conv2d(c.transpose(1, 3), w[:, :5, None, None]),
                              nn.conv1d(a[:, 1].transpose(1, 2), w[:, :5, None]))
F["state"] = lambda a, b, c: state(a)


def written(a, b):
    x = a * 1
    y = x.transpose(1, 2).reshape(2, 3, 20)
    x.mul_(2)
    return torch.cat([y, x.transpose(1, 2).reshape(2, 3, 20)], -1) + x.sum()

found = {}
for name, f in F.items():
    out = []
    for compiled in (False, True):
        G = torch.Generator().manual_seed(0)
        w, t1 = t(6, 6), (t(2, 3, 4) * 2).abs().long() % 5
        t0, s0 = t(2, 12, 9), t(3, 2, 2)
        def step(a, b, c):
            a, b, c = [x.detach().requires_grad_() for x in (a, b, c)]
            r = f(a * 1.5, b + 1, c)
            r = r if isinstance(r, tuple) else (r,)
            loss = sum([(x * x).sum() for x in r])
            loss.backward()
            return [*r, a.grad, b.grad, c.grad]
        g = torch.compile(step, backend="mindspore") if compiled else step
        replay.counters.clear()
        replay.breaks.clear()
        for i in range(4):
            r = g(t(2, 4, 3, 5), t(2, 4, 3, 5), t(2, 4, 3, 5))
        out.append([x.detach().cpu().numpy() for x in r if x is not None])
    apart = [str(abs(p - q).max()) for p, q in zip(*out)]
    print(name, apart)
    ok = all(p.shape == q.shape and abs(p - q).max() < 1e-4 for p, q in zip(*out))
    found[name] = ok and not replay.breaks and replay.counters["graph_runs"] > 0
print("FOUND", json.dumps(found))
