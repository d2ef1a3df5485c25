"""Initialization of MindSpore: side effects of the import, rejected versions, and forks."""
import os
import subprocess
import sys

import pytest

from mindtorch.backend.mindspore import runtime

IMPORT = "from mindtorch.backend.mindspore.runtime import ms, np, target, launch_is_blocking, onednn_uses_avx512\n"


def test_import_sets_no_environment_variables(process):
    """Checks that mindtorch sets no environment variable in addition to those of MindSpore's own
    import."""
    process.ok("""
        import os
        import mindspore
        before = dict(os.environ)
        import mindtorch.backend.mindspore.runtime
        assert dict(os.environ) == before
    """)
    process.ok("import os\nbefore = set(os.environ)\n" + IMPORT + """
assert not [k for k in os.environ if k not in before and k.startswith(("GLOG", "ONEDNN", "DNNL", "MINDTORCH"))]
""")


def test_user_settings_are_respected(process):
    process.ok(IMPORT + """
import os
assert os.environ["GLOG_v"] == "2" and ms.get_level() == "2"
assert os.environ["ONEDNN_MAX_CPU_ISA"] == "SSE41"
assert not launch_is_blocking()
""", env={"GLOG_v": "2", "ONEDNN_MAX_CPU_ISA": "SSE41", "MINDTORCH_LAUNCH_BLOCKING": "0"})


def test_defaults(process):
    process.ok(IMPORT + """
assert ms.get_level() == "3" and target() == ms.get_context("device_target")
if target() == "CPU":
    assert launch_is_blocking()
assert not onednn_uses_avx512()
""")


def test_import_prints_no_warnings(process):
    done = process.code(IMPORT + "ms.log.warning('not seen')\nms.log.error('seen')\n")
    assert "not seen" not in done.stderr and "seen" in done.stderr and done.stdout == ""
    assert "Warning" not in process.run("-W", "always", "-c", IMPORT + "import os; os._exit(0)").stderr


def test_warning_if_onednn_already_chose_its_isa(process):
    """Checks the warning about a kernel that fixed oneDNN's instruction set before the import: only
    if the slow one (AVX-512) was chosen."""
    done = process.code("""
        import ctypes, glob, os
        import mindspore as ms, numpy as np
        x = ms.Tensor(np.ones((1, 1, 4, 4), np.float32))
        ms.ops.Conv2D(1, 1)(x, ms.Tensor(np.ones((1, 1, 1, 1), np.float32))).asnumpy()
        dnnl = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(ms.__file__), "lib", "libdnnl.so*"))[0])
        print(dnnl.dnnl_get_effective_cpu_isa() & 0x27 == 0x27)
        import mindtorch.backend.mindspore.runtime
    """)
    assert done.returncode == 0, done.stderr
    assert ("ONEDNN_MAX_CPU_ISA=AVX2" in done.stderr) == (done.stdout == "True\n"), done.stdout + done.stderr


def test_missing_mindspore_raises(process, site_without):
    done = process.code("import mindtorch.torch", site=site_without("mindspore"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ") and "pip install 'mindspore>=2.10,<2.11'" in last


@pytest.mark.parametrize("version", ["2.9.0", "2.11.0", "1.10.1"])
def test_unsupported_mindspore_version_raises(process, site_without, version):
    site = site_without("mindspore")
    process.file(f"{site}/mindspore/__init__.py", "raise SystemExit('imported in spite of its version')")
    process.file(f"{site}/mindspore-{version}.dist-info/METADATA",
                 f"Metadata-Version: 2.1\nName: mindspore\nVersion: {version}\n")
    done = process.code("import mindtorch.torch", site=site)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: ") and version in last and "pip install" in last


def test_mindspore_version_without_metadata_is_checked(process, site_without):
    site = site_without("mindspore")
    process.file(f"{site}/mindspore/__init__.py", "__version__ = '2.9.1'\nfrom mindspore import log")
    process.file(f"{site}/mindspore/log.py", "def get_level(): return '3'")
    last = process.code("import mindtorch.torch", site=site).stderr.splitlines()[-1]
    assert last.startswith("ImportError: ") and "2.9.1" in last


def test_numpy_2_raises(process):
    done = process.code("""
        import sys, types
        sys.modules["numpy"] = types.SimpleNamespace(__version__="2.1.0")
        import mindtorch.backend.mindspore.runtime
    """)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: ") and "numpy 2.1.0" in last and "pip install" in last


@pytest.mark.parametrize("version, release, fits", [
    ("2.10.0", (2, 10, 0), True), ("2.10.0rc1", (2, 10, 0), True), ("2.10.3+cpu", (2, 10, 3), True),
    ("2.9.1", (2, 9, 1), False), ("2.11.0", (2, 11, 0), False), ("3.0", (3, 0), False), ("nonsense", (), False),
])
def test_versions(version, release, fits):
    assert runtime.release(version) == release and runtime.in_pin(version) is fits


FORK = IMPORT + """
import os, signal
a = np.ones((64, 64), np.float32)
x = ms.from_numpy(a)
matmul = ms.ops.MatMul()
def work():
    return float(matmul(x, x).asnumpy().sum())
def child(deeper):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        if work() != 64.0 ** 3:
            os._exit(3)
        if deeper:
            os._exit(child(deeper - 1) and 4)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
"""


def test_forked_children_run_ops(process):
    """Forks right after ops of the parent, while its threads still spin; grandchildren run ops too,
    and the parent continues."""
    process.ok(FORK + """
for i in range(40):
    for _ in range(1 + i % 3):
        work()
    status = child(i % 2)
    assert status == 0, f"fork {i} ended with {status}"
assert work() == 64.0 ** 3
""")


def test_forks_by_mindspore_itself(process):
    """Checks forks by mindspore.multiprocessing, which calls the fork callbacks itself around a
    fork that calls them as well."""
    process.ok(FORK + """
import mindspore.multiprocessing as multiprocessing
work()
queue = multiprocessing.Queue()
for _ in range(3):
    p = multiprocessing.Process(target=lambda: queue.put(work()))
    p.start()
    assert queue.get(timeout=30) == 64.0 ** 3
    p.join()
    assert p.exitcode == 0
assert work() == 64.0 ** 3 and child(0) == 0
""")


_FAULTS = """
import resource
import numpy as np
{}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        a = [np.ones(500_000, np.float32) for _ in range(8)]
        del a
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print("faults", faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_malloc_keeps_freed_memory_by_default():
    """Allocates 16 MB 20 times: without the setting this causes thousands of page faults."""
    def run(**env):
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}, **env}
        r = subprocess.run([sys.executable, "-c", _FAULTS.format("import mindtorch.backend.mindspore.runtime")], capture_output=True, text=True,
                           env=env, timeout=100)
        assert r.returncode == 0, r.stderr
        return int(r.stdout.split()[-1])
    assert run() < 2000
    assert run(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 20000
