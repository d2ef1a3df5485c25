"""``python -m mindtorch``: `run` compared with the plain interpreter, and `doctor`."""
import re
import shutil
import textwrap

import pytest

import mindtorch

RUN = "-m", "mindtorch", "run"

SHOW = """
    import json, os, sys
    print(json.dumps({"argv": sys.argv, "name": __name__, "file": __file__, "path0": sys.path[0], "doc": __doc__,
                      "package": __package__, "spec": __spec__ and __spec__.name, "globals": sorted(globals()),
                      "builtins": type(__builtins__).__name__, "main": vars(sys.modules["__main__"]) is globals()}))
    sys.exit(int(os.environ.get("STATUS", 0)))
"""


def both(process, *args, **options):
    """Runs the same command with the plain interpreter and with `run`."""
    return process.run(*args, **options), process.run(*RUN, *args, **options)


@pytest.mark.parametrize("args", [
    ["proj/show.py"], ["proj/show.py", "--steps", "7", "-m", "x", "-h"], ["proj/../proj/show.py"], ["./proj/show.py"],
    ["proj/link.py"], ["-m", "proj.show", "-x", "--help"], ["-m", "package", "a"], ["folder", "a", "-b"],
], ids=" ".join)
@pytest.mark.parametrize("status", ["0", "3"])
def test_script_environment_matches_the_interpreter(process, args, status):
    process.file("proj/show.py", SHOW)
    process.file("package/__init__.py", "")
    process.file("package/__main__.py", SHOW)
    process.file("folder/__main__.py", SHOW)
    process.file("elsewhere/real.py", SHOW)
    (process.folder / "proj" / "link.py").symlink_to(process.folder / "elsewhere" / "real.py")
    plain, ours = both(process, *args, env={"STATUS": status})
    assert plain.returncode == int(status), plain.stderr
    assert ours.stdout == plain.stdout and ours.returncode == plain.returncode, ours.stderr
    assert ours.stderr == plain.stderr == ""


def test_torch_is_mindtorch_in_an_unmodified_script(process):
    process.file("proj/neighbour.py", "import torch\ndef net():\n    return torch.nn.Linear(3, 1)\n")
    script = process.file("proj/train.py", """
        import sys
        import torch
        from neighbour import net
        model = net()
        out = model(torch.ones(2, 3)).sum()
        out.backward()
        assert model.weight.grad.tolist() == [[2.0, 2.0, 2.0]]
        assert "mindspore" in sys.modules and "libtorch_cpu" not in open("/proc/self/maps").read()
        print(torch.__name__, torch.nn.Linear)
    """)
    done = process.run(*RUN, script)
    assert done.returncode == 0 and done.stdout == "torch <class 'torch.nn.modules.linear.Linear'>\n", done.stderr


FAILURES = {
    "exception": "def inner():\n    raise KeyError('planted')\n\ninner()\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('planted') from e\n",
    "syntax": "x = 1\ny = = 2\n",
    "not utf-8": b"x = '\xff'\n",
    "interrupt": "raise KeyboardInterrupt\n",
    "signal": "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(5)\n",
    "exit with text": "import sys\nsys.exit('planted')\n",
    "exit without status": "raise SystemExit\n",
    "own excepthook": "import sys\n"
                      "def hook(t, v, tb):\n    print('hook', t, tb.tb_lineno, tb.tb_next, v.__traceback__ is tb)\n"
                      "sys.excepthook = hook\nraise KeyError('planted')\n",
    "broken excepthook": "import sys\ndef hook(*a):\n    raise RuntimeError('in hook')\nsys.excepthook = hook\n1 / 0\n",
    "thread": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='t').start()\n",
    "at exit": "import atexit, sys\n"
               "atexit.register(lambda: print(sys.modules['__main__'].x))\nx = 'here'\nraise KeyError\n",
}


@pytest.mark.parametrize("what", FAILURES)
def test_failures_are_reported_as_by_the_interpreter(process, what):
    """The exit status and the traceback are the same: it has no frames of mindtorch or runpy."""
    text = FAILURES[what]
    (process.folder / "bad.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    plain, ours = both(process, "bad.py")
    # the failure of the hook itself is reported with the frame that calls it
    if what == "broken excepthook":
        assert ours.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    elif what == "not utf-8":  # the interpreter has another message when it reads the file itself
        assert "SyntaxError" in ours.stderr and "bad.py" in ours.stderr and "Traceback" not in ours.stderr
    else:
        assert ours.stderr == plain.stderr
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)


@pytest.mark.parametrize("args", [["-"], ["-", "a", "-b", "--device", "x"], [], ["/dev/stdin", "a"]], ids=" ".join)
@pytest.mark.parametrize("text", [SHOW, "import sys\nprint(repr(sys.stdin.read()))\ndef f():\n    1 / 0\nf()\n", "x = = 2\n", "import sys; sys.exit(4)\n"],
                         ids=["show", "error", "syntax", "exit"])
def test_a_script_on_standard_input(process, args, text):
    plain, ours = both(process, *args, input=textwrap.dedent(text))
    if args and args[0] != "-":  # sys.path[0] contains the process id
        plain.stdout, ours.stdout = [re.sub(r"/proc/(self|\d+)/", "/proc/", out) for out in (plain.stdout, ours.stdout)]
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


def test_torch_in_a_script_on_standard_input(process):
    done = process.run(*RUN, "-", input="import torch\nprint(torch.nn.Linear.__module__, torch.ones(2).sum().item(), 'mindspore' in __import__('sys').modules)\n")
    assert done.returncode == 0 and done.stdout == "torch.nn.modules.linear 2.0 True\n", done.stderr


WORKERS = """
    import collections, concurrent.futures, dataclasses, enum, multiprocessing, sys
    import torch

    @dataclasses.dataclass
    class R:
        v: float

    class Outer:
        class Inner(R):
            pass

    class Color(enum.Enum):
        RED = 1

    Pair = collections.namedtuple("Pair", "a b")

    class Planted(Exception):
        pass

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 3
        def __getitem__(self, i):
            return R(float(i))

    def work(x):
        return [x, R(float(torch.ones(2).sum()) * x.v), Outer.Inner(1), Color.RED, Pair(R(0), work), R]

    def fails(i):
        raise Planted(R(i))

    def collect(items):
        return Pair(items, Color.RED)

    if __name__ == "__main__":
        for method in sys.argv[1:]:
            context = multiprocessing.get_context(method)
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                x, r, inner, color, pair, cls = pool.submit(work, R(3.0)).result()
                print(x, r, inner, color is Color.RED, type(pair) is Pair, pair.b is work, cls is R, type(x) is R, type(inner) is Outer.Inner)
                try:
                    pool.submit(fails, 1).result()
                except Planted as e:
                    print("planted", e.args)
            if len(sys.argv) == 2:
                continue
            with context.Pool(1) as pool:
                print([type(y) is R for y in pool.map(R, [1, 2])])
            q = context.Queue()
            p = context.Process(target=q.put, args=(R(5),))
            p.start()
            print(q.get(), p.join(), p.exitcode)
            print(list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=method, collate_fn=collect)))
"""


RETURNED = "R(v=3.0) R(v=6.0) Outer.Inner(v=1) True True True True True True\nplanted (R(v=1),)\n"


def test_a_spawned_worker_returns_objects_of_the_script(process):
    process.file("workers.py", WORKERS)
    done = process.run(*RUN, "workers.py", "spawn")
    assert done.returncode == 0 and done.stdout == RETURNED, done.stderr


@pytest.mark.slow
def test_all_kinds_of_workers_return_objects_of_the_script(process):
    process.file("workers.py", WORKERS)
    done = process.run(*RUN, "-m", "workers", "spawn", "forkserver")
    once = RETURNED + ("[True, True]\nR(v=5) None 0\n"
                       "[Pair(a=[R(v=0.0)], b=<Color.RED: 1>), Pair(a=[R(v=1.0)], b=<Color.RED: 1>), Pair(a=[R(v=2.0)], b=<Color.RED: 1>)]\n")
    assert done.returncode == 0 and done.stdout == 2 * once, done.stderr


def test_last_traceback_begins_at_the_script(process):
    script = process.file("bad.py", """
        import atexit, sys, traceback
        @atexit.register
        def show():
            print([f.name for f in traceback.extract_tb(sys.last_traceback)], sys.last_type.__name__)
        def inner():
            raise KeyError
        inner()
    """)
    assert process.run(*RUN, script).stdout == "['<module>', 'inner'] KeyError\n"


@pytest.mark.parametrize("args", [["nothing_here.py"], ["proj"], ["-m", "nothing_here"], ["-m", "proj.nothing"],
                                  ["-m", "json"], ["-m", "package"]], ids=" ".join)
def test_missing_scripts_and_modules_fail_as_in_the_interpreter(process, args):
    process.file("proj/__init__.py", "")
    process.file("package/__init__.py", "")
    plain, ours = both(process, *args)
    assert ours.returncode == plain.returncode != 0
    assert args[-1] in ours.stderr and "Traceback" not in ours.stderr
    # After the program's name, the messages are the same.
    assert ours.stderr.split(": ", 1)[1] == plain.stderr.split(": ", 1)[1]


def test_a_module_whose_own_import_fails(process):
    process.file("package/__init__.py", "import surely_not_installed\n")
    process.file("package/__main__.py", "")
    done = process.run(*RUN, "-m", "package")
    assert done.returncode == 1 and "surely_not_installed" in done.stderr


def test_usage(process):
    for args in ([], ["run"], ["run", "-m"], ["nonsense"]):
        done = process.run("-m", "mindtorch", *args)
        assert done.returncode == 2 and "usage: python -m mindtorch" in done.stderr
    top = process.run("-m", "mindtorch", "--help")
    assert top.returncode == 0 and "run " in top.stdout and "doctor " in top.stdout
    for command in ("run", "doctor"):
        done = process.run("-m", "mindtorch", command, "--help")
        assert done.returncode == 0 and f"usage: python -m mindtorch {command}" in done.stdout
    assert process.run("-m", "mindtorch", "--version").stdout == f"mindtorch {mindtorch.__version__}\n"


# ---------------------------------------------------------------- doctor
def test_doctor_reports_no_error_here(process):
    done = process.run("-m", "mindtorch", "doctor")
    assert done.returncode == 0 and "ERROR" not in done.stdout, done.stdout
    for what in ("python: 3.", "numpy: 1.26", "mindspore: 2.10", "device target: ", "blocking launch: on",
                 "small matmul: is right", "owner, mode and digest checked, loaded, compute right"):
        assert what in done.stdout, done.stdout


@pytest.mark.parametrize("name, value, text", [
    ("ONEDNN_MAX_CPU_ISA", "avx512_core", "unset ONEDNN_MAX_CPU_ISA"),
    ("MINDTORCH_LAUNCH_BLOCKING", "0", "blocking launch: off"),
    ("GLOG_v", "1", "GLOG_v: 1"),
    ("OMP_NUM_THREADS", "4096", "OMP_NUM_THREADS: 4096"),
    ("MINDTORCH_NATIVE", "0", "kernels in C: off"),
    ("CC", "no-such-compiler", "kernels in C: none, no C compiler was found"),
])
def test_doctor_reports_bad_settings(process, name, value, text):
    done = process.run("-m", "mindtorch", "doctor", env={name: value})
    assert done.returncode == 0 and text in done.stdout and "->" in done.stdout and " 0 warnings" not in done.stdout


def test_doctor_names_the_command_that_checks_libraries(process):
    done = process.run("-m", "mindtorch", "doctor", "--libraries", "einops", "--device", "npu")
    assert done.returncode == 2 and "`python tests/libraries/check.py einops --device npu`" in done.stderr


def test_doctor_compares_what_the_kernels_compute(process, tmp_path):
    done = process.run("-m", "mindtorch", "doctor", "--kernels")
    assert done.returncode == 0, done.stdout
    if "kernels in C: none" in done.stdout:
        pytest.skip("there is no C compiler here")
    assert int(re.search(r"values of the kernels in C: (\d+) results match NumPy's up to rounding", done.stdout)[1]) > 400


@pytest.mark.slow
def test_doctor_detects_a_miscompiling_compiler(process, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    wrong = tmp_path / "cc"
    wrong.write_text(f'#!/bin/sh\nexec {compiler} "$@" -Dtanhf=sinhf -Dexpf=exp2f -Dsqrtf=cbrtf\n')
    wrong.chmod(0o755)
    done = process.run("-m", "mindtorch", "doctor", "--kernels", env={"CC": str(wrong), "MINDTORCH_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 1, done.stdout
    assert re.search(r"ERROR +values of the kernels in C: \d+ of \d+ results differ from NumPy's: .*Adam", done.stdout), done.stdout


def test_doctor_without_mindspore(process, site_without):
    done = process.run("-m", "mindtorch", "doctor", site=site_without("mindspore", "torch"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ERROR    mindspore: not installed" in done.stdout and "pip install 'mindspore>=2.10,<2.11'" in done.stdout
    assert "real torch is not installed" in done.stdout


@pytest.mark.parametrize("package, version", [("numpy", "2.1.0"), ("mindspore", "2.9.0"), ("mindspore", "2.11.1")])
def test_doctor_with_wrong_versions(process, site_without, package, version):
    site = site_without(package)
    process.file(f"{site}/{package}-{version}.dist-info/METADATA",
                 f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    done = process.run("-m", "mindtorch", "doctor", site=site)
    assert done.returncode == 1 and f"ERROR    {package}: {version}" in done.stdout, done.stdout + done.stderr
    assert f"pip install '{package}>=" in done.stdout and "device target" not in done.stdout


def test_doctor_when_real_torch_comes_first(process):
    done = process.code("""
        import sys
        import torch
        from mindtorch.__main__ import main
        sys.exit(main(["doctor"]))
    """)
    assert done.returncode == 1 and "real torch" in done.stdout and "already imported" in done.stdout, done.stdout
