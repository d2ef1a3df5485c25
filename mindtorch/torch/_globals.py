"""Names in pickles: PyTorch's name of an object, and its location in this package.

Files contain PyTorch's names, whether this package runs as `torch` or as `mindtorch.torch`, and
whether or not the real PyTorch is loaded too.
"""

import importlib
import sys
import types

from mindtorch.core.tensor import dtypes as _dtypes

_PACKAGE = "mindtorch.torch"

# Objects whose module here is not the one where PyTorch users find them.
_PUBLIC = {
    ("mindtorch.core.tensor.tensor", "Tensor"): ("torch", "Tensor"),
    ("mindtorch.core.tensor.tensor", "Parameter"): ("torch.nn.parameter", "Parameter"),
    ("mindtorch.core.tensor.tensor", "Size"): ("torch", "Size"),
    ("mindtorch.core.device.device", "device"): ("torch", "device"),
    ("mindtorch.torch._utils", "_rebuild_from_type_v2"): ("torch._tensor", "_rebuild_from_type_v2"),
    ("mindtorch.torch._types", "_get_layout"): ("torch.serialization", "_get_layout"),
    ("mindtorch.torch.storage", "UntypedStorage"): ("torch.storage", "UntypedStorage"),
    ("mindtorch.torch.storage", "TypedStorage"): ("torch.storage", "TypedStorage"),
}
_HERE = {v: k for k, v in _PUBLIC.items()}

# Modules that hold the counterparts of PyTorch's built-in functions.
_BUILTIN_HOMES = {
    ("torch._C", "_VariableFunctionsClass"): "mindtorch.torch",
    ("torch._C", "_VariableFunctions"): "mindtorch.torch",
    ("torch._C", "_nn"): "mindtorch.torch.nn.functional",
}
_BUILTIN_MODULES = {"torch._C._nn": "mindtorch.torch.nn.functional", "torch._VF": "mindtorch.torch"}
_ALIASES = {
    ("torch._C", "TensorBase"): ("mindtorch.core.tensor.tensor", "Tensor"),
    ("torch._C", "_TensorBase"): ("mindtorch.core.tensor.tensor", "Tensor"),
    ("torch._C", "Generator"): ("mindtorch.torch", "Generator"),
}

#: dtype -> name of the legacy storage class (torch.FloatStorage etc.)
STORAGE_NAMES = {
    _dtypes.float64: "DoubleStorage",
    _dtypes.float32: "FloatStorage",
    _dtypes.float16: "HalfStorage",
    _dtypes.int64: "LongStorage",
    _dtypes.int32: "IntStorage",
    _dtypes.int16: "ShortStorage",
    _dtypes.int8: "CharStorage",
    _dtypes.uint8: "ByteStorage",
    _dtypes.bool_: "BoolStorage",
    _dtypes.bfloat16: "BFloat16Storage",
    _dtypes.complex128: "ComplexDoubleStorage",
    _dtypes.complex64: "ComplexFloatStorage",
}

#: name of the class -> dtype
STORAGE_DTYPES = {v: k for k, v in STORAGE_NAMES.items()}

#: modules of Python 2 -> their current names
PYTHON2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}


def torch_name(obj):
    """Returns (module, name) of a class or function of this package in PyTorch; None for anything
    else."""
    module = getattr(obj, "__module__", None)
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(module, str) or name is None:
        return None
    if is_torch(module):
        # If the import hook is enabled, it gives the facade's modules PyTorch's names; otherwise
        # the object belongs to the real PyTorch.
        if not _holds("mindtorch." + module, name, obj):
            return None
        module = "mindtorch." + module
    key = (module, name)
    if key in _PUBLIC:
        return _PUBLIC[key]
    if module == "mindtorch.torch.storage" and name.endswith("Storage"):
        return "torch", name
    if module == _PACKAGE or module.startswith(_PACKAGE + "."):
        return module[len("mindtorch.") :], name
    if module.startswith("mindtorch."):
        for home in ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft"):
            if _holds("mindtorch." + home, name, obj):
                return home, name
    return None


def _holds(module, name, obj):
    here = sys.modules.get(module)
    for part in name.split("."):
        here = getattr(here, part, None)
    return here is obj


def importable(obj):
    """True if Python's own pickler finds a class or function under its name."""
    return "." not in obj.__qualname__ and _holds(obj.__module__, obj.__qualname__, obj)


class Missing(Exception):
    """Raised for a name that PyTorch may have and this package does not."""


class _Functions:
    """Replacement for PyTorch's built-in function tables, from which pickles take functions with
    getattr."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(importlib.import_module(self._module), name)


def resolve(module, name):
    """Returns the object of this package for a PyTorch name. Raises Missing if there is none."""
    if module == "torch" and name in _dtypes.NAMES:
        return _dtypes.NAMES[name]
    if (module, name) in _BUILTIN_HOMES:
        return _Functions(_BUILTIN_HOMES[module, name])
    if module in ("torch", "torch.storage", "torch.cuda") and name.endswith("Storage"):
        if name in STORAGE_DTYPES or name in ("UntypedStorage", "TypedStorage"):
            module = "torch.storage"
    home, name = _HERE.get((module, name)) or _ALIASES.get((module, name)) or (None, name)
    if home is None:
        home = _BUILTIN_MODULES.get(module) or "mindtorch." + module
    try:
        found = importlib.import_module(home)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as e:
        raise Missing(f"{module}.{name} is named in the file, but mindtorch has no such class or function ({e})") from e
    return found


def is_torch(module):
    """True if a pickle's module name belongs to PyTorch and is therefore resolved by this package.
    """
    return module == "torch" or module.startswith("torch.")


def canonical(module, name):
    """Returns one spelling for names that moved between releases of Python and NumPy."""
    module = PYTHON2.get(module, module)
    if module.startswith("numpy.core"):
        module = "numpy._core" + module[len("numpy.core") :]
    return f"{module}.{name}" if module != "builtins" else name


def label(obj):
    """Returns the canonical full name of a class or function, as used in files."""
    known = torch_name(obj)
    if known is not None:
        return canonical(*known)
    if isinstance(obj, _dtypes.dtype):
        return repr(obj)
    module, name = (
        getattr(obj, "__module__", None),
        getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None),
    )
    if isinstance(obj, types.BuiltinFunctionType) and module is None:
        module = "builtins"
    if module is None or name is None:
        raise TypeError(f"{obj!r} is neither a class nor a function, so no pickle can name it")
    return canonical(module, name)
