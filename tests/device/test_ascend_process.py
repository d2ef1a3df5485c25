"""Process-level side effects of MindSpore's Ascend plugin are corrected: Ctrl-C raises Python's
KeyboardInterrupt, and a forked child exits with its own status."""
import pytest

pytestmark = pytest.mark.ascend

CTRL_C = """
import os, signal, sys, time
from mindtorch.tools import mstorch_enable
import torch
from torch.utils.data import DataLoader, TensorDataset

signal.signal(signal.SIGINT, signal.default_int_handler)        # (what a shell starts in the background ignores it)

def end(where):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
    except KeyboardInterrupt:
        print("caught", where, flush=True)

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
end("before")
torch.zeros(3, device="npu").add(1)
torch.cuda.synchronize()
end("made")
net.npu()
end("moved")
opt = torch.optim.SGD(net.parameters(), 0.1)
# (Each fork, here of a loader's worker, ends MindSpore's threads; they begin anew.)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=4, num_workers=1):
        net(x.npu()).sum().backward()
        opt.step()
    end(f"epoch {epoch}")
pid, me = os.fork(), os.getppid()
if not pid:
    time.sleep(1)
    os.kill(me, signal.SIGINT)
    os._exit(0)
steps = 0
try:
    while True:
        net(x.npu()).pow(2).mean().backward()
        opt.step()
        opt.zero_grad()
        steps += 1
except KeyboardInterrupt:
    torch.save(net.state_dict(), sys.argv[1])
    print("steps", steps)

# A handler of the user's own is kept as well, and one that Python does not know of is left alone.
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
os.waitpid(pid, 0)
net(x.npu()).sum().item()
os.kill(os.getpid(), signal.SIGINT)
import faulthandler
faulthandler.register(signal.SIGINT, file=open(sys.argv[2], "w"))
net(x.npu()).sum().item()
os.kill(os.getpid(), signal.SIGINT)
print("own", len(seen))
"""


def test_ctrl_c_raises_keyboard_interrupt(standin, tmp_path):
    script, saved, stack = tmp_path / "train.py", tmp_path / "net.pt", tmp_path / "stack"
    script.write_text(CTRL_C)
    r = standin.run(script, saved, stack)
    assert [line for line in r.stdout.splitlines() if line.startswith("caught")] == [f"caught {w}" for w in ("before", "made", "moved", "epoch 0", "epoch 1")]
    assert int(r.said("steps")) > 0 and r.said("own") == "1" and "train.py" in stack.read_text()
    import torch
    assert {k: tuple(v.shape) for k, v in torch.load(saved, map_location="cpu").items()} == {"weight": (2, 3), "bias": (2,)}


FORKED = """
import atexit, os, sys
from mindtorch.tools import mstorch_enable
import torch

x = torch.ones(3).npu() * 2
print("sum", x.sum().item(), flush=True)
pid = os.fork()
if not pid:
    atexit.register(print, "at exit", torch.ones(2).sum().item())
    sys.exit(7)
print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), x.sum().item())
"""


def test_forked_child_exits_with_its_status(standin, tmp_path):
    """A child that calls `sys.exit` after its process has used the device exits with its own
    status, after Python's exit functions."""
    script = tmp_path / "fork.py"
    script.write_text(FORKED)
    r = standin.run(script)
    assert r.said("sum") == "6.0" and r.said("at exit") == "2.0" and r.said("status") == "7 6.0"


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Made(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((2,), float(i)) + torch.ones(2), i

torch.set_default_device("npu")
net = torch.nn.Linear(2, 1)
losses = []
for rows in (Made(), TensorDataset(torch.arange(8., device="cpu").reshape(4, 2), torch.arange(4, device="cpu"))):
    for x, i in DataLoader(rows, 2, num_workers=2):
        assert x.device.type == i.device.type == "cpu"
        losses.append(net(x.npu()).sum().item())
packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 2), [3, 1], batch_first=True)
print("batches", len(losses), packed.batch_sizes.device, torch.nn.LSTM(2, 5, batch_first=True)(packed)[0].data.shape[0])
"""


def test_loader_workers_ignore_the_default_device(standin, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    assert standin.run(script).said("batches") == "4 cpu 4"
