"""torch.cond and torch.while_loop as plain Python control flow."""
from mindtorch.core.transforms import vmap
from mindtorch.core.dispatch.dispatcher import is_enabled
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["cond", "while_loop"]


def _truth(name, value):
    """Converts a condition to bool. RuntimeError unless it is a Python scalar or a one-element
    tensor."""
    if is_tensor(value):
        if value.numel() != 1:
            raise RuntimeError(f"Expected {name} to be bool or single-element tensor, but got a tensor of shape {list(value.shape)}.")
        return bool(value)
    if isinstance(value, (bool, int, float)):
        return bool(value)
    raise RuntimeError(f"Expected {name} to be bool or single-element tensor, but got {value}.")


def cond(pred, true_fn, false_fn, operands=()):
    """Returns true_fn(*operands) if pred (a bool or a one-element tensor), else
    false_fn(*operands)."""
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or any([not is_tensor(t) and not isinstance(t, (int, float, bool)) for t in tree_flatten(operands)[0]]):
        raise RuntimeError(f"Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got {operands}.")
    if is_enabled("ops", "dispatch"):
        from mindtorch.torch import _dispatch_protocol, _ops
        modes = _dispatch_protocol.state.modes
        if modes and getattr(modes[-1], "supports_higher_order_operators", False):
            return _ops.namespace("higher_order").cond(pred, true_fn, false_fn, operands)
    return run_branch(pred, true_fn, false_fn, operands)


def run_branch(pred, true_fn, false_fn, operands):
    """Runs the branch that pred selects. If pred differs between the slices of a vmap, both
    branches run and each slice gets the result of its own."""
    level = vmap.level_of(pred) if is_tensor(pred) else None
    if level is None:
        return true_fn(*operands) if _truth("pred", pred) else false_fn(*operands)
    if pred.numel() != 1:
        _truth("pred", pred)  # raises the error
    predicate = pred.reshape(()).bool()
    (a, spec), (b, other) = tree_flatten(true_fn(*operands)), tree_flatten(false_fn(*operands))
    if spec != other or any([x.shape != y.shape or x.dtype != y.dtype if is_tensor(x) and is_tensor(y) else x is not y for x, y in zip(a, b)]):
        raise RuntimeError(f"Expected the branches of cond to return the same structure of tensors with the same metadata, but got {a} and {b}")
    return tree_unflatten([OPS["where"].public(predicate, x, y) if is_tensor(x) else x for x, y in zip(a, b)], spec)


def while_loop(cond_fn, body_fn, carried_inputs):
    """Replaces the carried inputs (pytrees) by body_fn(*carried) while cond_fn(*carried) is true.

    Returns the last result of body_fn, or the carried inputs as a tuple if it never ran.
    RuntimeError if the body changes the number, structure, shapes or dtypes.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, but got {type(carried_inputs)}")
    found = carried = tuple(carried_inputs)
    first, spec = tree_flatten(carried)
    while _truth("the result of cond_fn", cond_fn(*carried)):
        found = body_fn(*carried)
        carried = (found,) if is_tensor(found) else found
        if not isinstance(carried, (tuple, list)) or len(carried) != len(carried_inputs):
            raise RuntimeError(f"body_fn should return as many elements as there are carried inputs ({len(carried_inputs)}), but got {found}")
        carried = tuple(carried)
        leaves, now = tree_flatten(carried)
        if now != spec or any([is_tensor(a) is not is_tensor(b) or is_tensor(a) and (a.shape != b.shape or a.dtype != b.dtype) for a, b in zip(first, leaves)]):
            raise RuntimeError(f"Expected body_fn_output and carried_inputs to have the same structure and metadata, but got {found} for {list(carried_inputs)}")
    return found
