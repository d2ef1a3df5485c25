"""gradcheck of forward mode: compares tangents with central differences."""
import numpy as np

from mindtorch.core.autograd import forward_ad as forward
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.tensor.sync import tensor_from, to_host
from mindtorch.torch.autograd import forward_ad


def _zero(x):
    return tensor_from(np.zeros(x._sizes, x._np_dtype), x)


def differentiable(outs):
    """Returns the outputs that can have tangents."""
    return [o for o in (outs if isinstance(outs, (tuple, list)) else (outs,)) if is_tensor(o) and o._np_dtype.kind in "fcV"]


def pushed(func, inputs, tangents):
    """Runs func in forward mode with tangents of some inputs ({position: tangent}); the inputs are
    detached.

    Returns (outputs that can have tangents, their tangents or None).
    """
    with forward_ad.dual_level():
        args = [x.detach() if is_tensor(x) and x._requires_grad_ else x for x in inputs]
        for i, t in tangents.items():
            args[i] = forward_ad.make_dual(args[i], t)
        pairs = [forward_ad.unpack_dual(o) for o in differentiable(func(*args))]
    return [p for p, _ in pairs], [None if t is None else t.detach() for _, t in pairs]


def _upcast(t, like):
    a = np.zeros(like._sizes) if t is None else to_host(t)
    return np.array(a, np.complex128 if like._np_dtype.kind == "c" else np.float64)


def check(func, inputs, diff, derivatives, fail, eps, atol, rtol, fast, undefined, batched):
    """Compares tangents with numerical derivatives; calls fail(message), which raises, on a
    mismatch.

    slope(func, inputs, x, where, step, eps) returns the numerical derivatives of the outputs.
    """
    indices = [next(i for i, y in enumerate(inputs) if y is x) for x in diff]
    for n, (index, x) in enumerate(zip(indices, diff)):
        for part, step in (("imaginary", 1j), ("real", 1.0)) if x._np_dtype.kind == "c" else (("", 1.0),):
            if fast:
                u = np.random.RandomState(0).uniform(0.1, 1, x._sizes)
                ways = [(..., step * u / max(np.sqrt((u * u).sum()), 1e-9))]
            else:
                ways = [(j, step) for j in np.ndindex(x._sizes)]
            numeric, analytic = [], []
            for where, s in ways:
                numeric.append(derivatives(func, inputs, x, where, s, eps))
                t = np.zeros(x._sizes, x._np_dtype)
                t[where] = s
                others = {p: _zero(y) for p, y in zip(indices, diff) if p != index}
                outs, ts = pushed(func, inputs, {**others, index: tensor_from(t, x)})
                analytic.append([_upcast(t, o) for o, t in zip(outs, ts)])
            for k in range(len(numeric[0]) if numeric else 0):
                a, b = (np.array([row[k].reshape(-1) for row in rows]) for rows in (numeric, analytic))
                if not np.allclose(b, a, rtol=rtol, atol=atol, equal_nan=True):
                    which = f"While considering the {part} part of complex inputs only, " if part else ""
                    fail(f"{which}Jacobian computed with forward mode mismatch for output {k} with respect to input {n},\nnumerical:{a}\nanalytical:{b}\n")
    if undefined:
        _check_missing(func, inputs, diff, indices, fail)
    if batched:
        for index, x in zip(indices, diff):
            _check_batched(func, inputs, index, x, fail)


def _random(x, rs):
    a = rs.uniform(-1, 1, x._sizes)
    return tensor_from(np.asarray(a + 1j * rs.uniform(-1, 1, x._sizes) if x._np_dtype.kind == "c" else a).astype(x._np_dtype), x)


def _same(a, b, outs):
    return [np.allclose(_upcast(s, o), _upcast(t, o), equal_nan=True) for s, t, o in zip(a, b, outs)]


def _check_missing(func, inputs, diff, indices, fail):
    """Checks that an input without a tangent is treated like one with a tangent of zeros."""
    rs = np.random.RandomState(0)
    if len(diff) == 1:
        _, ts = pushed(func, inputs, {indices[0]: _zero(diff[0])})
        if any([t is not None and to_host(t).any() for t in ts]):
            fail("Expected all output tangents to be undefined or zero where the tangent of the input is zero")
        return
    for n, index in enumerate(indices):
        others = {p: _random(x, rs) for p, x in zip(indices, diff) if p != index}
        outs, missing = pushed(func, inputs, others)
        _, zeros = pushed(func, inputs, {**others, index: _zero(diff[n])})
        for k, same in enumerate(_same(missing, zeros, outs)):
            if not same:
                fail(f"Mismatch in tangent values for output {k} with respect to input {n} when its tangent is undefined and when it is zeros")


def _check_batched(func, inputs, index, x, fail):
    """Compares two tangents propagated in one run with the same tangents propagated in separate
    runs."""
    rs = np.random.RandomState(0)
    rows = [_random(x, rs) for _ in range(2)]
    single, outs = [], []
    for t in rows:
        outs, ts = pushed(func, inputs, {index: t})
        single.append(ts)
    with forward.OpenLevels(2) as levels:
        args = [x.detach() if is_tensor(x) and x._requires_grad_ else x for x in inputs]
        for v, t in zip(levels, rows):
            forward.attach(args[index], v, t)
        both = differentiable(func(*args))
        together = [[forward.tangent(o, v) for o in both] for v in levels]
    for k, o in enumerate(outs):
        if not all([_same([one[k]], [batch[k]], [o])[0] for one, batch in zip(single, together)]):
            fail(f"For output {k} and input {index}, the batched forward gradients differ from those computed one by one")
