"""Metadata that `importlib.metadata` returns for ``torch`` while the hook is enabled.

A separate module because `importlib.metadata` takes longer to import than the hook itself.
"""
import pathlib
import pkgutil
from importlib.metadata import Distribution

import mindtorch


def version():
    """Returns the facade's ``torch.__version__`` without importing the facade (and MindSpore with
    it)."""
    scope = {}
    # constants only, as in PyTorch's version.py
    exec(pkgutil.get_data("mindtorch", "torch/version.py"), scope)
    return scope["__version__"]


class TorchDistribution(Distribution):
    """The facade's distribution metadata, under the name ``torch``."""

    package, says = "torch", "PyTorch's interface on MindSpore"

    def read_text(self, filename):
        if filename == "METADATA":
            return (f"Metadata-Version: 2.1\nName: {self.package}\nVersion: {version()}\n"
                    f"Summary: {self.says}, by mindtorch {mindtorch.__version__}\n")
        return {"top_level.txt": self.package + "\n", "INSTALLER": "mindtorch\n"}.get(filename)

    def locate_file(self, path):
        return pathlib.Path(mindtorch.__file__).parent / path


class TorchNpuDistribution(TorchDistribution):
    """Distribution metadata of ``torch_npu``, which libraries check before they request an NPU."""

    package, says = "torch_npu", "torch_npu's interface on MindSpore"


def find(context):
    """Returns the distributions for a query of `importlib.metadata`; none if the query has another
    name or a path."""
    asked = vars(context) if context is not None else {}
    name = asked.get("name")
    if "path" in asked:
        return []
    if name is None:
        return [TorchDistribution(), TorchNpuDistribution()]
    made = {"torch": TorchDistribution, "torch-npu": TorchNpuDistribution}.get(name.lower().replace("_", "-"))
    return [] if made is None else [made()]
