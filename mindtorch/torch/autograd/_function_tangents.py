"""Forward-mode AD through custom autograd functions: the arguments of `Function.jvp` and the checks
of its results."""
from mindtorch.core.autograd import forward_ad
from mindtorch.core.autograd.forward_ad import state
from mindtorch.core.tensor.tensor import is_tensor

_VIEW = "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view"


def apply(cls, args, kwargs):
    """Calls cls.apply for arguments some of which have tangents. forward sees their values only."""
    state.on = False
    try:
        result, node, raw, args = cls._apply_plain(args, kwargs)
    finally:
        state.on = True
    results = [result] if is_tensor(result) or not isinstance(result, tuple) else result
    for v in sorted({v for x in args if is_tensor(x) for v in forward_ad.levels(x)}):
        _carry_on(cls, node, args, raw, results, v)
    return result


def _carry_on(cls, node, args, raw, results, level):
    """Sets the results' tangents at one level."""
    given, dirty = [forward_ad.tangent(x, level) if is_tensor(x) else None for x in args], getattr(node, "_dirty", ())
    before = [None if g is None else g._version for g in given]
    with forward_ad.LevelGuard(level):
        if getattr(node, "_materialize", True):
            given = [x.new_zeros(x.shape) if g is None and is_tensor(x) and x._np_dtype.kind in "fcV" else g for x, g in zip(args, given)]
        node._in_jvp = True
        try:
            found = cls.jvp(node, *given)
        finally:
            node._in_jvp = False
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(results):
        raise RuntimeError(f"Function's jvp returned an invalid number of forward gradients (expected {len(results)} but got {len(found)})")
    for i, (x, r, g) in enumerate(zip(raw, results, found)):
        if g is not None and not is_tensor(g):
            raise TypeError(f"Function's jvp returned a {type(g).__name__} at position {i}: expected a Tensor or None")
        if not is_tensor(x) or x._np_dtype.kind not in "fcV" or any(x is o for o in getattr(node, "_nondiff", ())):
            if g is not None:
                raise RuntimeError(f"Function's jvp returned a gradient at position {i}, but the corresponding forward output is not a differentiable Tensor. "
                                   "You should return None at that position instead.")
            if is_tensor(x):
                forward_ad.none(r, level)
        elif any(x is d for d in dirty):
            _written(x, next(((t, v) for a, t, v in zip(args, given, before) if a is x), (None, None)), g, level)
        elif g is None:
            forward_ad.none(r, level)
        else:
            _check(g, r, level)
            origin = next((t for a, t in zip(args, given) if is_tensor(a) and (x is a or x._base is not None and x._base is _root(a))), None)
            if origin is None:
                forward_ad.attach(r, level, g)
            else:
                _check_view(g, origin)
                forward_ad.attach_view(r, level, g)


def _check(g, r, level):
    if g._sizes != r._sizes:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
                           f"Tensor is of size {list(r._sizes)} while the given forward gradient is of size {list(g._sizes)}.")


def _written(x, old, g, level):
    """Sets the tangent of an input that forward modified in place. `old` is its previous tangent
    and that tangent's version before jvp."""
    if forward_ad.tangent(x, level) is None:
        if g is not None:
            forward_ad.write_tangent(x, level, g)
    elif g is not old[0] or g._version == old[1]:
        raise RuntimeError("An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an input inplace, then "
                           "the jvp function must modify the corresponding gradient inplace.")


def _root(x):
    return x if x._base is None else x._base


def _check_view(g, origin):
    if g._base is None:
        raise RuntimeError(f"{_VIEW}.")
    if g._base is not _root(origin):
        what = "the same base" if origin._base is not None else "the given base"
        raise RuntimeError(f"{_VIEW} of {what}.")
