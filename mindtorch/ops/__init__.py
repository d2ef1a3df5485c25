"""Op families: declared in the op table, implemented with kernels and with each other.

Importing this package fills the table. The families are imported in order of dependence.
"""
import importlib

from mindtorch.core import bootstrap  # noqa: F401

FAMILIES = [
    "basic",
    "elementwise.binary", "elementwise.unary", "elementwise._ternary", "elementwise._gamma", "elementwise._logic", "elementwise._operators",
    "shapes.views", "shapes._splits", "shapes.shape", "indexing.index", "shapes._copies", "indexing._subscript", "indexing._writes",
    "creation.create", "creation.random",
    "reduction.reduce", "reduction._histogram", "reduction._order_stats", "reduction.scan", "reduction.sort",
    "linalg.matmul", "linalg.solve", "linalg._factor", "linalg._legacy", "linalg._norms", "linalg._products", "linalg._spectral",
    "elementwise.special", "signal.fft", "signal._stft", "creation.windows",
    "nn.activation", "nn.conv", "nn.pooling", "nn.upsample", "nn.pad", "nn.norm", "nn.loss", "nn.embedding", "nn.dropout", "nn.attention", "nn.rnn",
    "nn._saved", "masked", "elementwise.foreach", "misc", "sparse", "_legacy_overloads",
]

for _name in FAMILIES:
    importlib.import_module("mindtorch.ops." + _name)

from mindtorch.ops import _bootstrap  # noqa: E402,F401

# Imported after the families: these modules need all primitives to be registered.
from mindtorch.core.device import backend_autoload  # noqa: E402,F401
from mindtorch.core.transforms import vmap  # noqa: E402,F401
from mindtorch.core.autograd import forward_ad  # noqa: E402,F401

forward_ad.at_first.append(lambda: importlib.import_module("mindtorch.ops._jvp_rules"))
vmap.at_first.append(lambda: importlib.import_module("mindtorch.ops._vmap_rules"))
