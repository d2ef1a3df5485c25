"""torch.autograd.anomaly_mode: where did the operation whose backward fails come from?"""
import traceback
import warnings

from mindtorch.core import tape
from mindtorch.core.values import values

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class _State:
    enabled = False
    check_nan = True


_plain_new_node = tape.new_node


def _traced_new_node(cls):
    n = _plain_new_node(cls)
    n.metadata["traceback_"] = traceback.format_stack()[:-2]
    return n


def _switch(on, check_nan=True):
    _State.enabled, _State.check_nan = on, check_nan
    tape.anomaly = _report if on else None
    tape.new_node = _traced_new_node if on else _plain_new_node


def _has_nan(a):
    return (a != a).any()


def _report(node, error, grads):
    """Called by the engine when a node's rule failed (error) or gave its results (grads)."""
    if error is None:
        if not _State.check_nan:
            return
        for i, g in enumerate(grads):
            if g is not None and g._stype.kind in "fc" and _has_nan(values(g)):
                _tell(node)
                raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
        return
    _tell(node)


def _tell(node):
    where = node.metadata.get("traceback_")
    text = "".join(where) if where else "  No forward pass information available. Enable detect anomaly during the forward pass."
    warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{text}", stacklevel=4)


class set_detect_anomaly:
    """Switches anomaly detection on or off; also a context manager."""

    def __init__(self, mode, check_nan=True):
        self.prev = _State.enabled, _State.check_nan
        _switch(bool(mode), check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        _switch(*self.prev)


class detect_anomaly:
    """Context manager: a failing backward tells the forward call it belongs to; NaN gradients are errors."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
                      "debugging.", stacklevel=2)

    def __enter__(self):
        self.prev = _State.enabled, _State.check_nan
        _switch(True, self.check_nan)

    def __exit__(self, *exc):
        _switch(*self.prev)
