"""Kernels over host arrays: NumPy, oneDNN, our C, threads.

`kernel("name")` puts a function over arrays into the table under the name of its primitive.
"""
from mindtorch.backend.kernels import registrar

kernel = registrar("cpu")
