"""torch.jit._state: whether scripting is on.  Scripted code runs eagerly either way."""


class _Enabled:
    """Whether scripting is on, as torch tells it."""

    enabled = True

    def __bool__(self):
        return self.enabled


_enabled = _Enabled()


def disable():
    """Scripting is off."""
    _enabled.enabled = False


def enable():
    """Scripting is on."""
    _enabled.enabled = True


def _clear_class_state():
    """Forgets the classes that were compiled (torch's test harness asks for it): none are, scripted code runs eagerly."""
