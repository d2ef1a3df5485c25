"""Device faults raise PyTorch's errors, once, and leave intact what can be kept. Each fault runs in
a separate process on the CANN simulator."""
import concurrent.futures
import json

import pytest
import torch as real

pytestmark = pytest.mark.ascend

BEGIN = """
import json, os, sys
import mindspore as ms
ms.set_device("Ascend")
import mindtorch.torch as mt
folder = os.environ["FOLDER"]

def told(f):
    '''[class, text, class of the cause, the last of the script's lines in the traceback] of an error; [] without one'''
    try:
        f()
    except RuntimeError as e:
        at, line = e.__traceback__, 0
        while at is not None:
            if at.tb_frame.f_code.co_filename == "<string>":
                line = at.tb_lineno
            at = at.tb_next
        mine = {n: k for k, n in LINES.items()}.get(line, "")
        return [type(e).__name__, str(e), type(e.__cause__).__name__, mine]
    return []

def say(word, x):
    print(word, json.dumps(x), flush=True)

LINES = {w[2:].strip(): n for n, t in enumerate(os.environ["PROGRAM"].splitlines(), 1) if "#" in t for w in [t[t.index("#"):]] if w.startswith("#:")}

def model():
    mt.manual_seed(0)
    return mt.nn.Sequential(mt.nn.Linear(4, 8), mt.nn.ReLU(), mt.nn.Linear(8, 2)).to("npu")
x = mt.arange(16.).reshape(4, 4).to("npu")
"""

PROGRAMS, FAULTS = {}, {}


def program(name, text, **env):
    PROGRAMS[name], FAULTS[name] = BEGIN + text, env


program("launch", """
r = mt.mm(x, x)
for name, f in (("synchronize", mt.npu.synchronize), ("cuda", mt.cuda.synchronize), ("accelerator", mt.accelerator.synchronize),
                ("stream", lambda: mt.npu.current_stream().synchronize()), ("new", lambda: mt.npu.Stream().synchronize()), ("query", lambda: mt.npu.current_stream().query()),
                ("item", lambda: x.sum().item()), ("cpu", lambda: x.cpu()), ("repr", lambda: repr(x)), ("bool", lambda: bool(x.sum() > 0)), ("tolist", lambda: x.tolist())):
    say(name, told(f))
def event():
    e = mt.npu.Event()
    e.record()
    e.synchronize()
say("event", told(event))
host = mt.ones(3)
mt.save({"host": host}, folder + "/launch.pt")
""", MINDTORCH_STANDIN_FAIL="launch:Matmul")

program("blocking", """
def f():
    y = x + 1
    z = mt.mm(y, y)     #: here
    return z.cpu()
say("first", told(f))
""", MINDTORCH_STANDIN_FAIL="launch:Matmul", ASCEND_LAUNCH_BLOCKING="1")

program("blocking_reject", """
def f():
    y = x + 1
    z = mt.mm(y, y)     #: here
    return z.cpu()
say("first", told(f))
say("then", f().tolist())
m = model()
o = mt.optim.AdamW(m.parameters(), lr=.1)
def step():
    o.zero_grad()
    m(x).square().mean().backward()     #: backward
    o.step()            #: optimizer
    return m(x).sum().item()
losses, errors = [], []
for _ in range(5):
    e = told(lambda: losses.append(step()))
    if e:
        errors.append(e)
say("losses", losses)
say("errors", errors)
mt.save({"model": m.state_dict(), "optimizer": o.state_dict()}, folder + "/blocking_reject.pt")
say("values", [p.tolist() for p in m.parameters()])
""", MINDTORCH_STANDIN_FAIL="reject:Matmul:1 reject:ThresholdBackward:1 reject:ApplyAdamWV2:2", CUDA_LAUNCH_BLOCKING="1", ASCEND_LAUNCH_BLOCKING="")

program("reject", """
m = model()
y = x * 2
mt.npu.synchronize()
r = mt.mm(x, x)
v, z = r[1:], y + 1
say("first", told(mt.npu.synchronize))
say("again", told(mt.npu.synchronize))
for name, f in (("read", lambda: r.cpu()), ("view", lambda: v.tolist()), ("operand", lambda: r + 1), ("views", lambda: r.t()), ("later", lambda: z.sum()),
                ("backward", lambda: r.detach().requires_grad_().square().sum().backward())):
    say(name, told(f))
say("before", y.tolist())
r = mt.mm(x, x)
say("anew", r.tolist())
say("sum", (x + x).sum().item())
say("mm", mt.mm(x, x).tolist())
mt.save(m.state_dict(), folder + "/reject.pt")
say("values", [p.tolist() for p in m.parameters()])
""", MINDTORCH_STANDIN_FAIL="reject:Matmul")

program("memory", """
m = model()
kept = []
def fill():
    b = mt.ones(1 << 21).to("npu")
    for i in range(12):
        kept.append(b * float(i))
    mt.npu.synchronize()
say("first", told(fill))
say("again", told(mt.npu.synchronize))
say("last", told(lambda: (kept[-1] + 1)[3].item()))
del kept[:6]
say("freed", told(lambda: kept[-1][3].item()))
kept.clear()
mt.npu.empty_cache()
say("free", mt.npu.mem_get_info())
say("sum", (mt.ones(1 << 21).to("npu") * 2.).sum().item())
t = mt.zeros(1 << 24).to("npu")
say("upload", told(mt.npu.synchronize))
say("uploaded", told(lambda: t[3].item()))
say("empty", told(lambda: (mt.empty(1 << 24, device="npu").fill_(1.), mt.npu.synchronize())))
mt.save(m.state_dict(), folder + "/memory.pt")
say("values", [p.tolist() for p in m.parameters()])
say("class", mt.npu.OutOfMemoryError is mt.OutOfMemoryError is mt.cuda.OutOfMemoryError)
""", MINDTORCH_STANDIN_MEMORY="64MB")

program("training", """
def train(sizes, opt, none):
    mt.manual_seed(0)
    m = mt.nn.Sequential(mt.nn.Linear(64, 1024), mt.nn.ReLU(), mt.nn.Linear(1024, 8)).to("npu")
    o, losses = opt(m.parameters()), []
    for n in sizes:
        x = mt.linspace(0, 1, n * 64).reshape(n, 64).to("npu")
        o.zero_grad(set_to_none=none)
        try:
            loss = m(x).square().mean()
            loss.backward()
            o.step()
            losses.append(loss.item())
        except mt.OutOfMemoryError:
            losses.append(None)
    return losses
for name, opt in (("sgd", lambda p: mt.optim.SGD(p, lr=.1)), ("adamw", lambda p: mt.optim.AdamW(p, lr=.01)), ("adagrad", lambda p: mt.optim.Adagrad(p, lr=.01))):
    for none in (True, False):
        say(f"{name}-{none}", [train([16, 32, 16], opt, none), train([20000, 16, 20000, 32, 16, 20000], opt, none)])
""", MINDTORCH_STANDIN_MEMORY="96MB")

program("memory_blocking", """
kept, b = [], mt.ones(1 << 21).to("npu")
def fill():
    for i in range(12):
        kept.append(b * float(i))       #: here
say("first", told(fill))
n = len(kept)
say("count", n)
say("last", kept[-1][5].item())
kept.clear()
say("sum", (b * 2.).sum().item())
""", MINDTORCH_STANDIN_MEMORY="64MB", ASCEND_LAUNCH_BLOCKING="1")

program("copy", """
say("first", told(lambda: x.sum().item()))
say("sum", x.sum().item())
""", MINDTORCH_STANDIN_FAIL="copy:2")

program("lost", """
m = model()
host = {k: v.cpu() for k, v in m.state_dict().items()}
def f():
    for _ in range(100):
        m(x)
    mt.npu.synchronize()
say("first", told(f))
for name, f in (("op", lambda: x + x), ("mm", lambda: mt.mm(x, x)), ("cpu", lambda: x.cpu()), ("item", lambda: x.sum().item()), ("repr", lambda: repr(x)),
                ("upload", lambda: mt.ones(2).to("npu")), ("create", lambda: mt.zeros(2, device="npu")), ("write", lambda: x.add_(1)), ("fill", lambda: x.fill_(1)),
                ("synchronize", mt.npu.synchronize), ("stream", lambda: mt.npu.current_stream().synchronize()),
                ("save", lambda: mt.save(m.state_dict(), folder + "/none.pt"))):
    say(name, told(f))
say("shape", list(x.t().shape))
mt.save(host, folder + "/lost.pt")
say("values", [host[k].tolist() for k in host])
""", MINDTORCH_STANDIN_FAIL="lost:40")


@pytest.fixture(scope="module")
def ran(standin, tmp_path_factory):
    """Results of all programs, run in parallel."""
    folder = tmp_path_factory.mktemp("faults")

    def run(name):
        env = {"ASCEND_LAUNCH_BLOCKING": "", "CUDA_LAUNCH_BLOCKING": "", **FAULTS[name]}
        r = standin.run("-c", PROGRAMS[name], hook=False, status=None, timeout=85, FOLDER=str(folder), PROGRAM=PROGRAMS[name], **env)
        assert r.returncode == 0, f"{name}: {r.returncode}\n{r.stdout[-3000:]}\n{r.stderr[-3000:]}"
        said = dict(line.split(" ", 1) for line in r.stdout.splitlines())
        r.all = {k: json.loads(v) for k, v in said.items()}
        return r
    pool = concurrent.futures.ThreadPoolExecutor(2)
    futures = {name: pool.submit(run, name) for name in PROGRAMS}

    def result(name):
        return futures[name].result().all
    result.folder = folder
    yield result
    pool.shutdown(cancel_futures=True)


LATER = "might be asynchronously reported at some other API call"
HINT = "For debugging consider passing ASCEND_LAUNCH_BLOCKING=1"


def test_failed_launch_raises_at_every_synchronization(ran):
    r = ran("launch")
    assert len(r) == 12
    for name, (kind, text, cause, _) in r.items():
        assert kind == "AcceleratorError" and cause == "RuntimeError", (name, kind)
        assert text.startswith("NPU error: aclnnMatmul failed on the device, on request (device npu:0)\n"), (name, text)
        assert LATER in text and HINT in text and "Call Stack" not in text and "---" not in text, text
    assert real.load(ran.folder / "launch.pt")["host"].tolist() == [1, 1, 1]


def test_failed_blocking_launch_raises_at_its_line(ran):
    kind, text, _, at = ran("blocking")["first"]
    assert kind == "AcceleratorError" and at == "here", (text, at)
    assert "aclnnMatmul failed on the device, on request" in text and "by primitive 'mm' of float32[4, 4], float32[4, 4]" in text and HINT not in text


def test_rejected_kernel_invalidates_only_its_results(ran):
    r = ran("reject")
    kind, text, _, _ = r["first"]
    assert kind == "RuntimeError" and text.startswith("NPU error: aclnnMatmul is refused on device npu:0: refused on request"), text
    # that memory was never filled: reading it must raise
    for name in ("read", "view", "operand", "views", "later", "backward"):
        assert r[name] and r[name][0] == "AcceleratorError" and " has unreliable values: " in r[name][1], (name, r[name])
    assert r["before"] == (real.arange(16.).reshape(4, 4) * 2).tolist() and r["anew"] == r["mm"]
    assert r["again"] == [] and r["sum"] == 240.0 and r["mm"] == (real.arange(16.).reshape(4, 4) @ real.arange(16.).reshape(4, 4)).tolist()
    assert [p.tolist() for p in real.load(ran.folder / "reject.pt", map_location="cpu").values()] == r["values"]


def test_kernels_rejected_in_backward_and_optimizer_step(ran):
    """With blocking launches only the rejected op is missing, and the next step works."""
    r = ran("blocking_reject")
    kind, text, _, at = r["first"]
    assert kind == "RuntimeError" and at == "here" and "by primitive 'mm' of float32[4, 4], float32[4, 4]" in text and HINT not in text
    y = real.arange(16.).reshape(4, 4) + 1
    assert r["then"] == (y @ y).tolist()
    assert [e[3] for e in r["errors"]] == ["backward", "optimizer"] and len(r["losses"]) == 3, r
    assert all(e[0] == "RuntimeError" and "is refused on device npu:0 by " in e[1] for e in r["errors"]) and "optimizer step of 4 parameters, some of which" in r["errors"][1][1]
    saved = real.load(ran.folder / "blocking_reject.pt", map_location="cpu", weights_only=False)
    assert [p.tolist() for p in saved["model"].values()] == r["values"] and len(saved["optimizer"]["state"]) == 4


def test_out_of_device_memory_raises_and_recovers(ran):
    r = ran("memory")
    for name in ("first", "upload", "empty"):
        kind, text, cause, _ = r[name]
        assert kind == "OutOfMemoryError" and text.startswith("NPU out of memory. ") and "NPU 0 has a total capacity of 64.00 MiB of which " in text, (name, text)
        assert " is free. " in text and "is allocated by tensors" in text and "Call Stack" not in text
    assert r["again"] == []
    for name in ("last", "freed", "uploaded"):
        assert r[name] and " has unreliable values: " in r[name][1], (name, r[name])
    assert r["free"][0] > 40 << 20 and r["sum"] == float(1 << 22) and r["class"] is True
    assert [p.tolist() for p in real.load(ran.folder / "memory.pt", map_location="cpu").values()] == r["values"]


def test_training_continues_after_out_of_memory(ran):
    """Gradients that were never computed do not update any parameter or optimizer state."""
    for name, (small, all_) in ran("training").items():
        assert all_ == [None, small[0], None, small[1], small[2], None], (name, small, all_)


def test_out_of_memory_with_blocking_launches(ran):
    r = ran("memory_blocking")
    kind, text, _, at = r["first"]
    assert kind == "OutOfMemoryError" and at == "here" and "by primitive 'mul' of float32[2097152]" in text and HINT not in text, text
    assert r["last"] == r["count"] - 1 and r["sum"] == float(1 << 22)


def test_failed_copy_raises(ran):
    r = ran("copy")
    assert r["first"][0] == "AcceleratorError" and "a copy failed, on request" in r["first"][1] and r["sum"] == 120.0


def test_lost_device_raises_everywhere(ran):
    """Every later use raises the device-lost error, the process exits by itself, and host data can
    still be saved."""
    r = ran("lost")
    for name, found in r.items():
        if name not in ("shape", "values"):
            assert found and found[0] == "AcceleratorError" and found[1].startswith("NPU error: device npu:0 is lost: the device is lost (heartbeat)"), (name, found)
    assert r["shape"] == [4, 4]
    assert [p.tolist() for p in real.load(ran.folder / "lost.pt").values()] == r["values"]
