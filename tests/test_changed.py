"""Selection of the tests that a change can affect: it runs enough tests, and skips only tests whose
result cannot change."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import _affected
import _jobs
import _units
import pytest
from hypothesis import given
from hypothesis import strategies as st

TESTS = pathlib.Path(__file__).resolve().parent


# ------------------------------------------------------------------ units of a source
def changed(before, after):
    """Returns the units whose digests differ between two texts."""
    a, b = (_units.units(textwrap.dedent(text), "m.py")[0] for text in (before, after))
    return sorted(u for u in a.keys() | b.keys() if a.get(u) != b.get(u))


BASE = '''
"""A module."""
import os
LIMIT = 3

@cached
def f(a, b=1):
    """A function."""
    def inner(x):
        return x + 1
    return inner(a) + b

class C(Base):
    """A class."""
    size = 2

    def method(self):
        return [self.g(lambda x: x + 1) for _ in range(2)]

    @property
    def p(self):
        return 1

    @p.setter
    def p(self, value):
        self.v = value
'''


@pytest.mark.parametrize("old, new, units", [
    ('"""A module."""', "# A comment.", []),
    ('    """A function."""\n', "", []),
    ('    """A class."""', '    """Another\n\n    text."""', []),
    ("LIMIT = 3", "LIMIT  =  3     # why", []),
    ("LIMIT = 3", "LIMIT = 4", ["m.py"]),
    ("import os", "import sys", ["m.py"]),
    ("@cached", "@other", ["m.py"]),
    ("b=1", "b=2", ["m.py"]),
    ("C(Base)", "C(Other)", ["m.py"]),
    ("size = 2", "size = 3", ["m.py"]),
    ("return x + 1", "return x - 1", ["m.py::f.inner"]),
    ("inner(a) + b", "inner(a) - b", ["m.py::f"]),
    ("inner(x)", "inner(x, y=1)", ["m.py::f"]),
    ("lambda x: x + 1", "lambda x: x + 2", ["m.py::C.method"]),
    ("        return 1", "        return 2", ["m.py::C.p"]),
    ("self.v = value", "self.w = value", ["m.py::C.p#2"]),
    ("def method", "def renamed", ["m.py", "m.py::C.method", "m.py::C.renamed"]),
    ("def f(a, b=1)", "async def f(a, b=1)", ["m.py"]),
])
def test_units_of_a_change(old, new, units):
    assert BASE.count(old) == 1
    assert changed(BASE, BASE.replace(old, new)) == units


def test_lines_belong_to_the_innermost_function():
    _, ranges = _units.units(BASE, "m.py")
    owners = {line.strip(): next(iter(_units.units_of_lines(ranges, [n], "m.py"))) for n, line in enumerate(BASE.splitlines(), 1)}
    assert owners["return x + 1"] == "m.py::f.inner" and owners["return inner(a) + b"] == "m.py::f" and owners["def inner(x):"] == "m.py::f"
    assert owners["@cached"] == owners["def f(a, b=1):"] == owners["size = 2"] == owners["LIMIT = 3"] == "m.py"
    assert owners["self.v = value"] == "m.py::C.p#2" and owners["return 1"] == "m.py::C.p"


FUNCTIONS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(FUNCTIONS, st.data())
def test_only_the_changed_unit_differs(bodies, data):
    """In modules with functions at random depths, only the unit of a changed body differs, even if
    lines have moved."""
    def text(values, comments):
        lines = []
        for i, (depth, value) in enumerate(zip(bodies, values)):
            lines += ["# text"] * comments
            lines += [f"{'    ' * d}def f{i}_{d}():" for d in range(depth + 1)]
            lines += [f"{'    ' * (depth + 1)}return {value}"]
            lines += [f"{'    ' * (d + 1)}return f{i}_{d + 1}()" for d in reversed(range(depth))]
        return "\n".join(lines)
    which = data.draw(st.integers(0, len(bodies) - 1))
    path = ".".join(f"f{which}_{d}" for d in range(bodies[which] + 1))
    assert changed(text([0] * len(bodies), 0), text([int(i == which) for i in range(len(bodies))], 3)) == [f"m.py::{path}"]


@pytest.mark.parametrize("source, module, is_package, names", [
    ("import a.b", "m", False, {"a.b"}),
    ("from a import b, c", "m", False, {"a", "a.b", "a.c"}),
    ("from . import b", "p.m", False, {"p", "p.b"}),
    ("from . import b", "p.q", True, {"p.q", "p.q.b"}),
    ("from ..a import b", "p.q.m", False, {"p.a", "p.a.b"}),
    ("def f():\n    import a", "m", False, {"a"}),
])
def test_imports(source, module, is_package, names):
    assert _units.imported(source, module, is_package) == names


# ------------------------------------------------------------------ a record and a tree
SOURCES = {
    "mindtorch/a.py": "LIMIT = 1\ndef used():\n    return 1\ndef unused():\n    return 2\n",
    "mindtorch/b.py": "from mindtorch import a\ndef other():\n    return a.used()\n",
    "mindtorch/table.json": "{}",
    "mindtorch/unread.json": "{}",
    "pyproject.toml": "[project]\nname = 'a'\n[tool.pytest.ini_options]\ntimeout = 1\n[tool.ruff]\nline-length = 1\n",
    "docs/page.md": "text",
    "docs/unread.md": "text",
    "tests/test_one.py": "def test_a():\n    pass\n",
    "tests/test_two.py": "def test_b():\n    pass\n",
    "tests/_helper.py": "def help():\n    return 1\n",
}
ROWS = {
    "tests/test_one.py": {"mindtorch/a.py", "mindtorch/a.py::used", "tests/test_one.py", "tests/test_one.py::test_a", "read:docs/page.md", "read:pyproject.toml", "read:pyproject.toml#pytest", "tests/_helper.py", "tests/_helper.py::help"},
    "tests/test_two.py": {"mindtorch/b.py", "tests/test_two.py", "tests/test_two.py::test_b", "list:docs", "read:pyproject.toml#pytest"},
    "tests/test_two.py::test_b": {"mindtorch/b.py", "mindtorch/b.py::other", "read:mindtorch/table.json"},
}
ONE, TWO, BOTH = ["tests/test_one.py"], ["tests/test_two.py"], ["tests/test_one.py", "tests/test_two.py"]
PACKAGES = {"python": "3.11", "mindspore": "2.10"}


@pytest.fixture
def tree(tmp_path):
    """Returns (folder, function that returns the affected files) of a small tree with a record of
    test_one and test_two."""
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = {p: _units.read(p, tmp_path) for p in _units.files(tmp_path)}
    units = {p: _units.units(data.decode(), p)[0] for p, data in files.items() if p.endswith(".py")}
    rows = {"slow": {key: {"seconds": 1, "always": "", "hit": hit} for key, hit in ROWS.items()}}
    _affected.save(tmp_path / "tests/recorded.xz", files, units, rows, {"slow": PACKAGES})

    def affected(packages=PACKAGES):
        return _affected.Record.load(tmp_path / "tests/recorded.xz", tmp_path).select("slow", packages).files(BOTH)
    return tmp_path, affected


def test_no_change_affects_no_test(tree):
    folder, affected = tree
    assert affected() == []
    record = _affected.Record.load(folder / "tests/recorded.xz", folder)
    assert {key: row["hit"] for key, row in record.rows("slow").items()} == ROWS
    assert record.seconds("slow", "tests/test_one.py") == 1 and record.seconds("slow", "tests/test_new.py") == 0


@pytest.mark.parametrize("path, old, new, files", [
    ("mindtorch/a.py", "return 1", "return 3", ONE),
    ("mindtorch/a.py", "return 1", "# why\n    return 1", []),
    ("mindtorch/a.py", "LIMIT = 1", "LIMIT = 2", ONE),
    # no test executes it: tests that load the module run
    ("mindtorch/a.py", "return 2", "return 3", ONE),
    ("mindtorch/a.py", "def unused", "def added():\n    pass\ndef unused", ONE),
    ("mindtorch/b.py", "a.used()", "a.used() + 1", TWO),
    ("mindtorch/a.py", "LIMIT", "LIMIT = (", BOTH),  # syntax error
    ("mindtorch/table.json", "{}", "[]", TWO),
    ("mindtorch/unread.json", "{}", "[]", BOTH),
    ("docs/page.md", "text", "another", ONE),
    ("pyproject.toml", "timeout = 1", "timeout = 2", BOTH),
    ("pyproject.toml", "length = 1", "length = 2", ONE),
    ("docs/unread.md", "text", "another", []),
    ("tests/_helper.py", "return 1", "return 2", ONE),
    ("tests/test_two.py", "pass", "assert True", TWO),
])
def test_changed_files(tree, path, old, new, files):
    folder, affected = tree
    text = (folder / path).read_text()
    assert old in text
    (folder / path).write_text(text.replace(old, new, 1))
    assert affected() == files


@pytest.mark.parametrize("path, text, files", [
    ("mindtorch/new.py", "", BOTH),  # nothing imports it, so any test may use it
    ("docs/new.md", "", TWO),  # (test_two lists the folder)
    ("mindtorch/new.json", "", BOTH),
    ("tests/test_new.py", "", []),
    ("tests/_new.py", "", BOTH),
    ("tests/_selection.py", "", []),  # (part of the test selection itself)
])
def test_new_files(tree, path, text, files):
    folder, affected = tree
    (folder / path).write_text(text)
    assert affected() == files


def test_a_new_module_that_another_imports(tree):
    folder, affected = tree
    (folder / "mindtorch/new.py").write_text("")
    (folder / "mindtorch/b.py").write_text(SOURCES["mindtorch/b.py"] + "def late():\n    from mindtorch import new\n")
    assert affected() == TWO


@pytest.mark.parametrize("path, files", [("mindtorch/a.py", ONE), ("mindtorch/table.json", TWO), ("docs/unread.md", TWO), ("mindtorch/unread.json", BOTH)])
def test_deleted_files(tree, path, files):
    folder, affected = tree
    (folder / path).unlink()
    assert affected() == files


def test_unknown_tests_and_versions_run(tree):
    folder, affected = tree
    assert affected({**PACKAGES, "mindspore": "2.11"}) == BOTH
    record = _affected.Record.load(folder / "tests/recorded.xz", folder)
    assert record.select("slow", PACKAGES).of_test("tests/test_new.py::test_x") and record.select("default", PACKAGES).of_test("tests/test_one.py::test_a")
    record._rows["slow"]["tests/test_one.py"]["always"] = "failed while it was recorded"
    assert record.select("slow", PACKAGES).files(BOTH) == ONE


def test_process_of_one_test_affects_only_that_test(tree):
    folder, _ = tree
    (folder / "mindtorch/b.py").write_text(SOURCES["mindtorch/b.py"].replace("used()", "used() + 1"))
    choice = _affected.Record.load(folder / "tests/recorded.xz", folder).select("slow", PACKAGES)
    assert choice.of_test("tests/test_two.py::test_b") == "it uses mindtorch/b.py::other" and not choice.of_test("tests/test_two.py::test_c")


# ------------------------------------------------------------------ making a record
PROGRAM = {
    "mindtorch/__init__.py": "",
    "mindtorch/inside.py": "def f():\n    return 1\ndef g():\n    return 2\n",
    "mindtorch/child.py": "import sys\ndef main():\n    return sys.argv\nmain()\n",
    "mindtorch/forked.py": "def work():\n    return 5\n",
    "data/a.txt": "a",
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\ntimeout = 100\nmarkers = ['slow: x', 'forks: x', 'nightly: x', 'smoke: x']\n",
    "tests/test_in.py": """
        from mindtorch import inside
        def test_f():
            assert inside.f() == 1
        def test_data():
            import os
            assert open("data/a.txt").read() == "a" and "a.txt" in os.listdir("data")
        """,
    "tests/test_child.py": """
        import os, subprocess, sys
        import pytest
        def test_child():
            subprocess.run([sys.executable, "-m", "mindtorch.child"], check=True)
        def test_fork():
            pid = os.fork()
            if not pid:
                from mindtorch import forked
                os._exit(forked.work())
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        def test_killed():
            subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
        def test_unrecorded():
            subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
        def test_shell():
            subprocess.run(["sh", "-c", "true"], check=True)
        def test_traced():
            subprocess.run([sys.executable, "-c", "import sys; sys.settrace(None)"], check=True)
        def test_skipped():
            pytest.skip("why")
        def test_plain():
            subprocess.run(["true"], check=True)
        """,
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Returns (rows, output) of a record of PROGRAM's default job, made by tests/record.py."""
    folder = tmp_path_factory.mktemp("program")
    for name, text in PROGRAM.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    for name in ("_affected", "_imports", "_jobs", "_units", "_recorder", "_record_plugin", "record"):
        shutil.copy(TESTS / f"{name}.py", folder / "tests")
    (folder / "tests/conftest.py").write_text("def pytest_configure():\n    pass\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TESTS_RECORD"))}
    # Uses a virtual environment on top of the current one, so that the recorder is not started in
    # the interpreters of other tests.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv-test"], check=True)
    here = [p for p in sys.path if p.endswith("site-packages")]
    site = next((folder / ".venv-test/lib").glob("python*/site-packages"))
    (site / "here.pth").write_text("\n".join(here) + "\n")
    done = subprocess.run([folder / ".venv-test/bin/python", "-m", "tests.record", "default"], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return _affected.Record.load(folder / "tests/recorded.xz", folder).rows("default"), done.stdout


def test_record_of_executed_opened_and_listed_files(recorded):
    rows, said = recorded
    hit = rows["tests/test_in.py"]["hit"]
    assert {"mindtorch/inside.py", "mindtorch/inside.py::f", "read:data/a.txt", "list:data", "tests/test_in.py::test_f", "tests/conftest.py::pytest_configure"} <= hit, said
    assert not {"mindtorch/inside.py::g", "mindtorch/child.py", "mindtorch/forked.py"} & hit
    # Imported and collected files are tracked by lines and tests, not as files that are read.
    assert "read:pyproject.toml#pytest" in hit and not {"read:pyproject.toml", "read:mindtorch/inside.py", "read:tests/test_in.py", "list:mindtorch", "list:tests"} & hit
    assert rows["tests/test_in.py"]["always"] == "" and rows["tests/test_in.py"]["tests"] == 2


def test_record_of_started_processes(recorded):
    rows, said = recorded
    assert {"mindtorch/child.py", "mindtorch/child.py::main"} <= rows["tests/test_child.py::test_child"]["hit"], said
    assert "mindtorch/forked.py::work" in rows["tests/test_child.py::test_fork"]["hit"]
    assert not {"mindtorch/child.py::main", "mindtorch/forked.py::work"} & rows["tests/test_child.py"]["hit"]
    assert not rows["tests/test_child.py"]["always"] and not rows["tests/test_child.py::test_child"]["always"]


@pytest.mark.parametrize("test, why", [("killed", "ended without a record"), ("unrecorded", "left no record"), ("shell", "starts sh"), ("traced", "another trace function"),
                                       ("skipped", "skipped while")])
def test_untraceable_tests_always_run(recorded, test, why):
    assert why in recorded[0][f"tests/test_child.py::test_{test}"]["always"]
    assert "tests/test_child.py::test_plain" not in recorded[0]


# ------------------------------------------------------------------ the command
def test_command_lists_affected_files():
    done = subprocess.run([sys.executable, "-m", "tests.changed", "--list", "default", "slow"], cwd=TESTS.parent, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^default: \d+ of \d+ files", done.stdout, re.M) and re.search(r"^slow: \d+ of \d+ files", done.stdout, re.M)


def test_each_job_has_files():
    for name, job in _jobs.JOBS.items():
        assert job.files(), name
    assert "tests/test_changed.py" in _jobs.JOBS["default"].files() and "tests/test_changed.py" not in _jobs.JOBS["dist"].files()


@pytest.mark.parametrize("args, job", [([], "default"), (["-m", "ascend"], "ascend"), (["--device", "npu"], "npu"), (["-m", "smoke"], "default")])
def test_job_of_pytests_arguments(args, job):
    import _selection

    class Config:
        class option:
            markexpr = args[1] if "-m" in args else "not slow and not dist and not ascend"

        @staticmethod
        def getoption(name):
            return args[1] if name in args else ""
    assert _selection.job_of(Config) == job
