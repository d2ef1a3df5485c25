"""Work that `import mindtorch.torch` does beyond `import mindspore`, as counts: unlike seconds,
they do not depend on the machine."""
import functools
import inspect
import json
import marshal
import os
import pathlib
import subprocess
import sys

import pytest

import mindtorch.torch as torch
from mindtorch.core.dispatch import codegen, primitives
from mindtorch.core.dispatch.op_registry import OPS


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    from conftest import Process
    return json.loads(Process(tmp_path_factory.mktemp("import")).ok("""
        import gc, inspect, json, sys
        import mindspore
        seen = {"signatures": 0, "passes": 0, "compiled": 0}
        real_signature, real_compile = inspect.signature, compile

        def signature(*args, **kwargs):
            seen["signatures"] += 1
            return real_signature(*args, **kwargs)

        def counted(source, *args, **kwargs):
            seen["compiled"] += isinstance(source, str)     # (modules without byte code come as bytes)
            return real_compile(source, *args, **kwargs)

        def collected(phase, info):
            seen["passes"] += phase == "start" and info["generation"] == 2
        import builtins
        inspect.signature, builtins.compile = signature, counted
        before = set(sys.modules)
        gc.collect()                # how near to its next pass MindSpore has left the collector is chance
        gc.callbacks.append(collected)
        import mindtorch.torch as torch
        gc.callbacks.remove(collected)
        # (Ours: how many of the standard library's come along is the Python's own.)
        seen["modules"] = sum(n.startswith("mindtorch") for n in set(sys.modules) - before)
        seen["collects"] = gc.isenabled()
        unwanted = "fx", "_dynamo", "_inductor", "onnx", "profiler", "distributions", "export", "testing", "quantization"
        seen["early"] = [n for n in unwanted if f"mindtorch.torch.{n}" in sys.modules]
        seen["late"] = [n for n in unwanted[:6] if not hasattr(torch, n)]
        print(json.dumps(seen))
        """))


def test_wrappers_are_not_compiled_one_by_one(counts):
    """About 1,200 wrappers share about 240 templates."""
    assert counts["compiled"] < 300, counts
    assert len(OPS) + len(primitives.PRIMITIVES) > 1000


def test_import_rarely_calls_inspect_signature(counts):
    assert counts["signatures"] < 50, counts


def test_garbage_collector_pauses_during_import(counts):
    assert counts["passes"] == 0 and counts["collects"] is True, counts


def test_rare_submodules_are_loaded_lazily(counts):
    assert counts["early"] == [] and counts["late"] == [] and 300 < counts["modules"] < 485, counts


def as_inspect_has_it(f):
    kinds = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.KEYWORD_ONLY: "keyword", inspect.Parameter.VAR_KEYWORD: "**"}
    return [(p.name, kinds.get(p.kind, ""), p.default) for p in inspect.signature(f).parameters.values()]


def plain(a, b=1, *c, d, e=(), **f):
    """A function with parameters of every kind."""


@functools.wraps(plain)
def wrapping(*args, **kwargs):
    return plain(*args, **kwargs)


def signed(*args):
    """A function with an explicit `__signature__`."""


signed.__signature__ = inspect.signature(lambda x, *, y=2: None)


@pytest.mark.parametrize("f", [plain, wrapping, signed, functools.wraps(signed)(lambda *a: None), functools.partial(plain, 1, d=3), dict.fromkeys, pow,
                               torch.nn.Linear, lambda: 0, lambda a, /, b: 0])
def test_parameters_match_inspect(f):
    assert [tuple(p) for p in codegen.parameters(f)] == as_inspect_has_it(f)


def test_parameters_of_all_ops_match_inspect():
    for o in OPS.values():
        for f in (o.body, o.fn, o.public):
            if f is not None:
                assert [tuple(p) for p in codegen.parameters(f)] == as_inspect_has_it(f), o


def test_function_compiled_from_a_template():
    source = "def f(a0_, *, a1_):\n    x_a0_ = a0_\n    return fn(x_a0_, a1_=a1_), 'name_', ('a0_', 'other'), {'a1_': a1_}\n"
    made = [codegen.compile_template(source, {"a0_": a, "x_a0_": "x_" + a, "a1_": k, "name_": name}, name, "functions", f"{name} from here:", {"fn": lambda x, **kw: (x, kw)}, (d,), {k: d})
            for a, k, name, d in (("input", "dim", "sum", 1), ("other", "keepdim", "max", 2))]
    assert made[0]() == ((1, {"dim": 1}), "sum", ("input", "other"), {"dim": 1})
    assert made[1](other=5, keepdim=6) == ((5, {"keepdim": 6}), "max", ("other", "other"), {"keepdim": 6})
    assert str(inspect.signature(made[1])) == "(other=2, *, keepdim=2)" and made[1].__code__.co_filename.startswith("<mindtorch max ")
    with pytest.raises(TypeError, match=r"max\(\) got an unexpected keyword argument 'dim'"):
        made[1](dim=1)


KEEPING = """
import builtins, sys
from mindtorch.core.dispatch import codegen
count, real = 0, compile
def counted(source, *args, **kwargs):
    global count
    count += isinstance(source, str)
    return real(source, *args, **kwargs)
builtins.compile = counted
f = codegen.compile_template("def f(a0_):\\n    return fn(a0_) + 1\\n", {"a0_": "input"}, "g", "functions", "g from here:", {"fn": abs})
codegen.save_cache()
assert "mindspore" not in sys.modules and f(-1) == 2, f(-1)
print(count)
"""


def test_compiled_wrappers_are_cached_next_to_the_bytecode(tmp_path):
    def compiled(**env):
        told = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": str(tmp_path)} | env
        root = pathlib.Path(codegen.__file__).parents[3]
        return int(subprocess.run([sys.executable, "-c", KEEPING], env=told, cwd=root, check=True, capture_output=True, text=True).stdout)

    assert compiled(PYTHONDONTWRITEBYTECODE="1") == 1 and not list(tmp_path.rglob("*.templates*"))
    assert compiled() == 1
    file, = tmp_path.rglob("*.templates*")
    assert compiled() == 0
    whole = file.read_bytes()
    for damaged in (b"", whole[:-5], whole[:4], b"\0\0\0\0" + whole[4:], whole[:4] + marshal.dumps(1), whole[:4] + marshal.dumps({})):
        file.write_bytes(damaged)
        assert compiled() == 1, damaged
        assert compiled() == 0 and file.read_bytes()[:4] == whole[:4], damaged
    assert list(tmp_path.rglob("*.templates*")) == [file]
