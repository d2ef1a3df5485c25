"""torch.autograd.gradcheck: compares gradients computed by backward with central differences.

The reference is the change of a function's values when one element of an input (its real or its
imaginary part) is perturbed. Outputs are decomposed into real functions, so complex outputs need no
special rules: PyTorch's gradient of a real function with respect to a complex input is the
derivative with respect to the real part plus i times that with respect to the imaginary part.
"""
import warnings

import numpy as np

from mindtorch.core.autograd.grad_mode import enable_grad, no_grad
from mindtorch.core.tensor.sparse import sparse_of
from mindtorch.core.tensor.tensor import wrap_array, is_tensor
from mindtorch.core.tensor.sync import tensor_from, to_host
from mindtorch.core.tensor.tensor_wrappers import is_wrapped
from mindtorch.core.device import device_dispatch
from mindtorch.torch.autograd.function import Function

__all__ = ["gradcheck", "gradgradcheck", "GradcheckError"]


class GradcheckError(RuntimeError):
    """Raised when analytical and numerical gradients differ."""


def _tuple(x):
    return x if isinstance(x, tuple) else tuple(x) if isinstance(x, list) else (x,)


def _outputs(x):
    return [o for o in _tuple(x) if is_tensor(o) and (o.is_sparse or o._np_dtype.kind in "fcV")]


def _differentiable(x):
    return [o for o in _outputs(x) if o._requires_grad_]


def _wide(a):
    return np.array(a, np.complex128 if a.dtype.kind == "c" else np.float64)


# ------------------------------------------------------------------ inputs
def _check_inputs(inputs, name):
    diff = []
    for i, x in enumerate(inputs):
        if not is_tensor(x) or not x._requires_grad_:
            continue
        if x.is_sparse:
            raise NotImplementedError(f"torch.autograd.{name}: sparse inputs (dtype {x.dtype}) are not supported on device cpu: gradients of the gradients of "
                                      "sparse tensors would be sparse, too")
        if x._np_dtype not in (np.float64, np.complex128):
            warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely "
                          "fail if all the inputs are not of double precision floating point or complex. ", stacklevel=4)
        if any(st == 0 and n > 1 for st, n in zip(x.stride(), x._sizes)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to "
                               "be able to compute the numerical gradients correctly. You should call .contiguous on the input before "
                               "passing it to gradcheck.")
        diff.append(x)
    if not diff:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")
    return diff


def _by_values(func, inputs, masked):
    """Replaces sparse inputs by their stored values, which have the gradients. Returns (function,
    inputs)."""
    sparse = {i: x for i, x in enumerate(inputs) if is_tensor(x) and x.is_sparse and x.requires_grad}
    if not sparse:
        return func, inputs
    for x in sparse.values():
        indices = x._indices()
        whole = np.prod(x.shape[:x.sparse_dim()], dtype=int)
        if not masked and len({tuple(c) for c in to_host(indices).T.tolist()}) != whole:
            raise NotImplementedError("torch.autograd.gradcheck: masked=False (the default) with a sparse input that leaves elements out is not supported, as their "
                                      "gradients are not computed: use masked=True")

    def of_values(*args):
        def again(x, v):
            return sparse_of(x._indices(), v, x.shape, x.is_coalesced())
        return func(*[again(sparse[i], a) if i in sparse else a for i, a in enumerate(args)])
    return of_values, tuple([x._values().detach().clone().requires_grad_() if i in sparse else x for i, x in enumerate(inputs)])


# ------------------------------------------------------------------ finite differences
def _put(x, where, values_):
    """Writes values into a tensor's memory without incrementing its version counter."""
    a = to_host(x)
    a[where] = values_
    if is_wrapped(x):
        with no_grad():
            x.data.copy_(wrap_array(a))
    elif x._handle is not None:
        device_dispatch.write(x, wrap_array(a))


def _slope(func, inputs, x, where, step, eps):
    """Returns the central difference of every output as an array: its change per unit of `step`,
    added to the elements `where` of an input."""
    old = to_host(x)[where].copy()
    moved, kinds = [], []
    try:
        for sign in (eps, -eps):
            _put(x, where, old + sign * step)
            outs = _outputs(func(*inputs))
            kinds.append([(o._sizes, o.dtype) for o in outs])
            moved.append([_wide(to_host(o)) for o in outs])
    finally:
        _put(x, where, old)
    for (size, dtype), (other, of) in zip(*kinds):
        if size != other or dtype is not of:
            what = f"shape when inputs are perturbed, got {list(size)} and {list(other)}" if size != other else (
                f"dtype when inputs are perturbed, got {dtype} and {of}")
            raise AssertionError(f"gradcheck expects the function to return outputs with the same {what}")
    return [(up - down) / (2 * eps) for up, down in zip(*moved)]


def _steps(x):
    return (1.0, 1j) if x._np_dtype.kind == "c" else (1.0,)


def _cotangents(o):
    """Yields (part, index, cotangent) for each real component of an output: the cotangent that
    selects the gradient of that component."""
    for part, unit in (("real", 1), ("imag", 1j))[:2 if o._np_dtype.kind == "c" else 1]:
        for j in np.ndindex(o._sizes):
            v = np.zeros(o._sizes, o._np_dtype)
            v[j] = unit
            yield part, j, v


def _gradients(o, diff, v):
    from mindtorch.torch.autograd import grad
    return grad(o, diff, tensor_from(np.asarray(v), o), retain_graph=True, allow_unused=True)


def _number(g, x, step_is_imaginary):
    """Returns the part of a gradient that belongs to a step along the real or imaginary axis."""
    a = _wide(to_host(g)) if g is not None else np.zeros(x._sizes)
    return a.imag if step_is_imaginary else a.real


def _check_gradient(g, x, check_dtypes):
    if g is None:
        return
    if check_dtypes and g._np_dtype != x._np_dtype:
        raise GradcheckError("Gradient has dtype mismatch")
    if g._sizes != x._sizes:
        raise GradcheckError("Analytical gradient has incorrect size")


def _check_repeats(first, second, nondet_tol):
    for a, b in zip(first, second):
        a, b = (np.zeros(()) if t is None else _wide(to_host(t)) for t in (a, b))
        if not np.allclose(a, b, rtol=0, atol=nondet_tol, equal_nan=True):
            raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                                 f"different values. The tolerance for nondeterminism was {nondet_tol}.")


def _mismatch(k, i, numerical, analytical, part=""):
    where = f"While considering the {'imaginary' if part == 'imag' else part} part of complex outputs only, " if part else ""
    raise GradcheckError(f"{where}Jacobian mismatch for output {k} with respect to input {i},\nnumerical:{numerical}\n"
                         f"analytical:{analytical}\n")


def _slow(func, inputs, diff, outs, at, eps, atol, rtol, nondet_tol, check_dtypes):
    """Compares every element of every Jacobian."""
    numeric = [[[_slope(func, inputs, x, j, s, eps) for j in np.ndindex(x._sizes)] for s in _steps(x)] for x in diff]
    for k, o in enumerate(outs):
        for part, j, v in _cotangents(o):
            gs = _gradients(o, diff, v)
            _check_repeats(gs, _gradients(o, diff, v), nondet_tol)
            for i, (x, g) in enumerate(zip(diff, gs)):
                _check_gradient(g, x, check_dtypes)
                for imaginary, columns in enumerate(numeric[i]):
                    n = np.array([getattr(c[at[k]][j], part) for c in columns]).reshape(x._sizes)
                    a = _number(g, x, imaginary)
                    if not np.allclose(a, n, rtol=rtol, atol=atol, equal_nan=True):
                        _mismatch(k, i, n, a, part if o._np_dtype.kind == "c" else "")


def _fast(func, inputs, diff, outs, at, eps, atol, rtol, nondet_tol, check_dtypes):
    """Compares one random combination of the columns and rows of each Jacobian."""
    rs = np.random.RandomState(0)

    def direction(sizes):
        u = rs.uniform(0.1, 1, sizes)
        return u / np.sqrt((u * u).sum()) if u.size else u

    for i, x in enumerate(diff):
        for imaginary, s in enumerate(_steps(x)):
            u = direction(x._sizes)
            moved = _slope(func, inputs, x, ..., s * u, eps)
            for k, o in enumerate(outs):
                for part, unit in (("real", 1), ("imag", 1j))[:2 if o._np_dtype.kind == "c" else 1]:
                    v = direction(o._sizes)
                    cotangent = (v * unit).astype(o._np_dtype)
                    gs = _gradients(o, [x], cotangent)
                    _check_repeats(gs, _gradients(o, [x], cotangent), nondet_tol)
                    _check_gradient(gs[0], x, check_dtypes)
                    n, a = (v * getattr(moved[at[k]], part)).sum(), (u * _number(gs[0], x, imaginary)).sum()
                    if not np.allclose(a, n, rtol=rtol, atol=atol * max(u.sum() * v.sum(), 1), equal_nan=True):
                        _mismatch(k, i, n, a, part if o._np_dtype.kind == "c" else "")


# ------------------------------------------------------------------ further checks
def _check_constant(func, inputs, diff, eps):
    """Checks that outputs without a gradient do not depend on the inputs."""
    for x in diff:
        for s in _steps(x):
            for j in np.ndindex(x._sizes):
                for d in _slope(func, inputs, x, j, s, eps):
                    if (d != 0).any():
                        raise GradcheckError("Numerical gradient for function expected to be zero")


def _check_batched(o, k, diff):
    """Compares gradients of a batch of cotangents in one call with those computed one by one."""
    from mindtorch.torch.autograd import grad
    rs = np.random.RandomState(0)
    shape = (2, *o._sizes)
    v = rs.randn(*shape) + 1j * rs.randn(*shape) if o._np_dtype.kind == "c" else rs.randn(*shape)
    v = v.astype(o._np_dtype)
    single = [_gradients(o, diff, row) for row in v]
    try:
        batched = grad(o, diff, tensor_from(v, o), retain_graph=True, allow_unused=True, is_grads_batched=True)
    except RuntimeError as e:
        raise GradcheckError(f"While computing batched gradients, got: {e}") from e
    for i, b in enumerate(batched):
        rows = [g[i] for g in single]
        if b is None:
            same = all(r is None for r in rows)
        else:
            same = np.allclose(_wide(to_host(b)), [0 if r is None else _wide(to_host(r)) for r in rows], equal_nan=True)
        if not same:
            raise GradcheckError(f"For output {k} and input {i}, the batched gradients (is_grads_batched=True) differ from those computed "
                                 "one by one")


def _check_multiplied(outs, diff):
    """Checks that gradients for a zero cotangent are zero."""
    from mindtorch.torch.autograd import grad
    for g in grad(outs, diff, [tensor_from(np.zeros(o._sizes, o._np_dtype), o) for o in outs], retain_graph=True, allow_unused=True):
        if g is not None and not g.is_sparse and to_host(g).any():
            raise GradcheckError("backward not multiplied by grad_output")


class _Undefined(Function):
    """Identity whose gradient is undefined (None)."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return None


def _check_undefined(func, inputs, diff):
    """Checks that backward treats an undefined output gradient as zero."""
    from mindtorch.torch.autograd import grad
    count = len(_differentiable(func(*inputs)))
    for missing in [range(count), *([k] for k in range(count) if count > 1)]:
        outs = [_Undefined.apply(o) if k in missing else o for k, o in enumerate(_differentiable(func(*inputs)))]
        try:
            gs = grad(outs, diff, [tensor_from(np.zeros(o._sizes, o._np_dtype), o) for o in outs], allow_unused=True)
        except RuntimeError as e:
            raise GradcheckError(f"Expected backward function to handle undefined output grads, but it raised: {e}") from e
        for g in gs:
            if g is not None and not g.is_sparse and to_host(g).any():
                raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are undefined or zero.")


# ------------------------------------------------------------------ public functions
def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
              check_grad_dtypes=False, check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False,
              check_backward_ad=True, fast_mode=False, masked=None):
    """True if the gradients of func at float64 or complex128 `inputs` equal central differences
    within rtol/atol.

    Otherwise raises GradcheckError (returns False with raise_exception=False); the same holds if
    two backward passes differ by more than nondet_tol or if one of the further checks fails.
    fast_mode compares one random combination of each Jacobian's elements. check_forward_ad compares
    tangents, too. Sparse inputs: masked=True compares the stored elements; masked=False raises
    NotImplementedError unless all elements are stored.

    https://pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html
    """
    func, inputs = _by_values(func, _tuple(inputs), masked)
    return _run("gradcheck", func, inputs, eps, atol, rtol, raise_exception, nondet_tol, check_undefined_grad, check_grad_dtypes,
                check_batched_grad, check_batched_forward_grad, check_forward_ad, check_backward_ad, fast_mode)


def _fail(message):
    raise GradcheckError(message)


def _run(name, func, inputs, eps, atol, rtol, raise_exception, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad,
         check_batched_forward_grad, check_forward_ad, check_backward_ad, fast_mode):
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    inputs = _tuple(inputs)
    diff = _check_inputs(inputs, name)
    try:
        with enable_grad():
            if check_backward_ad:
                _check(func, inputs, diff, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad, fast_mode)
            if check_forward_ad:
                from mindtorch.torch.autograd import _gradcheck_forward
                _gradcheck_forward.check(func, inputs, diff, _slope, _fail, eps, atol, rtol, fast_mode, check_undefined_grad, check_batched_forward_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func, inputs, diff, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad, fast_mode):
    every = _outputs(func(*inputs))
    if any(o.is_sparse for o in every):
        raise ValueError("Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of fn for "
                         "gradcheck.")
    at = [k for k, o in enumerate(every) if o._requires_grad_]
    outs = [every[k] for k in at]
    if not outs:
        return _check_constant(func, inputs, diff, eps)
    (_fast if fast_mode else _slow)(func, inputs, diff, outs, at, eps, atol, rtol, nondet_tol, check_grad_dtypes)
    if check_batched_grad:
        for k, o in enumerate(outs):
            _check_batched(o, k, diff)
    _check_multiplied(outs, diff)
    if check_undefined_grad:
        _check_undefined(func, inputs, diff)


def _random_like(o, rs, strided):
    shape = (*o._sizes[:-1], 2 * o._sizes[-1]) if strided and o.ndim else o._sizes
    a = np.asarray(rs.uniform(-1, 1, shape))
    if o._np_dtype.kind == "c":
        a = a + 1j * rs.uniform(-1, 1, shape)
    a = np.asarray(a).astype(o._np_dtype)
    a = a[..., ::2] if shape != o._sizes else a
    return tensor_from(a, o).requires_grad_()


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, gen_non_contig_grad_outputs=False,
                  raise_exception=True, nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False,
                  check_batched_grad=False, check_fwd_over_rev=False, check_rev_over_rev=True, fast_mode=False, masked=False):
    """Runs gradcheck on the gradient of func, with respect to its inputs and to `grad_outputs`
    (random if not passed).

    https://pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradgradcheck.html
    """
    from mindtorch.torch.autograd import grad
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    inputs = _tuple(inputs)
    if grad_outputs is None:
        rs = np.random.RandomState(0)
        with enable_grad():
            grad_outputs = tuple(_random_like(o, rs, gen_non_contig_grad_outputs) for o in _differentiable(func(*inputs)))
    else:
        grad_outputs = _tuple(grad_outputs)
    n = len(inputs)

    def gradient(*args):
        # forward mode passes inputs without history
        need = [t if t.requires_grad else t.requires_grad_() for t, x in zip(args[:n], inputs) if is_tensor(t) and x.requires_grad]
        gs = grad(_differentiable(func(*args[:n])), need, args[n:], create_graph=True, allow_unused=True)
        return tuple(g for g in gs if g is not None)

    return _run("gradgradcheck", gradient, inputs + grad_outputs, eps, atol, rtol, raise_exception, nondet_tol, check_undefined_grad,
                check_grad_dtypes, check_batched_grad, False, check_fwd_over_rev, check_rev_over_rev, fast_mode)
