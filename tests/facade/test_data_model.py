"""Python's data model for Modules: code that copies, pickles, inspects or subclasses objects sees a
Module as in PyTorch."""
import abc
import collections
import copy
import copyreg
import dataclasses
import functools
import gc
import inspect
import io
import pickle
import sys
import types
import typing
import weakref

import mindspore as ms
import pytest
import torch as real

import mindtorch.torch as mt

SIDES = {"real": real, "mine": mt}
HERE = sys.modules[__name__]


def _classes(T, side):
    """Classes of one side, defined where pickle finds them."""
    class Plain(T.nn.Module):
        x: int = 3

        def __init__(self, a=1, *, b=2):
            super().__init__()
            self.layer = T.nn.Linear(2, 2)
            self.a = a

        def forward(self, x):
            return self.layer(x)

    class Reduced(T.nn.Linear):
        def __reduce__(self):
            return tuple(list(super().__reduce__()))

    class Made(T.nn.Module):
        def __new__(cls, a):
            made = super().__new__(cls)
            made.__dict__["n"] = a
            return made

        def __init__(self, a):
            super().__init__()

        def __getnewargs__(self):
            return (7,)

    class MadeByName(Made):
        def __new__(cls, *, a):
            return Made.__new__(cls, a)

        def __init__(self, *, a):
            super().__init__(a)

        def __getnewargs_ex__(self):
            return (), {"a": 8}

    class Bare(T.nn.Module):
        def __new__(cls, *args, **kwargs):
            return object.__new__(cls)

        def __init__(self, a):
            super().__init__()
            self.a = a

    class Base(T.nn.Module, abc.ABC):
        @abc.abstractmethod
        def f(self):
            pass

    class Filled(Base):
        def f(self):
            return 1

    for cls in list(locals().values()):
        if isinstance(cls, type):
            cls.__qualname__ = f"{cls.__name__}_{side}"
            setattr(HERE, cls.__qualname__, cls)


for _side, _T in SIDES.items():
    _classes(_T, _side)


def names(values):
    return [getattr(v, "__name__", type(v).__name__).replace("_mine", "").replace("_real", "") for v in values]


def by_python(obj, protocol):
    buffer = io.BytesIO()
    pickle._Pickler(buffer, protocol).dump(obj)
    return pickle.loads(buffer.getvalue())


def _weak(T, of):
    m = of("Plain")()
    there, said, proxy = weakref.WeakKeyDictionary({m: 1}), [], weakref.proxy(m)
    weakref.finalize(m, said.append, 1)
    before = len(there), proxy.a
    del m
    gc.collect()
    return before, len(there), said


def _other_class(T, of):
    m = of("Plain")()

    class Other(of("Plain")):
        pass

    class Nothing:
        pass

    m.__class__ = Other
    first = isinstance(m, Other)
    m.__class__ = T.nn.Linear
    second, n = type(m) is T.nn.Linear, Nothing()
    m.__class__ = Nothing
    n.__class__ = of("Plain")
    return first, second, type(m) is Nothing, type(n) is of("Plain")


def _metaclass(T, of):
    class Meta(type):
        def __call__(cls, *args, **kwargs):
            made = super().__call__(*args, **kwargs)
            made.by = cls.__name__
            return made

    class Net(T.nn.Module, metaclass=Meta):
        pass
    return Net().by, type(Net) is Meta, isinstance(Net(), T.nn.Module)


def _init_subclass(T, of):
    known = []

    class Base(T.nn.Module):
        def __init_subclass__(cls, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            known.append((cls.__name__, tag))

    class Net(Base, tag="x"):
        pass
    return known


def _dataclass(T, of):
    @dataclasses.dataclass(eq=False)
    class Net(T.nn.Module):
        a: int
        b: float = 2.

        def __post_init__(self):
            super().__init__()
            self.layer = T.nn.Linear(self.a, 1)

    @dataclasses.dataclass
    class Equal(T.nn.Module):
        a: int
    return [f.name for f in dataclasses.fields(Net)], repr(dataclasses.replace(Net(3), a=4).layer), repr(Net(3)), Equal.__hash__


def _generic(T, of):
    V = typing.TypeVar("V")

    class Gen(T.nn.Module, typing.Generic[V]):
        pass

    class Ints(Gen[int]):
        pass
    return [c.__name__ for c in Ints.__mro__], repr(Ints()), type(Gen[int]()) is Gen


def _mixed_with(T, of):
    class Listed(T.nn.Module, list):
        def __init__(self):
            T.nn.Module.__init__(self)

    class Dicted(dict, T.nn.Module):
        def __init__(self):
            T.nn.Module.__init__(self)

    class Mapped(T.nn.Module, collections.abc.Mapping):
        def __getitem__(self, key):
            return 1

        def __iter__(self):
            return iter(())

        def __len__(self):
            return 0
    Dicted()["a"] = 1
    return Listed()[:], bool(Mapped()), Mapped().get("x"), [c.__name__ for c in Dicted.__mro__]


def _dispatch(T, of):
    @functools.singledispatch
    def kind(x):
        return "other"
    kind.register(T.nn.Module)(lambda x: "module")
    kind.register(T.nn.Linear)(lambda x: "linear")
    return kind(of("Plain")()), kind(T.nn.Linear(1, 1)), kind(1)


def _before_init(T, of):
    m = of("Plain").__new__(of("Plain"))
    said = []
    for f in (lambda: m.foo, lambda: setattr(m, "layer", T.nn.Linear(1, 1)), lambda: m(1), lambda: repr(m), lambda: dir(m), lambda: type(m)(1, 2)):
        with pytest.raises((AttributeError, TypeError)) as e:
            f()
        said.append(type(e.value))
    return said


PROGRAMS = {
    "pickle": lambda T, of: [pickle.loads(pickle.dumps(of("Plain")(4), p)).a for p in range(6)],
    "pickle in Python": lambda T, of: [by_python(of("Plain")(4), p).a for p in range(6)],
    "reduce_ex": lambda T, of: [names(of("Plain")().__reduce_ex__(p)) for p in range(6)],
    "object.__reduce_ex__": lambda T, of: [names(object.__reduce_ex__(of("Plain")(), p)) for p in range(6)],
    "super().__reduce__": lambda T, of: (names(of("Reduced")(2, 2).__reduce__()), names(of("Reduced")(2, 2).__reduce__()[1])),
    "reduced": lambda T, of: [pickle.loads(pickle.dumps(of("Reduced")(2, 2), p)).in_features for p in range(6)],
    "getnewargs": lambda T, of: [pickle.loads(pickle.dumps(m, p)).n for m, first in ((of("Made")(7), 2), (of("MadeByName")(a=8), 4)) for p in range(first, 6)],
    "copyreg": lambda T, of: names([copyreg.__newobj__(of("Plain")), copyreg._reconstructor(of("Plain"), object, None)]),
    "object.__new__": lambda T, of: (of("Bare")(3).a, object.__new__(of("Plain")).__dict__),
    "state by hand": lambda T, of: (lambda o: (o.__setstate__(of("Plain")().__dict__), list(o(T.ones(1, 2)).shape)))(object.__new__(of("Plain")))[1],
    "copy": lambda T, of: (lambda m: (copy.copy(m).layer is m.layer, copy.deepcopy(m).layer is m.layer, list(copy.copy(m).__dict__) == list(m.__dict__)))(of("Plain")()),
    "dict": lambda T, of: (list(of("Plain")().__dict__), list(of("Plain")().__getstate__())),
    "mro": lambda T, of: names(of("Plain").__mro__) + names(inspect.getmro(T.nn.Linear)) + names(of("Filled").mro()),
    "bases": lambda T, of: (T.nn.Module.__bases__, T.nn.Module.__base__, type(T.nn.Module), type(of("Filled"))),
    "source": lambda T, of: [len(inspect.getsource(c)) > 0 and bool(inspect.getfile(c)) for c in T.nn.Linear.__mro__[:-1]],
    "signature": lambda T, of: (str(inspect.signature(of("Plain"))), list(inspect.signature(T.nn.Module).parameters), list(inspect.signature(T.nn.Linear).parameters)),
    "argspec": lambda T, of: inspect.getfullargspec(of("Plain"))[:6],
    "static": lambda T, of: [type(inspect.getattr_static(of("Plain")(), n, None)).__name__ for n in ("forward", "state_dict", "a", "to", "__call__", "_apply", "construct")],
    "own": lambda T, of: [n in vars(T.nn.Module) for n in ("state_dict", "load_state_dict", "__setstate__", "__getattr__", "_load_from_state_dict", "cells", "construct")],
    "qualname": lambda T, of: (T.nn.Module.state_dict.__qualname__, T.nn.Module.load_state_dict.__qualname__),
    "defining classes": lambda T, of: sorted({a.defining_class.__name__.partition("_")[0] for a in inspect.classify_class_attrs(of("Plain"))}),
    "names of Cells": lambda T, of: [n for n in ("cells", "construct", "phase", "set_train", "requires_grad") if hasattr(of("Plain"), n) or n in dir(of("Plain")())],
    "abstract": lambda T, of: (of("Filled")().f(), isinstance(of("Filled")(), of("Base")), inspect.isabstract(of("Base"))),
    "truth": lambda T, of: (bool(of("Plain")()), bool(T.nn.ModuleList()), bool(T.nn.Sequential())),
    "subclasses": lambda T, of: (T.nn.ReLU in T.nn.Module.__subclasses__(), types.new_class("Z", (T.nn.Module,)).__name__),
    "weak": _weak, "class": _other_class, "metaclass": _metaclass, "init_subclass": _init_subclass, "dataclass": _dataclass, "generic": _generic,
    "mixed": _mixed_with, "singledispatch": _dispatch, "before init": _before_init,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_data_model_matches_torch(name):
    got = [PROGRAMS[name](T, lambda cls, side=side: getattr(HERE, f"{cls}_{side}")) for side, T in SIDES.items()]
    assert got[1] == got[0]


def test_abstract_module_cannot_be_instantiated():
    for side in SIDES:
        with pytest.raises(TypeError, match="abstract"):
            getattr(HERE, f"Base_{side}")()


def test_tensor_subclasses_compare_with_any_object():
    for T in SIDES.values():
        class Sub(T.Tensor):
            pass
        t = T.ones(1).as_subclass(Sub)
        assert (t == None) is False and (t != None) is True and (t == object()) is False and "a" not in [t] and [t, None].index(None) == 1   # noqa: E711
        for f in (lambda t=t: t < None, lambda t=t: t + "a", lambda t=t: [] @ t):
            with pytest.raises(TypeError):
                f()
        assert not callable(T.device("cpu"))


# ------------------------------------------------------------------ and still a Cell
def test_a_module_counts_as_a_cell():
    m = HERE.Plain_mine()
    assert isinstance(m, ms.nn.Cell) and issubclass(mt.nn.Linear, ms.nn.Cell) and not isinstance(real.nn.Linear(1, 1), ms.nn.Cell)
    assert not isinstance(m, ms.nn.Dense) and not isinstance(ms.nn.Dense(1, 1), mt.nn.Module) and not issubclass(mt.nn.Linear, ms.nn.Dense)
    assert [name for name, _ in m.cells_and_names()] == ["", "layer"] and len(m.trainable_params()) == 2 and m.parameter_layout_dict == {}
    assert m.to_float(ms.float16)(mt.ones(1, 2)).dtype is mt.float16


def test_cell_subclasses_are_unaffected_by_modules():
    class Net(ms.nn.Cell):
        pass

    class Abstract(ms.nn.Cell, abc.ABC):
        @abc.abstractmethod
        def f(self):
            pass

    class Meta(type):
        pass

    class Below(Net, metaclass=Meta):
        pass

    class CellMeta(type(ms.nn.Cell)):
        pass

    class Own(ms.nn.Cell, metaclass=CellMeta):
        pass
    assert type(Own) is CellMeta and isinstance(Own(), Own) and isinstance(Own(), ms.nn.Cell) and not issubclass(Below, Own)

    class Gen(ms.nn.Cell, typing.Generic[typing.TypeVar("V")]):
        pass
    assert type(Net) is type and type(Abstract) is abc.ABCMeta and type(Below) is Meta and Abstract.__abstractmethods__ == {"f"}
    assert isinstance(Below(), ms.nn.Cell) and isinstance(Below(), Net) and not isinstance(HERE.Plain_mine(), Net) and isinstance(Gen[int](), ms.nn.Cell)


def test_children_that_are_cells():
    class Holder(mt.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = ms.nn.Dense(2, 3)
    m = Holder()
    assert isinstance(m.dense, mt.nn.Module) and isinstance(m.dense, ms.nn.Dense) and list(m.state_dict()) == ["dense.weight", "dense.bias"]
    again = copy.deepcopy(m)
    assert isinstance(again.dense, ms.nn.Dense) and again.dense(mt.ones(1, 2)).shape == (1, 3) and repr(again) == repr(m) and str(m.dense) == repr(m.dense)


@pytest.mark.parametrize("weights", [True, False])
def test_mindspore_distinguishes_module_instances(weights):
    """MindSpore's autograd treats a Module as a function: two instances of one class are two
    functions."""
    def gradient(m, x):
        fn = ms.value_and_grad(m, None, list(m.trainable_params())) if weights else ms.value_and_grad(m, 0)
        return fn(x)[1]
    a, b = mt.nn.Linear(2, 1, bias=False), mt.nn.Linear(2, 1, bias=False)
    with mt.no_grad():
        a.weight.copy_(mt.tensor([[1., 2.]]))
        b.weight.copy_(mt.tensor([[3., 4.]]))
    for m, want in ((a, [1., 2.]), (b, [3., 4.]), (a, [1., 2.])):
        g = gradient(m, mt.tensor([[5., 6.]]))
        g = g[0] if isinstance(g, (tuple, list)) else g
        assert g.reshape(-1).asnumpy().tolist() == ([5., 6.] if weights else want)
        assert "__code__" not in m.__dict__ and not hasattr(m, "__name__") and copy.deepcopy(m) is not m
