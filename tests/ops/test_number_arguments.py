"""Tensors in place of scalar arguments: for every scalar in the samples of PyTorch's op database, a
0-dim tensor gives PyTorch's outcome.

The test compares the result with its gradients, or the type of the error.
"""
import collections
import itertools
import re
import warnings

import numpy as np
import pytest
import torch as real

import test_signatures as signatures
from mindtorch.tools import _opinfo_runner as C

mine = C.facade()

#: Ops with these name prefixes are skipped: PyTorch's behavior is an accident of its Python code or
#: its argument parser.
ACCIDENTS = {
    "split": "a float tensor as split_size is divided by in Python", "tensordot": "a float tensor as dims is compared in Python",
    "randint_like": "a float tensor selects another overload", "histogramdd": "0-dim tensors in the list of bins are sizes or edges, by the parser's order",
    "nn.functional.gaussian_nll_loss": "eps that requires grad is used as a value in Python", "nn.functional.interpolate": "rejected by the kernel",
    "nn.functional.upsample": "the same", "nn.functional.unfold": "written in Python", "nn.functional.max_unpool": "written in Python", "nn.functional.normalize": "written in Python",
    "masked.": "torch's Python iterates over a dim that is a tensor", "signal.windows": "only `M < 0` is checked, in Python", "sum_to_size": "written in Python",
    "broadcast_shapes": "an assertion in Python", "gradient": "a spacing that is a tensor is checked by its Python code", "squeeze": "accepted by the method, rejected by the function",
    "__getitem__": "a nested list of numbers and tensors", "lu": "flags are evaluated by truth value in Python", "linalg.pinv": "rtol that requires grad is rejected by autograd",
}

#: Scalars and flags for which mindtorch accepts a tensor by its value although PyTorch rejects it:
#: (op, index or name).
LENIENT = {
    *[(n, "requires_grad") for n in ("empty", "eye", "randn", "scalar_tensor", "empty_permuted", "empty_strided")], ("to", 1), ("to", 2), ("nonzero", "as_tuple"),
    ("nn.functional.avg_pool2d", 3), ("nn.functional.avg_pool2d", 4), ("nn.functional.ctc_loss", 1), ("nn.functional.ctc_loss", 2), ("normal.number_mean", 0), ("max.reduction_with_dim", 1), ("min.reduction_with_dim", 1),
}


def slots(x, path=()):
    """Yields (path, scalar) for the scalars of a sample."""
    if isinstance(x, (bool, int, float)):
        yield path, x
    elif isinstance(x, (tuple, list, dict)):
        for k, v in x.items() if isinstance(x, dict) else enumerate(x):
            yield from slots(v, path + (k,))


def put(x, path, v):
    if not path:
        return v
    if isinstance(x, dict):
        return {**x, path[0]: put(x[path[0]], path[1:], v)}
    items = list(x)
    items[path[0]] = put(items[path[0]], path[1:], v)
    return x._replace(**dict(zip(x._fields, items))) if hasattr(x, "_fields") else tuple(items) if isinstance(x, tuple) else items


def stand_ins(v):
    """Yields tensors that are, or are not, valid in place of the scalar."""
    yield real.tensor(v)
    if isinstance(v, float):
        yield real.tensor(v, requires_grad=True)
        yield real.tensor(v, dtype=real.float64)
    elif not isinstance(v, bool):
        yield real.tensor(float(v))


def outcome(call, T):
    try:
        T.manual_seed(3)
        return None, call()
    except Exception as e:
        return type(e), e


def gradients(T, r, given):
    leaves = C._float_leaves(T.Tensor, r)
    return list(T.autograd.grad(C._loss(T, leaves), given, allow_unused=True, materialize_grads=True)) if leaves and given else []


def run(T, fn, call):
    i, args, kwargs = call
    r = fn(i, *args, **kwargs)
    return r, gradients(T, r, C._float_leaves(T.Tensor, [i, args, list(kwargs.values())]))


def difference(op, fn, s, call):
    """Returns None if both sides have the same outcome, else a description of the difference."""
    wrong, want = outcome(lambda: run(real, op.op, call), real)
    carry = C.Carrier(real, mine)
    failed, got = outcome(lambda: run(mine, fn, tuple(carry(x) for x in call)), mine)
    if wrong is not None and failed is not None:
        # both raise (PyTorch by its parser, an assertion or Python, each with its own error)
        return None
    if wrong is not failed:
        return f"{wrong and wrong.__name__}, not {failed and failed.__name__}: {want if wrong else got}"
    return C.determined(real, mine, op, want[0], got[0], ([s.input, *s.args], s.kwargs)) or C.difference(real, mine, want[1], got[1], scale=10.0)


def accident(name):
    return name.startswith(tuple(ACCIDENTS)) and not name.startswith(("split_", "max_pool", "lu_"))


def cases():
    for name, op in C.ops():
        if accident(name) or isinstance(op.op, type(cases)) and op.op.__module__.startswith("torch.testing"):
            continue
        dtype = next((d for d in (real.float32, real.int64) if op.supports_dtype(d, "cpu")), None)
        if dtype is not None:
            yield name, op, dtype


@pytest.mark.parametrize("part", [range(0, 1), pytest.param(range(1, 5), marks=pytest.mark.slow)], ids=["fifth", "rest"])
def test_tensors_in_place_of_scalar_arguments(part):
    wrong, count, seen = [], 0, set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, op, dtype in [c for i, c in enumerate(cases()) if i % 5 in part]:
            fn = C.facade_op(op, real, mine)
            for s in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point), 8):
                given = (s.input, list(s.args), dict(s.kwargs))
                for path, v in slots(given):
                    key = name, tuple([min(p, 1) if isinstance(p, int) and i > 1 else p for i, p in enumerate(path)]), type(v)
                    if key in seen or (name, path[1] if path[0] else 0) in LENIENT:
                        continue
                    seen.add(key)
                    try:
                        if outcome(lambda: op.op(s.input, *s.args, **s.kwargs), real)[0] or difference(op, fn, s, given):
                            continue  # (covered by the op database's own test)
                    except C.Skip:
                        continue
                    for t in stand_ins(v):
                        d = difference(op, fn, s, put(given, path, t))
                        count += 1
                        if d:
                            wrong.append(f"{name} {path} {t!r} for {v!r}: {d}"[:300])
    assert count > 150 * len(part) and not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong)


def test_scalar_parameters_match_torchs_schemas():
    """A parameter is a scalar in mindtorch exactly where every overload of PyTorch's schema
    declares a scalar."""
    called = {"int": "int", "SymInt": "size", "bool": "bool", "float": "float", "Scalar": "number", "str": "str"}
    wrong, count = [], 0
    for q, row in signatures.ROWS.items():
        names = {p.name for p in signatures.inspect.signature(row.body).parameters.values()}
        kinds = collections.defaultdict(set)
        for s in signatures.SCHEMAS.get(signatures._PREFIX[row.ns] + row.name, ()) if row.ns in signatures._PREFIX else ():
            for kind, many, name in re.findall(r"(\w+)(?:\([a-z]!?\))?((?:\[\w*\])?\??) (\w+)(?=[,=)])", str(s)):
                kinds[name].add("many" if "[" in many else called.get(kind, "other"))
        for name in names & set(kinds):
            if name in ("requires_grad", "pin_memory", "dtype", "layout", "device", "memory_format", "reduction", "mode", "implicit"):
                continue
            ours, theirs = row.arg_kinds.get(name, ""), kinds[name] - {"str"}
            numeric = {"number", "float"}
            count += bool(ours)
            if ours == "index" or len(theirs) > 1 and not ours:
                continue
            if ours in numeric and theirs <= numeric or ours in ("int", "size") and theirs <= {"int", "size", "many"} and theirs != {"many"} or {ours} == theirs:
                continue
            if not ours and not theirs & set(called.values()) or not ours and theirs == {"many"}:
                continue
            if not ours and (name == "sections" or (q, name) in (("max", "dim"), ("min", "dim"), ("stft", "center"), ("add", "alpha"), ("sub", "alpha"),
                                                                     ("subtract", "alpha"))
                             or q.startswith("_foreach_addc")):
                # the op's body checks it: the argument has another meaning as well, or PyTorch's
                # function is Python code
                continue
            wrong.append(f"{q}({name}): {ours!r} here, {sorted(theirs)} there")
    assert count > 500 and not wrong, "\n".join(wrong)


def test_tensors_in_place_of_scalars_outside_ops():
    """Callables that are not ops, or accept scalars in another way: sizes, subscripts,
    construction, initialization, modules, optimizers."""
    def stepped(T, **options):
        p = T.nn.Parameter(T.ones(3))
        o = T.optim.AdamW([p], **options)
        (p * T.arange(3.)).sum().backward()
        o.step()
        return p.detach()
    calls = [
        lambda T, t, x: T.zeros(t, 3), lambda T, t, x: T.zeros((t, 3)), lambda T, t, x: x.reshape(t, -1), lambda T, t, x: x[None].expand(t, 3, 4), lambda T, t, x: x.repeat(t, 1),
        lambda T, t, x: x[t], lambda T, t, x: x[:t], lambda T, t, x: x[0, ::t], lambda T, t, x: x[[t, 0]], lambda T, t, x: list(range(5))[t], lambda T, t, x: list(range(t)),
        lambda T, t, x: T.tensor([t, 1.]), lambda T, t, x: T.tensor([[t, 1], [1, t]]), lambda T, t, x: x.clamp(0, t), lambda T, t, x: x.clone().clamp_(0, t), lambda T, t, x: x.clamp(min=t),
        lambda T, t, x: x.clone().add_(x, alpha=t), lambda T, t, x: x.clone().fill_(t), lambda T, t, x: x.masked_fill(x > 3, t), lambda T, t, x: x.clone().uniform_(0, t),
        lambda T, t, x: x.clone().normal_(1., t), lambda T, t, x: x.clone().exponential_(t), lambda T, t, x: T.normal(0., t, (2,)), lambda T, t, x: T.full((2,), t), lambda T, t, x: T.arange(0, t),
        lambda T, t, x: T.linspace(0, t, 3), lambda T, t, x: T.linspace(0, 1, t), lambda T, t, x: T.lerp(x, x + 1, t), lambda T, t, x: T.addcmul(x, x, x, value=t), lambda T, t, x: x.pow(t),
        lambda T, t, x: T.nn.functional.pad(x, (t, 1)), lambda T, t, x: T.nn.functional.pad(x, (1, 1), value=t), lambda T, t, x: x.round(decimals=t), lambda T, t, x: x.cov(correction=t),
        lambda T, t, x: T.nn.functional.dropout(x, p=t), lambda T, t, x: T.nn.functional.adaptive_avg_pool1d(x[None], t), lambda T, t, x: x[None].max(t, True), lambda T, t, x: T.max(x, t),
        lambda T, t, x: T.nn.init.constant_(x.clone(), t), lambda T, t, x: T.nn.init.uniform_(x.clone(), 0, t), lambda T, t, x: T.nn.init.trunc_normal_(x.clone(), std=t),
        lambda T, t, x: T.nn.Linear(t, 2).weight.shape, lambda T, t, x: T.nn.Softmax(dim=t)(x[None]), lambda T, t, x: stepped(T, lr=t), lambda T, t, x: stepped(T, weight_decay=t),
        lambda T, t, x: T.einsum("ij,jk->ik", x, x.T) * t, lambda T, t, x: T.softmax(x[None], axis=t), lambda T, t, x: x[None].sum(axis=t), lambda T, t, x: T.cat([x[None], x[None]], axis=t),
        lambda T, t, x: round(t), lambda T, t, x: x.sum(dimension=t)]
    wrong = []
    for (n, call), value in itertools.product(enumerate(calls), (2, 0.5, 1, 0, "gradient")):
        ends = []
        for T in (real, mine):
            t = T.tensor(0.5, requires_grad=True) if value == "gradient" else T.tensor(value)
            T.manual_seed(1)
            try:
                r = call(T, t, T.arange(12.).reshape(3, 4))
                r = r[0] if isinstance(r, tuple) and r and hasattr(r[0], "detach") else r
                ends.append(r if not hasattr(r, "detach") else (str(r.dtype), tuple(r.shape), r.requires_grad, (np.round(r.detach().cpu().numpy().astype(float), 4) + 0.0).tolist()))
            except Exception as e:
                ends.append(type(e).__name__)
        if repr(ends[0]) != repr(ends[1]):
            wrong.append(f"{n} with {value}: {ends[0]}, not {ends[1]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.host_only("NumPy arrays of host memory")
@pytest.mark.parametrize("grad", [True, False])
def test_numpy_conversion_raises_where_torch_does(grad):
    calls = [lambda x: x.numpy(), lambda x: x.numpy(force=True), lambda x: x.detach().numpy(), lambda x: x.data.numpy(), np.asarray, np.array, lambda x: x.__array__(), lambda x: x.__array__(np.float64),
             lambda x: x.__array__(dtype="float32"), lambda x: np.asarray(x, dtype=np.float64), float, int, lambda x: x.item(), lambda x: x.tolist(), lambda x: len(list(x)), np.sum, np.sqrt,
             lambda x: np.add(np.ones(2), x), lambda x: np.float64(2.) * x, lambda x: np.array([x, x]), lambda x: np.array(list(x)), lambda x: np.stack([x, x]),
             lambda x: np.zeros(2).__setitem__(0, x), lambda x: np.zeros(2).__setitem__(slice(0, 2), x), lambda x: np.linspace(0, x, 3), lambda x: np.testing.assert_allclose(x, x)]
    for n, call in enumerate(calls):
        for make in (lambda T: T.tensor([1., 2.], requires_grad=True), lambda T: T.tensor([1., 2.], requires_grad=True) * 2, lambda T: T.nn.Parameter(T.tensor([1., 2.])),
                     lambda T: T.tensor(3., requires_grad=True), lambda T: T.tensor([1., 2.]), lambda T: T.nn.Parameter(T.tensor([1.]), requires_grad=False)):
            ends = []
            for T in (real, mine):
                try:
                    with warnings.catch_warnings(), T.set_grad_enabled(grad):
                        warnings.simplefilter("ignore")
                        r = call(make(T))
                        ends.append((type(r).__name__, np.round(np.asarray(r.detach() if hasattr(r, "detach") else r, dtype=object).astype(float), 4).tolist() if r is not None else None))
                except Exception as e:
                    ends.append(type(e))
            assert repr(ends[0]) == repr(ends[1]), (n, ends)


#: Functions that check their arguments themselves; {} marks the scalar.
LOOKING = """nn.functional.dropout(x,{}) nn.functional.dropout(x,{},False) dropout(x,{},True) nn.functional.alpha_dropout(x,{}) feature_dropout(x,{},True) nn.functional.dropout1d(x,{})
 nn.Dropout({})(x) norm(x,{}) Tensor.norm(x,{}) nn.functional.normalize(x,{}) nn.functional.pairwise_distance(x,x,{}) bernoulli(x/9,{}) nn.functional.layer_norm(x,(2,),None,None,{})
 nn.functional.group_norm(x,1,None,None,{}) nn.functional.instance_norm(x[None],eps={}) nn.functional.cosine_similarity(x,x,eps={}) nn.functional.threshold(x,{},0.)
 nn.functional.threshold(x,1.,{})""".split()


@pytest.mark.parametrize("call", LOOKING)
def test_tensors_as_scalars_of_functions_with_own_checks(call):
    """Passes a scalar, a 0-dim tensor, and invalid values: a tensor that requires grad, None."""
    for value in ("0.5", "T.tensor(.5)", "T.tensor(1)", "T.tensor(.5,requires_grad=True)", "None"):
        if value == "None" and ("bernoulli" in call or "pairwise" in call):
            continue  # (None means that the argument is absent)
        ends = []
        for T in (real, mine):
            T.manual_seed(0)
            try:
                r = eval("T." + call.format(value), {"T": T, "x": T.arange(4.).reshape(2, 2) + 1})
                ends.append((r.requires_grad, np.round(r.detach().cpu().numpy(), 4).tolist()))
            except (TypeError, RuntimeError) as e:
                ends.append(type(e))
        assert repr(ends[0]) == repr(ends[1]), (call, value, ends)
