"""torch.cond and torch.while_loop, as plain Python control flow."""
from mindtorch.core.dispatch import wanted
from mindtorch.core.tensor import taken
from mindtorch.torch.utils._pytree import tree_flatten

__all__ = ["cond", "while_loop"]


def _truth(name, value):
    """The bool that a condition stands for; RuntimeError unless it is a bool or a tensor of one element."""
    if taken(value):
        if value.numel() != 1:
            raise RuntimeError(f"Expected {name} to be bool or single-element tensor, but got a tensor of shape {list(value.shape)}.")
        return bool(value)
    if isinstance(value, (bool, int, float)):
        return bool(value)
    raise RuntimeError(f"Expected {name} to be bool or single-element tensor, but got {value}.")


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) if pred (a bool or a one-element tensor), else false_fn(*operands)."""
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or any([not taken(t) and not isinstance(t, (int, float, bool)) for t in tree_flatten(operands)[0]]):
        raise RuntimeError(f"Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got {operands}.")
    if wanted("ops", "dispatch"):
        from mindtorch.torch import _dispatch_protocol, _ops
        modes = _dispatch_protocol.state.modes
        if modes and getattr(modes[-1], "supports_higher_order_operators", False):
            return _ops.namespace("higher_order").cond(pred, true_fn, false_fn, operands)
    return taken_branch(pred, true_fn, false_fn, operands)


def taken_branch(pred, true_fn, false_fn, operands):
    """What the branch gives that pred says."""
    return true_fn(*operands) if _truth("pred", pred) else false_fn(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """Replaces the carried inputs by body_fn(*carried) while cond_fn(*carried); returns them as a tuple."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, but got {type(carried_inputs)}")
    carried = tuple(carried_inputs)
    while _truth("the result of cond_fn", cond_fn(*carried)):
        r = body_fn(*carried)
        if not isinstance(r, (tuple, list)) or len(r) != len(carried):
            raise RuntimeError(f"body_fn should return as many elements as there are carried inputs ({len(carried)}), but got {r}")
        carried = tuple(r)
    return carried
