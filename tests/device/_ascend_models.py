"""Five steps of benchmark models (benchmarks/models.py) on the device and on the CPU device:
`python _ascend_models.py NAME...` prints both losses as JSON."""
import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

import models  # noqa: E402


def losses(name, device):
    with torch.device(device):
        step = models.moved(models.MODELS[name](torch), device).step(torch, False)
        return [step() for _ in range(5)]


for name in sys.argv[1:]:
    print("MODEL", json.dumps([name, losses(name, "npu"), losses(name, "cpu")]), flush=True)
