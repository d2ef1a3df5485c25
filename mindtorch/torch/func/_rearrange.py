"""torch.func.rearrange: named dimensions in einops notation."""
import math

from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["rearrange"]


def rearrange(tensor, pattern, **axes_lengths):
    """Splits, merges and permutes the dimensions of a tensor by a pattern such as "(h k) w c -> h w
    (k c)".

      tensor        or a list of tensors of the same shape, stacked along a new first dimension
      pattern       names, `...` for any number of dimensions, 1 or () for a dimension of size 1,
                    names in parentheses for a dimension composed of several
      axes_lengths  sizes of names; one size in each parenthesis on the left may be inferred

    ValueError for invalid patterns and for patterns that do not fit the tensor.

    https://pytorch.org/docs/stable/generated/torch.func.rearrange.html
    """
    if not is_tensor(tensor):
        tensor = OPS["stack"].public(tuple(tensor) if isinstance(tensor, (list, tuple)) else tensor)
    left, right = _sides(pattern)
    names = [_names(left), _names(right)]
    one_sided = set(names[0]) ^ set(names[1])
    if "..." in names[1] and "..." not in names[0]:
        raise ValueError(f"Ellipsis found in right side, but not left side of a pattern {pattern}")
    if one_sided:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {one_sided}")
    unknown = set(axes_lengths) - set(names[0])
    if unknown:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")
    if any(isinstance(g, list) and "..." in g for g in left):
        raise ValueError(f"Ellipsis in parentheses on the left side is not allowed: {pattern}")
    ellipsis_dims, count = [], tensor.ndim - sum(g != "..." for g in left)
    if "..." in left:
        if count < 0:
            raise ValueError(f"Number of dimensions in pattern ({len(left) - 1}) must be less than or equal to the number of dimensions in the tensor ({tensor.ndim})")
        ellipsis_dims = [("...", i) for i in range(count)]
    elif count:
        raise ValueError(f"Number of dimensions in pattern ({len(left)}) must be equal to the number of dimensions in the tensor ({tensor.ndim})")
    sizes, order = {}, []
    for group, size in zip(_expanded(left, ellipsis_dims), tensor.shape):
        known = [axes_lengths.get(n) for n in group]
        if None in known:
            rest = math.prod([k for k in known if k is not None])
            if known.count(None) > 1:
                raise ValueError(f"cannot infer more than one size per group: {[n for n, k in zip(group, known) if k is None]} are unknown in {pattern!r}")
            known[known.index(None)] = size // rest if rest else 0
        if math.prod(known) != size:
            raise ValueError(f"the product of the sizes {dict(zip(group, known))} is not the dimension's size {size}, in {pattern!r}")
        sizes.update(zip(group, known))
        order += group
    groups = _expanded(right, ellipsis_dims)
    t = tensor.reshape([sizes[n] for n in order]).permute([order.index(n) for g in groups for n in g])
    return t.reshape([math.prod([sizes[n] for n in g]) for g in groups])


def _sides(pattern):
    parts = pattern.split("->")
    if len(parts) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    return [_parsed(side) for side in parts]


def _parsed(side):
    """Parses a side of a pattern into names, "..." and lists of them. A dimension of size 1 is an
    empty list."""
    found, group, seen = [], None, set()
    for word in side.replace("...", " ... ").replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            if group is not None:
                raise ValueError("Axis composition is one-level (brackets inside brackets not allowed)")
            group = []
        elif word == ")":
            if group is None:
                raise ValueError(f"Imbalanced parentheses in expression: {side!r}")
            found.append(group)
            group = None
        elif word == "1":
            if group is None:
                found.append([])
        else:
            if word.isdecimal():
                raise ValueError("rearrange only supports unnamed axes of size 1")
            if word != "..." and (not word.isidentifier() or word[0] == "_" or word[-1] == "_"):
                raise ValueError(f"Invalid axis identifier: {word}")
            if word in seen:
                raise ValueError(f"Indexing expression contains duplicate dimension {word!r}")
            seen.add(word)
            (found if group is None else group).append(word)
    if group is not None:
        raise ValueError(f"Imbalanced parentheses in expression: {side!r}")
    return found


def _names(side):
    return [n for g in side for n in (g if isinstance(g, list) else [g])]


def _expanded(side, ellipsis_dims):
    """Returns the groups of a side with the ellipsis replaced by its dimensions."""
    found = []
    for g in side:
        if g == "...":
            found += [[n] for n in ellipsis_dims]
        else:
            found.append([m for n in (g if isinstance(g, list) else [g]) for m in (ellipsis_dims if n == "..." else [n])])
    return found
