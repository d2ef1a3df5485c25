"""torch.fx.traceback: the meta entries of nodes created within a block."""
import contextlib

__all__ = ["annotate", "preserve_node_meta", "has_preserved_node_meta", "set_stack_trace", "set_current_meta", "get_current_meta", "format_stack"]

_current = {}
_keep = False


@contextlib.contextmanager
def preserve_node_meta(enable=True):
    """Within the block, nodes created while another node is interpreted get its meta."""
    global _keep, _current
    before = _keep, _current
    _keep, _current = enable, dict(_current)
    try:
        yield
    finally:
        _keep, _current = before


def has_preserved_node_meta():
    return _keep


def set_stack_trace(stack):
    if _keep and stack:
        _current["stack_trace"] = "".join(stack)


def format_stack():
    return [_current["stack_trace"]] if _keep and "stack_trace" in _current else []


@contextlib.contextmanager
def annotate(annotation_dict):
    """Within the block, new nodes get these entries in meta["custom"]."""
    global _current
    before = _current
    _current = {**_current, "custom": {**_current.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _current = before


@contextlib.contextmanager
def set_current_meta(node, pass_name=""):
    """Within the block, the meta of `node` is the current meta."""
    global _current
    before = _current
    if _keep and node.meta:
        _current = dict(node.meta)
    try:
        yield
    finally:
        _current = before


def get_current_meta():
    """Returns the meta entries for new nodes."""
    return _current
