"""What has a state of its own that checkpoints hold."""
from typing import Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """An object with state_dict() and load_state_dict(d)."""

    def state_dict(self):
        """A dict of what is worth keeping."""

    def load_state_dict(self, state_dict):
        """Takes up such a dict."""
