"""Every replacement in MindSpore, NumPy or CPython is in the register
(mindtorch/backend/patching.py), and nowhere else.

The lint reads the sources with `ast`. Each registered patch is then checked in this process, and
the code paths without NumPy's and CPython's private features run in another one.
"""
import ast
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import mindtorch.torch as mt
from mindtorch.backend import cpython, patching

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mindtorch"
REGISTERS = {"backend/patching.py", "backend/mindspore/patches.py", "backend/cpu/_numpy_private.py", "backend/cpython.py"}
FOREIGN = ("mindspore", "numpy", "builtins")
#: names under which mindtorch modules re-export MindSpore objects
HANDED_ON = {"MSTensor", "MSParameter", "ms", "np", "executor", "Cell", "ms_typing", "NativeFunction", "BackwardNode"}
STDLIB = sys.stdlib_module_names - {"__future__"}
HOOKS = {"sys.setprofile", "sys.settrace", "threading.setprofile", "threading.settrace", "atexit.register", "os.register_at_fork"}
#: allowed exceptions: (file, code)
ALLOWED = {
    ("tools/_hook.py", "sys.meta_path.insert(0, _finder)"),  # declared as `sys:meta_path`
    ("tools/_hook.py", "sys.meta_path.remove(_finder)"),
    # Restores real PyTorch's Tensor if CPython's layout is as expected; the module imports nothing
    # of mindtorch.
    ("tools/model_diff/activation_recorder.py", "ctypes.c_void_p.from_address(id(cls) + _AS_SEQUENCE)"),
    # as the interpreter does before it reports an error
    ("tools/_run.py", "value.__traceback__ = sys.last_traceback = traceback"),
}


def dotted(e):
    """Returns 'np.core.umath' for such an expression, else None."""
    names = []
    while isinstance(e, ast.Attribute):
        names.append(e.attr)
        e = e.value
    return ".".join([e.id, *reversed(names)]) if isinstance(e, ast.Name) else None


def root(e):
    while isinstance(e, ast.Attribute):
        e = e.value
    return e.id if isinstance(e, ast.Name) else None


def names_of(tree):
    """Returns {local name: what it refers to} of external objects: imports, and plain names for
    parts of these."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                known[a.asname or a.name.partition(".")[0]] = a.name if a.asname else a.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for a in node.names:
                ours = node.module.startswith("mindtorch")
                if not ours or a.name in HANDED_ON:
                    known[a.asname or a.name] = "mindspore." + a.name if ours else f"{node.module}.{a.name}"
    known = {k: v for k, v in known.items() if v.partition(".")[0] in (*FOREIGN, *STDLIB)}

    def stands_for(e):
        name = root(e)
        if isinstance(e, ast.Attribute) and known.get(name, "").partition(".")[0] in FOREIGN:
            return known[name]
        if isinstance(e, ast.Subscript) and dotted(e.value) == "sys.modules" and isinstance(e.slice, ast.Constant):
            return e.slice.value
        if isinstance(e, ast.Call) and dotted(e.func) in ("getattr", "importlib.import_module", "sys.modules.get") and e.args:
            if isinstance(e.args[0], ast.Constant) and isinstance(e.args[0].value, str):
                return e.args[0].value
            return stands_for(e.args[0])
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found = stands_for(node.value)
            if found and found.partition(".")[0] in FOREIGN:
                known.setdefault(node.targets[0].id, found)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, (ast.Tuple, ast.List)):
            for e in node.iter.elts:
                found = stands_for(e) or known.get(root(e), "")
                if found.partition(".")[0] in FOREIGN:
                    known.setdefault(node.target.id, found)
    return known


def patches_in(source):
    """Returns [(line, code)] of everything that replaces, extends or hooks into an external object.
    """
    tree, found = ast.parse(source), []
    known = names_of(tree)

    def not_ours(e, packages=FOREIGN):
        return known.get(root(e), "").partition(".")[0] in packages
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        for t in targets:
            for x in t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t]:
                if isinstance(x, ast.Attribute) and not_ours(x.value, (*FOREIGN, *STDLIB)):
                    found.append((node.lineno, ast.unparse(node)))
                elif isinstance(x, ast.Subscript) and (
                        not_ours(x.value) or isinstance(x.value, ast.Call) and dotted(x.value.func) == "vars" and x.value.args and not_ours(x.value.args[0])):
                    found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, ast.Call):
            name = dotted(node.func) or ""
            real = ".".join([known.get(name.partition(".")[0], ""), *name.split(".")[1:]])
            if name in ("setattr", "delattr") and node.args and not_ours(node.args[0], (*FOREIGN, *STDLIB)):
                found.append((node.lineno, ast.unparse(node)))
            elif real in HOOKS or real.startswith("sys.meta_path."):
                found.append((node.lineno, ast.unparse(node)))
            elif any(k.arg == "extobj" for k in node.keywords) and not_ours(node.func):
                # a ufunc that is not wrapped by `silent`
                found.append((node.lineno, ast.unparse(node)))
            elif name.endswith(".from_address") and any(isinstance(x, ast.Call) and dotted(x.func) == "id" for x in ast.walk(node)):
                found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found += [(d.lineno, ast.unparse(d)) for d in node.decorator_list
                      if known.get((dotted(d) or "").partition(".")[0]) == "atexit"]
        if isinstance(node, ast.Attribute) and (dotted(node) or "").endswith(".core") and known.get(root(node)) == "numpy":
            found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("numpy.core", "numpy._core")):
            found.append((node.lineno, ast.unparse(node)))
    return found


def test_no_unregistered_patches():
    found, files = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in REGISTERS:
            files += 1
            found += [f"{name}:{line}: {code}" for line, code in patches_in(path.read_text("utf-8")) if (name, code) not in ALLOWED]
    assert files > 400 and not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("source, count", [
    ("from mindspore.ops.primitive import Primitive\nPrimitive.__call__ = f", 1),
    ("from mindtorch.backend.mindspore.runtime import ms\nms.nn.Cell.__call__ = f", 1),
    ("from mindtorch.backend.mindspore.private import MSTensor\nfor n in names:\n    setattr(MSTensor, n, f)", 1),
    ("import mindspore as ms\nfor o in (ms.nn.Optimizer, ms.nn.Cell):\n    o.__call__ = f", 1),
    ("import sys\n_amp = sys.modules['mindspore.train.amp']\n_amp.f, _amp.g = f, g", 2),
    ("import sys\ncell = getattr(sys.modules.get('mindspore.nn'), 'Cell', None)\ncell.__del__ = f", 1),
    ("import numpy as np\nnp.add = f", 1),
    ("import numpy as np\nnp.core.umath.clip(a)", 1),
    ("from numpy.core.umath import geterrobj", 1),
    ("import numpy as np\nnp.add(a, b, extobj=S)", 1),
    ("f = silent(g)\nf(a, b, extobj=S)", 0),
    ("import builtins\nbuiltins.print = f", 1),
    ("import sys\nsys.excepthook = f", 1),
    ("import sys\nsys.setprofile(f)", 1),
    ("import atexit\n@atexit.register\ndef f():\n    pass", 1),
    ("import os\nos.register_at_fork(before=f)", 1),
    ("import ctypes\nctypes.c_long.from_address(id(d) + 24)", 1),
    ("from mindtorch.core.tensor.tensor import Tensor\nTensor.f = f", 0),
    ("import sys\nsys.modules['a'] = m", 0),
    ("import numpy as np\na = np.zeros(3)\na[0] = 1\na.flags.writeable = False", 0),
])
def test_the_lint_itself(source, count):
    assert len(patches_in(source)) == count


# ------------------------------------------------------------------ the register
@pytest.mark.parametrize("name", list(patching.PATCHES))
def test_patch_matches_its_register_entry(name):
    p = patching.PATCHES[name]
    assert p.why and p.tests and all((ROOT / t).is_file() for t in p.tests)
    assert p.known_version(), p.state()
    good, said = p.state()
    assert good, said
    # applied at interpreter exit
    if p.kind in (patching.REPLACES, patching.ADDS) and not name.endswith(":Cell.__del__"):
        assert p.placed and said == "in place"
    if p.kind == patching.REPLACES:
        assert p.takes is not None or p.package == "numpy" or name.partition(":")[0] == "mindspore._c_expression" or "tem__" in name


def test_patch_that_does_not_fit_raises(monkeypatch):
    def patch(kind, attribute, takes=None):
        monkeypatch.setitem(patching.PATCHES, name := "fractions:" + attribute,
                            patching.Patch(name, kind, "to see", ("python", "3.0", "3.1"), ("tests/backend/test_patches.py",), takes))
        return name
    with pytest.raises(ImportError, match=r"replaces fractions:Fraction.nothing \(to see\), as it is in python 3.0, 3.1.*there is none.*Remedy: python 3.1"):
        patching.put(patch(patching.REPLACES, "Fraction.nothing"), None)
    with pytest.raises(patching.PatchError, match=r"it takes \(self, max_denominator\), not \(self, most\)"):
        patching.put(patch(patching.REPLACES, "Fraction.limit_denominator", "self, most"), None)
    with pytest.raises(patching.PatchError, match="something of that name already"):
        patching.put(patch(patching.ADDS, "Fraction.limit_denominator"), None)
    name = patch(patching.AT_TIMES, "Fraction.limit_denominator", "self, max_denominator")
    import fractions
    before = fractions.Fraction.limit_denominator
    patching.put(name, len)
    assert fractions.Fraction.limit_denominator is len and not patching.PATCHES[name].state()[0] and "not one it was checked with" in \
        patching.PATCHES[name].state()[1]
    patching.take_back(name)
    patching.take_back(name)
    assert fractions.Fraction.limit_denominator is before
    once = patch(patching.REPLACES, "Fraction.as_integer_ratio", "self")
    before = fractions.Fraction.as_integer_ratio
    try:
        patching.put(once, before)
        with pytest.raises(RuntimeError, match="made twice"):
            patching.put(once, before)
    finally:
        fractions.Fraction.as_integer_ratio = before


def test_interpreter_exits_quietly_with_a_cell():
    """Tests the patch of Cell.__del__, which is applied at interpreter exit."""
    code = "import mindtorch.torch as torch, mindspore as ms\nnet = ms.nn.Dense(2, 2)\nnet(ms.ops.zeros((1, 2)))\nmodule = torch.nn.Linear(2, 2)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "ignored" not in done.stderr, done.stderr


# ------------------------------------------------------------------ without private features
PROGRAM = """
import hashlib, sys, warnings
warnings.simplefilter("error", RuntimeWarning)
import numpy as np
import mindtorch.torch as torch
torch.manual_seed(0)
found = []

def note(*tensors):
    found.extend(hashlib.sha1(np.ascontiguousarray(t.detach().numpy()).tobytes()).hexdigest() for t in tensors)

for n in (3, 50_000, 700_000):
    a, b = torch.randn(n), torch.randn(n)
    b[0], a[0], a[1] = 0, float("inf"), float("nan")
    z = torch.tensor(0.0)
    note(a / b, a / z, a.log(), a.sqrt(), (a * 1e30) * 1e30, a.rsqrt(), a.exp(), a.sigmoid(), a.clamp(-1, 1), a.clamp(min=0), a.clamp(max=0), a.reciprocal(),
         a.clone().div_(b), a.clone().mul_(1e38).mul_(1e38), torch.clamp(a[:3], -1, 1), a.to(torch.float16), (a * 1e9).half(), a.fmod(b), torch.pow(a, b))
m = torch.randn(130, 130) * 1e30
note(m @ m, m[:3, :3] @ m[:3, :3], torch.bmm(m[None], m[None]))
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
for optimizer in (torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.optim.Adam(net.parameters())):
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
note(*net.parameters())
scale = [2.0]
calls = []

@torch.compile
def f(t):
    return net(t) * scale[0]

for scale[0] in (2.0, 2.0, 3.0, 3.0):
    note(f(x))
net[0].bias.data.zero_()
note(f(x))
net[1] = torch.nn.Tanh()
note(f(x), f(x))
try:
    torch.empty(1 << 50)
except torch.OutOfMemoryError as e:
    found.append(str(e))
print("\\n".join(found))
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    def run(**env):
        import os
        done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=500, env={**os.environ, **env})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    return run(), run(MINDTORCH_PORTABLE="1")


def test_values_are_unchanged_without_private_apis(both):
    """Checks that the alternatives to extobj=, geterrobj, np.core and C access to arrays and dicts
    are bitwise equal, without warnings."""
    usual, portable = both
    assert len(usual) > 70 and portable == usual


def test_dicts_without_version_tags(monkeypatch):
    """Simulates CPython 3.13 with a switch of this process."""
    monkeypatch.setattr(cpython, "PORTABLE", True)
    cpython.tags_work.cache_clear()
    try:
        assert not cpython.tags_work() and cpython.watch({}).value == 0
        state = {"k": 1.0}
        from mindtorch.torch._dynamo import _guards
        monkeypatch.setattr(_guards, "tags_work", cpython.tags_work)
        f = mt.compile(lambda t: t * state["k"])
        x = mt.ones(3)
        for k in (1.0, 1.0, 2.0, 2.0, 3.0):
            state["k"] = k
            assert np.array_equal(f(x).numpy(), [k] * 3)
    finally:
        cpython.tags_work.cache_clear()
