"""State that changes between calls of a compiled function: every call matches eager code.

Each scenario returns a function of one tensor and the changes of the state it reads. The compiled
function is called twice before the first change and twice after each, so that it is replayed where
nothing has changed.
"""
import abc
import argparse
import builtins
import collections
import collections.abc
import dataclasses
import enum
import functools
import gc
import inspect
import logging
import math
import operator
import os
import sys
import types
import typing
import weakref

import numpy as np
import pytest

import mindtorch.torch as torch
import mindtorch.torch.nn.functional as F
from mindtorch.torch import nn

SCENARIOS = {}
THIS = sys.modules[__name__]
undo = []


def scenario(f):
    SCENARIOS[f.__name__] = f
    return f


def patch(holder, name, value):
    """Returns a change that sets an attribute, and restores it when the scenario ends."""
    def change():
        missing = object()
        old = vars(holder).get(name, missing)
        undo.append(lambda: delattr(holder, name) if old is missing else setattr(holder, name, old))
        setattr(holder, name, value)
    return change


# ------------------------------------------------------------------ functions and classes
@scenario
def function_attribute():
    def helper():
        pass
    helper.k = 1
    return lambda x: x * helper.k, [lambda: setattr(helper, "k", 2), lambda: setattr(helper, "__dict__", {"k": 3})]


@scenario
def function_attribute_that_appears():
    def helper():
        pass
    return lambda x: x * getattr(helper, "k", 1), [lambda: setattr(helper, "k", 2), lambda: delattr(helper, "k")]


@scenario
def method_attribute():
    class A:
        def m(self):
            pass
    a = A()
    A.m.k = 1
    return lambda x: x * a.m.k, [lambda: setattr(A.m, "k", 2)]


@scenario
def wrapped_function():
    def inner(x):
        return x + 1

    @functools.wraps(inner)
    def outer(x):
        return outer.__wrapped__(x)
    return outer, [lambda: setattr(outer, "__wrapped__", lambda x: x + 2)]


@scenario
def code_and_defaults():
    def helper(x, k=1, *, j=1):
        return x * k + j

    def other(x, k=1, *, j=1):
        return x * k - j
    return lambda x: helper(x), [lambda: setattr(helper, "__defaults__", (2,)), lambda: setattr(helper, "__kwdefaults__", {"j": 3}),
                                 lambda: setattr(helper, "__code__", other.__code__)]


@scenario
def code_of_static_class_and_property_methods():
    class A:
        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def c(cls, x):
            return x + 1

        @property
        def p(self):
            return 1
    a = A()
    return lambda x: a.s(a.c(x)) * a.p, [
        lambda: setattr(A.__dict__["s"].__func__, "__code__", (lambda x: x + 2).__code__),
        lambda: setattr(A.__dict__["c"].__func__, "__code__", (lambda cls, x: x + 3).__code__),
        lambda: setattr(A.__dict__["p"].fget, "__code__", (lambda self: 4).__code__),
        lambda: setattr(A, "p", property(lambda self: 5)), lambda: setattr(A, "s", staticmethod(lambda x: x))]


@scenario
def class_attribute_that_appears():
    class M(nn.Module):
        def forward(self, x):
            return x * getattr(self, "scale", 1) + (10 if hasattr(self, "extra") else 0)
    return M(), [lambda: setattr(M, "scale", 3), lambda: setattr(M, "extra", None), lambda: delattr(M, "scale")]


@scenario
def attribute_of_a_base_that_appears():
    class Base:
        pass

    class A(Base):
        __slots__ = ()
    a = A()
    return lambda x: x * getattr(a, "scale", 1), [lambda: setattr(Base, "scale", 3), lambda: setattr(A, "scale", 4)]


@scenario
def attribute_of_a_module_class_that_appears():
    net = nn.Linear(2, 2)
    return lambda x: x * getattr(net, "my_scale", 1), [patch(nn.Module, "my_scale", 3), patch(nn.Linear, "my_scale", 4)]


@scenario
def attribute_whose_name_is_computed():
    class A:
        kind = "b"
        scale_a, scale_b = 1, 2
    a = A()
    return lambda x: x * getattr(a, "scale_" + a.kind), [lambda: setattr(A, "scale_b", 3), lambda: setattr(a, "kind", "a"),
                                                         lambda: setattr(A, "scale_a", 7)]


@scenario
def dir_of_a_class():
    class A:
        pass
    return lambda x: x * len(dir(A)), [lambda: setattr(A, "whatever", 3)]


@scenario
def class_swap():
    class B:
        def g(self, x):
            return x + 1

    class C:
        def g(self, x):
            return x + 2
    a = B()
    return lambda x: a.g(x), [lambda: setattr(a, "__class__", C), lambda: setattr(a, "__class__", B)]


@scenario
def class_swap_of_slots():
    class B:
        __slots__ = ("k",)

        def g(self, x):
            return x + self.k

    class C:
        __slots__ = ("k",)

        def g(self, x):
            return x - self.k
    a = B()
    a.k = 1
    return lambda x: a.g(x), [lambda: setattr(a, "__class__", C), lambda: setattr(a, "k", 5)]


@scenario
def class_swap_of_a_module():
    class B(nn.Module):
        def forward(self, x):
            return x + 1

    class C(nn.Module):
        def forward(self, x):
            return x + 2
    net = nn.Sequential(B(), nn.Identity())
    return net, [lambda: setattr(net[0], "__class__", C)]


@scenario
def all_attributes():
    class A:
        pass
    a, m = A(), nn.Identity()
    a.k, m.k = 1, 1
    return lambda x: x * a.k + m.k, [lambda: setattr(a, "__dict__", {"k": 2}), lambda: setattr(m, "__dict__", {**m.__dict__, "k": 3})]


@scenario
def bases():
    class A:
        k = 1

    class B:
        k = 2

    class C(A):
        pass
    c = C()
    return lambda x: x * c.k, [lambda: setattr(C, "__bases__", (B,))]


@scenario
def metaclass():
    class Meta(type):
        k = 1

        def __getattr__(cls, name):
            return 5
    A = Meta("A", (), {})
    return lambda x: x * A.k + A.other, [lambda: setattr(Meta, "k", 2), lambda: setattr(Meta, "__getattr__", lambda cls, name: 7)]


@scenario
def operators_that_appear():
    class A:
        pass
    a = A()
    return lambda x: x * (2 if a else 1), [lambda: setattr(A, "__len__", lambda self: 0), lambda: setattr(A, "__bool__", lambda self: True)]


@scenario
def getattr_that_appears():
    class A:
        pass
    a = A()
    return lambda x: x * getattr(a, "k", 1), [lambda: setattr(A, "__getattr__", lambda self, name: 4)]


@scenario
def subclass_of_int_str_and_tuple():
    class N(int):
        def g(self):
            return 1

    class T(tuple):
        w = 1
    i, s, t = N(3), type("S", (str,), {})("a"), T((1,))
    i.k = s.k = t.k = 1
    return lambda x: x * i.k + s.k + t.k * t.w + i.g(), [
        lambda: setattr(i, "k", 2), lambda: setattr(s, "k", 3), lambda: setattr(t, "k", 4), lambda: setattr(T, "w", 5),
        lambda: setattr(N, "g", lambda self: 9)]


@scenario
def enum_member():
    class E(enum.Enum):
        A = 1
        B = 2
    E.A.k = 1
    return lambda x: x * E.A.k * E.B.value, [lambda: setattr(E.A, "k", 2), lambda: setattr(E.B, "_value_", 5)]


@scenario
def descriptor():
    class D:
        k = 1

        def __get__(self, o, cls):
            return self.k

    class A:
        d = D()
    a = A()
    return lambda x: x * a.d, [lambda: setattr(A.__dict__["d"], "k", 2), lambda: setattr(A, "d", D())]


@scenario
def dataclass_default():
    @dataclasses.dataclass
    class A:
        k: int = 1
    return lambda x: x * A().k * A.k, [lambda: setattr(A, "k", 2), lambda: setattr(A.__init__, "__defaults__", (4,))]


@scenario
def abstract_class():
    class Q(abc.ABC):  # noqa: B024
        pass

    class Q2(Q):
        pass

    class R:
        pass

    class R2:
        pass
    a, b = R(), R2()
    return lambda x: x * (2 if isinstance(a, Q) else 1) + (5 if issubclass(R2, Q) else 0) + (b is None), [
        lambda: Q.register(R), lambda: Q2.register(R2)]


@scenario
def abstract_class_of_python():
    class R:
        pass
    a = R()
    return lambda x: x * (2 if isinstance(a, collections.abc.Mapping) else 1), [lambda: collections.abc.Mapping.register(R)]


@scenario
def protocol():
    class R:
        pass
    a = R()
    return lambda x: x * (2 if isinstance(a, P) else 1), [lambda: setattr(R, "some_name", 3), lambda: delattr(R, "some_name")]


@typing.runtime_checkable
class P(typing.Protocol):
    some_name: int


@scenario
def single_dispatch():
    @functools.singledispatch
    def f(a):
        return 1

    class A:
        pass
    a = A()
    return lambda x: x * f(a), [lambda: f.register(A, lambda a: 2)]


# ------------------------------------------------------------------ references
@scenario
def weak_reference():
    class A:
        pass
    held = [A(), A()]
    held[0].k, held[1].k = 1, 7
    w = weakref.ref(held[0])

    def f(x):
        a = w()
        return x * (100 if a is None else a.k)

    def drop():
        del held[0]
        gc.collect()
    return f, [lambda: setattr(held[0], "k", 5), lambda: setattr(held[0], "__dict__", {"k": 6}), drop]


@scenario
def weak_proxy():
    class A:
        def g(self):
            return 1
    a = A()
    a.k = 1
    p = weakref.proxy(a)
    a.me = None
    keep = [a]
    return lambda x: x * p.k + p.g() + (keep is None), [lambda: setattr(a, "k", 5), lambda: setattr(A, "g", lambda self: 3)]


@scenario
def weak_dictionaries():
    class A:
        k = 1
    a, b = A(), A()
    values, keys, members = weakref.WeakValueDictionary(a=a), weakref.WeakKeyDictionary({a: 2}), weakref.WeakSet([a])

    def f(x):
        return x * values["a"].k + keys[a] + len(members)
    return f, [lambda: setattr(a, "k", 5), lambda: keys.__setitem__(a, 9), lambda: members.add(b), lambda: values.__setitem__("a", b)]


@scenario
def weak_method():
    class A:
        k = 1

        def m(self):
            return self.k
    a = A()
    w = weakref.WeakMethod(a.m)
    return lambda x: x * w()(), [lambda: setattr(a, "k", 5)]


@scenario
def mapping_proxy():
    d = {"a": 1}
    p = types.MappingProxyType(d)
    return lambda x: x * p["a"], [lambda: d.__setitem__("a", 3)]


@scenario
def default_dict():
    d = collections.defaultdict(lambda: 1)
    return lambda x: x * (1 if d.default_factory is None else 2), [lambda: setattr(d, "default_factory", None)]


@scenario
def partial_function():
    p = functools.partial(operator.mul, 2)
    p.k = 1
    return lambda x: p(x) * p.k, [lambda: setattr(p, "k", 3), lambda: p.__setstate__((operator.mul, (5,), {}, {"k": 1}))]


@scenario
def cached_function():
    state = {"k": 1}

    @functools.lru_cache
    def f():
        return state["k"]
    f()

    def both():
        state["k"] = 4
        f.cache_clear()
    return lambda x: x * f(), [lambda: state.__setitem__("k", 3), both, f.cache_clear]


@scenario
def callbacks_within_the_library():
    class D(collections.abc.Mapping):
        def __getitem__(self, k):
            return SETTING

        def __iter__(self):
            return iter("a")

        def __len__(self):
            return 1
    d = D()
    return lambda x: x * d.get("a"), [patch(THIS, "SETTING", 3)]


SETTING = 1


@scenario
def context_manager():
    import contextlib

    @contextlib.contextmanager
    def scaled():
        yield SETTING * scaled.k
    scaled.k = 1

    def f(x):
        with scaled() as k:
            return x * k
    return f, [patch(THIS, "SETTING", 3), lambda: setattr(scaled, "k", 2)]


@scenario
def attributes_of_weights():
    net = nn.Linear(2, 2)
    return lambda x: x * getattr(net.weight, "scale", 1) + getattr(net.weight, "_k", 1), [
        lambda: setattr(net.weight, "scale", 2), lambda: setattr(net.weight, "_k", 3), lambda: setattr(net.weight, "_k", 4),
        lambda: delattr(net.weight, "scale")]


@scenario
def other_containers():
    ns, od = types.SimpleNamespace(k=1), collections.OrderedDict(a=1, b=2)
    args, chain = argparse.Namespace(k=1), collections.ChainMap({"a": 1}, {"b": 2})
    user, counter = collections.UserDict(a=1), collections.Counter("aab")
    q, s = collections.deque([1, 2]), {1, 2}

    def f(x):
        return (x * ns.k + next(iter(od.values())) + args.k * 3 + chain["b"] * 5 + user["a"] * 7 + counter["a"] * 11 + q[0] * 13 + len(s) * 17)
    return f, [lambda: setattr(ns, "k", 2), lambda: od.move_to_end("a"), lambda: setattr(args, "k", 3), lambda: chain.maps[0].__setitem__("b", 9),
               lambda: user.__setitem__("a", 4), lambda: counter.update("aa"), lambda: q.rotate(), lambda: s.add(3)]


# ------------------------------------------------------------------ modules
@scenario
def patched_functional():
    return lambda x: F.relu(x - 2), [patch(F, "relu", lambda x: x * 3)]


@scenario
def patched_functional_below_a_module():
    return nn.Sequential(nn.ReLU()), [patch(F, "relu", lambda x, inplace=False: x * 3)]


@scenario
def patched_torch():
    return lambda x: torch.nn.functional.gelu(torch.sin(x)), [patch(torch, "sin", lambda x: x * 3),
                                                              patch(torch.nn.functional, "gelu", lambda x: x - 1)]


@scenario
def patched_method_of_a_module_class():
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.fill_(1), net.bias.fill_(1)
    return net, [patch(nn.Linear, "forward", lambda self, x: x * 9)]


@scenario
def patched_method_of_tensor():
    return lambda x: x.sin() + 1, [patch(torch.Tensor, "sin", lambda x: x * 3)]


@scenario
def constants_of_modules():
    return lambda x: x * math.pi + np.pi, [patch(math, "pi", 3.0), patch(np, "pi", 4.0)]


@scenario
def attribute_of_a_module_that_appears():
    return lambda x: x * getattr(math, "my_constant", 1) + (1 if hasattr(torch, "my_name") else 0), [
        patch(math, "my_constant", 3.0), patch(torch, "my_name", 4.0)]


@scenario
def module_imported_in_the_function():
    def f(x):
        import math as m
        from math import tau
        return x * m.pi + tau
    return f, [patch(math, "pi", 3.0), patch(math, "tau", 5.0)]


@scenario
def module_exchanged():
    new = types.ModuleType("my_module")
    new.k = 1
    sys.modules["my_module"] = new
    undo.append(lambda: sys.modules.pop("my_module"))

    def f(x):
        import my_module
        return x * my_module.k

    def exchange():
        sys.modules["my_module"] = types.SimpleNamespace(k=5)
    return f, [lambda: setattr(new, "k", 2), exchange]


@scenario
def argv():
    def change():
        sys.argv.append("x")
        undo.append(sys.argv.pop)
    return lambda x: x * len(sys.argv), [change]


@scenario
def loaded_modules():
    name = "my_other_module"

    def change():
        sys.modules["my_other_" + "module"] = types.ModuleType("m")
        undo.append(lambda: sys.modules.pop("my_other_module"))
    return lambda x: x * (2 if name in sys.modules else 1) + (5 if "my_other_module" in sys.modules else 0), [change]


@scenario
def environment():
    def change():
        os.environ["MY_VARIABLE"] = "3"
        undo.append(lambda: os.environ.pop("MY_VARIABLE"))
    return lambda x: x * int(os.environ.get("MY_VARIABLE", "1")), [change]


@scenario
def patched_builtin():
    return lambda x: x * divmod(9, 4)[0], [patch(builtins, "divmod", lambda *a: (7, 7))]


@scenario
def global_that_shadows_a_builtin():
    return lambda x: x * abs(-3), [patch(THIS, "abs", lambda x: 7)]


@scenario
def logger():
    log = logging.getLogger("some.logger.of.a.test")
    return lambda x: x * (2 if log.disabled else 1) + log.level, [patch(log, "disabled", True), patch(log, "level", 3)]


@scenario
def bound_method_of_a_patched_object():
    class A:
        def g(self, x):
            return x + 1
    a = A()
    g = a.g
    return lambda x: g(x), [lambda: setattr(A.g, "__code__", (lambda self, x: x + 5).__code__)]


@scenario
def shape_of_a_weight_that_no_op_uses():
    net = nn.Linear(2, 2)
    return lambda x: x * net.weight.shape[0], [lambda: setattr(net.weight, "data", torch.ones(3, 2))]


@scenario
def requires_grad_of_a_weight_that_no_op_uses():
    net = nn.Linear(2, 2)
    return lambda x: x * (2 if net.weight.requires_grad else 1), [lambda: net.weight.requires_grad_(False)]


@scenario
def signature():
    def g(a, b):
        pass
    return lambda x: x * len(inspect.signature(g).parameters), [
        lambda: setattr(g, "__signature__", inspect.signature(lambda a: 1)), lambda: delattr(g, "__signature__"),
        lambda: setattr(g, "__code__", (lambda: 1).__code__)]


@scenario
def subclasses():
    class A:
        pass
    kept = []
    return lambda x: x * len(A.__subclasses__()), [lambda: kept.append(type("B", (A,), {}))]


@scenario
def contents_of_a_users_module():
    m = types.ModuleType("my_module")
    exec("K, L = 1, [1]\ndef f(x): return x * K + len(L)", m.__dict__)
    return lambda x: m.f(x), [lambda: setattr(m, "K", 3), lambda: m.L.append(4), lambda: setattr(m, "f", lambda x: x)]


@scenario
def grad_of_a_weight():
    w = nn.Parameter(torch.ones(1))

    def change():
        w.grad = torch.ones(1)
    return lambda x: x * (1 if w.grad is None else 2), [change]


#: scenarios that are never captured
EAGER = ("single_dispatch", "grad_of_a_weight")


def _called(name, use):
    f, changes = SCENARIOS[name]()
    f, x, out = use(f), torch.full((1, 2), 1.5), []
    try:
        for change in (lambda: None, *changes):
            change()
            out += [f(x).detach().flatten().tolist() for _ in range(2)]
    finally:
        while undo:
            undo.pop()()
    return out, f


@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_state_change_takes_effect(name, backend):
    eager, _ = _called(name, lambda f: f)
    seen, f = _called(name, functools.partial(torch.compile, backend=backend))
    assert seen == eager
    compiled = getattr(f, "_compiled", None) or f._torchdynamo_compiled
    assert compiled.replayed_calls or name in EAGER, compiled.reasons
    assert any(a != b for a, b in zip(eager, eager[2:]))  # the scenario has a visible effect


def test_c_classes_whose_module_is_a_descriptor():
    """Their `__module__` is a descriptor for instances, not a string."""
    class Odd:
        pass
    Odd.__module__ = property(lambda self: "somewhere")
    odd = Odd()
    odd.k = 2
    f = torch.compile(lambda x: x * odd.k)
    assert f(torch.ones(1)).item() == f(torch.ones(1)).item() == 2
    odd.k = 3
    assert f(torch.ones(1)).item() == 3
