"""Operators seen by modes and tensors with __torch_dispatch__, compared with PyTorch: ops that
consist of several primitives here, and registered operators."""
import contextlib

import numpy as np
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mine
from tests._parity import few
from tests.facade.test_python_dispatch import SIDES, arrays, kinds

def told(T, tree, x):
    """Converts a handler's argument for comparison: tensors become their shapes."""
    return tree.tree_map(lambda a: tuple(a.shape) if isinstance(a, T.Tensor) else a, x)


def telling(side):
    """Returns a mode that records operators with all their arguments."""
    T, dispatch, tree = SIDES[side]

    class Telling(dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append((str(func), list(told(T, tree, args)), told(T, tree, kwargs or {})))
            return func(*args, **(kwargs or {}))
    return Telling


WHOLE = {
    "var_mean": lambda T, x, w, i: T.var_mean(x),
    "var_mean of a dimension": lambda T, x, w, i: T.var_mean(x, 1, keepdim=True),
    "std_mean": lambda T, x, w, i: T.std_mean(x, (0, 1), correction=0),
    "biased": lambda T, x, w, i: T.var_mean(x, dim=0, unbiased=False),
    "addmv": lambda T, x, w, i: T.addmv(x[:, 0], x, w[0], alpha=2),
    "addr": lambda T, x, w, i: x.addr(x[:, 0], w[0], beta=0.5),
    "aminmax": lambda T, x, w, i: T.aminmax(x, dim=1),
    "nansum": lambda T, x, w, i: x.nansum(1),
    "renorm": lambda T, x, w, i: T.renorm(x, 2, 0, 0.5),
    "dist": lambda T, x, w, i: T.dist(x, w[:3], 3),
    "block_diag": lambda T, x, w, i: T.block_diag(x, w),
    "rot90": lambda T, x, w, i: T.rot90(x, 3),
    "put": lambda T, x, w, i: T.put(x, i, w[0, :2]),
    "median": lambda T, x, w, i: (x.median(), x.median(1), T.nanmedian(x, 0, True)),
    "kthvalue": lambda T, x, w, i: T.kthvalue(x, 2, 0),
    "running": lambda T, x, w, i: (x.cummax(1), x.cummin(0), T.logcumsumexp(x, 1)),
    "written": lambda T, x, w, i: (T.index_add(x, 0, i, w[:2]), T.scatter_add(x, 1, i[None], w[:1, :2]), T.slice_scatter(x, w[:1], 0, 1, 2)),
    "linear algebra": lambda T, x, w, i: (T.linalg.qr(x), T.linalg.vector_norm(x, 3, 1)),
    "special": lambda T, x, w, i: (T.special.i1(x), T.special.entr(x), T.special.bessel_j0(x)),
    "losses": lambda T, x, w, i: (T.nn.functional.soft_margin_loss(x, w[:3].detach().sign(), reduction="sum"),
                                  T.nn.functional.binary_cross_entropy_with_logits(x, w[:3].sigmoid(), pos_weight=w[0].detach().exp())),
    "shrunk": lambda T, x, w, i: (T.nn.functional.softshrink(x, 0.3), T.nn.functional.celu(x), T.nn.functional.hardshrink(x, 0.2)),
    "shuffled": lambda T, x, w, i: T.nn.functional.pixel_shuffle(w[:4, :, None].reshape(1, 4, 2, 2), 2),
}


def flat(out):
    return [t for o in (out if isinstance(out, (tuple, list)) else (out,)) for t in (o if isinstance(o, (tuple, list)) else (o,))]


def operands(T, seed=3):
    rs = np.random.RandomState(seed)
    return [T.tensor(rs.randn(*s).round(3)) for s in ((3, 4), (5, 4))]


@pytest.mark.parametrize("name", WHOLE)
def test_composite_ops_dispatch_one_aten_operator(name):
    seen = []
    for side in SIDES:
        T, Telling = SIDES[side][0], telling(side)
        x, w = [t.requires_grad_() for t in operands(T)]
        i = T.tensor([0, 2])
        with Telling() as mode:
            WHOLE[name](T, x, w, i)
        # PyTorch's saving of a result for backward shows up as `detach`.
        seen.append([s for s in mode.seen if s[0] != "aten.detach.default"])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", WHOLE)
def test_composite_ops_match_torch_to_second_order(name):
    """Plain tensors under a mode, and wrappers, compared with PyTorch without either."""
    def run(T, x, w):
        i = T.tensor([0, 2])
        outs = [t for t in flat(WHOLE[name](T, x, w, i)) if t.is_floating_point()]
        r = sum([(t * t).sum() for t in outs if t.requires_grad])
        gs = T.autograd.grad(r, [x, w], create_graph=True, allow_unused=True)
        s = sum([(g * g).sum() for g in gs if g is not None and g.requires_grad])
        twice = T.autograd.grad(s, [x, w], allow_unused=True) if not isinstance(s, int) else [None, None]
        return [*outs, *[None if g is None else g.detach() for g in (*gs, *twice)]]

    want = arrays(run(real, *[t.requires_grad_() for t in operands(real)]))
    T, Noting, Wrapper = kinds("mine")
    with Noting():
        plain = arrays(run(T, *[t.requires_grad_() for t in operands(T)]))
    wrapped = arrays(run(T, *[Wrapper(t, True) for t in operands(T)]))
    for got in (plain, wrapped):
        for a, b in zip(got, want, strict=True):
            if a is not None or b is not None:
                np.testing.assert_allclose(0 if a is None else a, 0 if b is None else b, rtol=1e-7, atol=1e-9)


def test_composite_op_results_and_nodes_are_named():
    T, Noting, _ = kinds("mine")
    x = T.tensor([[1., 3.], [2., 0.]], requires_grad=True)
    with Noting():
        r, v = T.aminmax(x, dim=0), x.cummax(0)
        assert r.max.tolist() == [2, 3] and type(r) is T.return_types.aminmax and v.indices.tolist() == [[0, 0], [1, 0]]
    assert r.min.grad_fn.name() == "AminmaxBackward0" and not v.indices.requires_grad
    x.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        r.min.sum().backward()


def test_mode_may_override_a_composite_op():
    class Twice(SIDES["mine"][1].TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            r = func(*args, **(kwargs or {}))
            return tuple(2 * t for t in r) if func is mine.ops.aten.var_mean.correction else r

    x = mine.tensor([1., 2., 4.])
    with Twice():
        v, m = mine.var_mean(x)
    np.testing.assert_allclose([v.item(), m.item()], [14 / 3, 14 / 3], rtol=1e-6)


def test_composite_op_table_entries_exist():
    from mindtorch.core.dispatch.op_registry import OPS
    from mindtorch.torch import _aten_whole, _ops
    for name in _aten_whole._ROWS:
        assert name in OPS, name
        assert _ops.find_packet("aten", name.removeprefix("nn.functional.").replace(".", "_")) is not None, name


# ------------------------------------------------------------------ registered operators
@contextlib.contextmanager
def registered(T):
    """A custom operator whose second result is an int, and an operator that modifies its argument
    in place."""
    with T.library._scoped_library("mtseen", "FRAGMENT"):
        def scaled(x: T.Tensor, factor: float = 2.0, shift: int = 0) -> tuple[T.Tensor, int]:
            return x.sin() * factor + shift, 3

        op = T.library.custom_op("mtseen::scaled", mutates_args=())(scaled)
        op.register_autograd(lambda ctx, g, _: (g * ctx.saved_tensors[0].cos() * ctx.factor, None, None),
                             setup_context=lambda ctx, inputs, output: (ctx.save_for_backward(inputs[0]), setattr(ctx, "factor", inputs[1])))

        def doubled(x: T.Tensor) -> None:
            x.mul_(2)
        write = T.library.custom_op("mtseen::doubled", mutates_args=("x",))(doubled)
        yield op, write


@few
@given(st.floats(-2, 2), st.sampled_from([(), (0,), (4,)]), st.booleans())
def test_registered_operators_reach_modes(factor, shift, grad):
    found = []
    for side in SIDES:
        T, Telling = SIDES[side][0], telling(side)
        with registered(T) as (op, _):
            x = T.tensor([0.5, -1.0], dtype=T.float64, requires_grad=grad)
            with Telling() as mode:
                y, n = op(x, factor, *shift)
            first = list(mode.seen)
            if grad:
                y.sum().backward()
            found.append((first, n, y.tolist(), grad and [round(v, 9) for v in x.grad.tolist()]))
    assert found[0][:2] == found[1][:2]
    for a, b in zip(found[0][2:], found[1][2:]):
        np.testing.assert_allclose(b, a, rtol=1e-9)


def test_registered_operators_of_wrappers():
    results = []
    for side in SIDES:
        T, _, Wrapper = kinds(side)
        with registered(T) as (op, write):
            x = Wrapper(T.tensor([0.5, -1.0], dtype=T.float64), True)
            y, _ = op(x)
            y.sum().backward()
            assert type(y) is Wrapper and type(x.grad) is Wrapper
            z = Wrapper(T.ones(2))
            before = z._version
            write(z)
            assert z._version > before
            results.append([t.of.detach().tolist() for t in (y, x.grad, z)] + [[s for s in Wrapper.seen if "mtseen" in s]])
    for a, b in zip(results[0][:3], results[1][:3]):
        np.testing.assert_allclose(b, a, rtol=1e-12)
    assert results[0][3] == results[1][3] == ["mtseen.scaled.default", "mtseen.doubled.default"]


# ------------------------------------------------------------------ dual tensors
def test_make_dual_shows_an_alias_of_the_primal():
    for side in SIDES:
        T, Noting, _ = kinds(side)
        fw = T.autograd.forward_ad
        x, t = T.ones(2), T.ones(2)
        with fw.dual_level(), Noting() as mode:
            d = fw.make_dual(x, t)
            # PyTorch also queries the shapes through operators.
            assert [s for s in mode.seen if "is_same_size" not in s and "numel" not in s] == ["aten.alias.default"], side
            assert fw.unpack_dual(d).tangent is not None and d.tolist() == [1, 1]


def test_results_do_not_inherit_dispatch_subclasses():
    for side in SIDES:
        T = SIDES[side][0]
        fw, seen = T.autograd.forward_ad, []

        class Own(T.Tensor):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                seen.append(str(func))
                kwargs = kwargs or {}
                args = [a.as_subclass(T.Tensor) if type(a) is cls else a for a in args] if func is T.ops.aten.exp.default else args
                return super().__torch_dispatch__(func, types, args, kwargs)

        s = T.Tensor._make_subclass(Own, T.ones(2))
        t = T.zeros_like(s)
        assert type(t) is T.Tensor and type(s.exp()) is T.Tensor and Own.__torch_function__ is T._C._disabled_torch_function_impl, side
        with fw.dual_level():
            seen.clear()
            fw.make_dual(s, T.ones(2))
            fw.make_dual(t, s)
        assert [n for n in seen if n == "aten.alias.default"] == ["aten.alias.default"], side


def test_declared_operators_exist_in_torch():
    """Operators that op records and primitives declare, with room for the primitives' arguments."""
    from mindtorch.core.dispatch.op_registry import OPS
    from mindtorch.core.dispatch.primitives import PRIMITIVES
    declared = [(f"{o.aten_name}.{o.aten_overload}", 0) for o in OPS.values() if o.aten_overload]
    declared += [(a, len(f.prim.inputs) + len(f.prim.attrs)) for f in PRIMITIVES.values() for a in (f.prim.aten or "").split()]
    assert len(declared) > 200
    for text, n in declared:
        name, _, overload = text.partition(".")
        packet = getattr(real.ops.aten, name)
        assert overload in packet.overloads(), text
        positional = [a for a in getattr(packet, overload)._schema.arguments if not a.kwarg_only]
        assert len(positional) >= n, text


@pytest.mark.parametrize("names, call", [
    (["copysign_.Tensor", "copysign_.Scalar"], lambda T, x: x.copysign_(x.detach()).copysign_(1.0)),
    (["xlogy_.Tensor", "xlogy_.Scalar_Other"], lambda T, x: x.xlogy_(x.detach()).xlogy_(2.0)),
    (["xlogy.Scalar_Other"], lambda T, x: T.xlogy(x, 2.0)),
    (["bitwise_left_shift.Tensor_Scalar"], lambda T, x: T.bitwise_left_shift(x.int(), 1)),
    (["floor_divide.default", "floor_divide_.Tensor"], lambda T, x: T.floor_divide(x, 2.0).floor_divide_(2.0)),
])
def test_overloads_for_numbers(names, call):
    import importlib
    for T in (real, mine):
        found = []

        class Mode(importlib.import_module(T.__name__ + ".utils._python_dispatch").TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                found.append(str(func).removeprefix("aten."))
                return func(*args, **(kwargs or {}))
        with Mode():
            call(T, T.rand(3))
        assert [n for n in found if n in names] == names, (T.__name__, found)
