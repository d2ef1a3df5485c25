"""Kernels of the meta device, which compute shapes, dtypes and strides only.

`kernel("name")` registers a rule: rule(fwd, arrays, constants) -> meta array(s). If a rule returns
None, the host's kernel runs on arrays of zeros instead.
"""
from mindtorch.backend.kernels import registrar

kernel = registrar("meta")
