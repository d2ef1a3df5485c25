"""Errors raised by npu kernels: only `UnsupportedByKernel` sends a call to the host, operands raise PyTorch's
error messages, and a wrong kernel is detected.

Python scalars that MindSpore expects in another type, or does not accept, used to surface as such
errors. Every op is therefore called with other scalars in place of its own.
"""
import dataclasses
import itertools
import warnings

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mt
from mindtorch.backend.device import RejectedOperands, UnsupportedByKernel
from mindtorch.backend.mindspore import kernels as npu_kernels
from mindtorch.backend.kernels import TABLES, flags_of, set_flags
from mindtorch.core.device import device_dispatch, rng
from mindtorch.core.compile import replay
from mindtorch.tools import _opinfo_runner as C


@pytest.fixture
def planted(npu, monkeypatch):
    """planted(name, kernel) -> callable that returns how often the host has computed that primitive
    since."""
    def put(name, kernel):
        set_flags(kernel, dataclasses.replace(flags_of(TABLES["npu"][name]), alike=None))
        monkeypatch.setitem(TABLES["npu"], name, kernel)
        device_dispatch.KERNEL_CACHE["npu"].pop(name, None)
        replay.bindings_of.clear()  # compiled steps use a separate table, derived from this one
        names.append(name)
        before = device_dispatch.FALLBACKS.get(("npu", name), 0)
        return lambda: device_dispatch.FALLBACKS.get(("npu", name), 0) - before
    names = []
    yield put
    monkeypatch.undo()
    replay.bindings_of.clear()
    for name in names:
        device_dispatch.KERNEL_CACHE["npu"].pop(name, None)


def failing(error):
    def kernel(*handles, **kw):
        raise error
    return kernel


CALLS = {"erf": lambda x: mt.erf(x), "mul": lambda x: x * x, "cumsum": lambda x: x.cumsum(1), "cat": lambda x: mt.cat([x, x])}


@pytest.mark.parametrize("error", [TypeError("a mistake"), ValueError("a mistake"), AttributeError("a mistake"), IndexError("a mistake")], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", CALLS)
def test_kernel_errors_do_not_fall_back_to_the_host(npu, planted, name, error):
    x = mt.rand(3, 4).to(npu)
    count = planted(name, failing(error))
    for _ in range(2):
        with pytest.raises(type(error), match="a mistake"):
            CALLS[name](x)
    assert count() == 0


def test_type_errors_of_a_kernels_own_code_propagate(npu, planted, monkeypatch):
    """The host does not compute the op, although its kernel would raise another error."""
    def kernel(a):
        return len(a, 1)

    def host(a):
        called.append(1)
        raise ValueError("the host")
    called, x = [], mt.rand(3, 4).to(npu)
    count = planted("erf", npu_kernels.translates_errors(kernel))
    monkeypatch.setitem(TABLES["cpu"], "erf", host)
    for f in (mt.erf, mt.compile(lambda x: mt.erf(x) * 2, backend="mindspore")):
        with pytest.raises(TypeError, match="exactly one argument"):
            f(x)
    assert count() == 0 and not called


@pytest.mark.parametrize("mindspores", [True, False])
def test_only_mindspores_type_errors_are_translated(mindspores):
    code = {"__name__": "mindspore.ops" if mindspores else "mindtorch.backend.mindspore.kernels.unary"}
    exec("def f(a): raise TypeError(a)", code)
    with pytest.raises(RejectedOperands if mindspores else TypeError) as e:
        npu_kernels.translates_errors(code["f"])("a mistake")
    assert not mindspores or e.value.rejection.args == ("a mistake",)


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_cached_kernel_errors_are_raised(npu, planted, error):
    x, good, wrong = mt.rand(3, 4).to(npu), TABLES["npu"]["erf"], []

    def kernel(a):
        if wrong:
            raise error("a mistake")
        return good(a)
    count = planted("erf", kernel)
    for _ in range(3):
        mt.erf(x)
    assert device_dispatch.KERNEL_CACHE["npu"]["erf"].known  # later calls skip the check of the operands
    wrong.append(1)
    with pytest.raises(error, match="a mistake"):
        mt.erf(x)
    assert count() == 0


@pytest.mark.parametrize("name, error", [("erf", TypeError), ("expm1", ValueError)])
def test_kernel_errors_in_a_compiled_step_are_raised(npu, planted, name, error):
    good, wrong = TABLES["npu"][name], []

    def kernel(a):
        if wrong:
            raise error("a mistake")
        return good(a)
    count, f = planted(name, kernel), getattr(mt, name)
    step = mt.compile(lambda x: f(x) * 2, backend="mindspore")
    wrong.append(1)
    with pytest.raises(error, match="a mistake"):
        step(mt.rand(3, 4).to(npu))
    wrong.clear()
    x = mt.rand(3, 4)
    np.testing.assert_allclose(step(x.to(npu)).cpu().numpy(), (f(x) * 2).numpy(), rtol=1e-5)
    assert count() == 0


def test_lacking_kernel_falls_back_to_the_host(npu, planted):
    x = mt.rand(3, 4)
    count = planted("erf", failing(UnsupportedByKernel()))
    assert mt.erf(x.to(npu)).tolist() == mt.erf(x).tolist() and count() == 1


def test_missing_mindspore_kernel_falls_back_to_the_host(npu, planted):
    """MindSpore raises a TypeError when it selects a kernel by dtype."""
    from mindspore.ops import operations as P
    not_equal = P.NotEqual()
    cast = device_dispatch.DEVICES["npu"].cast
    count = planted("erf", npu_kernels.translates_errors(lambda a: not_equal(cast(a, mt.bfloat16.np), cast(a, mt.bfloat16.np))))
    x = mt.rand(3, 4)
    assert mt.erf(x.to(npu)).tolist() == mt.erf(x).tolist() and count() == 1


REFUSED = {"shapes": lambda x: x + mt.ones(5, device=x.device), "compared": lambda x: x > mt.ones(2, 5, device=x.device), "matrices": lambda x: x @ x,
           "targets": lambda x: mt.nn.functional.nll_loss(x, mt.tensor([0, 1, 9], device=x.device)), "indices": lambda x: x[mt.tensor([0, 1], device=x.device), mt.tensor([0, 1, 2], device=x.device)],
           "places": lambda x: mt.nn.functional.max_unpool1d(x, mt.full((3, 4), 900, device=x.device), 2), "pooled": lambda x: mt.nn.functional.max_pool2d(x[None], 9)}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_operands_raise_the_host_message(npu, name):
    x = mt.arange(12.).reshape(3, 4)
    with pytest.raises(Exception) as host:
        REFUSED[name](x)
    with pytest.raises(type(host.value)) as there:
        REFUSED[name](x.to(npu))
    assert str(there.value).replace("npu:0", "cpu") == str(host.value)


NORMS = {"batch_norm": lambda F, x, eps: F.batch_norm(x, None, None, training=True, eps=eps), "instance_norm": lambda F, x, eps: F.instance_norm(x, eps=eps),
         "group_norm": lambda F, x, eps: F.group_norm(x, 2, eps=eps), "layer_norm": lambda F, x, eps: F.layer_norm(x, (3,), eps=eps), "rms_norm": lambda F, x, eps: F.rms_norm(x, (3,), eps=eps)}


@pytest.mark.parametrize("name", NORMS)
def test_integer_epsilon_needs_no_fallback(npu, name):
    a = np.random.RandomState(3).randn(2, 4, 3).astype(np.float32)
    before = dict(device_dispatch.FALLBACKS)
    x, y = mt.tensor(a, device=npu, requires_grad=True), real.tensor(a, requires_grad=True)
    r, want = NORMS[name](mt.nn.functional, x, 1), NORMS[name](real.nn.functional, y, 1)
    r.pow(3).sum().backward()
    want.pow(3).sum().backward()
    assert dict(device_dispatch.FALLBACKS) == before
    np.testing.assert_allclose(r.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("eps", [1e-5, 1, 2.5, 0.])
def test_running_statistics_update_for_any_epsilon(npu, eps):
    a = np.random.RandomState(3).randn(6, 3, 4).astype(np.float32)
    ends = []
    for T, dev in ((mt, npu), (real, "cpu")):
        mean, var = T.zeros(3, device=dev), T.ones(3, device=dev)
        y = T.native_batch_norm(T.tensor(a, device=dev), None, None, mean, var, True, 0.1, eps)[0]
        ends.append([t.cpu().numpy() for t in (y, mean, var)])
    for got, want in zip(*ends):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("materialize", [True, False])
def test_missing_gradients_are_created_on_the_device(npu, materialize):
    class Nothing(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return None

    class Below(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 3, x * 4

        @staticmethod
        def backward(ctx, *gs):
            assert all((g is None) if not materialize else g.device == npu and g.tolist() == [0, 0] for g in gs)
            return gs[0]
    w, v = mt.ones(2, device=npu, requires_grad=True), mt.ones(2, device=npu, requires_grad=True)
    Nothing.apply(Below.apply(w * v)[0]).sum().backward()
    assert (w.grad is None) if not materialize else w.grad.tolist() == [0, 0] and w.grad.device == npu


def numbers(x, path=()):
    """Yields (path, value) for the Python scalars of a sample."""
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        yield path, x
    elif isinstance(x, (tuple, list, dict)):
        for k, v in x.items() if isinstance(x, dict) else enumerate(x):
            yield from numbers(v, (*path, k))


def put(x, path, v):
    """Returns the sample with `v` at a path."""
    if not path:
        return v
    if isinstance(x, dict):
        return {**x, path[0]: put(x[path[0]], path[1:], v)}
    items = list(x)
    items[path[0]] = put(items[path[0]], path[1:], v)
    return x._replace(**dict(zip(x._fields, items))) if hasattr(x, "_fields") else type(x)(items)


def others(v):
    return dict.fromkeys((int(v) if v == v and abs(v) < 1e9 else 1, 1, 0.0, 2.5, -0.5, 1e-30) if isinstance(v, float) else (0, 1, 2, 3, -1, -2))


def ends(fn, call, dev):
    """Returns (type of the error, the error), or (None, None)."""
    carry = C.Carrier(real, mt, dev)
    given = [carry(x) for x in call]
    mt.manual_seed(3)
    try:
        with mt.device(dev):
            r = fn(given[0], *given[1], **given[2])
            leaves, ins = C._float_leaves(mt.Tensor, r), C._float_leaves(mt.Tensor, [given[0], given[1], list(given[2].values())])
            if leaves and ins:
                mt.autograd.grad(C._loss(mt, leaves), ins, allow_unused=True)
    except Exception as e:
        return type(e), e
    return None, None


@pytest.mark.parametrize("part", [range(1), *[pytest.param(r, marks=pytest.mark.slow) for r in (range(1, 4), range(4, 7), range(7, 10), range(10, 12))]],
                         ids=lambda part: f"{part[0]}-{part[-1]}")
def test_scalars_supported_by_the_host_are_supported(npu, monkeypatch, part):
    """Every op of PyTorch's database, with other scalars in each of its samples: none of them ends
    in a kernel fault."""
    monkeypatch.setattr(rng.policy, "host", True)
    wrong, count = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, op in [x for i, x in enumerate(C.ops()) if i % 12 in part]:
            dtype = next((d for d in (real.float32, real.int64) if op.supports_dtype(d, "cpu")), None)
            try:
                fn = C.facade_op(op, real, mt)
            except (AttributeError, ImportError):
                continue  # reported by the database's own test
            seen = set()
            for s in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point), 8) if dtype else ():
                given = s.input, list(s.args), dict(s.kwargs)
                for path, v in numbers(given):
                    key = tuple([min(p, 1) if isinstance(p, int) and i > 1 else p for i, p in enumerate(path)])
                    if key in seen:
                        continue
                    seen.add(key)
                    for w in others(v):
                        call = put(given, path, w)
                        try:
                            host, there = ends(fn, call, "cpu"), ends(fn, call, "npu:0")
                        except C.Skip:
                            break
                        count += 1
                        if host[0] is not there[0]:
                            wrong.append(f"{name} {path} {w!r} for {v!r}: {there[1]!r}, not {host[1]!r}"[:400])
    assert count > 100 * len(part) and not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong)
