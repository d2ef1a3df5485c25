"""``python -m mindtorch doctor``: what is installed, what is set, what is known to hurt, and the remedy for each."""
import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import mindtorch
from mindtorch.tools import _hook

OK, SLOW, BAD = "ok", "warning", "error"
PIP_MINDSPORE, PIP_NUMPY = "pip install 'mindspore>=2.10,<2.11'", "pip install 'numpy>=1.26,<2'"
SLOW_CONVOLUTIONS = "where the processor has AVX-512, convolutions take 50 to 80 times longer with it"
SLOW_KERNELS = "without them eager steps take up to twice as long, and torch.compile gains nothing"
SLOW_LAUNCH = "asynchronous launch makes small networks 3 to 5 times slower on CPU, and errors come up at a later op"


class Finding:
    """One line of the report: what was looked at, what was found, how bad that is, and what to do about it."""

    def __init__(self, what, found, state=OK, remedy=None):
        self.what, self.found, self.state, self.remedy = what, found, state, remedy

    def __str__(self):
        mark = {OK: "ok     ", SLOW: "warning", BAD: "ERROR  "}[self.state]
        return f"{mark}  {self.what}: {self.found}" + (f"\n         -> {self.remedy}" if self.remedy else "")


def configure(parser):
    """Declares the arguments of the command."""
    parser.add_argument("--kernels", action="store_true", help="compare what the kernels in C compute with what NumPy's do (a quarter of a minute)")
    parser.add_argument("--libraries", nargs="*", metavar="NAME", help="run a small program on each library for torch that is installed (or on these)")
    parser.add_argument("--device", nargs="+", choices=("cpu", "npu"), default=["cpu"], help="with --libraries: where they are run, on one or on both")
    parser.add_argument("--markdown", metavar="FILE", help="with --libraries: write the result into a table (docs/libraries.md), whose other cells stay")


def main(args):
    """Prints the report. Returns 1 if something makes mindtorch unusable, else 0."""
    if args.libraries is not None:
        from mindtorch.tools import _libraries
        return _libraries.report(args.libraries, args.markdown, args.device)
    findings = check()
    if args.kernels:
        findings.append(_values())
    for finding in findings:
        print(finding)
    bad, slow = (sum(f.state == s for f in findings) for s in (BAD, SLOW))
    print(f"{bad} error{'' if bad == 1 else 's'}, {slow} warning{'' if slow == 1 else 's'}")
    return 1 if bad else 0


def check():
    """The findings, in order; MindSpore is imported only if its version and NumPy's allow it."""
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
        return Finding("mindspore", "there, but pip knows nothing of it")
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
    """Variables that are known to cost speed or to hide errors."""
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
        yield Finding("OMP_NUM_THREADS", threads, SLOW, f"this machine has {cores} cores; more threads get in each "
                      "other's way")


def _runtime():
    """What only MindSpore itself can tell."""
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
                    if runtime.onednn_uses_avx512() else Finding("oneDNN", "without AVX-512, as it should be"))
    findings += [_kernels(), _works(runtime), *_patches(), *_npu()]
    return findings


def _patches():
    """What mindtorch replaces in MindSpore, NumPy and CPython, or relies on in them."""
    from mindtorch.backend import patching
    try:
        import mindtorch.torch  # noqa: F401  (which makes them)
    except patching.PatchError as e:
        yield Finding("patches", str(e), BAD, f"{PIP_MINDSPORE} {PIP_NUMPY.removeprefix('pip install ')}")
        return
    for p in patching.PATCHES.values():
        good, said = p.state()
        yield Finding(f"patch of {p.name}", f"{p.kind}: {p.why}; {said}", OK if good else SLOW,
                      None if good else "the versions that mindtorch is tested with are in its pyproject.toml; MINDTORCH_PORTABLE=1, if set, asks for this")


def _npu():
    """What the npu device is, and what of it is computed on the host."""
    import mindtorch.torch as torch
    from mindtorch.core.devices import DEVICES
    from mindtorch.core.tape import PRIMITIVES
    from mindtorch.backend.kernels import TABLES
    device = DEVICES.get("npu")
    if device is None:
        yield Finding("npu", "none, MindSpore's device target is not Ascend (MINDTORCH_NPU=cpu makes one of its CPU target, to try)")
        return
    if device.target == "CPU":
        yield Finding("npu", "MindSpore's CPU target in the place of one (MINDTORCH_NPU=cpu)")
    else:
        names = sorted({torch.npu.get_device_name(i) for i in range(torch.npu.device_count())})
        yield Finding("npu", f"{torch.npu.device_count()} of {', '.join(names)}")
        yield Finding("driver", _version_in("/usr/local/Ascend/driver/version.info"))
        yield Finding("CANN", _version_in(os.path.join(os.environ.get("ASCEND_TOOLKIT_HOME", "/usr/local/Ascend/ascend-toolkit/latest"), "version.cfg")))
    on_host = sorted(n for n, f in PRIMITIVES.items() if not f.prim.view and n not in TABLES["npu"] and n != "to_device")
    yield Finding("kernels on the npu", f"{len(PRIMITIVES) - len(on_host)} of {len(PRIMITIVES)} primitives; the others are computed on the "
                  f"host, with copies there and back: {', '.join(on_host)}")


def _version_in(path):
    """The first line of a version file that says something."""
    try:
        with open(path) as f:
            lines = [line.strip() for line in f]
    except OSError as e:
        return f"unknown, {path}: {e.strerror}"
    return next((line for line in lines if "ersion" in line), f"unknown, {path} does not say")


def _kernels():
    """Whether there are kernels in C that load and compute; they are compiled now if they have not been yet."""
    from mindtorch.backend.native import build as native_build
    what = "kernels in C"
    if os.environ.get("MINDTORCH_NATIVE", "1") == "0":
        return Finding(what, "off", SLOW, f"{SLOW_KERNELS}: unset MINDTORCH_NATIVE")
    if native_build.compiler() is None:
        return Finding(what, "none, no C compiler was found (CC, cc, gcc, clang)", SLOW, f"{SLOW_KERNELS}: install a C compiler (apt install gcc), or set CC")
    # In a process of its own: a library that ends the process must not end the doctor.
    found, right = native_build.load_in_child()
    if right:
        return Finding(what, found)
    return Finding(what, f"none, {found}", SLOW, f"{SLOW_KERNELS}: MINDTORCH_CACHE names the folder that they are kept in: one of yours that nobody "
                   "else can write to, on a disk with space")


def _values():
    """Whether the kernels in C, which this machine's compiler has made, compute what NumPy's do."""
    from mindtorch.backend.native import build as native_build
    from mindtorch.tools import _kernel_values
    what, remedy = "values of the kernels in C", "set MINDTORCH_NATIVE=0, or CC to another compiler, and report the compiler's version"
    if os.environ.get("MINDTORCH_NATIVE", "1") == "0" or native_build.compiler() is None:
        return Finding(what, "there are none")
    try:
        wrong, count = _kernel_values.differing()
    except (RuntimeError, OSError) as e:
        return Finding(what, f"not compared: {e}", BAD, remedy)
    if wrong:
        return Finding(what, f"{len(wrong)} of {count} results are others than NumPy's: {', '.join(wrong)}", BAD, remedy)
    return Finding(what, f"{count} results are NumPy's but for rounding")


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
        return Finding(what, f"gives {got.tolist()}, not {(a @ a.T).tolist()}", BAD,
                       "MindSpore computes wrongly here: install it afresh, with numpy, in a new environment")
    return Finding(what, "is right")
