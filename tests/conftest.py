"""Shared fixtures: separate processes, and hypothesis profiles.

The import hook and the command line affect whole processes, so they are tested in separate ones.
The tests' own process has real PyTorch and mindtorch side by side (`mindtorch.torch`), with nothing
enabled.
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

# There is one worker per core (`-n 2`): idle OpenMP threads, of MindSpore and of real PyTorch, must
# sleep instead of taking the other workers' cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Progress messages of a first run are for users, not for tests that check standard error
# (tests/tools/test_run_terminal.py enables them).
os.environ.setdefault("MINDTORCH_PROGRESS", "0")

# On two cores the time of a single slow example means nothing. The examples are fixed, so failures
# are reproducible.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=50,
                          suppress_health_check=[HealthCheck.too_slow])
# Different examples each time (used by `pytest -m nightly`); a failure prints how to reproduce it.
settings.register_profile("nightly", deadline=None, derandomize=False, max_examples=200, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption("--require-libraries", type=int, metavar="N", default=0,
                     help="fail unless N libraries of tests/requirements-libraries.txt are installed and each of them can be checked")
    parser.addoption("--affected", metavar="JOB", default="", choices=["", *_jobs.JOBS],
                     help="run only the tests of a job that a change since tests/recorded.xz can affect (python -m tests.changed)")
    parser.addoption("--shuffle", metavar="SEED", type=int, help="shuffle the files, and the tests of each, with this seed (python -m tests.shuffle)")
    parser.addoption("--device", default="", metavar="NAME", help="run the op tests with every tensor on this device (npu); see tests/_on_device.py")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Distributes whole files to the workers (`-n 2`, pytest-xdist), in the order of collection.

    Module fixtures are expensive, and the tests that fork run first.
    """
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist, config.option.loadscopereorder = "loadfile", False


def pytest_configure(config):
    _on_device.configure(config)
    if config.option.markexpr == "nightly" and "HYPOTHESIS_PROFILE" not in os.environ:
        settings.load_profile("nightly")


def pytest_ignore_collect(collection_path, config):
    """Makes `-m smoke` and similar marks import only the files that contain the mark: importing all
    takes half a minute."""
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
    """Limits real PyTorch to one thread.

    On tensors as small as the tests', its threads mostly wait for each other, in as many processes
    as there are cores (two fifths of the CPU time of tests/ops/test_ops_nn.py). mindtorch keeps its
    threads: they are under test.
    """
    if "torch" in sys.modules and hasattr(sys.modules["torch"], "set_num_threads"):
        sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fails a property test in which PyTorch rejects every example, unless it is marked `refused`.

    Without a single compared value it has shown nothing.
    """
    parity = sys.modules.get("_parity")
    before = dict(parity.tally) if parity else {"values": 0, "errors": 0}
    device = item.config.getoption("--device")
    with _on_device.Everything(device) if device else contextlib.nullcontext():
        result = yield
    parity = sys.modules.get("_parity")
    if parity and hasattr(getattr(item, "obj", None), "hypothesis"):
        values, errors = (parity.tally[k] - before[k] for k in ("values", "errors"))
        if item.get_closest_marker("refused"):
            assert errors and not values, f"marked as refused by PyTorch, but {values} values were compared"
        else:
            # Hypothesis may end a test after a few examples, which PyTorch may all reject by
            # chance.
            assert values or errors < 10, f"PyTorch rejects all {errors} examples: no value was compared"
    return result


@pytest.fixture(scope="module", autouse=True)
def set_aside():
    """Excludes the objects of earlier modules from garbage collection and from the pages that a
    fork copies.

    MindSpore collects garbage at every compilation: two modules that take 27 s alone took 260 s at
    the end of the run.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def npu():
    """Yields the npu torch.device, on MindSpore's CPU target, for one module.

    CPU fallbacks are silent, and counted in `devices.FALLBACKS`.
    """
    import mindtorch.torch as mt
    from mindtorch.backend.mindspore.npu import Npu
    from mindtorch.core.device import backend_autoload, device_dispatch
    if device_dispatch.DEVICES.get("npu") is not None:
        yield mt.device("npu", 0)
        return
    device, before = Npu("CPU"), device_dispatch.fallback.policy
    backend_autoload.register_device(device)
    device_dispatch.fallback.policy = "silent"
    try:
        yield mt.device("npu", 0)
    finally:
        device_dispatch.fallback.policy = before
        backend_autoload.unregister_device(device)


@pytest.fixture
def on_threads():
    """Returns a function: on_threads(f) is [f() on one thread, on two, on three], and restores the
    number of threads."""
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
    """Sets MindSpore's mode to PYNATIVE_MODE before and after the test."""
    import mindspore as ms
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.fixture
def forgotten_variants():
    """Resets torch.compile before and after the test."""
    from mindtorch.torch import _dynamo
    _dynamo.reset()
    yield
    _dynamo.reset()


@pytest.fixture
def programs(monkeypatch):
    """Returns the list of joint forward-backward programs that compiled calls create, in order of
    creation."""
    from mindtorch.torch._dynamo import _host_inductor
    made, init = [], _host_inductor.Program.__init__

    def noted(self, *args):
        init(self, *args)
        made.append(self)
    monkeypatch.setattr(_host_inductor.Program, "__init__", noted)
    return made


class Process:
    """Runs Python in a separate process: `run` returns the finished process, `ok` checks its exit
    status and returns its output."""

    def __init__(self, folder):
        self.folder = folder

    def file(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def run(self, *args, env=None, site=None, timeout=None, input=""):
        """Runs Python with these arguments.

        `input` is its standard input. `site` replaces site-packages (see `site_without`). There is
        no timeout by default: the test's own limit ends a hanging process, and a second, shorter
        one would fail under load.
        """
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
    """Runs Python processes in their own folder."""
    return Process(tmp_path)


@pytest.fixture
def site_without(tmp_path_factory):
    """Returns a function: site_without('torch') is a folder with every installed package except
    those named."""

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
    """A CANN simulator with real PyTorch as its engine (tests/_standin.py); skips the test if it
    cannot be built."""
    import _standin

    from mindtorch.tools.standin import _build
    try:
        machine = _standin.Standin()
    except _build.CannotBuild as e:
        pytest.skip(str(e))
    yield machine
    machine.close()
