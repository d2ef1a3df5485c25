"""MindSpore layers without weights (losses, activations) as single calls in a compiled step. The
gradient of such a call is MindSpore's too."""
from typing import Any

from mindtorch.backend.hooks import hooks
from mindtorch.backend.mindspore import recorder_api
from mindtorch.backend.mindspore.graph._readable import GradientOf
from mindtorch.backend.mindspore.private import unrecorded
from mindtorch.backend.mindspore.runtime import ms

_HOOKS = ("_forward_pre_hook", "_forward_hook", "_backward_pre_hook", "_backward_hook", "_shard_fn", "_recompute_cell", "mixed_precision_type")
#: Modules whose layers are pure functions of their inputs.
_PURE = ("mindspore.nn.loss.", "mindspore.nn.layer.activation")


class Call:
    """Calls a layer, or its gradient, on handles. Every call of the layer uses the same object."""

    def __init__(self, cell: Any, compiled: bool) -> None:
        self.cell = cell
        self.run = ms.jit(cell) if compiled else cell
        self.name = type(cell).__name__

    def __call__(self, *handles: Any) -> Any:
        return recorder_api.opaque_call(self.cell, self._computed, handles)

    def _computed(self, *handles):
        with unrecorded():
            r = self.run(*handles)
        if isinstance(r, (tuple, list)):
            return tuple([x if x.is_contiguous() else x.contiguous() for x in r])
        return r if r.is_contiguous() else r.contiguous()


def calls(cell: Any) -> dict[Any, Call] | None:
    """Returns the `Call` objects of a layer: "value" maps to the layer, tuples of argument
    positions to its gradients. Returns None for a layer that is not simple enough."""
    own = cell.__dict__
    found = own.get("_mindtorch_calls", 0)
    if found == 0:
        found = own["_mindtorch_calls"] = {"value": Call(cell, False)} if _simple(cell) else None
    if found is None or cell.requires_grad or any([own.get(n) for n in _HOOKS]):
        return None
    return found


def _simple(cell):
    for _, c in cell.cells_and_names():
        if not type(c).__module__.startswith(_PURE) or c.has_bprop or "Dropout" in type(c).__name__:
            return False
        if any([c.__dict__.get(n) for n in _HOOKS]):
            return False
    return not any(True for _ in cell.get_parameters()) and hooks.seen_in(cell, set()) is None and type(cell).__name__ != "RReLU"


def gradient(made: dict[Any, Call], position: tuple[int, ...]) -> Call:
    """Returns the call that computes the gradient with respect to the arguments at `position`."""
    found = made.get(position)
    if found is None:
        found = made[position] = Call(GradientOf(made["value"].cell, position if len(position) > 1 else position[0]), True)
        found.name = f"gradient of {made['value'].name}"
    return found
