"""Tensor core: dtypes, devices, autograd, in-place ops and views, and the op table."""
