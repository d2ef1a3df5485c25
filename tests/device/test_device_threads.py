"""Several threads train on the npu concurrently. Calls into MindSpore are serialized (the process
crashes otherwise), and each thread gets its own result."""
import subprocess
import sys

import pytest

PROGRAM = """
import threading
import mindtorch.torch as t

def train(device, seed, out):
    g = t.Generator().manual_seed(seed)
    x = t.randn(16, 8, generator=g)
    w = [t.randn(8, 16, generator=g) * 0.3, t.randn(16, 1, generator=g) * 0.3]
    x, w = x.to(device), [p.to(device).requires_grad_() for p in w]
    opt = t.optim.SGD(w, 0.05)
    for _ in range(60):
        opt.zero_grad()
        loss = ((t.relu(x @ w[0]) @ w[1] - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        opt.step()
    out[seed] = loss.item()

want, got = {}, {}
for i in range(3):
    train("cpu", i, want)
threads = [threading.Thread(target=train, args=("npu", i, got)) for i in range(3)]
for th in threads:
    th.start()
for th in threads:
    th.join()
assert all(abs(want[i] - got[i]) <= 1e-4 * abs(want[i]) + 1e-6 for i in range(3)), (want, got)
print("agree")
"""


@pytest.mark.timeout(120)
def test_threads_train_concurrently(monkeypatch):
    monkeypatch.setenv("MINDTORCH_NPU", "cpu")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0 and "agree" in done.stdout, done.stderr[-2000:]
