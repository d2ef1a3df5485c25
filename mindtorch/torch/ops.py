"""torch.ops: operators by namespace and name (torch.ops.aten.add, torch.ops.torchvision.nms)."""
import importlib
import os

from mindtorch.torch import _ops

loaded_libraries = set()


def load_library(path):
    """Registers the Python versions of a native library's operators, where they exist.

    Native libraries themselves cannot be loaded: raises OSError if the operators have no Python
    version. The operators are looked up by the name of the library or of its package
    (torchvision/image.so, torchvision/_C.so).
    """
    path = os.path.abspath(str(path))
    stem = os.path.basename(path).split(".")[0]
    if os.path.exists(path) and (_ops.load_builtin(stem) or _ops.load_builtin(os.path.basename(os.path.dirname(path)))):
        loaded_libraries.add(path)
        return
    raise OSError(f"{path}: native operator libraries are built against libtorch and cannot be loaded by mindtorch")


def import_module(module):
    """Imports a module, which registers its operators."""
    importlib.import_module(module)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute '{name}'")
    return _ops.namespace(name)
