"""grad, vjp and jacrev by reverse-mode autograd. jvp and jacfwd by tangents (`core/autograd/forward_ad.py`).

A transform calls the function with *entered* inputs: tensors of equal value, whose uses can be
distinguished from other uses of the same tensor. If an input has history outside (an enclosing
transform, or plain autograd), the entered tensor is linked to it, so that the enclosing one can
differentiate the results. On leaving, a result that depends on nothing outside is detached, so that
it is a constant as in PyTorch.
"""
import functools

import numpy as np

from mindtorch.core.transforms import vmap, functorch_levels
from mindtorch.core.autograd import forward_ad
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.dispatch.traceback_filter import api_boundary, hide_internal_frames
from mindtorch.core.autograd.grad_mode import enable_grad, mode
from mindtorch.core.autograd.graph import hooks_here
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Parameter, Tensor, shallow_copy, detached, set_requires_grad, is_tensor
from mindtorch.core.tensor.sync import tensor_from
from mindtorch.torch.autograd import grad as _autograd
from mindtorch.torch.func._vmap import RANDOM_ERROR, drawing
from mindtorch.torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten


# ------------------------------------------------------------------ entering and leaving
_NO_HOOKS = "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your use case."


_PLAIN = (Tensor, Parameter)


class _Level:
    """A running transform: the tensors that it entered, and whether its results need history
    outside.

    Inside `with`, the function runs at this level and gradients are recorded.
    """

    def __init__(self, kind="grad"):
        self.leaves, self.nodes = set(), set()
        self.outside = mode.on
        self.kept, self.refused = [], None
        self.here, self.recording = functorch_levels.TransformLevel(kind), enable_grad()

    def __enter__(self):
        if self.here.kind == "grad":
            if hooks_here.pairs:
                raise RuntimeError(_NO_HOOKS)
            self.refused, hooks_here.refused = hooks_here.refused, _NO_HOOKS
        self.here.__enter__()
        self.recording.__enter__()
        return self

    def __exit__(self, *exc):
        self.recording.__exit__(*exc)
        self.here.__exit__(*exc)
        if self.here.kind == "grad":
            hooks_here.refused = self.refused

    def enter(self, x):
        """Returns the entered tensor for `x`. Raises for non-tensors and for dtypes without
        gradients."""
        if not is_tensor(x):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        if x._np_dtype.kind not in "fcV":
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        given, x = x, vmap.lift(x)
        if x._requires_grad_:
            t = x.view_as(x)
            self.nodes.add(t._grad_fn_)
        else:
            t = forward_ad.copy_tangents(x, shallow_copy(x))
            set_requires_grad(t, True)
            self.leaves.add(id(t))
        self.kept.append(t)
        functorch_levels.enter(self.here, t, given)
        return t

    def accompany(self, x):
        """Returns the entered tensor for an argument that is not differentiated. In-place changes
        to it also change the argument."""
        if not is_tensor(x) or type(x) not in _PLAIN:
            return x
        t = x.view_as(x) if x._requires_grad_ else forward_ad.copy_tangents(x, detached(x))
        if t._requires_grad_:
            self.nodes.add(t._grad_fn_)
        functorch_levels.enter(self.here, t, x)
        return t

    def reaches_out(self, tensors):
        """True if a tensor depends on one from outside this level, and grad mode was enabled when
        the level was created."""
        return self.outside and self.depends(tensors)

    def depends(self, tensors):
        """True if a tensor depends on one from outside this level."""
        seen, stack = set(), []
        if dispatch_state.primitives:
            tensors = [*tensors, *[h for t in tensors if (h := vmap.unwrap_hidden(t)) is not None]]
        for t in tensors:
            if t._requires_grad_:
                if t._grad_fn_ is None:
                    if self._outer(t):
                        return True
                else:
                    stack.append(t._grad_fn_)
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            if n in self.nodes:
                return True
            for e in n._next_edges:
                if e is None:
                    continue
                if e.__class__ is tuple:
                    stack.append(e[0])
                elif self._outer(e):
                    return True
        return False

    def _outer(self, leaf):
        return id(leaf) not in self.leaves and leaf._functorch_level < self.here.serial

    def leave(self, tree, reaches=None):
        """Returns the results for the caller of the transform. `reaches` is the result of
        `reaches_out`, if already known."""
        if tree.__class__ is Tensor:
            # Fast path for a single tensor: does what the code below does, without traversing the
            # tree.
            ours = tree._functorch_level >= self.here.serial
            if forward_ad.recorded(tree) and not (self.reaches_out([tree]) if reaches is None else reaches):
                tree = forward_ad.detach(tree, lambda g: self.reaches_out([g]))
            if ours:
                functorch_levels.exit_level(tree)
            return tree
        tensors = [t for t in tree_leaves(tree) if is_tensor(t)]
        cut = not self.reaches_out(tensors)

        def outside(t):
            if not is_tensor(t):
                return t
            ours = t._functorch_level >= self.here.serial
            if cut and forward_ad.recorded(t):
                t = forward_ad.detach(t, lambda g: self.reaches_out([g]))
            if ours:
                functorch_levels.exit_level(t)
            return t
        return tree_map(outside, tree)


def argument_indices(argnums, count):
    """Returns the argument indices as a tuple of non-negative ints. Raises PyTorch's errors."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    nums = (argnums,) if isinstance(argnums, int) else argnums
    if not nums:
        raise RuntimeError("argnums must be non-empty")
    out = []
    for n in nums:
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
        out.append(n % count)
    if len(set(out)) != len(out):
        raise RuntimeError(f"argnums elements must be unique, got {tuple(out)}")
    return tuple(out)


def _enter_args(level, args, nums):
    """Returns (args with entered tensors, entered tensors of the args at `nums`, structures of
    those args)."""
    args, flat, specs = [x if i in nums else tree_map(level.accompany, x) for i, x in enumerate(args)], [], []
    for n in nums:
        leaves, spec = tree_flatten(args[n])
        inside = [level.enter(x) for x in leaves]
        args[n] = tree_unflatten(inside, spec)
        flat += inside
        specs.append(spec)
    return args, flat, specs


def _by_arg(flat, specs, argnums):
    """Nests results for the entered tensors like the arguments."""
    out, at = [], 0
    for spec in specs:
        out.append(tree_unflatten(flat[at:at + spec.num_leaves], spec))
        at += spec.num_leaves
    return out[0] if isinstance(argnums, int) else tuple(out)


def _zeros(t, shape=None):
    return vmap.lift(tensor_from(np.zeros(t._sizes if shape is None else shape, t._np_dtype), t))


def _deep():
    """True if an enclosing vmap computes on tensors with history outside of it. Gradients computed
    inside must then be recorded."""
    return dispatch_state.primitives and any([level.kind == "vmap" and level.deep for level in functorch_levels.levels()])


def _pull(outs, ins, cotangents, create_graph):
    """Returns gradients of the inputs for cotangents of the outputs. Zeros where there is no
    dependence."""
    create_graph = create_graph or _deep()
    pairs = [(o, c) for o, c in zip(outs, cotangents) if o._requires_grad_]
    if not pairs:
        return [_zeros(i) for i in ins]
    gs = _autograd([o for o, _ in pairs], ins, [c for _, c in pairs], retain_graph=True, create_graph=create_graph, allow_unused=True)
    gs = [_zeros(i) if g is None else g for g, i in zip(gs, ins)]
    for g in gs:
        functorch_levels.made(g)
    return gs


def _with_aux(name, out, has_aux):
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    if name[:4] != "grad":  # grad checks its own output first
        _check_aux(out[1])
    return out


def _check_aux(aux):
    for a in tree_leaves(aux):
        if not is_tensor(a):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(a)}")


# ------------------------------------------------------------------ grad
def grad_and_value(func, argnums=0, has_aux=False):
    """Returns a function that computes (gradient, value) of a scalar function, or (gradient,
    (value, aux)) with `has_aux`.

    `argnums` selects the positional arguments (nested containers of tensors) to differentiate.
    """
    name = "grad_and_value(f)(*args)"

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        try:
            nums = argument_indices(argnums, len(args))
            level = _Level()
            with level:
                inside, flat, specs = _enter_args(level, args, nums)
                out, aux = _with_aux(name, func(*inside, **kwargs and tree_map(level.accompany, kwargs)), has_aux)
                if not is_tensor(out):
                    raise RuntimeError(f"{name}: Expected f(*args) to return a Tensor, got {type(out)}")
                if out.ndim:
                    raise RuntimeError(f"{name}: Expected f(*args) to return a scalar Tensor, got tensor with {out.ndim} dims. Maybe you "
                                       "wanted to use the vjp or jacrev APIs instead?")
                if has_aux:
                    _check_aux(aux)
                one = tensor_from(np.ones((), out._np_dtype), out)
                reaches = level.reaches_out([out])
                gs = _pull([out], flat, [one], reaches)
            gs = level.leave(_by_arg(gs, specs, argnums))
            value = level.leave(out, reaches)
            return (gs, (value, level.leave(aux))) if has_aux else (gs, value)
        except Exception as e:
            hide_internal_frames(e)
            raise

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """Returns a function that computes the gradient of a scalar function, or (gradient, aux) with
    `has_aux`."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        try:
            g, value = both(*args, **kwargs)
            return (g, value[1]) if has_aux else g
        except Exception as e:
            hide_internal_frames(e)
            raise

    return wrapper


# ------------------------------------------------------------------ vjp, jvp
def _tensor_leaves(name, tree):
    leaves, spec = tree_flatten(tree)
    if not leaves or leaves == [None]:
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output (got output = {leaves})")
    for x in leaves:
        if not is_tensor(x):
            raise RuntimeError(f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(x)}")
    return leaves, spec


@api_boundary
def vjp(func, *primals, has_aux=False):
    """Returns (output, function from cotangents of the output to a tuple of cotangents of the
    primals[, aux])."""
    name = "vjp(f, *primals)"
    level = _Level()
    with level:
        inside, flat, specs = _enter_args(level, primals, range(len(primals)))
        out, aux = _with_aux(name, func(*inside), has_aux)
        outs, out_spec = _tensor_leaves(name, out)
    outside = level.depends(outs)

    def pull(cotangents, retain_graph=True, create_graph=None):
        given, spec = tree_flatten(cotangents)
        if spec != out_spec:
            raise RuntimeError("Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {_brief(spec)}, primal output: {_brief(out_spec)}")
        track = mode.on and (outside or any([is_tensor(c) and c._requires_grad_ for c in given])) if create_graph is None else create_graph
        with enable_grad():
            gs = _pull(outs, flat, given, track)
        if not track:
            # the full tensors of a vmap keep their history
            gs = [forward_ad.detach(g) if g._requires_grad_ else g for g in gs]
        for g in gs:
            functorch_levels.exit_level(g)
        return _by_arg(gs, specs, ())

    result = (level.leave(out), pull)
    return (*result, level.leave(aux)) if has_aux else result


def _brief(spec):
    return spec if spec.is_leaf() else tree_unflatten([_Star()] * spec.num_leaves, spec)


class _Star:
    def __repr__(self):
        return "*"


def _linear_map(outs, flat):
    """Returns the function from tangents of the inputs to tangents of the outputs, as the
    derivative of the cotangent map."""
    probes = [_zeros(o) for o in outs]
    for p in probes:
        set_requires_grad(p, True)
    pulled = _pull(outs, flat, probes, True)

    def push(tangents, create_graph):
        pairs = [(p, t) for p, t in zip(pulled, tangents) if p._requires_grad_]
        if not pairs:
            return [_zeros(o) for o in outs]
        js = _autograd([p for p, _ in pairs], probes, [t for _, t in pairs], retain_graph=True, create_graph=create_graph,
                       allow_unused=True)
        return [_zeros(o) if j is None else j for j, o in zip(js, outs)]

    return probes, push


def _check_tangents(name, primals, tangents):
    leaves, spec = tree_flatten(primals)
    given, other = tree_flatten(tangents)
    if spec != other:
        raise RuntimeError(f"{name}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple "
                           f"of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {other}")
    for what, tensors in (("primals", leaves), ("tangents", given)):
        if not tensors:
            raise RuntimeError(f"{name}: Expected {what} to contain at least one Tensor.")
        for t in tensors:
            if not is_tensor(t):
                raise RuntimeError(f"{name}: Expected {what} to only contain Tensors, got {type(t)}")
    for p, t in zip(leaves, given):
        if p._np_dtype.kind not in "fcV":
            raise ValueError(f"Expected primal to be floating point or complex, but got: {p.dtype}")
        if p._sizes != t._sizes:
            raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
                               f"supported. Tensor is of size {list(p._sizes)} while the given forward gradient is of size "
                               f"{list(t._sizes)}.")
    return given


def _forward(func, primals, has_aux, name):
    """Runs func on entered primals. Returns (level, output, structure, output tensors, aux, entered
    tensors)."""
    level = _Level("jvp")
    with level:
        return _forward_in(level, func, primals, has_aux, name)


def _forward_in(level, func, primals, has_aux, name):
    inside, flat, _ = _enter_args(level, primals, range(len(primals)))
    out, aux = _with_aux(name, func(*inside), has_aux)
    outs, spec = _tensor_leaves(name, out)
    return level, out, spec, outs, aux, flat


class _Forward:
    """A running forward-mode transform with `n` directions at once."""

    def __init__(self, n):
        self.here, self.open = functorch_levels.TransformLevel("jvp"), forward_ad.OpenLevels(n)

    def __enter__(self):
        self.here.__enter__()
        self.levels = self.open.__enter__()
        return self

    def __exit__(self, *exc):
        self.open.__exit__(*exc)
        self.here.__exit__(*exc)

    def enter(self, x, tangents):
        """Returns the entered tensor for `x`, with one tangent per level (None for no tangent)."""
        given, x = x, vmap.lift(x)
        t = x.view_as(x)
        for v, g in zip(self.levels, tangents):
            if g is not None:
                forward_ad.attach(t, v, g)
        functorch_levels.enter(self.here, t, given)
        return t

    def accompany(self, x):
        """Returns the entered tensor for an argument that is not differentiated."""
        if not is_tensor(x) or type(x) not in _PLAIN:
            return x
        t = x.view_as(x)
        functorch_levels.enter(self.here, t, x)
        return t

    def leave(self, tree):
        """Returns the results for the caller of the transform."""
        return tree_map(lambda t: functorch_levels.move_to_current(self.here, t), tree)


@api_boundary
def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """Returns (output, its derivative along the tangents[, aux]). Both arguments are tuples of the
    same structure."""
    name = f"jvp(f, primals, tangents{', strict=True' if strict else ''})"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{name}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    given = _check_tangents(name, primals, tangents)
    leaves, structure = tree_flatten(primals)
    with _Forward(1) as level:
        inside = tree_unflatten([level.enter(x, (t,)) for x, t in zip(leaves, given)], structure)
        out, aux = _with_aux(name, func(*inside), has_aux)
        outs, spec = _tensor_leaves(name, out)
        js = [forward_ad.tangent(o, level.levels[0]) for o in outs]
        if strict and any([j is None for j in js]):
            raise RuntimeError(f"{name}: The output of f is independent of the inputs. This is not allowed with strict=True.")
        # Do not return the caller's own tensor: it would leave this level.
        js = [_zeros(o) if j is None else j.view_as(j) if any([j is t for t in given]) else j for o, j in zip(outs, js)]
        outs = [forward_ad.unpacked(o, level.levels[0]) if any([o is x for x in tree_leaves(inside)]) else o for o in outs]
        for j in js:
            functorch_levels.made(j)
    result = (level.leave(tree_unflatten(outs, spec)), level.leave(tree_unflatten(js, spec)))
    return (*result, level.leave(aux)) if has_aux else result


@api_boundary
def linearize(func, *primals):
    """Returns (output, function from tangents of the primals to the tangent of the output). The
    function `func` runs once.

    The tangents must have the structure, sizes and dtypes of the primals (RuntimeError). The
    returned function is the derivative of the backward pass, which it keeps alive. Its results are
    differentiable in the tangents and in the tensors that `func` closes over.
    """
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
        for i, (p, t) in enumerate(zip(tree_leaves(primals), given)):
            if p.dtype != t.dtype:
                raise RuntimeError(f"{name}: tangent:{i} with dtype {t.dtype} in flattened pytree doesn't match the dtype {p.dtype} of the corresponding primal")
        track = mode.on and (level.reaches_out(outs) or any(t._requires_grad_ for t in given))
        with enable_grad():
            js = tree_unflatten(push(given, track), spec)
        return js if track else level.leave(js)

    return level.leave(out), jvp_fn


# ------------------------------------------------------------------ Jacobians
def _all_real(name, what, tensors):
    for i, t in enumerate(tensors):
        if t._np_dtype.kind == "c":
            raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}")


def _jacobian(name, func, argnums, has_aux, chunk=None):
    inner = "vjp(f, *primals)" if name == "jacrev" else "jvp(f, primals, tangents)"

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        try:
            nums = argument_indices(argnums, len(args))
            level = _Level("grad" if name == "jacrev" else "jvp")
            with level:
                inside, flat, specs = _enter_args(level, args, nums)
                _all_real(name, "inputs", flat)
                out, aux = _with_aux(inner, func(*inside, **tree_map(level.accompany, kwargs)), has_aux)
                outs, out_spec = _tensor_leaves(inner, out)
                _all_real(name, "outputs", outs)
                track = level.reaches_out(outs)
                blocks = [_rows(o, flat, track, chunk) for o in outs]
            result = tree_unflatten([_by_arg(b, specs, argnums) for b in blocks], out_spec)
            result = level.leave(result)
            return (result, level.leave(aux)) if has_aux else result
        except Exception as e:
            hide_internal_frames(e)
            raise

    return wrapper


def _rows(out, ins, track, chunk):
    """Returns d out / d input for each input, with shape out.shape + input.shape."""
    shape, n = out._sizes, out._numel
    dtypes = [i._np_dtype if out._np_dtype.kind in "fV" else out._np_dtype for i in ins]
    if not out._requires_grad_ or not n:
        return [tensor_from(np.zeros((*shape, *i._sizes), d), i) for i, d in zip(ins, dtypes)]
    step, parts = chunk or n, []
    for start in range(0, n, step):
        count = min(step, n - start)
        units = np.zeros((count, n), out._np_dtype)
        units[range(count), range(start, start + count)] = 1
        cotangents = tensor_from(units.reshape(count, *shape), out)
        if count == 1:  # one row: batching has no benefit
            parts.append([g.unsqueeze(0) for g in _pull([out], ins, [cotangents[0]], track)])
            continue
        with vmap.VmapLevel(count, marks=False) as level:
            parts.append([vmap.materialize_batch(g, level) for g in _pull([out], ins, [vmap.add_batch_dim(cotangents, True, level)], track)])
    cat = OPS["cat"].fn
    return [(col[0] if len(col) == 1 else cat(list(col), 0)).reshape(*shape, *i._sizes) for col, i in zip(zip(*parts), ins)]


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """Returns a function that computes the Jacobian (output shape + input shape, nested like output
    and arguments)."""
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian("jacrev", func, argnums, has_aux, chunk_size)


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """Returns a function that computes the Jacobian with one tangent per input element. `func` runs
    once, with all tangents batched."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        try:
            nums = argument_indices(argnums, len(args))
            trees = [tree_flatten(args[n]) for n in nums]
            ins, specs = [x for leaves, _ in trees for x in leaves], [spec for _, spec in trees]
            _check_inputs(ins)
            _all_real("jacfwd", "inputs", ins)
            starts = [sum([x._numel for x in ins[:i]]) for i in range(len(ins) + 1)]
            count = max(starts[-1], 1)
            with vmap.VmapLevel(count, marks=False) as many, _Forward(1) as level:
                flat = [level.enter(x, [vmap.add_batch_dim(_directions(x, start, count), True, many)]) for x, start in zip(ins, starts)]
                inside = [tree_map(level.accompany, x) for x in args]
                for n, x in zip(nums, _by_arg(flat, specs, ())):
                    inside[n] = x
                r, random = drawing(func, inside, tree_map(level.accompany, kwargs))
                # The function runs once for all directions, which is randomness="same".
                if random and randomness == "error":
                    raise RuntimeError(RANDOM_ERROR)
                if random and randomness == "different":
                    raise NotImplementedError("torch.func.jacfwd: randomness='different' is not supported for a function with random operations: each "
                                              "column would use different random values; use 'same' (device cpu)")
                out, aux = _with_aux("jvp(f, primals, tangents)", r, has_aux)
                outs, out_spec = _tensor_leaves("jvp(f, primals, tangents)", out)
                _all_real("jacfwd", "outputs", outs)
                blocks = [_columns(o, ins, starts, forward_ad.tangent(o, level.levels[0]), many) for o in outs]
                for b in blocks:
                    for r in b:
                        functorch_levels.made(r)
            result = level.leave(tree_unflatten([_by_arg(b, specs, argnums) for b in blocks], out_spec))
            return (result, level.leave(aux)) if has_aux else result
        except Exception as e:
            hide_internal_frames(e)
            raise

    return wrapper


def _directions(x, start, count):
    """Returns `count` directions for x: one-hot for each of its elements from index `start` on,
    zeros elsewhere."""
    units = np.zeros((count, x._numel), x._np_dtype)
    units[range(start, start + x._numel), range(x._numel)] = 1
    return tensor_from(units.reshape(count, *x._sizes), x)


def _columns(out, ins, starts, j, many):
    """Returns d out / d x for each x, with shape out.shape + x.shape, from the tangents of `out` in
    all directions."""
    if j is None:
        return [tensor_from(np.zeros((*out._sizes, *x._sizes), out._np_dtype), out) for x in ins]
    j = vmap.materialize_batch(j, many)
    return [j[start:start + x._numel].movedim(0, -1).reshape(*out._sizes, *x._sizes) for x, start in zip(ins, starts)]


def _check_inputs(ins):
    for x in ins:
        if not is_tensor(x):
            raise RuntimeError(f"jvp(f, primals, tangents): Expected primals to only contain Tensors, got {type(x)}")
        if x._np_dtype.kind not in "fcV":
            raise ValueError(f"Expected primal to be floating point or complex, but got: {x.dtype}")


def hessian(func, argnums=0):
    """Returns a function that computes the Hessian of a scalar function."""
    return jacfwd(jacrev(func, argnums), argnums)
