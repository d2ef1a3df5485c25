"""CPU kernels over host arrays: NumPy, oneDNN, C code and threads.

`kernel("name")` registers a function over arrays under the name of its primitive.
"""
from mindtorch.backend.kernels import registrar

kernel = registrar("cpu")
