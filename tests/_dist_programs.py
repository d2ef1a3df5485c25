"""Programs that several processes run together, written against torch's API.

    python _dist_programs.py PROGRAM SIDE RANK WORLD STORE OUT

SIDE `torch` runs real PyTorch with gloo, `ms` runs mindtorch. STORE is a file. A program returns a
dict of arrays or text, which is written to OUT.
"""
import datetime
import pickle
import sys

import numpy as np

DTYPES = ["float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64", "bool", "complex64", "complex128"]
FEW_DTYPES = ["float32", "float64", "bfloat16", "int64", "uint8", "bool", "complex64"]
REDUCTIONS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
LAYOUTS = ["contiguous", "transposed", "strided"]


def values(seed, shape, dtype):
    """Returns values that are exact in every dtype and reduction."""
    rs = np.random.RandomState(seed)
    if dtype == "bool":
        return rs.rand(*shape) > 0.5
    if dtype.startswith("complex"):
        return (rs.randint(-4, 5, shape) + 1j * rs.randint(-4, 5, shape)).astype(dtype)
    if dtype in ("uint8", "int8", "int32", "int64"):
        return rs.randint(0, 6, shape).astype(dtype)
    return (rs.randint(-16, 17, shape) / 8).astype(np.float32)


class Matrix:
    """Every collective x dtype x layout x group x sync/async."""

    def __init__(self, side, torch):
        self.side, self.torch, self.dist = side, torch, torch.distributed
        self.rank, self.world = self.dist.get_rank(), self.dist.get_world_size()
        self.sub_ranks = [0, self.world - 1]
        self.subgroup = self.dist.new_group(self.sub_ranks)
        self.results, self.seed = {}, 0
        self.dtypes, self.few_dtypes, self.reductions, self.large = DTYPES, FEW_DTYPES, REDUCTIONS, ("float32", "int64", "bfloat16")

    def tensor(self, shape, dtype, layout, seed=None, fill=True):
        """Returns a tensor with the same values on both sides; real PyTorch's is contiguous, as
        gloo requires."""
        torch = self.torch
        if seed is None:
            self.seed += 1
            seed = self.seed * 64 + self.rank
        a = values(seed, shape, dtype) if fill else np.zeros(shape, np.float32 if dtype == "bfloat16" else dtype)
        t = torch.from_numpy(np.ascontiguousarray(a)).to(getattr(torch, dtype))
        if self.side == "torch" or layout == "contiguous":
            return t
        if layout == "transposed":
            return t.t().contiguous().t()
        wide = torch.zeros([2 * s for s in shape], dtype=t.dtype)
        view = wide[::2, 1::2]
        view.copy_(t)
        return view

    def note(self, name, *tensors):
        out = []
        for t in tensors:
            t = t.detach()
            out.append(np.array(t.float().numpy() if t.dtype == self.torch.bfloat16 else t.numpy()))
        self.results[name] = out

    def case(self, name, fn, asynchronous, *outs):
        """Runs fn(async_op) and records the contents of `outs` afterwards, or the type of the
        error."""
        try:
            work = fn(asynchronous)
            if asynchronous:
                work.wait()
                # gloo's reduce_scatter never reports completion
                assert work.is_completed() or self.side == "torch"
        except (RuntimeError, ValueError, TypeError) as e:
            self.results[name] = f"refused: {type(e).__name__}"
            return
        self.note(name, *outs)

    def combinations(self, dtypes, layouts=LAYOUTS):
        for dtype in dtypes:
            for layout in layouts:
                for group in ("world", "sub"):
                    for a in (False, True):
                        # Processes outside the subgroup advance the seed and skip the case.
                        if (group == "sub" and self.rank not in self.sub_ranks):
                            self.seed += 16
                            continue
                        yield dtype, layout, group, a, f"{dtype}/{layout}/{group}/{'async' if a else 'sync'}"

    def group(self, name):
        return None if name == "world" else self.subgroup

    def size(self, name):
        return self.world if name == "world" else len(self.sub_ranks)

    def start(self, group):
        """Synchronizes the seeds: all members of a group use the same ones, whatever other ranks do
        meanwhile."""
        self.seed = (self.seed // 16 + 1) * 16

    def run(self):
        dist, torch = self.dist, self.torch
        op = dist.ReduceOp.SUM
        for dtype in self.dtypes:
            for red in self.reductions:
                t = self.tensor((5, 3), dtype, "contiguous")
                self.case(f"all_reduce/{red}/{dtype}", lambda a: dist.all_reduce(t, op=getattr(dist.ReduceOp, red), async_op=a), False, t)
        for dtype, layout, group, a, name in self.combinations(self.dtypes):
            self.start(group)
            g = self.group(group)
            t = self.tensor((4, 6), dtype, layout)
            self.case(f"all_reduce/{name}", lambda a: dist.all_reduce(t, op, g, a), a, t)
        for dtype, layout, group, a, name in self.combinations(self.few_dtypes):
            self.start(group)
            g, n, root = self.group(group), self.size(group), self.sub_ranks[1]
            me = dist.get_rank(g)
            mine = self.rank == root
            t = self.tensor((4, 6), dtype, layout)
            self.case(f"broadcast/{name}", lambda a: dist.broadcast(t, root, g, a), a, t)
            t = self.tensor((4, 6), dtype, layout)
            self.case(f"reduce/{name}", lambda a: dist.reduce(t, root, op, g, a), a, *([t] if mine else []))
            t, outs = self.tensor((3, 2), dtype, layout), [self.tensor((3, 2), dtype, layout, fill=False) for _ in range(n)]
            self.case(f"all_gather/{name}", lambda a: dist.all_gather(outs, t, g, a), a, *outs)
            t, out = self.tensor((3, 2), dtype, layout), self.tensor((3 * n, 2), dtype, layout, fill=False)
            self.case(f"all_gather_into_tensor/{name}", lambda a: dist.all_gather_into_tensor(out, t, g, a), a, out)
            ins, out = [self.tensor((3, 2), dtype, layout) for _ in range(n)], self.tensor((3, 2), dtype, layout, fill=False)
            self.case(f"reduce_scatter/{name}", lambda a: dist.reduce_scatter(out, ins, op, g, a), a, out)
            t, out = self.tensor((3 * n, 2), dtype, layout), self.tensor((3, 2), dtype, layout, fill=False)
            self.case(f"reduce_scatter_tensor/{name}", lambda a: dist.reduce_scatter_tensor(out, t, op, g, a), a, out)
            t, outs = self.tensor((2, 4), dtype, layout), [self.tensor((2, 4), dtype, layout, fill=False) for _ in range(n)]
            self.case(f"gather/{name}", lambda a: self.gather(t, outs if mine else None, root, g, a), a, *(outs if mine else []))
            ins, out = [self.tensor((2, 4), dtype, layout) for _ in range(n)], self.tensor((2, 4), dtype, layout, fill=False)
            self.case(f"scatter/{name}", lambda a: dist.scatter(out, ins if mine else None, root, g, a), a, out)
            ins = [self.tensor((me + 1, i + 1), dtype, layout) for i in range(n)]
            outs = [self.tensor((i + 1, me + 1), dtype, layout, fill=False) for i in range(n)]
            self.case(f"all_to_all/{name}", lambda a: self.all_to_all(outs, ins, g, a), a, *outs)
            t, out = self.tensor((2 * n, 3), dtype, layout), self.tensor((2 * n, 3), dtype, layout, fill=False)
            self.case(f"all_to_all_single/{name}", lambda a: dist.all_to_all_single(out, t, group=g, async_op=a), a, out)
            sends, gets = [i + 1 for i in range(n)], [me + 1] * n
            t, out = self.tensor((sum(sends), 3), dtype, layout), self.tensor((sum(gets), 3), dtype, layout, fill=False)
            self.case(f"all_to_all_single uneven/{name}", lambda a: dist.all_to_all_single(out, t, gets, sends, g, a), a, out)
            t, out = self.tensor((4, 6), dtype, layout), self.tensor((4, 6), dtype, layout, fill=False)
            first, last = self.sub_ranks

            def message(a):
                if self.rank == first:
                    return dist.isend(t, last, g, 7) if a else dist.send(t, last, g, 7)
                if self.rank == last:
                    return dist.irecv(out, first, g, 7) if a else dist.recv(out, first, g, 7)
                return _Nothing()
            self.case(f"message/{name}", message, a, out)
        self.larger()
        self.objects()
        return self.results

    # gloo has no all_to_all of lists and no gather of complex tensors; these emulate them with
    # supported calls.
    def gather(self, t, outs, root, g, a):
        if self.side == "torch" and t.dtype.is_complex:
            real = self.torch.view_as_real
            return self.dist.gather(real(t), outs and [real(o) for o in outs], root, g, a)
        return self.dist.gather(t, outs, root, g, a)

    def all_to_all(self, outs, ins, g, a):
        if self.side == "ms":
            return self.dist.all_to_all(outs, ins, g, a)
        cat = self.torch.cat
        out, sizes = cat([o.flatten() for o in outs]), [o.numel() for o in outs]
        self.dist.all_to_all_single(out, cat([i.flatten() for i in ins]), sizes, [i.numel() for i in ins], g)
        for o, part in zip(outs, out.split(sizes)):
            o.copy_(part.view_as(o))
        return _Nothing()

    def larger(self):
        """Runs sizes that use the ring and chain algorithms, including uneven chunks."""
        dist = self.dist
        for dtype in self.large:
            for n in (1, 20011, 300007):
                t = self.tensor((1, n), dtype, "contiguous")
                self.case(f"all_reduce of {n}/{dtype}", lambda a: dist.all_reduce(t, async_op=a), False, t)
                t = self.tensor((1, n), dtype, "contiguous")
                self.case(f"broadcast of {n}/{dtype}", lambda a: dist.broadcast(t, self.world - 1, async_op=a), True, t)
                t = self.tensor((1, n), dtype, "contiguous")
                root = self.rank == 0
                self.case(f"reduce of {n}/{dtype}", lambda a: dist.reduce(t, 0, async_op=a), False, *([t] if root else []))
                t, outs = self.tensor((1, n), dtype, "contiguous"), [self.tensor((1, n), dtype, "contiguous", fill=False) for _ in range(self.world)]
                self.case(f"all_gather of {n}/{dtype}", lambda a: dist.all_gather(outs, t, async_op=a), True, *outs)
        for dtype in self.dtypes:
            t = self.tensor((0, 3), dtype, "contiguous")
            self.case(f"all_reduce of nothing/{dtype}", lambda a: dist.all_reduce(t, async_op=a), False, t)
        works = []
        ts = [self.tensor((1, 5000), "float32", "contiguous") for _ in range(20)]
        for t in ts:
            works.append(dist.all_reduce(t, async_op=True))
        for w in works:
            w.wait()
        self.note("twenty at once", *ts)

    def objects(self):
        dist, r = self.dist, self.rank
        got = [None] * self.world
        dist.all_gather_object(got, {"rank": r, "text": "x" * (r * 1000)})
        self.results["all_gather_object"] = repr(got)
        got = [r, "a" * r] if r else ["root", {"k": [1, 2]}]
        dist.broadcast_object_list(got, 0)
        self.results["broadcast_object_list"] = repr(got)
        got = [None] * self.world if r == 0 else None
        dist.gather_object(("from", r), got, 0)
        self.results["gather_object"] = repr(got)
        got = [None]
        dist.scatter_object_list(got, [f"for {i}" for i in range(self.world)] if r == 0 else None, 0)
        self.results["scatter_object_list"] = repr(got)
        self.results["ranks"] = repr([dist.get_rank(self.subgroup), dist.get_world_size(self.subgroup)])
        if r in self.sub_ranks:
            self.results["group ranks"] = repr([dist.get_process_group_ranks(self.subgroup), dist.get_group_rank(self.subgroup, self.world - 1),
                                                dist.get_global_rank(self.subgroup, 1)])
        dist.barrier()
        dist.monitored_barrier()


class _Nothing:
    def wait(self):
        return True

    def is_completed(self):
        return True


def everything(side, torch):
    """Runs the collective matrix, gradients, functional collectives and meshes."""
    parts = {"": Matrix(side, torch).run(), "gradient of ": gradients(side, torch), "functional ": functional(side, torch)}
    return {prefix + k: v for prefix, found in parts.items() for k, v in found.items()}


def over_mindspore(side, torch):
    """Runs the part of the matrix that MindSpore's mccl can reduce."""
    m = Matrix(side, torch)
    m.dtypes = m.few_dtypes = m.large = ["float32", "int32"]
    m.reductions = ["SUM", "PRODUCT", "MIN", "MAX"]
    return m.run()


def gradients(side, torch):
    """Runs torch.distributed.nn.functional: values and gradients."""
    import torch.distributed.nn.functional as F

    dist, found = torch.distributed, {}
    r, n = dist.get_rank(), dist.get_world_size()

    def leaf(seed, *shape):
        return torch.from_numpy(values(100 * seed + r, shape, "float32")).requires_grad_()

    def check(name, outs, *leaves):
        outs = [outs] if torch.is_tensor(outs) else list(outs)
        weight = sum((o * (k + 1 + r) * o).sum() for k, o in enumerate(outs))
        weight.backward()
        found[name] = [o.detach().numpy().copy() for o in outs] + [x.grad.numpy().copy() for x in leaves]
    x = leaf(1, 3, 2)
    check("all_reduce", F.all_reduce(x), x)
    x = leaf(2, 3, 2)
    check("all_gather", F.all_gather(x), x)
    x = leaf(3, 3, 2)
    check("broadcast", F.broadcast(x, 1), x)
    x = leaf(4, 3, 2)
    check("reduce", F.reduce(x * 2, 1) if r == 1 else F.reduce(x * 2, 1) * 0, x)
    xs = [leaf(5 + k, 2, 2) for k in range(n)]
    check("reduce_scatter", F.reduce_scatter(torch.zeros(2, 2), xs), *xs)
    xs = [leaf(20 + k, 2, 2) for k in range(n)]
    check("all_to_all", F.all_to_all([torch.zeros(2, 2) for _ in range(n)], xs), *xs)
    x = leaf(40, 2 * n, 3)
    check("all_to_all_single", F.all_to_all_single(torch.zeros(2 * n, 3), x), x)
    xs = [leaf(50 + k, 2, 2) for k in range(n)]
    check("scatter", F.scatter(xs, 0), *xs)
    x = leaf(70, 2, 2)
    check("gather", F.gather(x, 0), x)
    return found


def functional(side, torch):
    """Runs _functional_collectives and device meshes."""
    import torch.distributed._functional_collectives as F
    from torch.distributed.device_mesh import init_device_mesh

    dist, found = torch.distributed, {}
    r, n = dist.get_rank(), dist.get_world_size()
    t = torch.from_numpy(values(r, (2 * n, 3), "float32"))
    w = dist.group.WORLD
    results = {"all_reduce": F.all_reduce(t, "sum", w), "all_gather": F.all_gather_tensor(t, 1, w),
               "reduce_scatter": F.reduce_scatter_tensor(t, "sum", 0, w), "broadcast": F.broadcast(t, 1, w),
               "all_to_all": F.all_to_all_single(t, None, None, w),
               "permute": F.permute_tensor(t.flatten(), [(i + 1) % n for i in range(n)], w)}
    for k, v in results.items():
        found[k] = [F.wait_tensor(v).numpy().copy()]
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("dp", "tp"))
    found["mesh"] = repr([tuple(mesh.shape), mesh.get_coordinate(), mesh.get_local_rank("dp"), mesh.get_local_rank("tp"), mesh.mesh.tolist(),
                          dist.get_process_group_ranks(mesh.get_group("dp")), mesh["tp"].mesh.tolist(), mesh["tp"].size(), mesh.size(),
                          mesh.ndim, mesh.get_rank()])
    return found


def main():
    program, side, rank, world, store, out = sys.argv[1:]
    if side == "ms":
        from mindtorch.tools import mstorch_enable  # noqa: F401
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{store}", datetime.timedelta(seconds=60), int(world), int(rank))
    found = globals()[program](side, torch)
    with open(out, "wb") as f:
        pickle.dump(found, f)
    dist.barrier()
    dist.destroy_process_group()
    if side == "ms":
        with open("/proc/self/maps") as f:
            assert "libtorch_cpu" not in f.read()


if __name__ == "__main__":
    main()
