"""torch.testing.assert_close and make_tensor."""
import cmath
import collections.abc

import numpy as np

from mindtorch import torch
from mindtorch.core.tensor.sparse import Sparse
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import tensor_from, to_host

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
               "complex32": (1e-3, 1e-5), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7)}


def default_tolerances(*inputs, dtype_precisions=None):
    """Returns (rtol, atol) of the least precise of the given tensors and dtypes."""
    names = [str(i.dtype if is_tensor(i) else i).removeprefix("torch.") for i in inputs]
    found = [_TOLERANCES.get(n, (0.0, 0.0)) for n in names]
    return max(f[0] for f in found), max(f[1] for f in found)


class _Options:
    def __init__(self, **kw):
        self.__dict__.update(kw)


def _where(path):
    return "" if not path else "\n\nThe failure occurred for item " + "".join(f"[{p!r}]" if not isinstance(p, int) else f"[{p}]"
                                                                              for p in path)


def _fail(o, text, path, kind=AssertionError):
    text += _where(path)
    if o.msg is not None:
        text = o.msg(text) if callable(o.msg) else o.msg
    raise kind(text)


def _tensors(a, e, o, path):
    what = "Tensor-likes"
    if o.check_device and a.device != e.device:
        _fail(o, f"The values for attribute 'device' do not match: {a.device} != {e.device}.", path)
    if a.shape != e.shape:
        _fail(o, f"The values for attribute 'shape' do not match: {a.shape} != {e.shape}.", path)
    if o.check_layout and a.layout != e.layout:
        _fail(o, f"The values for attribute 'layout' do not match: {a.layout} != {e.layout}.", path)
    if o.check_dtype and a.dtype != e.dtype:
        _fail(o, f"The values for attribute 'dtype' do not match: {a.dtype} != {e.dtype}.", path)
    if o.check_stride and a.stride() != e.stride():
        _fail(o, f"The values for attribute 'stride()' do not match: {a.stride()} != {e.stride()}.", path)
    if a.device.type == "meta" or e.device.type == "meta":
        return
    rtol, atol = (o.rtol, o.atol) if o.rtol is not None else default_tolerances(a, e)
    x, y = [to_host(t.detach().to_dense() if isinstance(t, Sparse) else t.detach()) for t in (a, e)]
    upcast_dtype = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    exact = x.dtype.kind in "biu" and y.dtype.kind in "biu" and rtol == 0 and atol == 0
    with np.errstate(all="ignore"):
        if exact:
            good = x == y
        else:
            good = np.isclose(x.astype(upcast_dtype), y.astype(upcast_dtype), rtol=rtol, atol=atol, equal_nan=o.equal_nan)
        if good.all():
            return
        x, y = x.astype(upcast_dtype), y.astype(upcast_dtype)
        diff = np.abs(x - y)
        rel = diff / np.abs(y)
    bad = int((~good).sum())
    label = "equal" if rtol == 0 and atol == 0 else "close"
    if x.ndim == 0:
        _fail(o, f"Scalars are not {label}!\n\nExpected {y.item()} but got {x.item()}.\nAbsolute difference: {diff.item()}"
              f"{_allowed(atol, label)}\nRelative difference: {rel.item()}{_allowed(rtol, label)}", path)
    diff, rel = np.where(good, 0, np.nan_to_num(diff, nan=np.inf)), np.where(good, 0, np.nan_to_num(rel, nan=np.inf))
    _fail(o, f"{what} are not {label}!\n\nMismatched elements: {bad} / {x.size} ({bad / x.size:.1%})\n"
          f"Greatest absolute difference: {diff.max()} at index {_index(diff)}{_allowed(atol, label)}\n"
          f"Greatest relative difference: {rel.max()} at index {_index(rel)}{_allowed(rtol, label)}", path)


def _index(a):
    return tuple(int(i) for i in np.unravel_index(a.argmax(), a.shape))


def _allowed(limit, label):
    return "" if label == "equal" else f" (up to {limit} allowed)"


def _compare_numbers(a, e, o, path):
    if o.check_dtype and type(a) is not type(e):
        _fail(o, f"The (d)types do not match: {type(a)} != {type(e)}.", path)
    kind = "complex128" if isinstance(a, complex) or isinstance(e, complex) else "float64"
    if isinstance(a, int) and isinstance(e, int):
        kind = "int64"
    rtol, atol = (o.rtol, o.atol) if o.rtol is not None else _TOLERANCES.get(kind, (0.0, 0.0))
    if a == e or (o.equal_nan and cmath.isnan(a) and cmath.isnan(e)):
        return
    diff = abs(a - e)
    if cmath.isfinite(diff) and diff <= atol + rtol * abs(e):
        return
    label = "equal" if rtol == 0 and atol == 0 else "close"
    rel = diff / abs(e) if e != 0 else float("inf")
    _fail(o, f"Scalars are not {label}!\n\nExpected {e} but got {a}.\nAbsolute difference: {diff}{_allowed(atol, label)}\n"
          f"Relative difference: {rel}{_allowed(rtol, label)}", path)


def _compare(a, e, o, path):
    if isinstance(a, (str, bytes)) or isinstance(e, (str, bytes)):
        _fail(o, f"No comparison pair was able to handle inputs of type {type(a)} and {type(e)}.", path, TypeError)
    if isinstance(a, collections.abc.Mapping) and isinstance(e, collections.abc.Mapping):
        if a.keys() != e.keys():
            _fail(o, "The keys of the mappings do not match:\n"
                  f"Missing keys in the actual mapping: {sorted(e.keys() - a.keys(), key=str)}\n"
                  f"Additional keys in the actual mapping: {sorted(a.keys() - e.keys(), key=str)}", path)
        for k in e:
            _compare(a[k], e[k], o, (*path, k))
    elif isinstance(a, collections.abc.Sequence) and isinstance(e, collections.abc.Sequence):
        if len(a) != len(e):
            _fail(o, f"The length of the sequences mismatch: {len(a)} != {len(e)}", path)
        for i, (x, y) in enumerate(zip(a, e)):
            _compare(x, y, o, (*path, i))
    elif a is None or e is None:
        if a is not e:
            _fail(o, f"None mismatch: {a} is not {e}", path)
    elif isinstance(a, (int, float, complex)) and isinstance(e, (int, float, complex)):
        _compare_numbers(a, e, o, path)
    else:
        if not o.allow_subclasses and type(a) is not type(e):
            _fail(o, f"No comparison pair was able to handle inputs of type {type(a)} and {type(e)}.", path, TypeError)
        if not (isinstance(a, (Tensor, np.ndarray)) and isinstance(e, (Tensor, np.ndarray))) and (
                not (isinstance(a, type(e)) or isinstance(e, type(a)))):
            _fail(o, f"No comparison pair was able to handle inputs of type {type(a)} and {type(e)}.", path, TypeError)
        _tensors(*[torch.as_tensor(t) if is_tensor(t) else torch.as_tensor(t, device="cpu") for t in (a, e)], o, path)


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True, check_dtype=True,
                 check_layout=True, check_stride=False, msg=None):
    """Raises AssertionError unless `actual` is close to `expected`: tensors, scalars, and sequences
    and mappings of them.

    Close means |actual - expected| <= atol + rtol |expected|. The default tolerances depend on the
    dtype. Raises ValueError if only one of them is specified.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'rtol' if rtol is None else 'atol'}.")
    _compare(actual, expected, _Options(allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan,
                                        check_device=check_device, check_dtype=check_dtype, check_layout=check_layout,
                                        check_stride=check_stride, msg=msg), ())


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """Former version of `assert_close` that does not compare dtypes."""
    actual = torch.as_tensor(actual)
    expected = torch.as_tensor(expected, device=None if is_tensor(expected) else actual.device)
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(actual, expected)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def _uniform(shape, lo, hi):
    # Drawn on the CPU whatever the default device: the values are equal for all devices, and are
    # read below.
    return torch.empty(shape, dtype=torch.float64, device="cpu").uniform_(lo, hi)


def make_tensor(*shape, dtype, device="cpu", low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False,
                memory_format=None):
    """Returns a tensor of random values in [low, high).

    The default range is [-9, 9), [-9, 10) for signed integers, [0, 10) for uint8 and [0, 2) for
    bool.
    """
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive")
    if dtype == torch.bool:
        lo, hi = 0, 2
    elif dtype == torch.uint8:
        lo, hi = 0, 10
    else:
        lo, hi = (-9, 10) if not (dtype.is_floating_point or dtype.is_complex) else (-9, 9)
    lo, hi = lo if low is None else low, hi if high is None else high
    full = (*shape[:-1], 2 * shape[-1]) if noncontiguous and shape else shape
    if dtype.is_complex:
        t = torch.complex(_uniform(full, lo, hi), _uniform(full, lo, hi))
        t = t.to(dtype)
    elif dtype.is_floating_point:
        t = _uniform(full, lo, hi).to(dtype)
    else:
        t = torch.randint(int(lo), int(hi), full, dtype=torch.int64, device="cpu").to(dtype)
    if exclude_zero:
        a = to_host(t).copy()
        a[a == 0] = 1 if a.dtype.kind in "biu" else np.finfo(np.float32).tiny
        t = tensor_from(a, t)
    if noncontiguous and shape:
        t = t[..., ::2]
    if memory_format is not None:
        t = t.to(memory_format=memory_format)
    return t.to(device).requires_grad_(requires_grad)
