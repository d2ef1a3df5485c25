"""What each op means: families of ops declared on the op table, written on kernels and on each other.

Importing this package fills the table; the order of the imports is the order of dependence.
"""
import importlib

FAMILIES = ["basic", "elementwise.binary", "elementwise.unary", "shapes.views", "shapes.shape", "indexing.index", "creation.create", "creation.random",
            "reduction.reduce", "reduction.scan", "reduction.sort", "linalg.matmul", "linalg.solve", "elementwise.special", "signal.fft",
            "creation.windows", "nn.activation", "nn.conv", "nn.pooling", "nn.upsample", "nn.pad", "nn.norm", "nn.loss", "nn.embedding", "nn.dropout",
            "nn.attention", "nn.rnn", "masked", "elementwise.foreach", "misc", "sparse", "_meta_rules", "_layouts", "_legacy_overloads"]

for _name in FAMILIES:
    importlib.import_module("mindtorch.ops." + _name)
