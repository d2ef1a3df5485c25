"""torch.jit as libraries use it: marked and scripted code matches eager code, compared with
PyTorch."""
import copy
import io
import pickle
import types
import typing

import numpy as np
import pytest
import torch as real

import mindtorch.torch as torch

_MAYBE = typing.Optional  # as scripts spell it


def scripted(T):
    class M(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.n = T.nn.Linear(2, 2), 3
            T.nn.init.ones_(self.fc.weight)
            T.nn.init.zeros_(self.fc.bias)

        def forward(self, x, flag: bool = False):
            if flag:
                return self.helper(x)
            return self.fc(x)

        @T.jit.ignore
        def helper(self, x):
            return x * self.n

        @T.jit.unused
        def other(self, x):
            return x

        @T.jit.export
        def more(self, x):
            return self.fc(x) + 1

        @T.jit.ignore(drop=True)
        def dropped(self, x):
            return x
    return M


def test_scripted_modules_match_eager():
    for x in (np.ones((1, 2), np.float32), np.zeros((3, 2), np.float32)):
        ends = []
        for T in (real, torch):
            m, t = scripted(T)().eval(), T.tensor(x)
            s = T.jit.script(m)
            assert isinstance(s, T.jit.ScriptModule) and isinstance(s, T.nn.Module) and s.original_name == "M" and s.fc.weight is m.fc.weight
            r = [s(t), s(t, True), s.more(t), T.jit.freeze(s)(t), T.jit.optimize_for_inference(T.jit.script(scripted(T)().eval()))(t), T.jit.script(s)(t),
                 T.jit.script(T.nn.Sequential(m.fc, T.nn.ReLU()))(t)]
            ends.append([y.detach().numpy() for y in r])
        np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


def test_functions_and_decorators():
    for T in (real, torch):
        @T.jit.script
        def f(x, y: int = 2):
            return x * y

        @T.jit.script_if_tracing
        def g(x):
            return x + 1
        x = T.ones(2)
        assert f(x, y=3).tolist() == [3, 3] and g(x).tolist() == [2, 2] and not T.jit.is_scripting() and not T.jit.is_tracing()
        assert T.jit.annotate(int, 3) == 3 and T.jit.wait(T.jit.fork(lambda a: a + 1, x)).tolist() == [2, 2]
        for wrong in (lambda: T.jit.script(3), lambda: T.jit.script("x")):
            with pytest.raises(TypeError):
                wrong()


@pytest.mark.parametrize("call", ["J.freeze(J.script(M().train()))", "J.freeze(M().eval())", "J.optimize_for_inference(M().eval())"])
def test_errors_match_torch(call):
    for T in (real, torch):
        with pytest.raises(RuntimeError):
            eval(call, {"J": T.jit, "M": scripted(T)})


@pytest.mark.parametrize("value, kind", [
    ([1], list[int]), ([1, "a"], list[int]), ({"a": 1}, dict[str, int]), ({1: 1}, dict[str, int]), (None, _MAYBE[int]), (2, _MAYBE[int]),
    ("a", _MAYBE[int]), ((1, "a"), tuple[int, str]), ((1,), tuple[int, str]), ([[1], [2]], list[list[int]]), (3, int), (3, (str, int)), ([1], list), ({}, dict)])
def test_isinstance_checks_container_elements(value, kind):
    ends = []
    for T in (real, torch):
        try:
            ends.append(T.jit.isinstance(value, kind))
        except Exception as e:
            ends.append(type(e))
    assert ends[0] == ends[1]


def test_markers():
    from mindtorch.torch import _jit_internal as ours
    theirs = real._jit_internal
    a, b = scripted(real)(), scripted(torch)()
    for name in ("forward", "helper", "other", "more", "dropped"):
        f, g = getattr(a, name), getattr(b, name)
        assert theirs.is_ignored_fn(f) == ours.is_ignored_fn(g) and theirs.should_drop(f) == ours.should_drop(g)
        kind, mine = theirs.get_torchscript_modifier(f), ours.get_torchscript_modifier(g)
        assert [n for n, v in vars(theirs.FunctionModifiers).items() if v == kind] == [n for n, v in vars(ours.FunctionModifiers).items() if v == mine]
    assert theirs.module_has_exports(a) and ours.module_has_exports(b) and not ours.module_has_exports(torch.nn.Linear(1, 1))
    for ann in (list[int], dict[str, int], tuple[int, int], _MAYBE[int], typing.Union[int, str], int):
        assert [theirs.is_list(ann), theirs.is_dict(ann), theirs.is_tuple(ann), theirs.is_optional(ann)] == [ours.is_list(ann), ours.is_dict(ann), ours.is_tuple(ann), ours.is_optional(ann)]


def test_private_modules_that_libraries_import_from():
    from mindtorch.torch.jit import _script, _state, _trace
    assert _script.RecursiveScriptModule is torch.jit.RecursiveScriptModule and _trace.TopLevelTracedModule is torch.jit.TracedModule
    _state.disable()
    assert not _state._enabled
    _state.enable()
    assert _state._enabled and torch.jit.Future is torch.futures.Future
    with pytest.raises(AttributeError):
        getattr(torch.jit, "nothing_of_that_name")  # noqa: B009


def test_scripted_code_is_saved_by_tracing_with_its_examples(tmp_path):
    m, x = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh()).eval(), torch.randn(4, 2)
    for examples in ([(x,)], {m: [(x,)]}):
        s = torch.jit.script(m, example_inputs=examples)
        s.save(str(tmp_path / "m.pt"))
        again = torch.jit.load(str(tmp_path / "m.pt"))
        np.testing.assert_allclose(again(x).detach().numpy(), m(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    f = torch.jit.script(lambda a: a * 2 + 1, example_inputs=[(x,)])
    b = io.BytesIO()
    torch.jit.save(f, b)
    b.seek(0)
    np.testing.assert_allclose(torch.jit.load(b)(x).numpy(), (x * 2 + 1).numpy(), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="torch.jit.trace"):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), io.BytesIO())


def test_torchscript_files_are_refused_by_name():
    b = io.BytesIO()
    real.jit.save(real.jit.script(real.nn.Linear(2, 2)), b)
    b.seek(0)
    with pytest.raises(NotImplementedError, match="TorchScript.*state_dict"):
        torch.jit.load(b)
    with pytest.raises(RuntimeError):
        torch.jit.load(io.BytesIO(b"junk"))


def doubled(x, n: int = 2):
    """x times n."""
    return x * n


def test_a_scripted_function_is_a_script_function():
    for T in (real, torch):
        s, x = T.jit.script(doubled), T.ones(2, 2)
        assert isinstance(s, T.jit.ScriptFunction) and not isinstance(s, types.FunctionType) and T.jit.script(s) is s
        assert s(x).tolist() == s(x, n=2).tolist() == T.vmap(s)(x).tolist() == [[2, 2], [2, 2]] and s.__doc__ == "x times n." and s.name == "doubled"
        assert s.qualified_name.endswith("doubled") and s._torchdynamo_inline is doubled and isinstance(T.jit.trace(doubled, (x,)), T.jit.ScriptFunction)
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(pickle.PickleError, match="ScriptFunction cannot be pickled"):
                copying(s)

        class Holder:
            f = s
        assert Holder().f(x, 3).tolist() == [[3, 3], [3, 3]]  # not bound as a method
        future = T.jit.fork(s, x)
        assert future.wait().tolist() == T.jit.wait(future).tolist() == [[2, 2], [2, 2]]
        value, kind = T.jit.Attribute(3, int)
        assert value == 3 and kind is int


def test_unsupported_script_function_attributes_raise():
    s, x = torch.jit.script(doubled), torch.ones(3)
    for name in ("code", "schema", "graph", "inlined_graph"):
        with pytest.raises(NotImplementedError, match=f"{name}|torch.jit.trace"):
            getattr(s, name)
    with pytest.raises(NotImplementedError, match="torch.jit.trace"):
        s.save(io.BytesIO())
    t = torch.jit.trace(s, (x,))
    again = torch.jit.load(io.BytesIO(torch.jit.script(doubled, example_inputs=[(x,)]).save_to_buffer()))
    assert again(x).tolist() == t(x).tolist() == [2, 2, 2] and torch.compile(s, backend="eager")(x).tolist() == [2, 2, 2]
