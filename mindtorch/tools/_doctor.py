"""``python -m mindtorch doctor``: checks the installation, settings and known problems, and
suggests fixes."""
import argparse
import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import mindtorch
from mindtorch.tools import _hook

OK, SLOW, BAD = "ok", "warning", "error"
PIP_MINDSPORE, PIP_NUMPY = "pip install 'mindspore>=2.10,<2.11'", "pip install 'numpy>=1.26,<2'"
SLOW_CONVOLUTIONS = "if the processor has AVX-512, using it makes convolutions 50 to 80 times slower"
SLOW_KERNELS = "without them eager steps take up to twice as long, and torch.compile is no faster than eager"
SLOW_LAUNCH = "asynchronous launch makes small networks 3 to 5 times slower on CPU, and errors are reported at a later op"


class Finding:
    """One line of the report: what was checked, what was found, how severe it is, and the remedy.
    """

    def __init__(self, what, found, state=OK, remedy=None):
        self.what, self.found, self.state, self.remedy = what, found, state, remedy

    def __str__(self):
        mark = {OK: "ok     ", SLOW: "warning", BAD: "ERROR  "}[self.state]
        return f"{mark}  {self.what}: {self.found}" + (f"\n         -> {self.remedy}" if self.remedy else "")


def configure(parser):
    """Declares the arguments of the command."""
    parser.add_argument("--kernels", action="store_true", help="compare the results of the kernels in C with NumPy's (about 15 s)")
    parser.add_argument("--libraries", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def main(args):
    """Prints the report. Returns 1 if something makes mindtorch unusable, else 0."""
    if args.libraries is not None:
        print("the checks of libraries are not part of the package: in a checkout of mindtorch, run "
              f"`python {' '.join(['tests/libraries/check.py', *args.libraries])}`", file=sys.stderr)
        return 2
    findings = check()
    if args.kernels:
        findings.append(_values())
    for finding in findings:
        print(finding)
    bad, slow = (sum(f.state == s for f in findings) for s in (BAD, SLOW))
    print(f"{bad} error{'' if bad == 1 else 's'}, {slow} warning{'' if slow == 1 else 's'}")
    return 1 if bad else 0


def check():
    """Returns the findings in order. MindSpore is imported only if its version and NumPy's version
    allow it."""
    findings = [Finding("mindtorch", f"{mindtorch.__version__} in {os.path.dirname(mindtorch.__file__)}"),
                _python(), _numpy(), _mindspore(), _real_torch(), *_environment()]
    if all(f.state != BAD for f in findings):
        findings += _runtime()
    return findings


def _installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _python():
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if (3, 10) <= sys.version_info[:2] < (3, 13):
        return Finding("python", found)
    return Finding("python", found, BAD, "MindSpore 2.10 has binaries for Python 3.10, 3.11 and 3.12: use one of these")


def _numpy():
    found = _installed("numpy")
    if found is None:
        return Finding("numpy", "not installed", BAD, PIP_NUMPY)
    release = tuple(int(n) for n in found.split(".")[:2])
    if release >= (2, 0):
        return Finding("numpy", found, BAD, f"MindSpore's binaries are built against numpy 1: {PIP_NUMPY}")
    if release < (1, 26):
        return Finding("numpy", found, SLOW, f"mindtorch is tested with 1.26: {PIP_NUMPY}")
    return Finding("numpy", found)


def _mindspore():
    found = _installed("mindspore")
    if found is None and importlib.util.find_spec("mindspore") is None:
        return Finding("mindspore", "not installed", BAD, PIP_MINDSPORE)
    if found is None:
        return Finding("mindspore", "importable, but without package metadata (version unknown)")
    if not found.startswith("2.10."):
        return Finding("mindspore", found, BAD, f"this mindtorch is written for 2.10: {PIP_MINDSPORE}")
    return Finding("mindspore", found)


def _real_torch():
    if _hook.is_enabled():
        return Finding("torch", "is mindtorch's facade in this process (the hook is enabled)")
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return Finding("torch", f"real torch {getattr(loaded, '__version__', '')} is already imported here", BAD,
                       "something imports torch when Python starts (sitecustomize, a .pth file); mstorch_enable must "
                       "come before it")
    found = _installed("torch")
    return Finding("torch", f"real torch {found} is installed, not imported" if found else
                   "real torch is not installed (it is not needed)")


def _environment():
    """Checks environment variables that are known to reduce speed or hide errors."""
    get = os.environ.get
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        value = get(name)
        if value is not None:
            slow = "avx512" in value.lower() or value.lower() in ("all", "default")
            yield Finding(name, value, SLOW, f"{SLOW_CONVOLUTIONS}: unset {name}, or set it to AVX2") if slow else \
                Finding(name, value)
    if get("MINDTORCH_LAUNCH_BLOCKING") == "0":
        yield Finding("MINDTORCH_LAUNCH_BLOCKING", "0", SLOW, f"{SLOW_LAUNCH}: unset it")
    if get("GLOG_v") in ("0", "1"):
        yield Finding("GLOG_v", get("GLOG_v"), SLOW, "MindSpore logs every op: unset it, or set it to 2 or 3")
    cores, threads = os.cpu_count() or 1, get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > cores:
        yield Finding("OMP_NUM_THREADS", threads, SLOW, f"this machine has {cores} cores; more threads slow "
                      "each other down")


def _runtime():
    """Runs the checks that need MindSpore."""
    try:
        from mindtorch.backend.mindspore import runtime
    except ImportError as e:
        return [Finding("MindSpore's runtime", f"cannot be loaded: {e}", BAD, f"{PIP_MINDSPORE} --force-reinstall")]
    target = runtime.target()
    findings = [Finding("device target", target)]
    if target == "CPU":
        on = runtime.launch_is_blocking()
        findings.append(Finding("blocking launch", "on") if on else
                        Finding("blocking launch", "off", SLOW, f"{SLOW_LAUNCH}: unset MINDTORCH_LAUNCH_BLOCKING"))
    findings.append(Finding("oneDNN", "uses AVX-512", SLOW, f"{SLOW_CONVOLUTIONS}: set ONEDNN_MAX_CPU_ISA=AVX2")
                    if runtime.onednn_uses_avx512() else Finding("oneDNN", "without AVX-512, as intended"))
    findings += [_kernels(), _works(runtime), *_patches(), *_npu()]
    return findings


def _patches():
    """Reports what mindtorch replaces in MindSpore, NumPy and CPython, or relies on in them."""
    from mindtorch.backend import patching
    try:
        import mindtorch.torch  # noqa: F401  (which makes them)
    except patching.PatchError as e:
        yield Finding("patches", str(e), BAD, f"{PIP_MINDSPORE} {PIP_NUMPY.removeprefix('pip install ')}")
        return
    for p in patching.PATCHES.values():
        good, said = p.state()
        yield Finding(f"patch of {p.name}", f"{p.kind}: {p.why}; {said}", OK if good else SLOW,
                      None if good else "install the versions in mindtorch's pyproject.toml; if MINDTORCH_PORTABLE=1 is set, it disables patches")


def _npu():
    """Describes the npu device, and lists the primitives that are computed on the host."""
    import mindtorch.torch as torch
    from mindtorch.core.device.device_dispatch import DEVICES
    from mindtorch.core.dispatch.primitives import PRIMITIVES
    from mindtorch.backend.kernels import TABLES
    device = DEVICES.get("npu")
    if device is None:
        yield Finding("npu", "none: MindSpore's device target is not Ascend (to try it, MINDTORCH_NPU=cpu uses MindSpore's CPU target)")
        return
    if device.target == "CPU":
        yield Finding("npu", "MindSpore's CPU target instead of an NPU (MINDTORCH_NPU=cpu)")
    else:
        names = sorted({torch.npu.get_device_name(i) for i in range(torch.npu.device_count())})
        yield Finding("npu", f"{torch.npu.device_count()} of {', '.join(names)}")
        yield Finding("driver", _version_in("/usr/local/Ascend/driver/version.info"))
        yield Finding("CANN", _version_in(os.path.join(os.environ.get("ASCEND_TOOLKIT_HOME", "/usr/local/Ascend/ascend-toolkit/latest"), "version.cfg")))
    on_host = sorted(n for n, f in PRIMITIVES.items() if not f.prim.view and n not in TABLES["npu"] and n != "to_device")
    yield Finding("kernels on the npu", f"{len(PRIMITIVES) - len(on_host)} of {len(PRIMITIVES)} primitives; the others are computed on the "
                  f"host, with copies there and back: {', '.join(on_host)}")


def _version_in(path):
    """Returns the first line of a version file that contains a version."""
    try:
        with open(path) as f:
            lines = [line.strip() for line in f]
    except OSError as e:
        return f"unknown, {path}: {e.strerror}"
    return next((line for line in lines if "ersion" in line), f"unknown, {path} contains no version")


def _kernels():
    """Checks that the kernels in C load and compute. They are compiled now if they have not been
    yet."""
    from mindtorch.backend.c_kernels import build
    what = "kernels in C"
    if os.environ.get("MINDTORCH_NATIVE", "1") == "0":
        return Finding(what, "off", SLOW, f"{SLOW_KERNELS}: unset MINDTORCH_NATIVE")
    if build.compiler() is None:
        return Finding(what, "none, no C compiler was found (CC, cc, gcc, clang)", SLOW, f"{SLOW_KERNELS}: install a C compiler (apt install gcc), or set CC")
    # In a child process: a library that crashes must not end the doctor.
    found, right = build.load_in_child()
    if right:
        return Finding(what, found)
    return Finding(what, f"none, {found}", SLOW, f"{SLOW_KERNELS}: set MINDTORCH_CACHE to a folder that only you can "
                   "write to, on a disk with free space")


def _values():
    """Checks that the kernels in C, as compiled on this machine, compute the same values as NumPy.
    """
    from mindtorch.backend.c_kernels import build
    from mindtorch.tools import _kernel_values
    what, remedy = "values of the kernels in C", "set MINDTORCH_NATIVE=0, or CC to another compiler, and report the compiler's version"
    if os.environ.get("MINDTORCH_NATIVE", "1") == "0" or build.compiler() is None:
        return Finding(what, "not compared: there are no kernels in C")
    try:
        wrong, count = _kernel_values.differing()
    except (RuntimeError, OSError) as e:
        return Finding(what, f"not compared: {e}", BAD, remedy)
    if wrong:
        return Finding(what, f"{len(wrong)} of {count} results differ from NumPy's: {', '.join(wrong)}", BAD, remedy)
    return Finding(what, f"{count} results match NumPy's up to rounding")


def _works(runtime):
    ms, np = runtime.ms, runtime.np
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    what = "a small matmul"
    try:
        got = ms.ops.MatMul(transpose_b=True)(ms.from_numpy(a), ms.from_numpy(a)).asnumpy()
    except RuntimeError as e:
        return Finding(what, f"fails: {e}", BAD, "the device or the installation is broken; MindSpore's own check: "
                       "python -c 'import mindspore; mindspore.run_check()'")
    if not np.array_equal(got, a @ a.T):
        return Finding(what, f"returns {got.tolist()}, not {(a @ a.T).tolist()}", BAD,
                       "MindSpore computes wrong results here: reinstall it, with numpy, in a new environment")
    return Finding(what, "is right")
