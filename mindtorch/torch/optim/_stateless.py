"""Context manager to run an optimizer on tensors other than its own."""
from collections import defaultdict
from contextlib import contextmanager

__all__ = ["swap_in_optimizer_params_and_state"]

_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """Runs `optimizer` on the given parameters and state inside a `with` block, then restores its
    own.

    Args:
        swapin_parameters: dict of tensors in the order of the optimizer's parameters.
        swapin_optim_state: has the structure of optimizer.state_dict(). Its tensors are used
            without a copy; other changes to the state are lost.

    Raises RuntimeError if the optimizer has no state yet, or if the parameters or the state do not
    match.
    """
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    given = swapin_optim_state.get("param_groups")
    if not isinstance(given, list):
        raise RuntimeError(f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, "
                           f"got {type(given).__name__}.")
    live = optimizer.param_groups
    if len(given) != len(live):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    values = list(swapin_parameters.values())
    if len(values) != sum(len(group["params"]) for group in live):
        raise RuntimeError(f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
    groups, by_id, start = [], {}, 0
    for i, (mine, new) in enumerate(zip(live, given)):
        count = len(mine["params"])
        if len(new["params"]) != count:
            raise RuntimeError(f"swapin_optim_state param group {i} has a different number of params than the live "
                               "optimizer param group.")
        if set(new) != set(mine):
            raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the "
                               f"live optimizer group keys for group {i}. Keys only in swap-in: "
                               f"{sorted(set(new) - set(mine))}. Keys only in live: {sorted(set(mine) - set(new))}.")
        params = values[start:start + count]
        start += count
        by_id.update(zip(new["params"], params))
        groups.append({**new, "params": params})
    extra = [k for k in swapin_optim_state["state"] if k not in by_id]
    if extra:
        raise RuntimeError(f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids "
                           f"from param_groups[*]['params']; got extra keys {extra}.")
    state = defaultdict(dict)
    for k, v in swapin_optim_state["state"].items():
        state[by_id[k]] = dict(v)
    old = optimizer.param_groups, optimizer.state
    optimizer.param_groups, optimizer.state = groups, state
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = old
