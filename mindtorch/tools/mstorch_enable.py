"""Importing this module makes ``torch`` the facade: ``from mindtorch.tools import mstorch_enable``.

The line stands above the first ``import torch``; it needs no environment variable and leaves none behind.  Importing
it again changes nothing.  `disable()` (or `mindtorch.tools.mstorch_disable()`) undoes it and forgets this module, so
that the same import line enables once more afterwards.
"""
from mindtorch.tools._hook import disable, enable, enabled, is_enabled

__all__ = ["disable", "enable", "enabled", "is_enabled"]

enable()
