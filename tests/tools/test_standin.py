"""The CANN simulator itself: building, running from the command line, logging, reporting, rejecting
and failing."""
import hashlib
import json
import os
import subprocess
import sys
import time
import types

import pytest

from mindtorch.tools.standin import _attach, _build, _report

ASCEND = "import mindspore as ms\nms.set_device('Ascend')\nimport mindtorch.torch as mt\n"


def test_other_platforms_print_one_sentence(monkeypatch, capsys):
    from mindtorch import __main__
    monkeypatch.setattr(_build.platform, "machine", lambda: "aarch64")
    assert __main__.main(["standin", "build"]) == 2
    assert capsys.readouterr().err == "python -m mindtorch standin: the CANN simulator runs on x86-64 Linux only, not on aarch64 linux\n"


def test_missing_compiler_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(_build.shutil, "which", lambda name: None if name in ("g++", "nm") else "/usr/bin/" + name)
    with pytest.raises(_build.CannotBuild, match=r"g\+\+ and nm must be installed"):
        _build.build()


def test_report():
    lines = [{"launch": "aclnnAdd", "args": ""}, {"launch": "aclnnAdd", "args": ""}, {"launch": "aclnnMm", "args": ""}, {"aclop": "LSTM"},
             {"copy": "D2H", "bytes": 4, "site": "a.py:3"}, {"copy": "D2H", "bytes": 8, "site": "a.py:3"}, {"copy": "H2D", "bytes": 2048}, {"memory": 1 << 21},
             {"allocated": 1000}, {"refused": "aclnnMm", "why": "argument 0 is i64"}, {"failed": "aclnnX is not computed"}, {"hccl": "AllReduce"}, {"fallbacks": {"mode": 3}}]
    found = _report.parse("\n".join(map(json.dumps, lines)).encode())
    assert found.launches == {"aclnnAdd": 2, "aclnnMm": 1} and found.aclop == {"LSTM": 1} and found.count("D2H") == 2 and found.count("H2D") == 1
    text = _report.text(found)
    for part in ("with copies there and back: 3", "       3  mode", "launches: 3 of 2 kernels, 1 collectives", "       2  aclnnAdd", "       2        12 B  a.py:3", "2.0 KB  (not by Python)", "1000 B of tensors, 2.0 MB reserved",
                 "FAILED: aclnnX is not computed", "refused by the chip's limits: aclnnMm: argument 0 is i64 (1)", "What this does not show"):
        assert part in text, text
    assert json.loads(json.dumps(found.as_dict()))["copies"][0] == {"direction": "D2H", "site": "a.py:3", "copies": 2, "bytes": 12}


@pytest.mark.ascend
def test_kernels_are_computed_and_logged(standin):
    out = standin.run("-c", ASCEND + """
x = mt.arange(6.).reshape(2, 3).to("npu")
y = (x + x * x)[:, 1:]
print("SAID", (y.t() @ y).tolist())
""", hook=False)
    assert json.loads(out.said("SAID")) == [[404.0, 612.0], [612.0, 936.0]]
    assert out.found.launches == {"aclnnMul": 1, "aclnnAdd": 1, "aclnnMatmul": 1} and out.found.count("H2D") == out.found.count("D2H") == 1
    product = next(line["args"] for line in map(json.loads, out.log.read_text().splitlines()) if line.get("launch") == "aclnnMatmul")
    # (views launch no kernel)
    assert product.startswith("T[2,2]f32 strides[1,3] offset1, T[2,2]f32 strides[3,1] offset1, T[2,2]f32")


@pytest.mark.ascend
def test_launch_without_a_kernel_fails(standin, tmp_path):
    """The run fails even if the script does not read the result."""
    without = tmp_path / "without.py"
    without.write_text("del KERNELS['Matmul']\n")
    script = tmp_path / "script.py"
    script.write_text("import torch\nx = torch.ones(3, 3).npu()\ntry:\n    x @ x\n    torch.npu.synchronize()\nexcept RuntimeError as e:\n    print('ERROR', e)\n")
    r = command("run", "--kernels", without, "--engine", "torch", script)
    assert r.returncode == 1 and "aclnnMatmul is not computed" in r.stderr, r.stdout + r.stderr


def command(*argv, **env):
    return subprocess.run([sys.executable, "-m", "mindtorch", "standin", *map(str, argv)], capture_output=True, text=True, timeout=110,
                          env={**os.environ, "PYTHONPATH": str(_build.SOURCES.parents[2]), **env})


@pytest.mark.ascend
def test_copies_are_reported_by_user_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nx = torch.ones(2, 3).npu()\nfor _ in range(3):\n    y = x + x\n    print(y.mul(x)[1, 2].item())\n")
    r = command("run", "--json", tmp_path / "r.json", script)
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith("2.0\n2.0\n2.0\nlaunches: "), r.stdout
    found = json.loads((tmp_path / "r.json").read_text())
    assert {(c["direction"], os.path.basename(c["site"]), c["copies"]) for c in found["copies"]} == {("H2D", "script.py:2", 1), ("D2H", "script.py:5", 3)}
    assert found["launches"]["aclnnAdd"] == 3 and found["memory"] >= found["allocated"] > 0


@pytest.mark.ascend
def test_requested_failures_occur(standin):
    """Each failure appears where a chip would report it: at the call, or at the next
    synchronization."""
    program = ASCEND + """
x = mt.ones(4, 4).to("npu")
for name, f in (("prepare", lambda: mt.mm(x, x)), ("later", lambda: mt.mm(x, x)), ("synchronize", lambda: mt.npu.synchronize())):
    try:
        f()
        print(name, "passed")
    except RuntimeError as e:
        print(name, "raised", str(e).splitlines()[0])
"""
    r = standin.run("-c", program, hook=False, status=None, MINDTORCH_STANDIN_FAIL="launch:Matmul", ASCEND_LAUNCH_BLOCKING="")
    assert "later passed" in r.stdout and "synchronize raised" in r.stdout, r.stdout + r.stderr[-2000:]
    assert r.found.failed == ["aclnnMatmul failed on the device, on request"]


@pytest.mark.ascend
def test_undocumented_dtypes_are_rejected(standin):
    """The simulator rejects an int64 matrix product when it is prepared; mindtorch computes it on
    the host, with a warning."""
    program = ASCEND + """
x = mt.arange(4).reshape(2, 2).npu()
print("SAID", (x @ x).tolist())
try:
    ms.mint.matmul(ms.Tensor([[1, 2]], ms.int64), ms.Tensor([[1], [2]], ms.int64)).asnumpy()
except RuntimeError as e:
    print("REFUSED", [line for line in str(e).splitlines() if "argument 0" in line][0])
"""
    r = standin.run("-c", program, hook=False)
    assert r.said("SAID") == "[[2, 3], [6, 11]]" and "primitive 'mm' of int64" in r.stderr
    assert r.said("REFUSED") == "aclnnMatmul: argument 0 is i64; the chip takes bf16 f16 f32"
    assert sum(r.found.refused.values()) == 1


def test_user_line_is_outside_installed_packages():
    """If all frames belong to packages, it is the innermost frame outside mindtorch and MindSpore.
    """
    class Frame:
        def __init__(self, *names):  # outermost first
            self.f_code, self.f_lineno = types.SimpleNamespace(co_filename=names[-1]), len(names)
            self.f_back = Frame(*names[:-1]) if names[1:] else None
    ours, installed = ("/env/site-packages/mindtorch/",), ("/env/",)
    for names, expected in (
            (("/home/me/train.py", "/env/site-packages/lib/trainer.py", "/env/site-packages/mindtorch/x.py"), "/home/me/train.py:1"),
            (("/home/me/train.py", "/home/me/model.py", "<string>"), "/home/me/model.py:2"),
            (("/env/runpy.py", "/env/site-packages/lib/__main__.py", "/env/site-packages/mindtorch/x.py"), "/env/site-packages/lib/__main__.py:2"),
            (("/env/site-packages/mindtorch/x.py",), None)):
        assert _attach.user_line(Frame(*names), ours, installed) == expected


def test_truncated_log_lines_are_counted():
    found = _report.parse(b'{"launch": "aclnnAdd", "args": ""}\n{"launch": "acln')
    assert found.launches == {"aclnnAdd": 1} and found.unreadable == 1 and "cannot be read: 1" in _report.text(found)


def test_missing_compute_and_copy_functions_are_not_stubs():
    absent = [n for n in ("aclmdlExecute", "aclmdlRIExecuteAsync", "aclrtMemcpy2dAsync", "aclrtMemImportFromShareableHandle", "rtKernelLaunch", "HcclAllToAll",
                          "_ZN2ge7Session23RunGraphWithStreamAsyncEjPvRKSt6vectorINS_6TensorESaIS3_EERS5_") if _build._AT_WORK.search(n)]
    assert len(absent) == 7
    assert not [n for n in ("aclInit", "aclrtSetOpExecuteTimeOut", "aclmdlRICaptureGetInfo", "HcclGroups", "aclrtStreamWaitEvent") if _build._AT_WORK.search(n)]


def test_unusable_cache_folder_raises(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, words in (("file", "cannot be used"), ("a:b", "colon")):
        monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / folder))
        with pytest.raises(_build.CannotBuild, match=words):
            _build.build()


def test_damaged_build_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(_build, "folder", lambda: tmp_path)
    (tmp_path / "lib64").mkdir()
    library = tmp_path / "lib64" / "libstandin.so"
    library.write_bytes(b"library")
    (tmp_path / "lib64" / "libhccl.so").symlink_to("libstandin.so")
    (tmp_path / "standin.json").write_text(json.dumps({"sha256": hashlib.sha256(b"library").hexdigest(), "files": ["lib64/libhccl.so"]}))
    assert _build.built()
    library.chmod(0o666)  # other users could have modified it
    assert not _build.built()
    library.chmod(0o644)
    (tmp_path / "lib64" / "libhccl.so").unlink()
    assert not _build.built()
    (tmp_path / "lib64" / "libhccl.so").symlink_to("libstandin.so")
    assert _build.built()
    library.write_bytes(b"libr")
    assert not _build.built()


def test_invalid_arguments_exit_with_2(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    for arguments, words in ((["--kernels", "/no/file.py"], "there is no file '/no/file.py'"), (["--memory", "many"], "--memory many: expected"),
                             (["--log", tmp_path / "none" / "x"], "cannot be written"), (["--chip", "Ascend1"], "no limits are known")):
        r = command("run", *arguments, script)
        assert r.returncode == 2 and words in r.stderr, r.stderr


@pytest.mark.ascend
def test_unsynchronized_failure_is_reported(tmp_path):
    fault = tmp_path / "fault.py"
    fault.write_text("import dataclasses\ndef f(*a): raise ArithmeticError('planted')\nKERNELS['Matmul'] = dataclasses.replace(KERNELS['Matmul'], function=f)\n")
    script = tmp_path / "script.py"
    script.write_text("import os, time, torch\nx = torch.ones(3, 3).npu()\nassert (x + x).sum().item() == 18\ny = x @ x\n"
                      "while 'aclnnMatmul' not in open(os.environ['MINDTORCH_STANDIN_LOG']).read():\n    time.sleep(0.01)\n"
                      "time.sleep(0.2)\nos._exit(0)\n")
    r = command("run", "--no-report", "--kernels", fault, script)
    assert r.returncode == 1 and r.stderr.endswith("aclnnMatmul failed: ArithmeticError: planted\n"), r.stderr


@pytest.mark.ascend
def test_simulator_crash_is_reported(tmp_path):
    """Whether it fails by itself or is killed at work, one sentence reports it."""
    broken, script = tmp_path / "broken.py", tmp_path / "script.py"
    broken.write_text("kernel('Add', 'self, out!')(lambda s, o: s)\n")
    script.write_text("import torch\nx = torch.ones(3, 3).npu()\nprint((x + x).tolist())\n")
    r = command("run", "--no-report", "--kernels", broken, script)
    last = r.stderr.splitlines()[-1]
    assert r.returncode == 1 and "ValueError: aclnnAdd is registered twice" in r.stderr, r.stderr
    assert last == "python -m mindtorch standin: the process that computes launches exited unexpectedly (status 1); see its output above"
    killed = tmp_path / "killed.py"
    killed.write_text("import dataclasses, os\nKERNELS['Matmul'] = dataclasses.replace(KERNELS['Matmul'], function=lambda *a: os.kill(os.getpid(), 9))\n")
    script.write_text("import torch\nx = torch.ones(3, 3).npu()\ntry:\n    print((x @ x).tolist())\nexcept RuntimeError as e:\n    print('ERROR', e)\n")
    r = command("run", "--no-report", "--kernels", killed, script)
    assert r.returncode == 1 and "process that computes launches has ended" in r.stdout and "launches has ended" in r.stderr.splitlines()[-1], r.stdout + r.stderr


@pytest.mark.ascend
def test_uninitialized_memory_is_nan(standin):
    out = standin.run("-c", ASCEND + "print('SAID', ms.mint.empty((3, 1 << 20), device='Ascend').asnumpy()[:, ::9999].max())", hook=False)
    assert out.said("SAID") == "nan"


@pytest.mark.ascend
def test_spawned_processes_use_the_simulator(tmp_path):
    """The report has the user's lines and no MindSpore message about a missing compiler. A forked
    worker inherits no state of the simulator."""
    script = tmp_path / "script.py"
    script.write_text('''
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def work(k):
    x = torch.full((3, 3), float(k)).npu()
    assert (x @ x).sum().item() == 27 * k * k

if __name__ == "__main__":
    layer = torch.nn.Linear(2, 1).npu()
    for x, in DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        layer(x.npu()).sum().backward()
    mp.start_processes(work, nprocs=2, start_method="spawn")
    print("GRADIENT", layer.weight.grad.tolist())
''')
    r = command("run", "--json", tmp_path / "r.json", "--no-report", script)
    assert r.returncode == 0 and "GRADIENT [[8.0, 8.0]]" in r.stdout and "te" not in r.stderr.split(), r.stdout + r.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    assert {(c["direction"], os.path.basename(c["site"]), c["copies"]) for c in found["copies"]} >= {("D2H", "script.py:8", 2)}, found["copies"]


@pytest.mark.ascend
def test_signals(tmp_path):
    """The exit status tells which signal ended the script; a signal to the command ends the script.
    """
    script = tmp_path / "script.py"
    script.write_text("import os, sys, time, torch\nx = torch.ones(3).npu().sum().item()\nprint(os.getpid(), flush=True)\n"
                      "if len(sys.argv) > 1:\n    os.kill(os.getpid(), 11)\ntime.sleep(60)\n")
    r = command("run", "--no-report", script, "x")
    assert r.returncode == 139 and "ended by signal 11" in r.stderr.splitlines()[-1], r.stderr
    p = subprocess.Popen([sys.executable, "-m", "mindtorch", "standin", "run", "--no-report", str(script)], stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "PYTHONPATH": str(_build.SOURCES.parents[2])})
    pid = int(p.stdout.readline())
    p.kill()  # a signal that the command cannot forward
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.05)
    p.stdout.close()
    p.wait()
    assert not os.path.exists(f"/proc/{pid}")
