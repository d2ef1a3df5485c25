"""Expressions evaluated on real PyTorch and on mindtorch: same values, or same type of error."""
import warnings

import numpy as np
import torch as real

import mindtorch.torch as mine


def _normal(r):
    """Converts a result to a form that both sides share."""
    if isinstance(r, (real.Tensor, mine.Tensor)):
        a = r.detach()
        a = a.float() if str(r.dtype) == "torch.bfloat16" else a
        return "tensor", str(r.dtype), tuple(r.shape), np.array(a.resolve_conj().numpy())
    if isinstance(r, (tuple, list)):
        return type(r).__name__, [_normal(x) for x in r]
    return r.__name__ if isinstance(r, type) else repr(r)


def _equal(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)
    return a == b


def _outcome(text, T, names):
    scope = {"torch": T, "np": np, "L": T.tensor}
    scope.update(names(T))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "ok", _normal(eval(text, scope))
        except Exception as e:
            return type(e).__name__, str(e).splitlines()[0] if str(e) else ""


def compare(expressions, names=lambda T: {}):
    """Raises AssertionError that lists every expression with different outcomes."""
    wrong = []
    for text in expressions:
        a, b = _outcome(text, real, names), _outcome(text, mine, names)
        if a[0] != b[0] or a[0] == "ok" and not _equal(a[1], b[1]):
            wrong.append(f"{text}\n    torch: {str(a)[:300]}\n    here:  {str(b)[:300]}")
    assert not wrong, f"{len(wrong)} of {len(expressions)} differ\n" + "\n".join(wrong)
