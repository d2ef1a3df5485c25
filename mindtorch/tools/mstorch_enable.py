"""Importing this module makes ``torch`` the facade: ``from mindtorch.tools import mstorch_enable``.

The line must precede the first ``import torch``; it needs no environment variable and leaves none
behind. Importing it again has no effect. `disable()` (or `mindtorch.tools.mstorch_disable()`)
undoes it and removes this module from sys.modules, so that the same import line enables the facade
again.
"""
from mindtorch.tools._hook import disable, enable, enabled, is_enabled

__all__ = ["disable", "enable", "enabled", "is_enabled"]

enable()
