"""Public names that must be documented: shown by the API pages, and counted by
tests/test_docstrings.py."""
import importlib
import inspect

#: namespaces in the order of the pages
DESCRIBED = [
    "mindtorch.tools", "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler", "torch.autograd",
    "torch.func", "torch.amp", "torch.linalg", "torch.fft", "torch.special", "torch.signal.windows", "torch.sparse", "torch.masked", "torch.random", "torch.distributions",
    "torch.utils.data", "torch.utils.checkpoint", "torch.utils.tensorboard", "torch.compiler", "torch.export", "torch.fx", "torch.jit", "torch.onnx", "torch.library",
    "torch.distributed", "torch.multiprocessing", "torch.npu", "torch.profiler", "torch.hub", "torch.testing",
]


def names_of(namespace):
    """Returns [(name, object)] of the public functions and classes of a namespace, sorted."""
    module = namespace if namespace.startswith("mindtorch") else f"mindtorch.{namespace}"
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError:  # a class
        above, _, last = module.rpartition(".")
        home = getattr(importlib.import_module(above), last)
    names = getattr(home, "__all__", None) or dir(home)
    found = [(n, getattr(home, n, None)) for n in sorted(set(names)) if not n.startswith("_")]
    return [(n, o) for n, o in found if callable(o) and not inspect.ismodule(o)]
