"""The stand-in for CANN itself: built, run from the command line, what it logs, reports, refuses and fails."""
import json
import os
import subprocess
import sys

import pytest

from mindtorch.tools.standin import _build, _report

ASCEND = "import mindspore as ms\nms.set_device('Ascend')\nimport mindtorch.torch as mt\n"


def test_elsewhere_it_is_refused_in_a_sentence(monkeypatch, capsys):
    from mindtorch import __main__
    monkeypatch.setattr(_build.platform, "machine", lambda: "aarch64")
    assert __main__.main(["standin", "build"]) == 2
    assert capsys.readouterr().err == "python -m mindtorch standin: the stand-in for CANN runs on x86-64 Linux only, not on aarch64 linux\n"


def test_without_a_compiler_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(_build.shutil, "which", lambda name: None if name in ("g++", "nm") else "/usr/bin/" + name)
    with pytest.raises(_build.CannotBuild, match=r"g\+\+ and nm must be installed"):
        _build.build()


def test_report():
    lines = [{"launch": "aclnnAdd", "args": ""}, {"launch": "aclnnAdd", "args": ""}, {"launch": "aclnnMm", "args": ""}, {"aclop": "LSTM"},
             {"copy": "D2H", "bytes": 4, "site": "a.py:3"}, {"copy": "D2H", "bytes": 8, "site": "a.py:3"}, {"copy": "H2D", "bytes": 2048}, {"memory": 1 << 21},
             {"allocated": 1000}, {"refused": "aclnnMm", "why": "argument 0 is i64"}, {"failed": "aclnnX is not computed"}, {"hccl": "AllReduce"}, {"fallbacks": {"mode": 3}}]
    found = _report.tell("\n".join(map(json.dumps, lines)).encode())
    assert found.launches == {"aclnnAdd": 2, "aclnnMm": 1} and found.aclop == {"LSTM": 1} and found.count("D2H") == 2 and found.count("H2D") == 1
    text = _report.text(found)
    for part in ("for want of a kernel: 3", "       3  mode", "launches: 3 of 2 kernels, 1 collectives", "       2  aclnnAdd", "       2        12 B  a.py:3", "2.0 KB  (not by Python)", "1000 B of tensors, 2.0 MB taken",
                 "FAILED: aclnnX is not computed", "refused by the chip's limits: aclnnMm: argument 0 is i64 (1)", "What this does not show"):
        assert part in text, text
    assert json.loads(json.dumps(found.as_dict()))["copies"][0] == {"direction": "D2H", "site": "a.py:3", "copies": 2, "bytes": 12}


@pytest.mark.ascend
def test_computed_and_logged(standin):
    out = standin.run("-c", ASCEND + """
x = mt.arange(6.).reshape(2, 3).to("npu")
y = (x + x * x)[:, 1:]
print("SAID", (y.t() @ y).tolist())
""", hook=False)
    assert json.loads(out.said("SAID")) == [[404.0, 612.0], [612.0, 936.0]]
    assert out.found.launches == {"aclnnMul": 1, "aclnnAdd": 1, "aclnnMatmul": 1} and out.found.count("H2D") == out.found.count("D2H") == 1
    product = next(line["args"] for line in map(json.loads, out.log.read_text().splitlines()) if line.get("launch") == "aclnnMatmul")
    assert product.startswith("T[2,2]f32 strides[1,3] offset1, T[2,2]f32 strides[3,1] offset1, T[2,2]f32")         # (views launch nothing)


@pytest.mark.ascend
def test_a_launch_that_nothing_computes_fails(standin, tmp_path):
    """Even where the script does not look at the result."""
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
def test_copies_are_told_by_the_users_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nx = torch.ones(2, 3).npu()\nfor _ in range(3):\n    y = x + x\n    print(y.mul(x)[1, 2].item())\n")
    r = command("run", "--json", tmp_path / "r.json", script)
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith("2.0\n2.0\n2.0\nlaunches: "), r.stdout
    found = json.loads((tmp_path / "r.json").read_text())
    assert {(c["direction"], os.path.basename(c["site"]), c["copies"]) for c in found["copies"]} == {("H2D", "script.py:2", 1), ("D2H", "script.py:5", 3)}
    assert found["launches"]["aclnnAdd"] == 3 and found["memory"] >= found["allocated"] > 0


@pytest.mark.ascend
def test_failures_on_request(standin):
    """Each where a chip would tell: at the call, or where the process synchronises."""
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
def test_the_chip_refuses_what_its_documents_do(standin):
    """A matrix product of int64 is refused when it is prepared; by the facade it goes to the host, with its warning."""
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
