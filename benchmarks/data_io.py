"""Paired benchmarks of checkpoints and data loading: PyTorch against mindtorch.

    python benchmarks/run.py --parts io [--rounds 7] --json results.json

    python benchmarks/run.py --parts io --megabytes 1000      # checkpoints of 1 GB

Each library runs in its own process, and rounds alternate. The cases are:

- save, load: a state dict of 100 MB (or --megabytes) in 107 tensors. Both libraries load one file,
  which PyTorch wrote. `save` creates a file; `save over` replaces one of the same size.
- safetensors: save and load by safetensors.torch, if it is installed. The loaded values are summed,
  because the file is memory-mapped.
- epoch: 2048 images of 3 x 32 x 32 in batches of 64 with 2 workers, including their start;
  `persistent` excludes the start. `array`: an item is torch.from_numpy of the image. `ops`: torch ops
  normalise the image and flip it at random.
- items: one epoch with 2 running workers, including batching: 8192 items of 64 values by 64, 256
  images of 3 x 224 x 224 by 16, 24 items of 10 MB by 2.
- cache: 512 JPEG images of 320 x 240, decoded and resized to 224 x 224 (needs Pillow), 2 workers,
  mindtorch only. The figures are an epoch without mindtorch.tools.CachedDataset, the first epoch
  with it, and the median of later epochs.
"""
import gc
import importlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIDES = {"torch": "torch", "mindtorch": "mindtorch.torch"}
ITEMS = {"items small": ((64,), 8192, 64), "items image": ((3, 224, 224), 256, 16), "items 10 MB": ((2_500_000,), 24, 2)}
CASES = ["save", "save over", "load", "load mmap", "epoch array", "epoch ops", "epoch array persistent", "epoch ops persistent", *ITEMS]
SAFE = ["safetensors save", "safetensors load"]
LIMITS = {"save": 1.3, "save over": 1.3, "load": 1.0, "epoch array": 1.1, "epoch ops": 1.1}


def state_dict(torch, megabytes=100):
    """Returns a state dict of that size, distributed as in a network.

    It has many small tensors and a few large ones.
    """
    import numpy as np
    r = np.random.RandomState(0)
    by = megabytes / 100
    sizes = [(64,)] * 53 + [(int(512 * by), 512)] * 50 + [(int(1000 * by), 2048)] * 3 + [(int(5_600_000 * by),)]
    return {f"layer{i}.weight": torch.from_numpy(r.standard_normal(s).astype(np.float32)) for i, s in enumerate(sizes)}


def loader(torch, ops, persistent):
    import numpy as np
    images = np.random.RandomState(0).randint(0, 256, (2048, 3, 32, 32)).astype(np.uint8)
    floats = images.astype(np.float32)
    mean, std = torch.tensor([125.0, 123.0, 114.0]).view(3, 1, 1), torch.tensor([63.0, 62.0, 67.0]).view(3, 1, 1)

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            if not ops:
                return torch.from_numpy(floats[i]), i % 10
            x = (torch.from_numpy(images[i]).float() - mean) / std
            if torch.rand(1) < 0.5:
                x = x.flip(-1)
            return x, i % 10

    return torch.utils.data.DataLoader(Images(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=persistent)


def items(torch, shape, count, batch):
    """Returns a loader of `count` newly created items of that shape."""
    import numpy as np
    source = np.random.RandomState(0).standard_normal(shape).astype(np.float32)

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return count

        def __getitem__(self, i):
            return torch.from_numpy(source + np.float32(i))

    return torch.utils.data.DataLoader(Items(), batch_size=batch, num_workers=2, persistent_workers=True)


def jobs(torch, folder, side, megabytes=100):
    """Returns {case: function that runs it once}."""
    state, path, common = state_dict(torch, megabytes), os.path.join(folder, side + ".pth"), os.path.join(folder, "common.pth")
    if side == "torch":
        torch.save(state, common)

    def epoch(ops, persistent):
        data = loader(torch, ops, persistent)

        def run():
            assert sum(y.shape[0] for _, y in data) == 2048
        return run

    def all_items(shape, count, batch):
        data = items(torch, shape, count, batch)

        def run():
            assert sum(len(x) for x in data) == count
        return run

    def safe_save():
        from safetensors.torch import save_file
        save_file(state, os.path.join(folder, side + ".safetensors"))

    def safe_load():
        from safetensors.torch import load_file
        loaded = load_file(os.path.join(folder, side + ".safetensors"))
        # reads the values, because the file is memory-mapped
        assert len(loaded) == len(state) and all(math.isfinite(float(x.sum())) for x in loaded.values())

    def load(**options):
        assert len(torch.load(common, weights_only=True, **options)) == len(state)

    def save():
        torch.save(state, path)

    return {"save": save, "save over": save, "load": load, "load mmap": lambda: load(mmap=True), "epoch array": epoch(False, False),
            "epoch ops": epoch(True, False), "epoch array persistent": epoch(False, True),
            "epoch ops persistent": epoch(True, True), **{name: all_items(*what) for name, what in ITEMS.items()},
            "safetensors save": safe_save, "safetensors load": safe_load}


def cache(rounds):
    """Measures and prints the gain of the cache.

    Returns {cache kind: (ms without, first epoch, later epochs)}.
    """
    import io
    import numpy as np
    from PIL import Image
    import mindtorch.torch as torch
    from mindtorch.tools import CachedDataset
    files, smooth = [], np.random.RandomState(0)
    for _ in range(512):
        picture = Image.fromarray(smooth.randint(0, 256, (12, 16, 3)).astype(np.uint8)).resize((320, 240))
        files.append(io.BytesIO())
        picture.save(files[-1], "JPEG", quality=90)

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(files)

        def __getitem__(self, i):
            a = np.asarray(Image.open(io.BytesIO(files[i].getvalue())).resize((224, 224)))
            return torch.from_numpy(a.transpose(2, 0, 1).copy()), i % 10

    def epoch(data):
        start = time.perf_counter()
        assert sum(len(y) for _, y in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=2)) == 512
        return (time.perf_counter() - start) * 1e3

    epoch(Images())
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, where in (("cache in memory", None), ("cache on disk", folder)):
            data = CachedDataset(Images(), where)
            first, without, later = epoch(data), [], []
            for _ in range(rounds):
                without.append(epoch(Images()))
                later.append(epoch(data))
            results[kind] = a, _, b = statistics.median(without), first, statistics.median(later)
            print(f"{kind:26s} without {a:6.1f} ms, first {first:6.1f} ms, later {b:6.1f} ms: {a / b:.1f} times faster")
            data.close()
    return results


def worker(side, folder, megabytes):
    """Runs the case that each line on stdin names, and answers with its seconds."""
    if side == "mindtorch":
        from mindtorch.tools import mstorch_enable  # noqa: F401  (safetensors.torch says `import torch`)
    torch = importlib.import_module("torch")
    assert (side == "torch") == ("mindtorch" not in sys.modules) and (side == "torch" or torch is importlib.import_module(SIDES[side]))
    # otherwise idle threads of one side's pool take time from the other side
    torch.set_num_threads(1)
    todo = jobs(torch, folder, side, int(megabytes))
    print("{}", flush=True)
    for line in sys.stdin:
        gc.collect()
        if line.strip() == "save" and os.path.exists(os.path.join(folder, side + ".pth")):
            os.unlink(os.path.join(folder, side + ".pth"))
        start = time.perf_counter()
        todo[line.strip()]()
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    os._exit(0)


def _answer(p, side):
    while True:
        line = p.stdout.readline()
        if not line:
            raise RuntimeError(f"the {side} process ended early (status {p.wait()})")
        if line.startswith("{"):
            return json.loads(line)


def main(rounds=7, cases=None, megabytes=100):
    """Prints a row per case and returns the figures.

    They are {case: (torch ms, mindtorch ms, median of the rounds' ratios)}; a cache has the figures
    of `cache`.
    """
    whole = cases is None
    if whole:
        cases = CASES + SAFE * bool(importlib.util.find_spec("safetensors"))
    results, seconds = {}, {c: {s: [] for s in SIDES} for c in cases}
    with tempfile.TemporaryDirectory() as folder:
        procs = {}
        for side in SIDES:
            procs[side] = subprocess.Popen([sys.executable, os.path.abspath(__file__), side, folder, str(megabytes)], text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            _answer(procs[side], side)
        for n in range(-1, rounds):      # round -1 warms up
            for case in cases:
                for side, p in list(procs.items())[::1 if n % 2 else -1]:
                    p.stdin.write(case + "\n")
                    p.stdin.flush()
                    t = _answer(p, side)["seconds"]
                    if n >= 0:
                        seconds[case][side].append(t)
        for p in procs.values():
            p.stdin.close()
            p.wait()
    print(f"{'':26s} {'torch ms':>9s} {'mindtorch':>9s} {'ratio':>6s} {'iqr':>11s} {'limit':>6s}")
    for case, both in seconds.items():
        ratios = [b / a for a, b in zip(both["torch"], both["mindtorch"])]
        q = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        a, b = (statistics.median(both[s]) * 1e3 for s in SIDES)
        results[case] = a, b, statistics.median(ratios)
        limit = f"{LIMITS[case]:6.1f}" if case in LIMITS else ""
        print(f"{case:26s} {a:9.1f} {b:9.1f} {results[case][2]:6.2f} {q[0]:5.2f}-{q[2]:5.2f} {limit}")
    if not whole:
        return results
    if importlib.util.find_spec("PIL"):
        results.update(cache(rounds))
    else:
        print("cache: skipped, because Pillow is not installed")
    return results


if __name__ == "__main__":
    worker(*sys.argv[1:])
