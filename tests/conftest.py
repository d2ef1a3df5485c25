"""What the tests share: processes of their own, and hypothesis profiles.

The hook and the command line are about whole processes, so they are tested in such; this process has real torch and the
facade side by side (`mindtorch.torch`), with nothing enabled.
"""
import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import sysconfig
import textwrap

import pytest
from hypothesis import HealthCheck, settings

import _jobs
import _on_device
import _selection

ROOT = pathlib.Path(__file__).resolve().parent.parent

# One process for each core (`-n 2`): OpenMP's threads, of MindSpore and of real torch in the tests' own processes too, sleep while they wait instead of taking the others' cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What a first run waits for is said to users, not to tests that look at standard error (tests/tools/test_run_terminal.py asks for it).
os.environ.setdefault("MINDTORCH_PROGRESS", "0")

# On two cores a single slow example says nothing about the code; the same examples every time, so that a failure stays.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=50,
                          suppress_health_check=[HealthCheck.too_slow])
# Other examples each time (`pytest -m nightly` takes them): a failure prints what reproduces it.
settings.register_profile("nightly", deadline=None, derandomize=False, max_examples=200, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption("--require-libraries", type=int, metavar="N", default=0,
                     help="fail unless N libraries of tests/requirements-libraries.txt are installed, and where one that is installed cannot be checked")
    parser.addoption("--affected", metavar="JOB", default="", choices=["", *_jobs.JOBS],
                     help="run only the tests of a job that a change since tests/recorded.xz can affect (python -m tests.changed)")
    parser.addoption("--shuffle", metavar="SEED", type=int, help="run the files, and the tests of each, in an order drawn from this seed (python -m tests.shuffle)")
    parser.addoption("--device", default="", metavar="NAME", help="run the tests of ops with every tensor on this device (npu); see tests/_on_device.py")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With workers (`-n 2`, pytest-xdist), each file is one worker's, in the order of collection: modules' fixtures are dear, and what forks goes first."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist, config.option.loadscopereorder = "loadfile", False


def pytest_configure(config):
    _on_device.configure(config)
    if config.option.markexpr == "nightly" and "HYPOTHESIS_PROFILE" not in os.environ:
        settings.load_profile("nightly")


def pytest_ignore_collect(collection_path, config):
    """`-m smoke` and its like import only the files in which that mark stands: to import them all takes half a minute."""
    if collection_path.suffix == ".py" and config.option.markexpr in _jobs.MARKS:
        return f"mark.{config.option.markexpr}" not in collection_path.read_text("utf-8") or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if hasattr(getattr(item, "obj", None), "hypothesis"):
            item.add_marker("nightly")
    items[:], others = _on_device.selected(config, items)
    if others:
        config.hook.pytest_deselected(items=others)
    _selection.arrange(config, items)


def pytest_collection_finish(session):
    """Real torch computes with one thread: on tensors as small as the tests' its team of threads does little but wait for one another, in as many processes as there are cores
    (two fifths of the CPU time of tests/ops/test_ops_nn.py). The facade keeps its threads: they are what is tested."""
    if "torch" in sys.modules and hasattr(sys.modules["torch"], "set_num_threads"):
        sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A property whose examples are all refused by torch, none of its values compared, has shown nothing, unless that is its point."""
    parity = sys.modules.get("_parity")
    before = dict(parity.tally) if parity else {"values": 0, "errors": 0}
    device = item.config.getoption("--device")
    with _on_device.Everything(device) if device else contextlib.nullcontext():
        result = yield
    parity = sys.modules.get("_parity")
    if parity and hasattr(getattr(item, "obj", None), "hypothesis"):
        values, errors = (parity.tally[k] - before[k] for k in ("values", "errors"))
        if item.get_closest_marker("refused"):
            assert errors and not values, f"marked as refused by torch, and {values} values were compared"
        else:
            # (Hypothesis may end a test after a few examples, which are then refused by chance.)
            assert values or errors < 10, f"all {errors} examples are refused by torch: no value was compared"
    return result


@pytest.fixture(scope="module", autouse=True)
def set_aside():
    """What earlier modules have left is not looked through at each collection, of which MindSpore makes one at each compilation, nor copied by each fork: two modules that
    take 27 s by themselves took 260 s at the end of the run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def npu():
    """torch.device of the npu, on MindSpore's CPU target, for one module; a primitive that goes to the host is told silently, and counted in `devices.FALLBACKS`."""
    import mindtorch.torch as mt
    from mindtorch.backend.mindspore.npu import Npu
    from mindtorch.core import accelerator, devices
    if devices.DEVICES.get("npu") is not None:
        yield mt.device("npu", 0)
        return
    device, before = Npu("CPU"), devices.fallback.policy
    accelerator.start(device)
    devices.fallback.policy = "silent"
    try:
        yield mt.device("npu", 0)
    finally:
        devices.fallback.policy = before
        accelerator.stop(device)


@pytest.fixture
def on_threads():
    """on_threads(f) is [f() on one thread, on two, on three]; the number is put back."""
    import mindtorch.torch as mt
    before = mt.get_num_threads()

    def results(f):
        found = []
        for n in (1, 2, 3):
            mt.set_num_threads(n)
            found.append(f())
        return found
    yield results
    mt.set_num_threads(before)


@pytest.fixture
def eager_mode():
    """MindSpore's mode is PYNATIVE_MODE before the test and after it, whatever the test sets."""
    import mindspore as ms
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.fixture
def forgotten_variants():
    """torch.compile knows nothing of other tests."""
    from mindtorch.torch import _dynamo
    _dynamo.reset()
    yield
    _dynamo.reset()


@pytest.fixture
def programs(monkeypatch):
    """The programs that compiled calls became, forward and backward in one, in the order they were made."""
    from mindtorch.torch._dynamo import _joint
    made, init = [], _joint.Program.__init__

    def noted(self, *args):
        init(self, *args)
        made.append(self)
    monkeypatch.setattr(_joint.Program, "__init__", noted)
    return made


class Process:
    """Runs Python in a process of its own: `run` gives the finished process, `ok` its output, once it has succeeded."""

    def __init__(self, folder):
        self.folder = folder

    def file(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def run(self, *args, env=None, site=None, timeout=None, input=""):
        """`input` is what comes on standard input. `site` stands in for site-packages (see `site_without`). The test's own limit ends a process that hangs: a second, shorter one fails under load."""
        paths = [ROOT, *([site] if site else [])]
        ours = "MINDTORCH_", "PYTHON", "GLOG", "ONEDNN"
        variables = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        variables.update({"PYTHONPATH": os.pathsep.join(map(str, paths)), "MINDTORCH_PROGRESS": "0", **(env or {})})
        return subprocess.run([sys.executable, *(["-S"] if site else []), *map(str, args)], cwd=self.folder,
                              env=variables, capture_output=True, text=True, timeout=timeout, input=input)

    def code(self, text, **options):
        return self.run("-c", textwrap.dedent(text), **options)

    def ok(self, text, **options):
        done = self.code(text, **options)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def process(tmp_path):
    """Python processes in a folder of their own."""
    return Process(tmp_path)


@pytest.fixture
def site_without(tmp_path_factory):
    """site_without('torch') is a folder with everything installed but the packages of these names."""

    def make(*names):
        folder = tmp_path_factory.mktemp("site")
        for kind in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for entry in sorted(pathlib.Path(kind).iterdir()):
                package = entry.name.split("-")[0].split(".")[0].lower()
                if package not in names and entry.suffix not in (".pth", ".egg-link") and package != "mindtorch":
                    (folder / entry.name).symlink_to(entry)
        return folder

    return make


@pytest.fixture(scope="session")
def standin():
    """A stand-in for CANN with real torch computing (tests/_standin.py); skipped where it cannot be built."""
    import _standin

    from mindtorch.tools.standin import _build
    try:
        machine = _standin.Standin()
    except _build.CannotBuild as e:
        pytest.skip(str(e))
    yield machine
    machine.close()
