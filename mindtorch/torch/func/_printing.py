"""Printing of tensors inside transforms: the value is nested in one wrapper per level that the
tensor was made in."""
import textwrap

from mindtorch.core.transforms import vmap, functorch_levels
from mindtorch.core.tensor.tensor import shallow_copy


def wrapped(t):
    """Returns the text of a tensor made inside transforms, or None if it is printed as usual.

    A batched tensor inside vmap is printed as the tensor of all slices.
    """
    found, inner, own = [], t, True
    for n, level in functorch_levels.creation_levels(t):
        entered = level.given.get(id(inner)) if own else None
        if level.kind == "vmap":
            if vmap.level_of(inner) is level:
                v, mapped = vmap.remove_batch_dim(inner, level)
                if mapped:
                    found.append((n, entered[2] if entered is not None else 0))
                inner = entered[1] if entered is not None and mapped else v
                own = entered is not None
            continue
        found.append((n, level))
        if entered is not None:
            inner = entered[1]
        else:
            own = False  # its source outside this level is unknown
    if not found:
        return None
    if inner._functorch_level:
        plain = shallow_copy(inner)
        if _depends_outside(inner, functorch_levels.levels()):
            plain._grad_fn_, plain._output_nr, plain._requires_grad_ = inner._grad_fn_, inner._output_nr, True
        inner = plain
    text = repr(inner)
    for n, level in reversed(found):
        if level.__class__ is int:
            text = f"BatchedTensor(lvl={n}, bdim={level}, value=\n{textwrap.indent(text, '    ')}\n)"
        elif level.kind == "functionalize":
            text = f"FunctionalTensor(lvl={n}, value=\\\n{text})"
        else:
            text = f"GradTrackingTensor(lvl={n}, value=\n{textwrap.indent(text, '    ')}\n)"
    return text


def _depends_outside(t, levels):
    """True if a tensor depends on one that requires a gradient and was not entered by these levels.
    """
    entered = {i for level in levels for i in level.given}
    if not t._requires_grad_:
        return False
    seen, stack = set(), [t if t._grad_fn_ is None else (t._grad_fn_, 0)]
    while stack:
        e = stack.pop()
        if e.__class__ is not tuple:
            if e is not None and id(e) not in entered:
                return True
        elif e[0] not in seen:
            seen.add(e[0])
            stack.extend(e[0]._next_edges)
    return False
