"""The import hook, in separate processes."""
import pytest

ENABLE = "from mindtorch.tools import mstorch_enable\n"
REAL_IS_LOADED = "any('libtorch_cpu' in line for line in open('/proc/self/maps'))"


def test_importing_the_package_has_no_side_effects(process):
    process.ok(f"""
        import os, sys
        finders, environment = list(sys.meta_path), dict(os.environ)
        import mindtorch, mindtorch.tools
        assert sys.meta_path == finders and dict(os.environ) == environment
        assert not {{"mindspore", "torch", "mindtorch.torch"}} & set(sys.modules)
        assert not mindtorch.tools.is_enabled()
        import torch
        assert {REAL_IS_LOADED} and not torch.__file__.startswith(os.path.dirname(mindtorch.__file__))
    """)


def test_enabling_is_lazy_and_keeps_the_environment(process):
    process.ok(ENABLE + f"""
import os, sys
environment = dict(os.environ)
assert "mindspore" not in sys.modules and "torch" not in sys.modules
assert dict(os.environ) == environment
import torch
assert "mindspore" in sys.modules and not {REAL_IS_LOADED}
assert not [k for k in os.environ if k not in environment and k.startswith(("MINDTORCH", "ONEDNN", "GLOG", "ENABLE"))], os.environ
""")


@pytest.mark.smoke
@pytest.mark.parametrize("before", ["", "import mindtorch.torch, mindtorch.torch.nn.functional\n"],
                         ids=["enabled first", "facade first"])
def test_every_module_is_the_same_object_under_both_names(process, before):
    process.ok(before + ENABLE + """
import sys
import torch
import torch.nn.functional as F, torch.utils.data, torch.optim.lr_scheduler, torch.nn.modules.linear
import mindtorch.torch as facade
import mindtorch.torch.cuda.amp
assert torch is facade is sys.modules["torch"] is sys.modules["mindtorch.torch"]
assert F is facade.nn.functional is torch.nn.functional
assert torch.__name__ == "torch" and torch.__spec__ is not None
seen = 0
for name, module in list(sys.modules.items()):
    if name.startswith("mindtorch.torch"):
        theirs = name[len("mindtorch."):]
        assert sys.modules[theirs] is module, theirs
        assert module.__name__ == theirs == module.__spec__.name, (module.__name__, module.__spec__)
        package = theirs if hasattr(module, "__path__") else theirs.rpartition(".")[0]
        assert module.__package__ == package == module.__spec__.parent, (theirs, module.__package__, module.__spec__)
        seen += 1
assert seen > 10
assert {n for n in sys.modules if n.split(".")[0] == "torch"} == {
    n[len("mindtorch."):] for n in sys.modules if n.startswith("mindtorch.torch")}
""")


def test_later_imports_work_under_both_names(process):
    process.ok(ENABLE + """
import sys
import torch
for name in [n for n in sys.modules if n.startswith(("torch.optim.swa_utils", "mindtorch.torch.optim.swa_utils"))]:
    del sys.modules[name]
del torch.optim.swa_utils
import mindtorch.torch.optim.swa_utils as facade
assert facade.__name__ == "torch.optim.swa_utils" and facade.AveragedModel.__module__ == "torch.optim.swa_utils"
import torch.optim.swa_utils
assert torch.optim.swa_utils is facade is sys.modules["torch.optim.swa_utils"]
""")


def test_find_spec(process):
    process.ok(ENABLE + """
import importlib, importlib.util, sys
for name in ("torch", "torch.nn", "torch.nn.functional", "torch.utils.data", "torch.optim.lr_scheduler"):
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.name == name, (name, spec)
    assert spec.origin == importlib.import_module(name).__file__ and spec.has_location
    assert importlib.import_module(name) is sys.modules["mindtorch." + name]
assert importlib.util.find_spec("torch.nn").submodule_search_locations
assert importlib.util.find_spec("torch.nn.functional").submodule_search_locations is None
assert importlib.util.find_spec("torch.no_such_module") is None
assert importlib.util.find_spec("torchvisionary") is None
import pkgutil, torch
assert "nn" in [m.name for m in pkgutil.iter_modules(torch.__path__)]
""")


def test_spec_of_a_module_that_is_not_loaded(process):
    process.ok(ENABLE + """
import importlib.util, sys
import torch.optim
for name in [n for n in sys.modules if n.endswith("torch.optim.swa_utils")]:
    del sys.modules[name]
spec = importlib.util.find_spec("torch.optim.swa_utils")
assert spec.name == "torch.optim.swa_utils" and "torch.optim.swa_utils" not in sys.modules
assert "class AveragedModel" in spec.loader.get_source("torch.optim.swa_utils")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
import mindtorch.torch.optim.swa_utils as facade
assert module is facade
""")


def test_metadata(process):
    """Checks the metadata before `import torch`, after it, and after disabling."""
    process.ok("""
        import importlib.metadata as m, sys
        real = m.version("torch")
        from mindtorch.tools import mstorch_disable, mstorch_enable
        ours = m.version("torch")
        assert "mindspore" not in sys.modules and ours != real and "mindspore" in ours
        assert m.distribution("torch").metadata["Name"] == "torch" and m.version("Torch") == ours
        assert [d.version for d in m.distributions() if d.metadata["Name"] == "torch"][0] == ours
        assert m.version("numpy") == __import__("numpy").__version__
        assert list(m.distributions(path=["/nowhere"])) == []
        m.entry_points(), m.packages_distributions()
        import torch
        assert torch.__version__ == ours == torch.version.__version__ and ours.startswith("2.13.0")
        mstorch_disable()
        assert m.version("torch") == real
    """)


@pytest.mark.smoke
def test_without_real_torch(process, site_without):
    process.ok(ENABLE + """
import importlib.metadata, sys
import torch, torch.nn.functional
assert importlib.metadata.version("torch") == torch.__version__
assert float(torch.ones(2).sum()) == 2.0
import mindtorch.tools
mindtorch.tools.mstorch_disable()
for use in (lambda: __import__("torch"), lambda: importlib.metadata.version("torch")):
    try:
        use()
    except ImportError as e:          # PackageNotFoundError is one
        assert "torch" in str(e)
    else:
        raise SystemExit("torch is still there")
import mindtorch.torch
assert float(mindtorch.torch.ones(2).sum()) == 2.0
""", site=site_without("torch", "torchgen", "functorch"))


def test_unsupported_modules_explain_the_reason(process):
    """The module's name exists, so that find_spec finds it; importing it raises an ImportError that
    states what it belongs to."""
    process.ok(ENABLE + """
import importlib, importlib.util
for name, part in (("torch.sparse._triton_ops_meta", "torchao"), ("torch.ao.quantization.fx", "unquantized"), ("torch.nn.quantized.dynamic", "unquantized"),
                   ("torch.package", "state dict"), ("torch.package.package_importer", "state dict"),
                   ("torch._inductor.pattern_matcher", "Inductor")):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        assert name.startswith(e.name) and "is not supported: " in str(e) and part in str(e), e
    else:
        raise SystemExit(f"no error: {name}")
assert importlib.util.find_spec("torch.sparse._triton_ops_meta") is not None
assert importlib.util.find_spec("torch.sparse._triton") is None
import torch.ao.quantization
assert not hasattr(torch.ao.quantization, "NoSuchLayer")
try:
    from torch.ao.quantization import NoSuchLayer
except ImportError as e:
    assert "cannot import name 'NoSuchLayer'" in str(e), e
else:
    raise SystemExit("no error")
from torch.ao.quantization import QuantStub
""")


def test_errors_name_what_is_missing(process):
    process.ok(ENABLE + """
import torch
try:
    import torch.no_such_module
except ModuleNotFoundError as e:
    assert str(e) == "No module named 'torch.no_such_module'" and e.name == "torch.no_such_module", e
else:
    raise SystemExit("no error")
try:
    from torch.nn import NoSuchLayer
except ImportError as e:
    assert "NoSuchLayer" in str(e) and "'torch.nn'" in str(e), e
else:
    raise SystemExit("no error")
try:
    import torch.version.deeper
except ModuleNotFoundError as e:
    assert "torch.version.deeper" in str(e), e
else:
    raise SystemExit("no error")
assert not hasattr(torch, "no_such_function") and getattr(torch, "no_such_function", 5) == 5
""")


def test_idempotent(process):
    process.ok(ENABLE + """
import sys
import torch
first, nn, finders = torch, torch.nn, list(sys.meta_path)
from mindtorch.tools import mstorch_enable
mstorch_enable.enable()
import torch, torch.nn
assert torch is first and torch.nn is nn and sys.meta_path == finders
mstorch_enable.disable()
mstorch_enable.disable()
import mindtorch.tools
mindtorch.tools.mstorch_disable()
assert not mindtorch.tools.is_enabled()
""")


@pytest.mark.smoke
def test_disabling_restores_real_torch(process):
    process.ok(ENABLE + f"""
import sys
from multiprocessing import spawn
import torch
facade = torch
import mindtorch.tools
mindtorch.tools.mstorch_disable()
assert not [n for n in sys.modules if n.split(".")[0] == "torch"]
assert "mindtorch" not in spawn.get_preparation_data("x")
import torch
assert torch is not facade and {REAL_IS_LOADED}
import torch.nn.functional as F
assert F.relu(torch.tensor([-1.0])).item() == 0.0 and type(torch.ones(1)) is not type(facade.ones(1))
import mindtorch.torch.nn.functional, mindtorch.torch
assert mindtorch.torch is facade and mindtorch.torch.nn.functional is facade.nn.functional is not F
assert facade.nn.functional.relu(facade.tensor([-1.0])).item() == 0.0
""")


def test_the_same_line_enables_again(process):
    process.ok(ENABLE + """
import torch
first = torch
mstorch_enable.disable()
assert not mstorch_enable.is_enabled()
from mindtorch.tools import mstorch_enable
import torch
assert torch is first and mstorch_enable.is_enabled()
import mindtorch.tools.mstorch_enable
mindtorch.tools.mstorch_enable.disable()
assert not hasattr(mindtorch.tools, "mstorch_enable")     # asking does not enable
assert not mindtorch.tools.is_enabled()
import mindtorch.tools.mstorch_enable
assert mindtorch.tools.is_enabled()
""")


def test_context_manager(process):
    process.ok(f"""
        import mindtorch.tools as tools
        with tools.enabled():
            import torch
            facade = torch
            with tools.enabled():
                pass
            assert tools.is_enabled() and not {REAL_IS_LOADED}
        assert not tools.is_enabled()
        try:
            with tools.enabled():
                raise KeyError("planted")
        except KeyError:
            pass
        assert not tools.is_enabled()
        tools.mstorch_disable()
        import torch
        assert torch is not facade and {REAL_IS_LOADED}
    """)


@pytest.mark.smoke
def test_enabling_after_importing_torch_raises(process):
    script = process.file("late.py", """
        import torch

        try:
            from mindtorch.tools import mstorch_enable
        except RuntimeError as e:
            print(e)
        import mindtorch.tools
        assert not mindtorch.tools.is_enabled()
        import torch
        assert "libtorch_cpu" in open("/proc/self/maps").read()
    """)
    done = process.run(script)
    assert done.returncode == 0, done.stderr
    assert "already been imported" in done.stdout and "from mindtorch.tools import mstorch_enable" in done.stdout
    assert "late.py, line 5" in done.stdout


def test_names_while_enabled_and_while_not(process):
    process.ok("""
        import mindtorch.tools as tools
        import mindtorch.torch as facade
        Linear = facade.nn.Linear
        def names():
            return facade.__name__, Linear.__module__, repr(Linear), Linear.forward.__module__, facade.nn.__spec__.name
        off = names()
        assert off == ("mindtorch.torch", "mindtorch.torch.nn.modules.linear",
                       "<class 'mindtorch.torch.nn.modules.linear.Linear'>", "mindtorch.torch.nn.modules.linear",
                       "mindtorch.torch.nn"), off
        for _ in range(2):
            with tools.enabled():
                on = names()
                assert on == tuple(n.replace("mindtorch.torch", "torch") for n in off), on
            assert names() == off
    """)


def test_no_definition_keeps_the_mindtorch_module_name(process):
    """Covers all definitions in the modules of `mindtorch.torch`, including nested classes."""
    process.ok(ENABLE + """
import sys, types
import torch, torch.utils.data, torch.optim
seen = 0
def look(thing, where):
    global seen
    if isinstance(thing, (type, types.FunctionType)):
        module = vars(thing).get("__module__") if isinstance(thing, type) else thing.__module__
        assert not str(module).startswith("mindtorch.torch"), (where, thing)
        if isinstance(module, str) and module.split(".")[0] == "torch":
            seen += 1
            if isinstance(thing, type):
                for name, inner in vars(thing).items():
                    if isinstance(inner, type) and inner.__qualname__.startswith(thing.__qualname__ + "."):
                        look(inner, f"{where}.{name}")
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "torch":
        for key, thing in list(vars(module).items()):
            look(thing, f"{name}.{key}")
assert seen > 300, seen
""")


@pytest.mark.parametrize("enable", ["", ENABLE], ids=["beside", "enabled"])
def test_pickle_by_reference(process, enable):
    """Classes, functions and layers are pickled under the module name that is current at the time.
    """
    name = "torch" if enable else "mindtorch.torch"
    process.ok(enable + f"""
import pickle
import {name} as torch
for thing in (torch.nn.Linear, torch.optim.SGD, torch.utils.data.DataLoader, torch.nn.init.xavier_uniform_):
    data = pickle.dumps(thing)
    assert {name.encode()!r} in data and pickle.loads(data) is thing, thing
layer = torch.nn.Linear(2, 3)
data = pickle.dumps(layer)
assert b"torch.nn.modules.linear" in data and {bool(enable)} == (b"mindtorch.torch" not in data), data
again = pickle.loads(data)
assert type(again) is torch.nn.Linear and again.weight.tolist() == layer.weight.tolist()
""")


@pytest.mark.parametrize("enable", ["", ENABLE], ids=["beside", "enabled"])
def test_ops_pickle_by_reference(process, enable):
    """Functions generated from the op registry belong to the module that exposes them."""
    name = "torch" if enable else "mindtorch.torch"
    process.ok(enable + f"""
import pickle
import {name} as torch
import {name}.nn.functional as F
for home, thing in (("", torch.abs), ("", torch.matmul), (".nn.functional", F.elu), (".linalg", torch.linalg.inv)):
    assert thing.__module__ == {name!r} + home, (thing, thing.__module__)
    assert pickle.loads(pickle.dumps(thing)) is thing
for thing in (F.relu, F.conv2d, torch.no_grad, torch.device, torch.Size, torch.Tensor, torch.float32):
    assert pickle.loads(pickle.dumps(thing)) is thing, thing
""")


WORKER = """
    import os, sys

    def look(thing):
        import torch
        import mindtorch.torch
        return (type(thing).__name__, type(thing).__module__.split(".")[0], torch is mindtorch.torch,
                any("libtorch_cpu" in line for line in open("/proc/self/maps")), float(thing.weight.sum()))

    def whose(_):
        import torch
        return any("libtorch_cpu" in line for line in open("/proc/self/maps"))
"""
PARENT = """
    import multiprocessing, os, sys
    from concurrent.futures import ProcessPoolExecutor
    import worker

    if __name__ == "__main__":
        if "--enable" in sys.argv:
            from mindtorch.tools import mstorch_enable
        import torch
        environment = dict(os.environ)
        layer = torch.nn.Linear(2, 2)
        expected = "Linear", "torch", True, False, float(layer.weight.sum())
        for method in sys.argv[1].split(","):
            context = multiprocessing.get_context(method)
            with context.Pool(1) as pool:
                assert pool.map(worker.look, [layer]) == [expected], method
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                assert pool.submit(worker.look, layer).result() == expected, method
        assert dict(os.environ) == environment
        import mindtorch.tools
        mindtorch.tools.mstorch_disable()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(worker.whose, [0]) == [True]
        print("fine")
"""


@pytest.mark.parametrize("method, start", [
    ("spawn", "run"), ("forkserver", "line"),
    *[pytest.param(*p, marks=pytest.mark.slow) for p in (("spawn", "line"), ("forkserver", "run"), ("fork", "run"))],
])
def test_children_are_enabled_before_they_unpickle(process, method, start):
    """Even if the enabling line of the script is in code that a spawned child does not execute."""
    process.file("worker.py", WORKER)
    script = process.file("parent.py", PARENT)
    args = [script, method, "--enable"] if start == "line" else ["-m", "mindtorch", "run", script, method]
    done = process.run(*args)
    assert done.returncode == 0 and done.stdout == "fine\n", done.stdout + done.stderr


def test_source_and_annotations(process):
    process.ok(ENABLE + """
import importlib, inspect, linecache, typing
import torch
Linear = torch.nn.Linear
assert inspect.getsource(Linear).startswith("class Linear(")
assert inspect.getsource(Linear.forward).lstrip().startswith("def forward(")
linear = torch.nn.modules.linear
assert inspect.getmodule(Linear) is linear and inspect.getfile(Linear) == linear.__file__
assert inspect.getsource(linear) == open(linear.__file__).read()
class Mine(Linear):
    other: "torch.nn.Module"
    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return x
assert typing.get_type_hints(Mine)["other"] is torch.nn.Module
assert typing.get_type_hints(Mine.forward) == {"x": torch.Tensor, "return": torch.Tensor}
for cls in (Linear, torch.nn.Module, torch.optim.SGD, torch.utils.data.DataLoader):
    typing.get_type_hints(cls), typing.get_type_hints(cls.__init__)
""")


def test_reload(process):
    process.ok(ENABLE + """
import importlib
import torch
module = torch.optim.swa_utils
old = module.AveragedModel
assert importlib.reload(module) is module is torch.optim.swa_utils
assert module.AveragedModel is not old and module.AveragedModel.__module__ == "torch.optim.swa_utils"
""")


@pytest.mark.parametrize("names", [
    ["torch"], ["torch", "mindtorch.torch"], ["torch.optim.swa_utils", "mindtorch.torch.optim.swa_utils"],
], ids=" ".join)
def test_imports_from_several_threads(process, names):
    """(Importing a package and its own submodules concurrently fails in Python itself, for PyTorch
    as well.)"""
    process.ok(ENABLE + f"names = {names * 6}" + """
import importlib, sys, threading
if "swa_utils" in names[0]:
    import torch.optim
    for name in [n for n in sys.modules if n.endswith("torch.optim.swa_utils")]:
        del sys.modules[name]
found, start = [], threading.Barrier(len(names))
def load(name):
    start.wait()
    try:
        module = importlib.import_module(name)
        assert not getattr(module.__spec__, "_initializing", False)
        found.append(module)
    except BaseException as e:
        found.append((name, e))
threads = [threading.Thread(target=load, args=(n,)) for n in names]
for t in threads: t.start()
for t in threads: t.join()
public = names[0]
assert len(found) == len(names) and all(f is sys.modules[public] for f in found), found
assert found[0] is sys.modules["mindtorch." + public] and found[0].__name__ == public == found[0].__spec__.name
""")
