"""What each op means: families of ops declared on the op table, written on kernels and on each other.

Importing this package fills the table; the order of the imports is the order of dependence.
"""
import importlib
import importlib.util

FAMILIES = ["basic", "pointwise", "unary", "views", "shape", "index", "create", "random", "reduce", "scan", "sort", "matmul",
            "linalg", "special", "fft", "windows", "activation", "conv", "pool", "upsample", "pad", "norm", "loss",
            "embedding", "dropout", "attention", "rnn", "masked", "foreach", "misc", "sparse", "_meta_rules", "_layouts", "_legacy_overloads"]

for _name in FAMILIES:
    if importlib.util.find_spec("mindtorch.ops." + _name):
        importlib.import_module("mindtorch.ops." + _name)
