"""Tensor substance: dtypes, devices, the tape, the alias layer and the op table."""
