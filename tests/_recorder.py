"""Records which lines and files of this tree a process uses, for tests/record.py. It runs at the
start of every interpreter of the recording environment.

A process leaves `PID-NUMBER.start` in TESTS_RECORD_FOLDER. At its end it leaves `PID-NUMBER.json`:
the executed lines (coverage.py), opened files, listed folders and started processes. A started
process that leaves no such file marks its test as only partly recorded.
"""
import atexit
import json
import os
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: location of the standard library's frames
_STANDARD = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
FOLDER = os.environ.get("TESTS_RECORD_FOLDER", "")
#: folders that contain Python files
TRACED = ("mindtorch", "tests", "examples", "benchmarks", "docs", ".ci")
#: Prefix of executables that are Python and must leave a record. Other programs read nothing of
#: this tree except what a Python process wrote for them.
_PYTHON = "python"
#: programs that a test may start without a record: compilers, file inspection, renderers
_HARMLESS = ("gcc", "cc", "g++", "c++", "clang", "ld", "as", "nm", "readelf", "objdump", "ldd", "uname", "lscpu", "git", "file", "stat", "sleep", "true", "ps", "kill", "cat", "false", "openssl", "nvidia-smi", "ldconfig", "chromium", "ldconfig.real")


def _inside(path):
    """Returns a path relative to the root, or None if outside; an installed copy maps to the tree's
    own file."""
    path = os.path.abspath(os.fsdecode(path))
    if "/site-packages/mindtorch/" in path:
        return "mindtorch/" + path.partition("/site-packages/mindtorch/")[2]
    if path == ROOT or not path.startswith(ROOT + os.sep) or "/__pycache__" in path or "/.venv" in path:
        return None
    return path[len(ROOT) + 1:]


class Recorder:
    def __init__(self):
        import coverage
        self.lock, self.forks = threading.Lock(), 0
        # Not the whole folder: it contains an environment with MindSpore, and tracing its lines
        # doubles their time.
        self.measured = coverage.Coverage(data_file=None, config_file=False, messages=False,
                                          include=[*(f"{ROOT}/{name}/*" for name in TRACED), "*/site-packages/mindtorch/*"])
        self.measured._warn_no_data = False
        self.begin("start")
        sys.addaudithook(self.audit)
        os.register_at_fork(after_in_child=lambda: self.begin("fork"))
        leave = os._exit

        def leaving(status):
            self.finish()
            leave(status)
        os._exit = leaving
        self.measured.start()
        atexit.register(self.finish)  # runs before coverage's own handler, which stops measuring

    def begin(self, kind):
        self.kind, self.parent, self.test = kind, os.getppid(), os.environ.get("TESTS_RECORD_FOR", "")
        self.opened, self.listed, self.started, self.ended = set(), set(), [], False
        self.name = f"{FOLDER}/{os.getpid()}-{os.urandom(3).hex()}"
        if kind == "start":
            with open(f"{self.name}.start", "w") as f:
                json.dump({"parent": self.parent, "test": self.test, "argv": sys.orig_argv[:4]}, f)

    def audit(self, event, args):
        if event in ("open", "os.listdir", "os.scandir"):
            path = args[0]
            if isinstance(path, (str, bytes)) and (here := _inside(path)):
                self.use(event, here)
        elif event == "subprocess.Popen":
            self.note(os.path.basename(os.fsdecode(args[0])))
        elif event == "os.posix_spawn":
            self.note(os.path.basename(os.fsdecode(args[0])))
        elif event == "os.fork":
            self.note("fork")
        elif event in ("os.system", "os.exec", "os.forkpty", "pty.spawn"):
            self.note(event)

    def use(self, event, here):
        """Records an opened file or a listed folder.

        Imports are skipped because the executed lines cover them, as is pytest's collection because
        the tests that run cover it.
        """
        try:
            frame = sys._getframe(2)
        except ValueError:  # the interpreter opens its script
            return
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_STANDARD) and "site-packages" not in frame.f_code.co_filename:
            # it searches each folder of sys.path for packages
            if f"importlib{os.sep}metadata" in frame.f_code.co_filename:
                return
            frame = frame.f_back
        by_pytest = f"{os.sep}_pytest{os.sep}" in frame.f_code.co_filename or frame.f_code.co_name == "pytest_ignore_collect"
        if by_pytest and (event != "open" or here.endswith(".py")):
            return
        if event != "open":
            self.listed.add(here)
        elif not here.endswith(".pyc"):
            self.opened.add(f"{here}#pytest" if by_pytest and here == "pyproject.toml" else here)

    def note(self, what):
        if what not in _HARMLESS:
            self.started.append((os.environ.get("TESTS_RECORD_FOR", ""), "python" if what.startswith(_PYTHON) else what))

    def finish(self):
        with self.lock:
            if self.ended:
                return
            self.ended = True
        traced = type(sys.gettrace()).__module__.startswith("coverage") or type(sys.gettrace()).__name__ == "CTracer"
        self.measured.stop()
        data = self.measured.get_data()
        lines = {}
        for path in data.measured_files():
            here = _inside(path)
            if here:
                lines[here] = sorted(set(lines.get(here, [])) | set(data.lines(path)))
        found = {"kind": self.kind, "parent": self.parent, "pid": os.getpid(), "test": self.test, "lines": lines, "opened": sorted(self.opened), "listed": sorted(self.listed),
                 "started": self.started, "tracer": repr(sys.gettrace()), "traced": traced or threading.current_thread() is not threading.main_thread()}
        with open(f"{self.name}.part", "w") as f:
            json.dump(found, f)
        os.rename(f"{self.name}.part", f"{self.name}.json")


def begin():
    """Starts recording in this process once; the environment's .pth file calls it, and some
    interpreters run that twice."""
    if "_tests_recorder" not in sys.modules:
        sys.modules["_tests_recorder"] = Recorder()
