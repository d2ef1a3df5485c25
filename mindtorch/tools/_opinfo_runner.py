"""Checks the facade against PyTorch's own op database, op by op, in one process with PyTorch.

Every op of `torch.testing._internal.common_methods_invocations.op_db` comes with sample inputs.
Each sample is run by PyTorch and by the facade; values, dtypes, shapes and gradients are compared.
A check has one of these outcomes:

    pass        equal within tolerance, or equal in what the op determines (`_comparators.py`)
    shape only  shape, dtype and strides are equal; the values are uninitialized memory
    wrong       a value, dtype or shape differs
    refused     NotImplementedError, or the name does not exist
    error       any other exception where PyTorch returns a result
    unchecked   nothing was compared: every sample was skipped, for the reasons given

This module needs PyTorch (and expecttest, which PyTorch's op database imports); nothing else in the
package does.
"""
import importlib
import itertools
import math
import numbers
import types
import warnings

import numpy as np

from mindtorch.tools._comparators import COMPARATORS, SHAPE_ONLY

#: dtype -> (rtol, atol) of values. Gradients get ten times that.
TOLERANCE = {"float32": (1e-4, 1e-5), "float64": (1e-6, 1e-8), "complex64": (1e-4, 1e-5), "complex128": (1e-6, 1e-8),
             "float16": (2e-3, 1e-3), "bfloat16": (2e-2, 1e-3)}
DTYPES = ("float32", "int64", "bool", "complex64")


def real_torch():
    """Returns PyTorch and its op database. ImportError if PyTorch is not installed, or if `torch`
    is the facade."""
    import torch
    if not hasattr(torch._C, "_jit_get_all_schemas"):
        raise ImportError("the conformance run needs real torch, but `torch` is the facade here; disable the hook")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core
    # (Every list of samples searches the entire stack for the calling unittest.TestCase, which
    # takes nine tenths of the time under pytest.)
    common_utils.extract_test_fn = core.extract_test_fn = _no_test
    return torch, op_db


def _no_test():
    return None


def facade():
    import mindtorch.torch as mt
    return mt


# ------------------------------------------------------------------ converting values
class Carrier:
    """Converts PyTorch values to facade values on a device. Each tensor is converted once, so
    shared tensors stay shared."""

    def __init__(self, torch, mt, device="cpu"):
        self.torch, self.mt, self.seen, self.device = torch, mt, {}, device

    def __call__(self, x):
        torch, mt = self.torch, self.mt
        if isinstance(x, torch.Tensor):
            return self._tensor(x)
        if isinstance(x, torch.Size):
            return mt.Size(x)
        if isinstance(x, (tuple, list)):
            items = [self(i) for i in x]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
        if isinstance(x, dict):
            return {k: self.device if k == "device" and v == "cpu" else self(v) for k, v in x.items()}
        if isinstance(x, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(mt, str(x).rpartition(".")[2])
        if isinstance(x, torch.device):
            return mt.device(self.device if str(x) == "cpu" else str(x))
        if isinstance(x, torch.nn.Module):
            return self._module(x)
        if isinstance(x, types.FunctionType):
            home = x.__module__.partition("torch.")[2] if x.__module__.startswith("torch.") else None
            if home and not home.startswith(("testing", "_")):
                return resolve(mt, f"{home}.{x.__name__}")
            return rebound(x, mt)
        if isinstance(x, types.BuiltinFunctionType) and getattr(torch, x.__name__, None) is x:
            return getattr(mt, x.__name__)
        return x

    def _module(self, x):
        """Creates the facade's module of the same name with the same settings. A module with state
        is not rebuilt."""
        if type(x).__module__.partition(".")[0] != "torch" or next(iter(x.state_dict()), None) or next(x.children(), None):
            raise Skip(f"a {type(x).__name__} of real torch cannot be converted")
        m = getattr(self.mt.nn, type(x).__name__)()
        vars(m).update({k: self(v) for k, v in vars(x).items() if k[0] != "_"})
        return m

    def _tensor(self, t):
        key = id(t)
        if key not in self.seen:
            if t.layout != self.torch.strided or t.is_quantized or t.is_nested:
                raise Skip("only strided tensors are compared")
            base = t.detach().resolve_conj().resolve_neg()
            # Convert the entire storage, so that strides and offsets have the same effect on both
            # sides, and ops that read beyond the view read the same values.
            flat = self.torch.empty(0, dtype=base.dtype).set_(base.untyped_storage())
            whole = base.is_contiguous() and flat.numel() == base.numel()
            flat = base if whole else flat
            if base.dtype == self.torch.bfloat16:
                m = self.mt.tensor(flat.float().numpy().copy()).to(self.mt.bfloat16)
            else:
                m = self.mt.tensor(flat.numpy().copy())
            if self.device != "cpu":
                m = m.to(self.device)
            if not whole:
                m = m.as_strided(tuple(base.shape), base.stride(), base.storage_offset())
            # The stride of a dimension of size 0 or 1 has no effect.
            if base.numel() and any(n > 1 and a != b for n, a, b in zip(base.shape, m.stride(), base.stride())):
                raise RuntimeError(f"strides {base.stride()} became {m.stride()} in the conversion")
            if t.requires_grad:
                m.requires_grad_(True)
            self.seen[key] = (m, t)
        return self.seen[key][0]


class Skip(Exception):
    """Raised for a sample that cannot be used to compare the facade."""


class _Modules(dict):
    """Globals of a function written for PyTorch, with `torch` and its submodules replaced."""


def rebound(fn, mt, depth=0):
    """Rebinds a Python function of PyTorch's test suite to the facade."""
    scope = _Modules(fn.__globals__)
    for name, value in list(scope.items()):
        if isinstance(value, types.ModuleType) and (value.__name__ == "torch" or value.__name__.startswith("torch.")):
            path = value.__name__.partition(".")[2]
            if path.startswith(("testing", "_")):
                continue
            try:
                scope[name] = importlib.import_module("mindtorch.torch" + ("." + path if path else ""))
            except ImportError:
                continue
    scope["wrapper_set_seed"] = lambda op, *args, **kwargs: (mt.manual_seed(42), op(*args, **kwargs))[1]
    cells = fn.__closure__
    if cells:
        new = []
        for c in cells:
            try:
                v = c.cell_contents
            except ValueError:
                new.append(c)
                continue
            if isinstance(v, types.FunctionType) and depth < 3:
                v = rebound(v, mt, depth + 1)
            elif isinstance(v, (types.BuiltinFunctionType, types.MethodDescriptorType)):
                v = _named(v, mt)
            new.append(types.CellType(v))
        cells = tuple(new)
    f = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, cells)
    f.__kwdefaults__ = fn.__kwdefaults__
    return f


def _named(builtin, mt):
    owner = getattr(builtin, "__objclass__", None)
    if owner is not None and owner.__name__ in ("Tensor", "TensorBase", "_TensorBase"):
        return getattr(mt.Tensor, builtin.__name__)
    for path in ("", "nn.functional.", "linalg.", "special.", "fft."):
        name = builtin.__name__
        for prefix in ("linalg_", "special_", "fft_"):
            if path == prefix[:-1] + "." and name.startswith(prefix):
                name = name[len(prefix):]
        try:
            return resolve(mt, path + name)
        except AttributeError:
            continue
    raise AttributeError(f"the facade has no {builtin.__name__}")


def resolve(root, path):
    """Returns the object at a dotted path below `root`."""
    obj = root
    for part in path.split("."):
        obj = getattr(obj, part)
    return obj


def facade_op(op, torch, mt):
    """Returns the facade's counterpart of an OpInfo's callable."""
    fn = op.op
    if isinstance(fn, types.FunctionType) and fn.__module__.startswith("torch.testing"):
        return rebound(fn, mt)
    name = op.name
    for path in (name, "Tensor." + name):
        try:
            if resolve(torch, path) is fn or getattr(resolve(torch, path), "__name__", 0) == getattr(fn, "__name__", 1):
                return resolve(mt, path)
        except AttributeError:
            continue
    return _named(fn, mt) if hasattr(fn, "__objclass__") or isinstance(fn, types.BuiltinFunctionType) else resolve(mt, name)


# ------------------------------------------------------------------ comparing
def _numpy(t):
    t = t.detach()
    if str(t.layout) != "torch.strided":
        t = t.to_dense()
    if hasattr(t, "resolve_conj"):
        t = t.resolve_conj()
    if hasattr(t, "resolve_neg"):
        t = t.resolve_neg()
    t = t.cpu()
    if str(t.dtype) == "torch.bfloat16":
        t = t.float()
    if t._is_zerotensor():
        t = t.clone()
    return np.array(t.numpy())


def difference(torch, mt, want, got, where="out", scale=1.0, values=True):
    """Returns None if equal, else a description of the difference. `values`: False compares shapes,
    dtypes and strides; None compares shapes and dtypes only."""
    if isinstance(want, torch.Tensor):
        if not isinstance(got, mt.Tensor):
            return f"{where}: expected a tensor, got {type(got).__name__}"
        if tuple(got.shape) != tuple(want.shape):
            return f"{where}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
        if str(got.layout) != str(want.layout):
            return f"{where}: {got.layout}, expected {want.layout}"
        if str(got.dtype) != str(want.dtype):
            return f"{where}: {got.dtype}, expected {want.dtype}"
        if values is None:
            return None
        if not values:
            same = not want.numel() or all(a == b or n == 1 for a, b, n in zip(got.stride(), want.stride(), want.shape))
            return None if same else f"{where}: strides {got.stride()}, expected {want.stride()}"
        a, b = _numpy(got), _numpy(want)
        rtol, atol = TOLERANCE.get(str(want.dtype).rpartition(".")[2], (0.0, 0.0))
        finite = np.abs(b[np.isfinite(b)]) if b.size else b
        big = max(1.0, float(finite.max())) if finite.size and scale > 1 else 1.0
        if not np.allclose(a, b, rtol=rtol * scale, atol=atol * scale * big, equal_nan=True):
            bad = ~np.isclose(a, b, rtol=rtol * scale, atol=atol * scale * big, equal_nan=True)
            i = tuple(int(k) for k in np.argwhere(bad)[0])
            return f"{where}: {int(bad.sum())} of {b.size} values differ, e.g. {a[i]} expected {b[i]} at {list(i)}"
        return None
    if isinstance(want, (tuple, list)):
        if not isinstance(got, (tuple, list)) or len(got) != len(want):
            return f"{where}: expected {len(want)} items, got {type(got).__name__}"
        for i, (w, g) in enumerate(zip(want, got)):
            d = difference(torch, mt, w, g, f"{where}[{i}]", scale, values)
            if d:
                return d
        return None
    if isinstance(want, dict):
        if not isinstance(got, dict) or list(got) != list(want):
            return f"{where}: {got!r}, expected {want!r}"
        return difference(torch, mt, list(want.values()), list(got.values()), where, scale, values)
    if isinstance(want, (bool, type(None), str, slice)):
        return None if type(want) is type(got) and want == got else f"{where}: {got!r}, expected {want!r}"
    if isinstance(want, numbers.Number):
        if type(want) is not type(got):
            return f"{where}: expected {type(want).__name__}, got {type(got).__name__}"
        same = want == got or want != want and got != got or not isinstance(want, int) and (
            abs(want - got) <= max(1e-4 * max(abs(want), abs(got)), 1e-5) and math.isfinite(abs(want)))
        return None if same else f"{where}: {got!r}, expected {want!r}"
    if isinstance(want, torch.device) and str(want) == "cpu":
        return None if isinstance(got, mt.device) else f"{where}: {got}, expected a device"
    if isinstance(want, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return None if str(want) == str(got) else f"{where}: {got}, expected {want}"
    return f"{where}: cannot compare a {type(want).__name__}"


def _arrays(x):
    """Returns a result or argument with its tensors replaced by NumPy arrays."""
    if hasattr(x, "detach"):
        return _numpy(x)
    if isinstance(x, (list, tuple)):
        return [_arrays(i) for i in x]
    return x


def determined(torch, mt, op, want, got, given, scale=1.0):
    """Returns None if two results agree in what the op determines, else a description of the
    difference."""
    if op.name in SHAPE_ONLY:
        return difference(torch, mt, want, got, values=False)
    d = difference(torch, mt, want, got, scale=scale)
    if d is None or op.name not in COMPARATORS or difference(torch, mt, want, got, scale=scale, values=None):
        return d
    args, kwargs = given
    more = COMPARATORS[op.name][1](_arrays(want), _arrays(got), (_arrays(args), kwargs))
    return more and f"{d}; {more}"


def _float_leaves(torch_type, x):
    if isinstance(x, torch_type):
        return [x] if x.requires_grad else []
    if isinstance(x, (tuple, list)):
        return [t for i in x for t in _float_leaves(torch_type, i)]
    return []


def _loss(torch, outs, seed=0):
    """Computes sum(out * fixed weights), with the same weights on both sides."""
    rs, total = np.random.RandomState(seed), None
    for o in outs:
        w = rs.uniform(0.5, 1.5, tuple(o.shape)).astype(np.float64)
        if o.is_complex():
            o = torch.view_as_real(o.resolve_conj() if hasattr(o, "resolve_conj") else o)
            w = np.stack([w, w[..., ::-1].copy() if w.ndim else w], -1)
        v = (o * torch.tensor(w).to(o.device, o.dtype)).sum()
        total = v if total is None else total + v
    return total


def judge(op, dtype, limit=8, device="cpu"):
    """Yields (check, outcome, detail) for one OpInfo and dtype name, on a device of the facade; at
    least one for the forward.

        limit  number of samples to use. A sample whose result has no elements does not count (up to
               8 * limit of these are run).
    """
    torch, _ = real_torch()
    mt = facade()
    td = getattr(torch, dtype)
    wants_grad = op.supports_autograd and td in op.supported_backward_dtypes("cpu") and td.is_floating_point
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fn = facade_op(op, torch, mt)
        except (AttributeError, ImportError) as e:
            yield "forward", "refused", str(e)
            return
        samples = itertools.islice(op.sample_inputs("cpu", td, requires_grad=wants_grad), 9 * limit)
        judged, reasons, telling = {}, {}, []
        for n, s in enumerate(samples):
            if sum(telling) == limit or n >= limit and n - sum(telling) >= 8 * limit:
                break
            told = len(telling)
            for check, outcome, detail in _one(op, fn, s, torch, mt, wants_grad, n, telling, device):
                if outcome == "skipped":
                    reasons.setdefault(check, detail)
                else:
                    judged[check] = True
                    yield check, outcome, detail
            if len(telling) == told:
                telling.append(True)  # (PyTorch rejects the sample.)
        # A forward that was compared for no sample has not passed, nor has a check that only the
        # facade could not run.
        if "forward" not in judged:
            reasons.setdefault("forward", "no sample")
        for check, detail in reasons.items():
            if check not in judged and (check == "forward" or not detail.startswith("torch: ")):
                yield check, "unchecked", detail


def _has_elements(torch, r):
    if isinstance(r, torch.Tensor):
        return r.is_sparse or r.numel() > 0
    return all(_has_elements(torch, x) for x in r) if isinstance(r, (tuple, list)) else True


def _one(op, fn, s, torch, mt, wants_grad, n, telling, device):
    def run(check, real, ours, scale=1.0):
        try:
            torch.manual_seed(7)
            want = real()
            if check == "forward":
                telling.append(_has_elements(torch, want))
        except (RuntimeError, TypeError, ValueError, IndexError, Skip) as e:
            # PyTorch itself rejects this form of the sample
            yield check, "skipped", f"torch: {type(e).__name__}: {e}"
            return
        try:
            mt.manual_seed(7)
            got = ours()
        except Skip as e:
            yield check, "skipped", f"sample {n}: {e}"
            return
        except NotImplementedError as e:
            yield check, "refused", f"sample {n}: {e}"
            return
        except AttributeError as e:
            yield check, "refused" if "has no attribute" in str(e) else "error", f"sample {n}: {e}"
            return
        except Exception as e:
            yield check, "error", f"sample {n}: {type(e).__name__}: {e}"
            return
        if check == "grad":
            d = difference(torch, mt, want, got, scale=scale)
        else:
            d = determined(torch, mt, op, want, got, ([s.input, *s.args], s.kwargs), scale)
        right = "shape only" if op.name in SHAPE_ONLY and check != "grad" else "pass"
        yield check, "wrong" if d else right, f"sample {n}: {d}" if d else ""

    def ours(call):
        carry = Carrier(torch, mt, device)
        args = [carry(s.input), *carry(list(s.args))]
        return call(args[0], *args[1:], **carry(s.kwargs))

    yield from run("forward", lambda: op.op(s.input, *s.args, **s.kwargs), lambda: ours(fn))
    name = op.name
    if op.method_variant is not None and isinstance(s.input, torch.Tensor) and hasattr(torch.Tensor, name):
        yield from run("method", lambda: getattr(s.input, name)(*s.args, **s.kwargs),
                       lambda: ours(lambda x, *a, **k: getattr(x, name)(*a, **k)))
    if op.inplace_variant is not None and isinstance(s.input, torch.Tensor) and hasattr(torch.Tensor, name + "_"):
        def clean(x):
            return x.detach().clone()

        yield from run("inplace", lambda: getattr(clean(s.input), name + "_")(*_detached(torch, s.args), **s.kwargs),
                       lambda: ours(lambda x, *a, **k: getattr(clean(x), name + "_")(*_detached(mt, a), **k)))
    if wants_grad:
        def grads(T, call, args, kwargs):
            out = call(*args, **kwargs)
            process = s.output_process_fn_grad
            if T is mt and isinstance(process, types.FunctionType):
                process = rebound(process, mt)
            out = process(out)
            leaves = _float_leaves(T.Tensor, out)
            ins = _float_leaves(T.Tensor, args) + _float_leaves(T.Tensor, list(kwargs.values()))
            if not leaves or not ins:
                raise Skip("nothing to differentiate")
            # A missing gradient and a gradient of zeros are equivalent.
            return list(T.autograd.grad(_loss(T, leaves), ins, allow_unused=True, materialize_grads=True))

        def mine():
            carry = Carrier(torch, mt, device)
            args = [carry(s.input), *carry(list(s.args))]
            return grads(mt, fn, args, carry(s.kwargs))

        yield from run("grad", lambda: grads(torch, op.op, [s.input, *s.args], s.kwargs), mine, scale=10.0)


def _detached(T, args):
    return [a.detach() if isinstance(a, T.Tensor) else a for a in args]


def namespace(name):
    """Returns the namespace of an op name: 'torch', 'nn.functional', 'linalg', ..."""
    for ns in ("nn.functional", "linalg", "special", "fft", "masked", "signal.windows"):
        if name.startswith(ns + "."):
            return ns
    return "torch"


def _exists(root, path):
    try:
        resolve(root, path)
    except AttributeError:
        return False
    return True


def ops(db=None):
    """Yields (full name, OpInfo) of public functions of strided tensors (variants included)."""
    torch, all_ops = real_torch()
    for op in db if db is not None else all_ops:
        name = op.full_name if hasattr(op, "full_name") else op.name
        if name.startswith(("torch.ops.", "ops.", "_", "jiterator")) and not name.startswith("__") or op.name.startswith("sparse."):
            continue
        if not any(_exists(torch, path) for path in (op.name, f"Tensor.{op.name}", f"Tensor.{op.name}_")):
            continue                     # an aten-level entry
        yield name, op
