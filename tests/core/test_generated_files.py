"""The source of the generated functions is in files, for debuggers, `inspect` and traces
(mindtorch/core/dispatch/generated_files.py)."""
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import types

import pytest

import mindtorch.torch as torch
from mindtorch.core.dispatch import codegen, dispatcher, generated_files, primitives

ROOT = pathlib.Path(generated_files.__file__).parents[3]


def generated():
    found = [*dispatcher.DISPATCH_ENTRIES, *primitives.PRIMITIVES.values()]
    return [f for f in found if f.__code__.co_filename.startswith(generated_files.folder())]


def codes(text, path):
    compiled = compile(text, path, "exec", dont_inherit=True)
    return {c.co_firstlineno: c for c in compiled.co_consts if isinstance(c, types.CodeType)}


def test_functions_are_those_that_the_files_define():
    """The functions come from templates; compiling the files must give the same bytecode, names and
    lines."""
    import linecache
    files, wrong = {}, []
    for f in generated():
        code = f.__code__
        path = code.co_filename
        if path not in files:
            files[path] = codes("".join(linecache.getlines(path)), path)
        other = files[path][code.co_firstlineno]
        for name in ("co_code", "co_name", "co_varnames", "co_names", "co_filename", "co_argcount", "co_kwonlyargcount"):
            if getattr(code, name) != getattr(other, name) and code.co_name.isidentifier():
                wrong.append((f, name))
        if {line for *_, line in code.co_lines()} != {line for *_, line in other.co_lines()}:
            wrong.append((f, "lines"))
    assert not wrong and len(generated()) > 2000


def test_getsource():
    assert inspect.getsource(torch.add).startswith("def add(input, other, *, alpha=1, out=None):\n")
    assert inspect.getsource(torch.add.__code__).startswith("def add(input, other, *args, **kwargs):\n")
    assert inspect.getsource(torch.Tensor.add_.__code__).startswith("def add_(self, *args, **kwargs):\n")
    assert inspect.getsource(primitives.PRIMITIVES["add"]).startswith("def add(a, b, ):\n")
    lines, first = inspect.getsourcelines(torch.relu.__code__)
    assert lines[0].startswith("def relu(input):") and first == torch.relu.__code__.co_firstlineno


def test_function_that_is_created_later():
    source = "def f(a0_, *, k0_):\n    return [fn(x_, k0_) for x_ in a0_]\n"
    f = codegen.compile_template(source, {"a0_": "input", "k0_": "dim"}, "later", "functions", "later from here:", {"fn": pow}, (), {"dim": float("inf")})
    assert f([2], dim=3) == [8]
    assert inspect.getsource(f) == "def later(input, *, dim=float('inf')):\n    return [fn(x_, dim) for x_ in input]\n"


def test_trace_and_pdb_enter_the_lines(tmp_path):
    from conftest import Process
    told = Process(tmp_path).ok("""
        import linecache, sys
        import mindtorch.torch as torch
        seen = []
        def trace(frame, event, arg):
            code = frame.f_code
            if code is torch.add.__code__ and event == "line":
                seen.append(linecache.getline(code.co_filename, frame.f_lineno).strip())
            return trace
        x = torch.ones(2)
        sys.settrace(trace)
        torch.add(x, x)
        sys.settrace(None)
        print(seen[-1])
        import io, pdb
        out = io.StringIO()
        p = pdb.Pdb(stdin=io.StringIO("step\\nstep\\nnext\\nnext\\nlist\\ncontinue\\n"), stdout=out, nosigint=True, readrc=False)
        p.set_trace()
        torch.add(x, x)
        print("def add(input, other, *args, **kwargs)" in out.getvalue(), "functions.py" in out.getvalue())
        """)
    assert told.split("\n")[:2] == ["return fn(input, other)", "True True"]


SHOW = """
import inspect, os, sys
import mindtorch.torch as torch
from mindtorch.core.dispatch import dispatcher, generated_files
code = torch.add.__code__
print(os.path.exists(code.co_filename), code.co_filename.startswith(generated_files._PACKAGE), inspect.getsource(code).count("\\n"))
wrong = [f for f in list(dispatcher.DISPATCH_ENTRIES)[::100] if f.__code__.co_filename.startswith(generated_files.folder())
         and not inspect.getsource(f.__code__).startswith("def ")]
assert not wrong, wrong
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package whose files have not been written."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "mindtorch", root / "mindtorch", ignore=shutil.ignore_patterns("__pycache__", "_generated"))
    return root


def environment(root, **env):
    told = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    return {**told, "PYTHONPATH": str(root), **env}


def show(root, **env):
    return subprocess.run([sys.executable, "-c", SHOW], env=environment(root, **env), cwd=root, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.timeout(400)
def test_first_import_writes_and_a_change_replaces(copy):
    folder = copy / "mindtorch/_generated"
    assert show(copy, PYTHONDONTWRITEBYTECODE="1")[:2] == ["False", "True"] and not folder.exists()
    # two processes at once
    both = [subprocess.Popen([sys.executable, "-c", SHOW], env=environment(copy), cwd=copy, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [p.communicate()[0].split() for p in both]
    assert [p.returncode for p in both] == [0, 0] and told[0] == told[1] and told[0][:2] == ["True", "True"]
    assert sorted(p.name for p in folder.iterdir()) == ["functions.py", "methods.py", "primitives.py"]
    whole = {p.name: p.read_text() for p in folder.iterdir()}
    lines = int(show(copy)[2])
    assert {p.name: p.read_text() for p in folder.iterdir()} == whole
    # a template of two lines more
    template = copy / "mindtorch/core/dispatch/dispatcher.py"
    old = template.read_text()
    template.write_text(old.replace('f"{head}\\n    try:\\n', 'f"{head}\\n    pass\\n    pass\\n    try:\\n'))
    assert int(show(copy, PYTHONDONTWRITEBYTECODE="1")[2]) == lines + 2 and (folder / "functions.py").read_text() == whole["functions.py"]
    assert int(show(copy)[2]) == lines + 2 and int(show(copy)[2]) == lines + 2
    assert (folder / "functions.py").read_text().count("\n#: ") == whole["functions.py"].count("\n#: ")
    template.write_text(old)
    # a file that ends early, and one of other content
    (folder / "methods.py").write_text(whole["methods.py"][:5000])
    (folder / "primitives.py").write_text("x = 1\n")
    assert int(show(copy)[2]) == lines
    assert {p.name: sorted(p.read_text().split("\n")) for p in folder.iterdir()} == {k: sorted(v.split("\n")) for k, v in whole.items()}


def test_bytecode_elsewhere(copy, tmp_path):
    shutil.rmtree(copy / "mindtorch/_generated", ignore_errors=True)
    assert show(copy, PYTHONPYCACHEPREFIX=str(tmp_path))[:2] == ["True", "False"]
    assert not (copy / "mindtorch/_generated").exists() and len(list(tmp_path.rglob("functions.py"))) == 1


def test_directory_that_cannot_be_written(copy):
    folder = copy / "mindtorch/_generated"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("a file, so that not even root can write into it")
    try:
        assert show(copy)[:2] == ["False", "True"]
    finally:
        folder.unlink()


@pytest.mark.timeout(400)
def test_build_contains_the_files(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(ROOT / "mindtorch", project / "mindtorch", ignore=shutil.ignore_patterns("__pycache__", "_generated"))
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, project)
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "lib")], cwd=project, env=environment(""),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "lib/mindtorch/_generated"
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert sorted(whole) == ["functions.py", "methods.py", "primitives.py"]
    assert show(tmp_path / "lib")[:2] == ["True", "True"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == whole
