"""Protocol of objects whose state is saved in checkpoints."""
from typing import Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """An object with state_dict() and load_state_dict(d)."""

    def state_dict(self):
        """Returns the object's state as a dict."""

    def load_state_dict(self, state_dict):
        """Restores the state from such a dict."""
