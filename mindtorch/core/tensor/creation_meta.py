"""Views that cannot follow a write to their memory, and their error messages.

`register_view` in `mindtorch/core/tensor/view_meta.py` decides which views are fragile.
"""
from __future__ import annotations

import re
from typing import Any


def check_inplace_on_view(x: Any) -> None:
    """Raises RuntimeError if a fragile view is used with grad after a write to its memory."""
    # A view returned by a custom Function has its own history, whatever the history of its base.
    if x._version_counter is not None and x._version_counter.v != x._made and x._base is not None and (x._grad_fn_ is not None or x._base._requires_grad_):
        raise RuntimeError(creation_meta_message(x, "its base or another view of its base has been"))


def creation_meta_message(x: Any, what: str) -> str:
    """Returns the error for a write that the fragile view `x` cannot follow.

    `what` names the written tensor.
    """
    n = x._grad_fn_
    kind = x._creation_meta
    if kind == "no_grad" or kind == "inference" or n is None:
        start = "A view was created in" if n is None else \
            f"Output {x._output_nr} of {node_op_name(n)} is a view of a view which was created in"
        text = f"{start} {'inference' if kind == 'inference' else 'no_grad'} mode and {what} modified inplace " \
            f"{'in normal mode' if kind == 'inference' else 'with grad mode enabled'}."
    else:
        text = f"Output {x._output_nr} of {node_op_name(n)} is a view and {what} modified inplace."
    if kind == "multi":
        return text + (" This view is the output of a function that returns multiple views. Autograd cannot follow writes "
                       "through those: use an out-of-place operation instead.")
    if kind == "custom":
        return text + (" This view was created inside a custom Function (or is an input that it returned), and the write would bypass its "
                       "backward: clone() the output before writing to it.")
    where = "inference_mode" if kind == "inference" else "no_grad block"
    return text + (f" Autograd cannot decide whether to record the write: create the view and write to it both inside the {where}, or both "
                   "outside.")


def node_op_name(n: Any) -> str:
    """Returns PyTorch's short name of an op: "Mul" for MulBackward0."""
    return re.sub(r"Backward\d*$", "", n.name())
