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

    def read_text(self, filename):
        if filename == "METADATA":
            return (f"Metadata-Version: 2.1\nName: torch\nVersion: {version()}\n"
                    f"Summary: PyTorch's interface on MindSpore, by mindtorch {mindtorch.__version__}\n")
        return {"top_level.txt": "torch\n", "INSTALLER": "mindtorch\n"}.get(filename)

    def locate_file(self, path):
        return pathlib.Path(mindtorch.__file__).parent / path


def find(context):
    """What answers one question of `importlib.metadata`: ours, unless another name or a folder is asked for."""
    asked = vars(context) if context is not None else {}
    name = asked.get("name")
    if "path" in asked or name is not None and name.lower() != "torch":
        return []
    return [TorchDistribution()]
