"""A signal during a matrix product must not corrupt memory.

oneDNN points the stack pointer to the heap meanwhile, where a handler's frame would overwrite the
memory below it. Handlers therefore have their own stack, and mindtorch's threads receive no
signals.
"""
import pathlib
import sys

import pytest

from mindtorch.backend.cpu import onednn

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="alternate stacks are set on Linux"),
              pytest.mark.host_only("processes of their own, one of them on the npu device")]
_TESTS = pathlib.Path(__file__).parents[1]
needs_onednn = pytest.mark.skipif(not onednn.has_private(), reason="no oneDNN of our own here")


_STEPS = """
import signal
import mindtorch.torch as torch
torch.set_num_threads(threads)
taken = 0
def take(number, frame):
    global taken
    taken += 1
signal.signal(signal.SIGALRM, take)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 256)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(8, 256, device=device)
y = torch.randn(256, 256, device=device)
signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
for i in range(250):
    opt.zero_grad()
    loss = (net(x) @ y).square().mean() + (y @ y).mean()
    loss.backward()
    opt.step()
    kept = [bytes(600 + i * 7 % 900) for _ in range(40)]        # (what such a frame would overwrite)
signal.setitimer(signal.ITIMER_REAL, 0)
print(loss.item())
print(taken)
"""


@pytest.mark.parametrize("device,threads", [("cpu", 1), ("cpu", 2), ("npu", 1)])
def test_training_is_unchanged_by_signals(device, threads, process):
    """Runs Python signal handlers throughout; the last loss is bitwise equal to a run without them.
    """
    runs = [process.ok(f"device, threads, seconds = {device!r}, {threads}, {every}\n{_STEPS}", timeout=200,
            env={"MINDTORCH_NPU": "cpu", "OPENBLAS_NUM_THREADS": "1"}).split() for every in (0.0004, 0)]
    assert int(runs[0][1]) > 20 and int(runs[1][1]) == 0
    assert runs[0][0] == runs[1][0]


_STACKS = """
import ctypes, threading
class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
c = ctypes.CDLL(None)
def mine():
    s = Stack()
    assert not c.sigaltstack(None, ctypes.byref(s))
    return s.start, s.flags, s.size
def mapped(start):
    with open("/proc/self/maps") as f:
        return any(int(a, 16) <= start < int(b, 16) for a, b in (line.split()[0].split("-") for line in f))
assert mine() == (None, 2, 0)
import mindtorch.torch as torch
main = mine()
assert main[0] and main[1] == 0 and main[2] >= 1 << 16, main
a = torch.ones(200, 200)
a @ a
assert mine() == main                   # (one is enough)
seen = []
def multiply():
    seen.append(mine())
    a @ a
    seen.append(mine())
    seen.append(mapped(seen[1][0]))
t = threading.Thread(target=multiply)
t.start()
t.join()
before, during, there = seen
assert before == (None, 2, 0) and during[0] not in (None, main[0]) and during[1] == 0 and during[2] == main[2] and there
assert mine() == main and mapped(main[0])
print(mapped(during[0]))
"""


@needs_onednn
def test_each_thread_has_its_own_signal_stack(process):
    assert process.ok(_STACKS).split() == ["False"]  # released with the thread


def test_existing_signal_stack_is_kept(process):
    """Checks that an existing alternate stack, such as faulthandler's, is kept: it belongs to the
    thread."""
    process.ok(_STACKS.split("assert mine()")[0] + """
room = ctypes.create_string_buffer(1 << 17)
c.sigaltstack(ctypes.byref(Stack(ctypes.addressof(room), 0, len(room))), None)
import mindtorch.torch as torch
a = torch.ones(200, 200)
a @ a
assert mine() == (ctypes.addressof(room), 0, len(room))
""")


def test_worker_threads_block_signals(process):
    """Checks that the pool's threads and the Python worker threads block all signals except their
    own faults."""
    process.ok(f"""
import signal, sys, time
import numpy as np
import mindtorch.torch as torch
from mindtorch.backend.cpu import threads
from mindtorch.backend.c_kernels import thread_pool
from mindtorch.backend.signals import FAULTS
sys.path.append({str(_TESTS)!r})
import _tasks
def blocked():
    return {{t: {{s for s in signal.valid_signals() if int(bits, 16) >> (s - 1) & 1 and s not in (32, 33)}} for t, bits in _tasks.status("SigBlk").items()}}
threads._pool.count = 3
before = blocked()
threads.share(3, lambda start, stop: None)
if thread_pool.lib() is not None:
    a = np.ones(300000, np.float32)
    thread_pool.Shared(np.add)(a, a)
expected = signal.valid_signals() - FAULTS - {{signal.SIGKILL, signal.SIGSTOP, 32, 33}}
end = time.time() + 20
ours = 4 if thread_pool.lib() is not None else 2
while True:                 # (a thread may not have begun yet, and MindSpore may begin others)
    new = [v for t, v in blocked().items() if t not in before]
    if new.count(expected) == ours:
        break
    assert time.time() < end, [sorted(v ^ expected) for v in new]
    time.sleep(0.01)
""")
