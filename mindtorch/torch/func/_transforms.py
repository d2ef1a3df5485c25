"""grad, vjp, jvp and the Jacobians, on the reverse-mode tape.

A transform gives the function *entered* inputs: tensors of the same value whose use can be told from other uses of the
same tensor.  Where an input has history outside (an enclosing transform, or plain autograd), the entered one is linked
to it, so that results can be differentiated by those in turn.  On leaving, a result that depends on nothing outside is
cut off, so that it is as constant as torch's.
"""
import functools

import numpy as np

from mindtorch.core.grad_mode import enable_grad, mode
from mindtorch.core.table import TABLE
from mindtorch.core.tensor import again, taken
from mindtorch.core.values import tensor_from
from mindtorch.torch.autograd import grad as _autograd
from mindtorch.torch.func._vmap import RANDOM_ERROR, drawing
from mindtorch.torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten


# ------------------------------------------------------------------ in and out
class _Level:
    """One transform that is being computed: what it entered, and whether its results matter outside."""

    def __init__(self):
        self.leaves, self.nodes = set(), set()
        self.outside = mode.on
        self.kept = []

    def enter(self, x):
        """The tensor that stands for `x` inside; non-tensors are an error."""
        if not taken(x):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        if x._stype.kind not in "fcV":
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if x._rg and self.outside:
            t = x.view_as(x)
            self.nodes.add(t._gnode)
        else:
            t = again(x).requires_grad_()
            self.leaves.add(id(t))
        self.kept.append(t)
        return t

    def reaches_out(self, tensors):
        """True if some of these depend on a tensor that was not made here."""
        if not self.outside:
            return False
        seen, stack = set(), []
        for t in tensors:
            if t._rg:
                if t._gnode is None:
                    if id(t) not in self.leaves:
                        return True
                else:
                    stack.append(t._gnode)
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            if n in self.nodes:
                return True
            for e in n.edges:
                if e is None:
                    continue
                if e.__class__ is tuple:
                    stack.append(e[0])
                elif id(e) not in self.leaves:
                    return True
        return False

    def leave(self, tree):
        """Results as the outside sees them."""
        tensors = [t for t in tree_leaves(tree) if taken(t)]
        if self.reaches_out(tensors):
            return tree
        return tree_map(lambda t: t.detach() if taken(t) and t._rg else t, tree)


def _argnums(argnums, args):
    """The positions meant, as a tuple of non-negative ints, with torch's errors."""
    if isinstance(argnums, bool) or not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    nums = (argnums,) if isinstance(argnums, int) else argnums
    if not nums:
        raise RuntimeError("argnums must be non-empty")
    out = []
    for n in nums:
        if not isinstance(n, int) or isinstance(n, bool):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
        out.append(n % len(args))
    if len(set(out)) != len(out):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple(out)


def _enter_args(level, args, nums):
    """(args with the tensors at `nums` entered, the entered tensors, structures of those args)."""
    args, flat, specs = list(args), [], []
    for n in nums:
        leaves, spec = tree_flatten(args[n])
        inside = [level.enter(x) for x in leaves]
        args[n] = tree_unflatten(inside, spec)
        flat += inside
        specs.append(spec)
    return args, flat, specs


def _by_arg(flat, specs, argnums):
    """Results for the entered tensors, as the arguments were nested."""
    out, at = [], 0
    for spec in specs:
        out.append(tree_unflatten(flat[at:at + spec.num_leaves], spec))
        at += spec.num_leaves
    return out[0] if isinstance(argnums, int) else tuple(out)


def _zeros(t, shape=None):
    return tensor_from(np.zeros(t._sizes if shape is None else shape, t._stype), t)


def _pull(outs, ins, cotangents, create_graph):
    """Gradients of the inputs for cotangents of the outputs; zeros where there is no dependence."""
    pairs = [(o, c) for o, c in zip(outs, cotangents) if o._rg]
    if not pairs:
        return [_zeros(i) for i in ins]
    gs = _autograd([o for o, _ in pairs], ins, [c for _, c in pairs], retain_graph=True, create_graph=create_graph, allow_unused=True)
    return [_zeros(i) if g is None else g for g, i in zip(gs, ins)]


def _with_aux(name, out, has_aux):
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for a in tree_leaves(out[1]):
        if not taken(a):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(a)}")
    return out


# ------------------------------------------------------------------ grad
def grad_and_value(func, argnums=0, has_aux=False):
    """The function that gives (gradient, value) of a scalar function; with has_aux (gradient, (value, aux)).

    argnums says which positional arguments (nested containers of tensors) to differentiate by.
    """
    name = "grad_and_value(f)(*args)"

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        nums = _argnums(argnums, args)
        level = _Level()
        with enable_grad():
            inside, flat, specs = _enter_args(level, args, nums)
            out, aux = _with_aux(name, func(*inside, **kwargs), has_aux)
            if not taken(out):
                raise RuntimeError(f"{name}: Expected f(*args) to return a Tensor, got {type(out)}")
            if out.ndim:
                raise RuntimeError(f"{name}: Expected f(*args) to return a scalar Tensor, got tensor with {out.ndim} dims. Maybe you "
                                   "wanted to use the vjp or jacrev APIs instead?")
            one = tensor_from(np.ones((), out._stype), out)
            gs = _pull([out], flat, [one], level.reaches_out([out]))
        gs = level.leave(_by_arg(gs, specs, argnums))
        value = level.leave(out)
        return (gs, (value, level.leave(aux))) if has_aux else (gs, value)

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """The function that gives the gradient of a scalar function; with has_aux (gradient, aux)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        g, value = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return wrapper


# ------------------------------------------------------------------ vjp, jvp
def _tensor_leaves(name, tree):
    leaves, spec = tree_flatten(tree)
    for x in leaves:
        if not taken(x):
            raise RuntimeError(f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(x)}")
    return leaves, spec


def vjp(func, *primals, has_aux=False):
    """(output, function from cotangents of the output to a tuple of cotangents of the primals[, aux])."""
    name = "vjp(f, *primals)"
    level = _Level()
    with enable_grad():
        inside, flat, specs = _enter_args(level, primals, range(len(primals)))
        out, aux = _with_aux(name, func(*inside), has_aux)
        outs, out_spec = _tensor_leaves(name, out)
    outside = level.reaches_out(outs)

    def pull(cotangents, retain_graph=True, create_graph=None):
        given, spec = tree_flatten(cotangents)
        if spec != out_spec:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {_brief(spec)}, primal output: {_brief(out_spec)}")
        track = mode.on and (outside or any(c._rg for c in given)) if create_graph is None else create_graph
        with enable_grad():
            gs = _pull(outs, flat, given, track)
        return level.leave(_by_arg(gs, specs, ())) if not track else _by_arg(gs, specs, ())

    result = (level.leave(out), pull)
    return (*result, level.leave(aux)) if has_aux else result


def _brief(spec):
    return spec if spec.is_leaf() else tree_unflatten([_Star()] * spec.num_leaves, spec)


class _Star:
    def __repr__(self):
        return "*"


def _linear_map(outs, flat):
    """The function from tangents of the inputs to tangents of the outputs: the derivative of the cotangent map."""
    probes = [_zeros(o).requires_grad_() for o in outs]
    pulled = _pull(outs, flat, probes, True)

    def push(tangents, create_graph):
        pairs = [(p, t) for p, t in zip(pulled, tangents) if p._rg]
        if not pairs:
            return [_zeros(o) for o in outs]
        js = _autograd([p for p, _ in pairs], probes, [t for _, t in pairs], retain_graph=True, create_graph=create_graph,
                       allow_unused=True)
        return [_zeros(o) if j is None else j for j, o in zip(js, outs)]

    return probes, push


def _tuple_arg(name, what, x):
    if not isinstance(x, tuple):
        raise RuntimeError(f"{name}: Expected {what} to be a tuple. E.g. it should be valid to call f(*primals).")
    if not x:
        raise RuntimeError(f"{name}: Expected primals to be non-empty.")


def _check_tangents(name, primals, tangents):
    leaves, spec = tree_flatten(primals)
    given, other = tree_flatten(tangents)
    if spec != other:
        raise RuntimeError(f"{name}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple "
                           f"of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {other}")
    for p, t in zip(leaves, given):
        if not taken(t):
            raise RuntimeError(f"{name}: Expected all tangents to be tensors, got {type(t)}")
        if p._sizes != t._sizes:
            raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
                               f"supported. Tensor is of size {list(p._sizes)} while the given forward gradient is of size "
                               f"{list(t._sizes)}.")
    return given


def _forward(func, primals, has_aux, name):
    """Runs func over entered primals: (level, output, structure, tensors, aux, entered tensors)."""
    level = _Level()
    inside, flat, _ = _enter_args(level, primals, range(len(primals)))
    out, aux = _with_aux(name, func(*inside), has_aux)
    outs, spec = _tensor_leaves(name, out)
    return level, out, spec, outs, aux, flat


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """(output, its derivative along the tangents[, aux]); both arguments are tuples of the same structure."""
    name = f"jvp(f, primals, tangents{', strict=True' if strict else ''})"
    _tuple_arg(name, "primals", primals)
    _tuple_arg(name, "tangents", tangents)
    given = _check_tangents(name, primals, tangents)
    with enable_grad():
        level, out, spec, outs, aux, flat = _forward(func, primals, has_aux, name)
        if strict and not all(o._rg for o in outs):
            raise RuntimeError(f"{name}: The output of f is independent of the inputs. This is not allowed with strict=True.")
        probes, push = _linear_map(outs, flat)
        level.leaves.update(id(p) for p in probes)
        level.kept += probes
        track = level.outside and (level.reaches_out(outs) or any(t._rg for t in given))
        js = push(given, track)
    js = tree_unflatten(js, spec)
    result = (level.leave(out), js if track else level.leave(js))
    return (*result, level.leave(aux)) if has_aux else result


def linearize(func, *primals):
    """(output, function from tangents of the primals to the tangent of the output), the function run once."""
    name = "linearize(f, *primals)"
    if not primals:
        raise RuntimeError(f"{name}: Expected primals to be non-empty.")
    with enable_grad():
        level, out, spec, outs, _, flat = _forward(func, primals, False, name)
        probes, push = _linear_map(outs, flat)
    level.leaves.update(id(p) for p in probes)
    level.kept += probes

    def jvp_fn(*tangents):
        given = _check_tangents(name, primals, tangents)
        track = mode.on and (level.reaches_out(outs) or any(t._rg for t in given))
        with enable_grad():
            js = tree_unflatten(push(given, track), spec)
        return js if track else level.leave(js)

    return level.leave(out), jvp_fn


# ------------------------------------------------------------------ Jacobians
def _jacobian(name, func, argnums, has_aux):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        nums = _argnums(argnums, args)
        level = _Level()
        with enable_grad():
            inside, flat, specs = _enter_args(level, args, nums)
            out, aux = _with_aux(name, func(*inside, **kwargs), has_aux)
            outs, out_spec = _tensor_leaves("vjp(f, *primals)" if name == "jacrev" else name, out)
            for i, o in enumerate((*outs, *flat)):
                if o._stype.kind == "c":
                    what = "outputs" if i < len(outs) else "inputs"
                    raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: "
                                       f"{i if i < len(outs) else i - len(outs)}")
            track = level.reaches_out(outs)
            blocks = [_rows(o, flat, track) for o in outs]
        result = tree_unflatten([_by_arg(b, specs, argnums) for b in blocks], out_spec)
        result = level.leave(result)
        return (result, level.leave(aux)) if has_aux else result

    return wrapper


def _rows(out, ins, track):
    """d out / d input for each input, shaped out.shape + input.shape."""
    shape, n = out._sizes, out._numel
    dtypes = [i._stype if out._stype.kind in "fV" else out._stype for i in ins]
    if not out._rg or not n:
        return [tensor_from(np.zeros((*shape, *i._sizes), d), i) for i, d in zip(ins, dtypes)]
    rows = [[] for _ in ins]
    for k in range(n):
        one = np.zeros(n, out._stype)
        one[k] = 1
        for col, g in zip(rows, _pull([out], ins, [tensor_from(one.reshape(shape), out)], track)):
            col.append(g)
    stack = TABLE["stack"].fn
    return [stack(col, 0).reshape(*shape, *i._sizes) for col, i in zip(rows, ins)]


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """The function that gives the Jacobian (output shape + input shape, nested as output and arguments are)."""
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian("jacrev", func, argnums, has_aux)


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The function that gives the Jacobian; computed as jacrev does, for want of a forward mode."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")

    @functools.wraps(func)
    def called(*args, **kwargs):
        # Called once: what "same" means.
        r, random = drawing(func, args, kwargs)
        if random and randomness == "error":
            raise RuntimeError(RANDOM_ERROR)
        if random and randomness == "different":
            raise NotImplementedError("torch.func.jacfwd: randomness='different' is not supported for a function with random operations: its "
                                      "columns would belong to different functions; use 'same' (device cpu)")
        return r

    return _jacobian("jacfwd", called, argnums, has_aux)


def hessian(func, argnums=0):
    """The function that gives the Hessian of a scalar function."""
    return jacfwd(jacrev(func, argnums), argnums)
