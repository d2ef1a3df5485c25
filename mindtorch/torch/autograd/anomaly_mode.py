"""torch.autograd.anomaly_mode: finds the forward call of the operation whose backward fails."""
import traceback
import warnings

from mindtorch.core.dispatch import dispatcher
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.inplace import new_nodes
from mindtorch.core.autograd.graph import sequence
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.core.tensor.sync import to_host

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class _State:
    enabled = False
    check_nan = True


def note(result, since):
    """Stores the caller's stack in the nodes of a call's results (a tensor or nested lists) created
    since sequence number `since`."""
    where = None
    for t in _tensors(result):
        if t._grad_fn_ is not None and t._grad_fn_._sequence_number >= since:
            where = where or traceback.format_stack()[:-2]
            for node in new_nodes(t._grad_fn_, since):
                node.metadata.setdefault("traceback_", where)


def _tensors(x):
    if is_tensor(x):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _tensors(y)


@dispatcher.register_layer("ops", "anomaly")
def _noted(entry, args, kwargs, below):
    since = next(sequence)
    out = below(entry, args, kwargs)
    # an op without a result writes to its first argument
    note(args[:1] if out is None else out, since)
    return out


def _switch(on, check_nan=True):
    if on is not _State.enabled:
        (dispatcher.enable_layer if on else dispatcher.disable_layer)("ops", "anomaly")
    _State.enabled, _State.check_nan = on, check_nan
    hooks.anomaly, hooks.stack_recorder = (_report, note) if on else (None, None)


def _has_nan(a):
    return (a != a).any()


def _report(node, error, grads):
    """Called by the engine when a node's gradient rule has failed (error) or returned gradients
    (grads)."""
    if error is None:
        if not _State.check_nan:
            return
        for i, g in enumerate(grads):
            if g is not None and g._np_dtype.kind in "fc" and _has_nan(to_host(g)):
                _tell(node)
                raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
        return
    _tell(node)


def _tell(node):
    where = node.metadata.get("traceback_")
    text = "".join(where) if where else "  No forward pass information available. Enable detect anomaly during the forward pass."
    warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{text}", stacklevel=4)


class set_detect_anomaly:
    """Enables or disables anomaly detection. Can also be used as a context manager."""

    def __init__(self, mode, check_nan=True):
        self.prev = _State.enabled, _State.check_nan
        _switch(bool(mode), check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        _switch(*self.prev)


class detect_anomaly:
    """Context manager for anomaly detection: a failing backward reports the forward call that
    created its node; NaN gradients are errors."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
                      "debugging.", stacklevel=2)

    def __enter__(self):
        self.prev = _State.enabled, _State.check_nan
        _switch(True, self.check_nan)

    def __exit__(self, *exc):
        _switch(*self.prev)
