"""Kernels of the meta device: shapes, dtypes and strides only.

`kernel("name")` puts a rule into the table: rule(arrays, constants) -> blank array(s), or None where it knows nothing and the host's
kernel is to tell, run on arrays of zeros.
"""
from mindtorch.backend.kernels import registrar

kernel = registrar("meta")
