"""torch.jit._state: whether scripting is enabled. Scripted code runs eagerly either way."""


class _Enabled:
    """Whether scripting is enabled, in PyTorch's form."""

    enabled = True

    def __bool__(self):
        return self.enabled


_enabled = _Enabled()


def disable():
    """Disables scripting."""
    _enabled.enabled = False


def enable():
    """Enables scripting."""
    _enabled.enabled = True


def _clear_class_state():
    """Clears the cache of compiled classes (PyTorch's test harness calls it): it is always empty,
    because scripted code runs eagerly."""
