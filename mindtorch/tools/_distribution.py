"""What `importlib.metadata` says about ``torch`` while the hook is enabled.

A module of its own because it needs `importlib.metadata`, which takes longer to import than the hook itself.
"""
import pathlib
import pkgutil
from importlib.metadata import Distribution

import mindtorch


def version():
    """The facade's ``torch.__version__``, without importing the facade (and MindSpore with it)."""
    scope = {}
    exec(pkgutil.get_data("mindtorch", "torch/version.py"), scope)  # constants only, as torch's own version.py
    return scope["__version__"]


class TorchDistribution(Distribution):
    """The distribution ``torch`` as which the facade passes."""

    package, says = "torch", "PyTorch's interface on MindSpore"

    def read_text(self, filename):
        if filename == "METADATA":
            return (f"Metadata-Version: 2.1\nName: {self.package}\nVersion: {version()}\n"
                    f"Summary: {self.says}, by mindtorch {mindtorch.__version__}\n")
        return {"top_level.txt": self.package + "\n", "INSTALLER": "mindtorch\n"}.get(filename)

    def locate_file(self, path):
        return pathlib.Path(mindtorch.__file__).parent / path


class TorchNpuDistribution(TorchDistribution):
    """The distribution ``torch_npu``, which libraries look for before they ask for an NPU."""

    package, says = "torch_npu", "torch_npu's interface on MindSpore"


def find(context):
    """What answers one question of `importlib.metadata`: ours, unless another name or a folder is asked for."""
    asked = vars(context) if context is not None else {}
    name = asked.get("name")
    if "path" in asked:
        return []
    if name is None:
        return [TorchDistribution(), TorchNpuDistribution()]
    made = {"torch": TorchDistribution, "torch-npu": TorchNpuDistribution}.get(name.lower().replace("_", "-"))
    return [] if made is None else [made()]
