"""One script on each device, run as a user would: it prints PyTorch's losses and writes a
checkpoint that PyTorch loads."""
import pathlib

import pytest
import torch

pytestmark = pytest.mark.smoke

SCRIPT = """
import sys
import torch
device, path = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 3))
x, y = torch.randn(64, 8), torch.randint(3, (64,))
model, x, y = model.to(device), x.to(device), y.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(10):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print("loss", loss.item())
torch.save({"model": model.cpu().state_dict(), "optimizer": optimizer.state_dict()}, path)
"""


def losses(printed):
    return torch.tensor([float(line.split()[1]) for line in printed.splitlines() if line.startswith("loss ")], dtype=torch.float64)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Returns (losses, checkpoint) under PyTorch."""
    from conftest import Process
    folder = tmp_path_factory.mktemp("real")
    process = Process(folder)
    done = process.run(process.file("train.py", SCRIPT), "cpu", folder / "real.pt")
    assert done.returncode == 0, done.stderr
    return losses(done.stdout), torch.load(folder / "real.pt")


def compare(printed, path, expected):
    found = losses(printed)
    assert len(found) == 10 and found[-1] < found[0]
    torch.testing.assert_close(found, expected[0], rtol=1e-5, atol=1e-6)
    saved = torch.load(path, map_location="cpu")
    torch.testing.assert_close(saved["model"], expected[1]["model"], rtol=1e-4, atol=1e-5)
    assert saved["optimizer"]["param_groups"] == expected[1]["optimizer"]["param_groups"]


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_run(process, expected, device):
    path = process.folder / "ours.pt"
    done = process.run("-m", "mindtorch", "run", process.file("train.py", SCRIPT), device, path, env={"MINDTORCH_NPU": "cpu"})
    assert done.returncode == 0, done.stdout + done.stderr
    compare(done.stdout, path, expected)


def test_hook(process, expected):
    path = process.folder / "ours.pt"
    done = process.run(process.file("train.py", "from mindtorch.tools import mstorch_enable\n" + SCRIPT), "cpu", path)
    assert done.returncode == 0, done.stderr
    compare(done.stdout, path, expected)


@pytest.mark.ascend
def test_standin(standin, tmp_path, expected):
    script = pathlib.Path(tmp_path, "train.py")
    script.write_text(SCRIPT)
    result = standin.run(script, "npu", tmp_path / "ours.pt")
    compare(result.stdout, tmp_path / "ours.pt", expected)
    assert result.found.launches
