"""Modules compared with PyTorch's: every program runs on PyTorch and on mindtorch, and all results
are compared."""
import collections
import copy
import gc
import io
import pickle
import re
import weakref
from abc import ABC, abstractmethod

import mindspore
import pytest
import torch as real
from _both_sides import data
from _both_sides import same as _same

import mindtorch.torch as mine


def neutral(s):
    """Removes what inherently differs from a text: addresses, and the package of the classes."""
    return re.sub(r"0x[0-9a-f]+", "0x", s).replace("mindtorch.torch.", "torch.")


def text(x):
    return neutral(repr(x))


def same(program, rtol=0.0, atol=0.0):
    """Asserts that `program(torch)` returns the same values, errors and warnings on both sides."""
    def run(T):
        try:
            return program(T)
        except Exception as e:
            return "raised", type(e).__name__, neutral(str(e))
    _same(run, rtol, atol)


def fill(T, module, seed=0):
    """Sets the same weights on both sides, independent of their generators."""
    with T.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(T.tensor(data(seed + i, *p.shape)))
    return module


def tensor(T, seed, *shape):
    return T.tensor(data(seed, *shape))


# ------------------------------------------------------------------ construction and attributes
def _bare(T):
    class Bare(T.nn.Module):
        def __init__(self):
            pass
    return Bare()


BEFORE_INIT = {
    "parameter": lambda T: setattr(_bare(T), "w", T.nn.Parameter(T.ones(2))),
    "module": lambda T: setattr(_bare(T), "w", T.nn.Linear(2, 2)),
    "buffer": lambda T: setattr(_bare(T), "w", T.nn.Buffer(T.ones(2))),
    "register_buffer": lambda T: _bare(T).register_buffer("w", T.ones(2)),
    "register_parameter": lambda T: _bare(T).register_parameter("w", T.nn.Parameter(T.ones(2))),
    "add_module": lambda T: _bare(T).add_module("w", T.nn.Linear(2, 2)),
    "read": lambda T: _bare(T).nothing,
    "call": lambda T: _bare(T)(1),
    "positional": lambda T: T.nn.Module(1),
    "keyword": lambda T: T.nn.Module(a=1),
    "no forward": lambda T: T.nn.Module()(1),
}


@pytest.mark.parametrize("name", BEFORE_INIT)
def test_before_or_without_init(name):
    same(BEFORE_INIT[name])


VALUES = {
    "tensor": lambda T: T.ones(2), "int": lambda T: 3, "none": lambda T: None, "module": lambda T: T.nn.Linear(1, 1),
    "parameter": lambda T: T.nn.Parameter(T.ones(1)), "buffer": lambda T: T.nn.Buffer(T.ones(1), persistent=False),
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("target", ["weight", "running_mean", "child", "plain", "new"])
def test_setattr(target, value):
    def program(T):
        m = T.nn.BatchNorm1d(2)
        m.child = T.nn.ReLU()
        m.plain = 7
        setattr(m, target, VALUES[value](T))
        return (list(m._parameters), list(m._buffers), list(m._modules), sorted(m._non_persistent_buffers_set),
                target in m.__dict__, text(getattr(m, target)))
    same(program)


@pytest.mark.parametrize("name", [3, "a.b", "", "weight", "forward", "fresh", "phase", "cells", "offload"])
@pytest.mark.parametrize("how", ["register_parameter", "register_buffer", "add_module"])
def test_register(how, name):
    def program(T):
        m = T.nn.Linear(2, 2)
        value = {"register_parameter": lambda: T.nn.Parameter(T.ones(1)), "register_buffer": lambda: T.ones(1),
                 "add_module": lambda: T.nn.ReLU()}[how]()
        getattr(m, how)(name, value)
        return getattr(m, name) is value, list(m._parameters), list(m._buffers), list(m._modules)
    same(program)


@pytest.mark.parametrize("how, value", [
    ("register_parameter", lambda T: T.ones(1)), ("register_parameter", lambda T: 3),
    ("register_parameter", lambda T: None), ("register_parameter", lambda T: T.nn.Parameter(T.ones(1)) * 2),
    ("register_buffer", lambda T: 3), ("register_buffer", lambda T: None), ("add_module", lambda T: 3),
    ("add_module", lambda T: None)])
def test_register_value(how, value):
    def program(T):
        m = T.nn.Module()
        getattr(m, how)("x", value(T))
        return list(m._parameters), list(m._buffers), list(m._modules)
    same(program)


def test_cell_attribute_names_are_available_to_users():
    """Names that MindSpore's Cell uses belong to the user, whatever their values."""
    names = ["phase", "cells", "cell_type", "offload", "recompute", "flags", "set_train", "construct", "bprop_debug",
             "param_prefix", "_cells", "requires_grad", "name_cells", "trainable_params", "cls_name", "create_time"]
    for value in VALUES.values():
        net = mine.nn.Module()
        for name in names:
            v = value(mine)
            setattr(net, name, v)
            assert getattr(net, name) is v, name
            delattr(net, name)
    net = mine.nn.Sequential(collections.OrderedDict((n, mine.nn.Identity()) for n in names))
    assert list(net._modules) == names and net(5) == 5 and net.phase is net[0]
    net = mine.nn.ModuleDict({n: mine.nn.Identity() for n in names})
    assert list(net) == names and net.cells is net["cells"]

    class Net(mine.nn.Module):
        cells = 5

        def phase(self):
            return "mine"

    assert Net().cells == 5 and Net().phase() == "mine"
    # dir() does not show Cell's attributes of these names unless the user defines them.
    assert not set(dir(mine.nn.Module())) & set(names) - {"construct"}


@pytest.mark.parametrize("name", ["nope", "weight", "running_mean", "child", "plain", "forward"])
def test_delattr(name):
    def program(T):
        m = T.nn.BatchNorm1d(2)
        m.child, m.plain = T.nn.ReLU(), 3
        delattr(m, name)
        return hasattr(m, name), list(m._parameters), list(m._buffers), list(m._modules), list(m.state_dict())
    if name == "forward":  # AttributeError on both; the message comes from the interpreter
        for T in (real, mine):
            with pytest.raises(AttributeError):
                program(T)
    else:
        same(program)


def _family(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.BatchNorm1d(3))
            self.b = T.nn.ModuleDict({"x": self.a[0], "y": T.nn.Linear(3, 1, bias=False)})
            self.p = T.nn.Parameter(T.ones(2))
            self.register_buffer("keep", T.zeros(1))
            self.register_buffer("drop", T.zeros(1), persistent=False)
            self.empty = None
            self.nothing = T.nn.Module()

        def forward(self, x):
            return self.b["y"](self.a(x))

    return fill(T, Net())


WALKS = {
    "named_modules": lambda m: [(n, type(x).__name__) for n, x in m.named_modules(prefix="top")],
    "named_modules, doubles": lambda m: [n for n, _ in m.named_modules(remove_duplicate=False)],
    "modules": lambda m: [type(x).__name__ for x in m.modules()],
    "modules, doubles": lambda m: len(list(m.modules(remove_duplicate=False))),
    "named_children": lambda m: [n for n, _ in m.named_children()],
    "named_parameters": lambda m: [n for n, _ in m.named_parameters(prefix="q")],
    "named_parameters, doubles": lambda m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
    "own parameters": lambda m: [n for n, _ in m.named_parameters(recurse=False)],
    "named_buffers": lambda m: [n for n, _ in m.named_buffers()],
    "own buffers": lambda m: len(list(m.buffers(recurse=False))),
    "state_dict": lambda m: list(m.state_dict()),
    "metadata": lambda m: list(m.state_dict(prefix="z.")._metadata.items()),
    "apply": lambda m: (lambda seen: (m.apply(lambda x: seen.append(type(x).__name__)) is m, seen))([]),
    "repr": text,
    "memo": lambda m: [n for n, _ in m.named_modules(memo={m.a})],
}


@pytest.mark.parametrize("name", WALKS)
def test_module_traversal(name):
    same(lambda T: WALKS[name](_family(T)))


@pytest.mark.parametrize("how", ["get_submodule", "get_parameter", "get_buffer"])
@pytest.mark.parametrize("target", ["", "a", "a.1", "a.0.weight", "a.1.running_mean", "a.7", "p", "keep", "b.x",
                                    "training",
                                    "phase", "p.q"])
def test_get(how, target):
    same(lambda T: text(getattr(_family(T), how)(target)))


@pytest.mark.parametrize("target, strict", [("a.0", False), ("a.0", True), ("new", False), ("new", True), ("", False),
                                            ("p", False), ("x.y", False), ("a.9", True)])
def test_set_submodule(target, strict):
    def program(T):
        m = _family(T)
        m.set_submodule(target, T.nn.Tanh(), strict=strict)
        return text(m)
    same(program)


def test_set_submodule_requires_a_module():
    same(lambda T: _family(T).set_submodule("a", 3))


# ------------------------------------------------------------------ call and hooks
def _traced(T, log, name):
    def pre(m, args):
        log.append((name, "pre", len(args)))

    def post(m, args, out):
        log.append((name, "post"))
    return pre, post


def test_forward_hooks_order_and_removal():
    def program(T):
        log = []
        m = T.nn.Linear(2, 2)
        pre, post = _traced(T, log, "g")
        handles = [T.nn.modules.module.register_module_forward_pre_hook(pre),
                   T.nn.modules.module.register_module_forward_hook(post)]
        for name in ("a", "b"):
            pre, post = _traced(T, log, name)
            handles += [m.register_forward_pre_hook(pre), m.register_forward_hook(post)]
        pre, post = _traced(T, log, "first")
        with m.register_forward_pre_hook(pre, prepend=True), m.register_forward_hook(post, prepend=True):
            m(T.ones(1, 2))
        log.append("-")
        m(T.ones(1, 2))
        for h in handles:
            h.remove()
        log.append("-")
        m(T.ones(1, 2))
        return log
    same(program)


@pytest.mark.parametrize("returned", [None, 5, (5,), (1, 2), ((7,), {"b": 2}), [1]])
@pytest.mark.parametrize("with_kwargs", [False, True])
def test_forward_pre_hook_result(returned, with_kwargs):
    def program(T):
        class Sum(T.nn.Module):
            def forward(self, a, b=1):
                return a, b
        m = Sum()
        m.register_forward_pre_hook((lambda m, a, k: returned) if with_kwargs else (lambda m, a: returned),
                                    with_kwargs=with_kwargs)
        return m(3, b=4)
    same(program)


def test_forward_hook_result_and_kwargs():
    def program(T):
        class Twice(T.nn.Module):
            def forward(self, a, *, k):
                return a * k
        m, log = Twice(), []
        m.register_forward_hook(lambda m, a, o: o + 1)
        m.register_forward_hook(lambda m, a, k, o: log.append((a, k, o)), with_kwargs=True)
        m.register_forward_hook(lambda m, a, k, o: o * 10, with_kwargs=True)
        return m(3, k=4), log
    same(program)


@pytest.mark.parametrize("fails", ["forward", "pre", "hook", "nothing"])
def test_always_called_hooks(fails):
    def program(T):
        log = []

        class Net(T.nn.Module):
            def forward(self, x):
                if fails == "forward":
                    raise ValueError("in forward")
                return x

        m = Net()
        if fails == "pre":
            m.register_forward_pre_hook(lambda m, a: 1 / 0)

        def bad(m, a, o):
            log.append("bad")
            if fails != "nothing":
                raise KeyError("in hook")

        m.register_forward_hook(lambda m, a, o: log.append(("plain", o)))
        m.register_forward_hook(bad, always_call=True)
        m.register_forward_hook(lambda m, a, k, o: log.append(("kwargs", k, o)), always_call=True, with_kwargs=True)
        try:
            log.append(m(1))
        except Exception as e:
            log.append(f"{type(e).__name__}: {e}")
        return log
    same(program)


def test_full_backward_hooks():
    def program(T):
        log = []

        class Net(T.nn.Module):
            def forward(self, x, flag, y):
                return x * y, flag, x + y

        m = Net()
        m.register_full_backward_pre_hook(lambda m, go: log.append(("pre", go)))
        m.register_full_backward_pre_hook(lambda m, go: (go[0] * 2, None, None if go[2] is None else go[2] * 3))
        m.register_full_backward_hook(lambda m, gi, go: log.append(("full", gi, go)))
        m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10, None, gi[2]))
        m.register_full_backward_hook(lambda m, gi, go: log.append(("first", gi)), prepend=True)
        x, y = (tensor(T, i, 2, 2).requires_grad_() for i in (1, 2))
        a, flag, b = m(x, "flag", y)
        (a.sum() + b.sum()).backward(retain_graph=True)
        one = x.grad.clone(), y.grad.clone()
        x.grad = None
        a.sum().backward()
        return flag, one, x.grad, log
    same(program, rtol=1e-6)


@pytest.mark.parametrize("bad", ["hook", "pre", "no input"])
def test_full_backward_hook_errors(bad):
    def program(T):
        m = fill(T, T.nn.Linear(2, 2))
        x = T.ones(3, 2, requires_grad=bad != "no input")
        if bad == "pre":
            m.register_full_backward_pre_hook(lambda m, go: (1, 2))
        else:
            m.register_full_backward_hook(lambda m, gi, go: (1, 2) if bad == "hook" else (T.ones(1),))
        m(x).sum().backward()
    same(program)


def test_backward_hook_without_input_gradient_and_odd_outputs():
    def program(T):
        log = []

        class Dict(T.nn.Module):
            def forward(self, x):
                return {"y": x * 2}

        m = fill(T, T.nn.Linear(2, 2))
        m.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
        m(T.ones(1, 2)).sum().backward()
        d = Dict()
        d.register_full_backward_hook(lambda m, gi, go: log.append("never"))
        d(T.ones(1, requires_grad=True))["y"].sum().backward()
        return log, m.weight.grad
    same(program)


def test_backward_hook_kinds_do_not_mix():
    def program(T):
        m = T.nn.Linear(2, 2)
        m.register_full_backward_hook(lambda *a: None)
        m.register_backward_hook(lambda *a: None)
    same(program)


def test_non_full_backward_hook():
    def program(T):
        log = []

        class Exp(T.nn.Module):
            def forward(self, x):
                return (x * 2).exp()
        m = Exp()
        m.register_backward_hook(lambda m, gi, go: log.append((gi, go)))
        m(tensor(T, 3, 2).requires_grad_()).sum().backward()
        return log
    same(program, rtol=1e-6)


def test_global_backward_hooks():
    def program(T):
        log, reg = [], T.nn.modules.module
        m = fill(T, T.nn.Sequential(T.nn.Linear(2, 2), T.nn.Tanh()))
        with reg.register_module_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, gi, go))), \
                reg.register_module_full_backward_pre_hook(lambda m, go: log.append((type(m).__name__, go))):
            m(tensor(T, 1, 1, 2).requires_grad_()).sum().backward()
        m(T.ones(1, 2)).sum().backward()
        return log
    same(program, rtol=1e-5, atol=1e-6)


def test_registration_hooks():
    def program(T):
        log, reg = [], T.nn.modules.module
        other = T.nn.Parameter(T.zeros(1))
        with reg.register_module_parameter_registration_hook(lambda m, n,
                                                             p: log.append(n) or (other if n == "w" else None)), \
                reg.register_module_buffer_registration_hook(lambda m, n, b: log.append(n)), \
                reg.register_module_module_registration_hook(lambda m, n, c: log.append(n)):
            net = T.nn.Sequential(T.nn.Linear(1, 1))
            net.w = T.nn.Parameter(T.ones(1))
            net.b = T.nn.Buffer(T.ones(1))
            net.c = T.nn.ReLU()
        return log, net.w is other
    same(program)


# ------------------------------------------------------------------ state
def test_state_dict_hooks():
    def program(T):
        log = []
        net = T.nn.Sequential(T.nn.Linear(1, 1), T.nn.ReLU())
        net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append((prefix, keep)))
        net[0].register_state_dict_post_hook(lambda m, sd, prefix, meta: log.append((list(sd), prefix, meta)))

        def renamed(m, sd, prefix, meta):
            return {k.upper(): 1 for k in sd}
        net._register_state_dict_hook(renamed)
        result = net.state_dict(prefix="x.", keep_vars=True)
        try:
            net._register_state_dict_hook(next(iter(net[0]._state_dict_hooks.values())))
        except RuntimeError as e:
            log.append(str(e))
        net.register_state_dict_post_hook(lambda *a: 3)
        return result, log, net.state_dict()
    same(program)


def test_load_state_dict_hooks():
    def program(T):
        log = []
        net = fill(T, T.nn.Sequential(T.nn.Linear(1, 1), T.nn.Linear(1, 1)))
        net[0].register_load_state_dict_pre_hook(lambda m, *a: log.append((type(m).__name__, list(a[0]), a[1:])))

        def rename(state, prefix, *rest):
            state["1.bias"] = state.pop("1.offset")
        net._register_load_state_dict_pre_hook(rename)

        def forgive(m, keys):
            log.append(text(keys))
            keys.missing_keys.clear()
        net.register_load_state_dict_post_hook(forgive)
        state = net.state_dict()
        state["1.offset"] = state.pop("1.bias")
        del state["0.bias"]
        result = net.load_state_dict(state)
        with net.register_load_state_dict_post_hook(lambda m, k: 3):
            try:
                net.load_state_dict(state)
            except AssertionError as e:
                log.append(str(e))
        return text(result), log
    same(program)


STATES = {
    "none": lambda T: {},
    "not a dict": lambda T: 3,
    "missing and unexpected": lambda T: {"weight": T.ones(3, 2), "foo": 3, "bar": 3},
    "not a tensor": lambda T: {"weight": 3, "bias": T.ones(2)},
    "odd keys": lambda T: {"weight": T.ones(2, 2), "bias": T.ones(2), "weight.x": 1, "x.y": 1, "": 1},
    "good": lambda T: {"weight": T.ones(2, 2), "bias": T.zeros(2)},
    "other dtype": lambda T: {"weight": T.ones(2, 2, dtype=T.float64), "bias": T.zeros(2, dtype=T.int32)},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", STATES)
def test_load_state_dict(name, strict):
    def program(T):
        m = fill(T, T.nn.Linear(2, 2))
        result = m.load_state_dict(STATES[name](T), strict=strict)
        return text(result), m.weight, m.bias
    same(program)


def test_load_state_dict_into_nested_and_scalars():
    def program(T):
        class Net(T.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = T.nn.Parameter(T.tensor(1.0))
                self.inner = T.nn.Sequential(T.nn.Linear(1, 1), T.nn.BatchNorm1d(1))
        net = Net()
        net.load_state_dict({"scale": T.full((1,), 4.0), "inner.0.weight": T.ones(2, 2), "inner.0.extra": 1,
                             "inner.2.x": 1})
    same(program)


def test_assign():
    def program(T):
        m = T.nn.Linear(2, 2)
        w = T.ones(2, 2)
        b = T.nn.Parameter(T.zeros(2), requires_grad=False)
        m.bias.requires_grad_(True)
        m.load_state_dict({"weight": w, "bias": b}, assign=True)
        w.add_(1)
        return m.weight, m.bias is b, m.weight.requires_grad, m.bias.requires_grad, type(m.weight).__name__
    same(program)


def test_extra_state():
    def program(T):
        class Counter(T.nn.Module):
            n = 5

            def get_extra_state(self):
                return {"n": self.n}

            def set_extra_state(self, state):
                self.n = state["n"] + 1

        net = T.nn.Sequential(Counter(), T.nn.ReLU())
        state = net.state_dict()
        net.load_state_dict(state)
        errors = []
        for other, given in ((net, {}), (T.nn.Sequential(T.nn.ReLU()), state)):
            try:
                other.load_state_dict(given)
            except RuntimeError as e:
                errors.append(str(e))
        return state, net[0].n, errors
    same(program)


def test_state_dicts_are_exchangeable_with_torch():
    theirs, ours = _family(real), _family(mine)
    fill(real, theirs, 50)
    ours.load_state_dict({k: mine.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    fresh = _family(real)
    fresh.load_state_dict({k: real.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    for (n, a), (m, b) in zip(fresh.state_dict().items(), theirs.state_dict().items()):
        assert n == m and real.equal(a, b)
    x = data(9, 4, 2)
    assert abs(theirs(real.tensor(x)) - real.tensor(ours(mine.tensor(x)).detach().numpy())).max() < 1e-5


def test_batch_norm_counter_of_old_files():
    def program(T):
        m = T.nn.BatchNorm1d(2)
        m(tensor(T, 0, 4, 2))
        state = m.state_dict()
        del state["num_batches_tracked"]
        log = []
        for metadata in ({"": {"version": 1}}, {"": {"version": 2}}, None):
            if metadata is None:
                del state._metadata
            else:
                state._metadata = metadata
            fresh = T.nn.BatchNorm1d(2)
            try:
                fresh.load_state_dict(state)
                log.append(fresh.num_batches_tracked)
            except RuntimeError as e:
                log.append(str(e))
        return log
    same(program)


# ------------------------------------------------------------------ conversion
@pytest.mark.parametrize("convert", ["double", "half", "float", "bfloat16", "to float64", "to tensor", "type",
                                     "type name",
                                     "cpu", "share", "to device", "to format"])
def test_conversions_keep_the_parameters(convert):
    def program(T):
        m = fill(T, T.nn.Sequential(T.nn.Conv2d(1, 2, 2), T.nn.BatchNorm2d(2)))
        m[0](T.ones(1, 1, 3, 3)).sum().backward()
        before = list(m.parameters())
        result = {"double": lambda: m.double(), "half": lambda: m.half(), "float": lambda: m.float(),
                  "bfloat16": lambda: m.bfloat16(), "to float64": lambda: m.to(T.float64), "cpu": lambda: m.cpu(),
                  "to tensor": lambda: m.to(T.ones(1, dtype=T.float64)), "type": lambda: m.type(T.float64),
                  "type name": lambda: m.type("torch.DoubleTensor"), "share": lambda: m.share_memory(),
                  "to device": lambda: m.to("cpu", T.float16, non_blocking=True),
                  "to format": lambda: m.to(memory_format=T.channels_last)}[convert]()
        return (result is m, all(a is b for a, b in zip(before, m.parameters())),
                [str(p.dtype) for p in m.parameters()],
                [str(b.dtype) for b in m.buffers()], str(m[0].weight.grad.dtype), m[0].weight, m[0].weight.grad)
    same(program)


@pytest.mark.parametrize("args, kwargs", [(("int32",), {}), ((), {}), (("float64", "float32"), {}), ((), {"foo": 1}),
                                          ((), {"memory_format": 3}), (("complex64",), {})])
def test_to_arguments(args, kwargs):
    def program(T):
        m = T.nn.Linear(2, 2, bias=False).to(*[getattr(T, a) for a in args], **kwargs)
        return str(m.weight.dtype)
    if args == ("complex64",):  # PyTorch's warning asks users to report bugs to it
        for T in (real, mine):
            with pytest.warns(UserWarning, match="Complex modules are a new feature"):
                assert program(T) == "torch.complex64"
    else:
        same(program)


@pytest.mark.parametrize("module", [lambda T: T.nn.Linear(2, 2), lambda T: T.nn.utils.rnn.pack_sequence([T.ones(2)])], ids=["Linear", "PackedSequence"])
@pytest.mark.parametrize("args", [
    lambda T: ("cpu", T.float64, True), lambda T: ("cpu", T.float64, 1), lambda T: ("cpu", None, False), lambda T: (T.float64, 1), lambda T: (T.float64, True),
    lambda T: (T.float64, True, False), lambda T: (T.float64, False, True), lambda T: (T.float64, 0, 0), lambda T: (T.ones(1).double(), True),
    lambda T: ("cpu", T.float64, None), lambda T: ("cpu", T.float64, 1.0), lambda T: (None,), lambda T: (None, T.float64), lambda T: ("cpu", "cpu")])
def test_flags_of_to(module, args):
    """Only True and False are flags, and copying is rejected: the parameters remain the same
    objects."""
    def program(T):
        x = module(T)
        y = x.to(*args(T))
        return str((y.weight if isinstance(y, T.nn.Module) else y.data).dtype)

    def outcome(T):
        try:
            return program(T)
        except (TypeError, RuntimeError) as e:
            return type(e).__name__, "combination" in str(e), "copy" in str(e)
    assert outcome(mine) == outcome(real)


def test_train_eval_requires_grad_zero_grad():
    def program(T):
        net = fill(T, T.nn.Sequential(T.nn.Linear(2, 2), T.nn.Dropout()))
        log = [net.eval() is net, net[1].training, net.train(True)[1].training]
        net[0](T.ones(1, 2)).sum().backward()
        net.zero_grad(set_to_none=False)
        log.append(net[0].weight.grad)
        net.zero_grad()
        log.append(net[0].weight.grad)
        log.append([p.requires_grad for p in net.requires_grad_(False).parameters()])
        net.train("yes")
        return log
    same(program)
    same(lambda T: [p.requires_grad for p in T.nn.Linear(1, 1).requires_grad_(False).requires_grad_().parameters()])


# ------------------------------------------------------------------ copies
def _counter(T):
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = T.nn.Linear(2, 2)
            self.b = T.nn.Linear(2, 2)
            self.b.weight = self.a.weight
            self.register_buffer("c", T.zeros(1), persistent=False)
    return fill(T, Net())


def test_deepcopy():
    def program(T):
        m = _counter(T)
        m.a.register_forward_hook(lambda m, a, o: o + 1)
        m.a.bias.requires_grad_(False)
        n = copy.deepcopy(m)
        with T.no_grad():
            m.a.weight.zero_()
        return (n.a.weight, n.b.weight is n.a.weight, n.a.bias.requires_grad, n.a(T.ones(1, 2)),
                len(n.a._forward_hooks), sorted(n._non_persistent_buffers_set), type(n) is type(m))
    same(program, rtol=1e-6)


def test_copy_shares_the_dictionaries():
    def program(T):
        m = T.nn.Linear(2, 2)
        n = copy.copy(m)
        return n.weight is m.weight, n._parameters is m._parameters
    same(program)


def test_pickle():
    for net in (mine.nn.Sequential(mine.nn.Linear(2, 3), mine.nn.BatchNorm1d(3), mine.nn.LSTM(3, 2)),
                mine.nn.Transformer(4, 2, 1, 1, 8)):
        fill(mine, net)
        net.eval()
        again = pickle.loads(pickle.dumps(net))
        assert repr(again) == repr(net) and not again.training
        for (n, a), (m, b) in zip(net.state_dict().items(), again.state_dict().items()):
            assert n == m and mine.equal(a, b)
        assert [p.requires_grad for p in again.parameters()] == [True] * len(list(net.parameters()))


def test_save_and_load_of_modules_and_states():
    net = fill(mine, mine.nn.Linear(2, 2))
    file = io.BytesIO()
    mine.save(net.state_dict(), file)
    file.seek(0)
    assert net.load_state_dict(mine.load(file)).missing_keys == []


def test_modules_are_collected():
    net = mine.nn.Sequential(mine.nn.Linear(2, 2))
    net.cycle = [net]
    ref = weakref.ref(net)
    del net
    gc.collect()
    assert ref() is None


def test_abstract_modules():
    def program(T):
        class Base(T.nn.Module, ABC):
            @abstractmethod
            def loss(self):
                pass

        class Good(Base):
            def loss(self):
                return 5
        log = [Good().loss(), isinstance(Good(), Base)]
        try:
            Base()
        except TypeError as e:
            log.append(str(e))
        return log
    same(program)


def test_call_super_init_and_mixins():
    def program(T):
        class Other:
            def __init__(self, x=0):
                self.x = x

        class Net(T.nn.Module, Other):
            call_super_init = True

            def __init__(self, x):
                super().__init__(x)

        class First(Other, T.nn.Module):
            def __init__(self):
                T.nn.Module.__init__(self)
                Other.__init__(self, 4)
                self.l = T.nn.Linear(1, 1)
        return Net(7).x, First().x, list(First()._modules)
    same(program)


# ------------------------------------------------------------------ parameters and buffers
def test_buffer():
    def program(T):
        m = T.nn.Module()
        m.a = T.nn.Buffer(T.ones(2))
        m.b = T.nn.Buffer(T.ones(2), persistent=False)
        m.a = T.zeros(3)
        return (list(m.state_dict()), [n for n, _ in m.named_buffers()], isinstance(m.b, T.nn.Buffer),
                isinstance(T.ones(1), T.nn.Buffer), type(m.b).__name__, m.b.persistent, m.a)
    same(program)


def test_uninitialized_parameter():
    def program(T):
        p = T.nn.UninitializedParameter(dtype=T.float64)
        log = [text(p), isinstance(p, T.nn.Parameter), T.nn.parameter.is_lazy(p), text(copy.deepcopy(p)), str(p.dtype)]
        try:
            log.append(p.shape)
        except RuntimeError as e:
            log.append(str(e))
        try:
            p + 1
        except ValueError as e:
            log.append(str(e)[:45])
        p.materialize((2, 3))
        return log, type(p).__name__, tuple(p.shape), str(p.dtype), p.requires_grad
    same(program)


def test_lazy_modules():
    def program(T):
        nn = T.nn
        net = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
        before = text(net)
        keys = list(net.state_dict())
        net(T.ones(2, 1, 4, 4))
        fresh = nn.LazyLinear(2)
        fresh.load_state_dict(net[3].state_dict())
        other = nn.LazyLinear(2)
        errors = []
        for f in (lambda: nn.Linear(4, 3).load_state_dict(nn.LazyLinear(3).state_dict()),
                  lambda: net[0](T.ones(1, 2, 2, 2)),
                  lambda: nn.LazyConv1d(2, 2)(T.ones(2)), lambda: nn.LazyConv1d(4, 2, groups=2)(T.ones(1, 3, 4))):
            try:
                f()
            except (RuntimeError, ValueError) as e:
                errors.append(type(e).__name__)
        return before, keys, text(net), [type(m).__name__ for m in net], tuple(fresh.weight.shape), errors, text(other)
    same(program)


# ------------------------------------------------------------------ MindSpore's view of modules
def test_module_is_a_cell():
    net = _family(mine)
    assert isinstance(net, mindspore.nn.Cell)
    names = [n for n, _ in net.named_parameters()]
    # MindSpore sees persistent buffers as non-trainable parameters, so that checkpoints include
    # them.
    buffers = [n for n, _ in net.named_buffers() if n in net.state_dict()]
    assert [p.name for p in net.trainable_params()] == names
    assert [p.name for p in net.get_parameters()] == list(net.parameters_dict()) == names + buffers
    net.a[0].weight.requires_grad = False
    assert [p.name for p in net.untrainable_params()] == ["a.0.weight", *buffers]
    assert dict(net.cells_and_names())["a.1"] is net.a[1]
    assert list(net.name_cells()) == ["a", "b", "nothing"]
    net.set_train(False)
    assert not net.training and not net.a[1].training
    net.set_train()
    assert net.training and net.a[1].training
    net.update_parameters_name("backbone.")
    assert [p.name for p in net.trainable_params()][0] == "backbone.p"
    assert net.init_parameters_data() == {}
    assert repr(net) == str(net)
    assert bool(mine.nn.ModuleList()) is False and bool(net) is True


def test_module_inside_a_cell():
    class Outer(mindspore.nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = fill(mine, mine.nn.Linear(2, 2))

        def construct(self, x):
            return self.inner(x)

    outer = Outer()
    assert [p.name for p in outer.trainable_params()] == ["inner.weight", "inner.bias"]
    assert [n for n, _ in outer.cells_and_names()] == ["", "inner"]
    assert tuple(outer(mine.ones(1, 2)).shape) == (1, 2)


def test_dir_has_what_the_module_has():
    def program(T):
        m = T.nn.BatchNorm1d(2)
        m.child, m.plain, m.p = T.nn.ReLU(), 3, T.nn.Parameter(T.ones(1))
        m._modules["0"] = T.nn.ReLU()
        names = dir(m)
        return [n in names for n in ("child", "plain", "p", "weight", "running_mean", "training", "forward", "0", "absent")], names == sorted(names)
    same(program)
