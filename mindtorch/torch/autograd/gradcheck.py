"""torch.autograd.gradcheck: analytical gradients against central differences."""
import numpy as np

from mindtorch.core.tensor import Tensor, bump, wrap

__all__ = ["gradcheck", "gradgradcheck", "GradcheckError"]


class GradcheckError(RuntimeError):
    """The gradients do not agree."""


def _outputs(x):
    xs = (x,) if isinstance(x, Tensor) else tuple(x)
    return [o for o in xs if isinstance(o, Tensor) and o.is_floating_point()]


def _numerical(func, inputs, x, eps):
    flat = x._a.reshape(-1) if x._a.flags.c_contiguous else None
    if flat is None:
        raise ValueError("gradcheck needs contiguous inputs")
    columns = []
    for i in range(flat.size):
        old = flat[i]
        values = []
        for step in (eps, -eps):
            flat[i] = old + step
            bump(x)
            values.append([o._a.astype(np.float64).copy() for o in _outputs(func(*inputs))])
        flat[i] = old
        columns.append([(a - b) / (2 * eps) for a, b in zip(*values)])
    bump(x)
    return columns


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
              check_grad_dtypes=False, check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False,
              check_backward_ad=True, fast_mode=False, masked=None):
    """True if the gradients of func at float64 `inputs` equal central differences within rtol/atol.

    Real inputs and outputs only.  https://pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html
    """
    from mindtorch.torch.autograd import grad
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    diff = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
    if any(t.is_complex() for t in diff):
        raise NotImplementedError("gradcheck: complex inputs are not supported")
    if not diff:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")
    numeric = [_numerical(func, inputs, x.detach(), eps) for x in diff]
    outs = _outputs(func(*inputs))
    for k, o in enumerate(outs):
        if not o.requires_grad:
            continue
        for j in range(o.numel()):
            g = np.zeros(o._a.shape, o._a.dtype)
            g.reshape(-1)[j] = 1
            gs = grad(o, diff, wrap(g), retain_graph=True, allow_unused=True)
            for i, (x, gx) in enumerate(zip(diff, gs)):
                a = np.zeros(x._a.size) if gx is None else gx._a.reshape(-1)
                n = np.array([col[k].reshape(-1)[j] for col in numeric[i]])
                if not np.allclose(a, n, rtol=rtol, atol=atol):
                    if raise_exception:
                        raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input {i},\nnumerical:{n}\nanalytical:{a}\n")
                    return False
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, gen_non_contig_grad_outputs=False,
                  raise_exception=True, nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False,
                  check_batched_grad=False, check_fwd_over_rev=False, check_rev_over_rev=True, fast_mode=False, masked=False):
    """gradcheck of the gradient of func."""
    from mindtorch.torch.autograd import grad
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outs = _outputs(func(*inputs))
    if grad_outputs is None:
        rs = np.random.RandomState(0)
        grad_outputs = tuple(wrap(rs.randn(*o.shape).astype(o._a.dtype)).requires_grad_() for o in outs)
    elif isinstance(grad_outputs, Tensor):
        grad_outputs = (grad_outputs,)
    n = len(grad_outputs)

    def gradient(*args):
        ins, gos = args[:-n], args[-n:]
        need = [t for t in ins if isinstance(t, Tensor) and t.requires_grad]
        return grad(_outputs(func(*ins)), need, gos, create_graph=True, allow_unused=True)

    return gradcheck(gradient, inputs + tuple(grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
