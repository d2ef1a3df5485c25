"""The plugins that the CANN simulator serves: MindSpore's Ascend plugin, and torch_npu, the reference.

A plugin says where its libraries are, which functions of CANN they look up by name, and what a
process needs to load them.
"""
from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import re

#: the CANN release that the simulator claims to be
CANN = "8.5.0"
#: the release of torch_npu that is the reference
TORCH_NPU = "2.13.0"


class CannotBuild(RuntimeError):
    """Raised if the simulator cannot be built here; the message gives the reason."""


def _located(module):
    """Returns a package's folder, or None if it is not installed. The package is not imported,
    because an import would load its plugins."""
    spec = importlib.util.find_spec(module)
    return pathlib.Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _by_name(paths):
    found = {}
    for path in paths:
        found.setdefault(path.name, path)
    return found


class MindSpore:
    """MindSpore's Ascend plugin, in the installed MindSpore."""

    name = "mindspore"
    #: the plugin's libraries; their dependencies are followed
    roots = ("libmindspore_ascend.so.2", "libmindspore_ge_backend.so", "libmindspore_graph_ir.so", "libmindspore_extension_ascend_aclnn.so")
    #: CANN libraries that are opened by name
    opened = frozenset({"libopapi.so", "libacl_op_compiler.so", "libacl_tdt_channel.so", "libacl_tdt_queue.so", "libhccl_plugin.so", "libprofapi.so"})
    #: names of functions that may be looked up at run time
    names = re.compile(rb"(?<=\0)(?:acl|Hccl|msprof|Msprof|rt)[A-Za-z]\w+(?=\0)")
    #: the wheel uses the old ABI of std::string
    string_abi = 0
    #: where MindSpore looks for CANN's Python packages; it reads only their versions
    _packages = "opp/built-in/op_impl/ai_core/tbe"
    #: files of the toolkit that MindSpore checks at start-up
    toolkit = {"compiler/version.info": f"Version={CANN}\n", f"{_packages}/hccl/__init__.py": "",
               f"{_packages}/hccl/sys_version/__init__.py": '__sys_version__ = "8.5"\n'}

    def version(self):
        """Returns a name for the plugin's release."""
        return importlib.metadata.version("mindspore")

    def check(self):
        """Raises CannotBuild if the plugin is missing."""
        if _located("mindspore") is None:
            raise CannotBuild("MindSpore is not installed")
        if self.roots[0] not in self.libraries():
            raise CannotBuild("the installed MindSpore has no Ascend plugin (libmindspore_ascend.so.2)")

    def libraries(self):
        """Returns {name: path} of the shared libraries that the plugin may load."""
        root = _located("mindspore")
        if root is None:
            raise CannotBuild("MindSpore is not installed")
        return _by_name(p for p in sorted((root / "lib").rglob("*.so*")) if "gpu" not in "".join(q.name for q in p.relative_to(root).parents))

    def looks_up(self, library):
        """True if a library looks up functions of CANN by name."""
        return "mindspore" in library or "d_collective" in library or "dvpp" in library

    def of_cann(self, symbol):
        """True if an undefined symbol that no library of the plugin defines may be CANN's."""
        return not re.match(r"_?Py|__tls_get_addr|__cxa|_dl_", symbol)

    def linked(self):
        """Returns the folders for LD_LIBRARY_PATH, beside the simulator's."""
        return []

    def packages(self, at):
        """Returns the folders for PYTHONPATH."""
        return [at / self._packages]


class TorchNpu:
    """torch_npu's wheel, unpacked in the folder that MINDTORCH_TORCH_NPU names, over the installed
    torch. (Installed next to torch, it would be loaded by every `import torch`.)"""

    name = "torch_npu"
    roots = ("libtorch_npu.so", "_C")
    opened = frozenset({"libopapi.so", "libacl_op_compiler.so", "libacl_tdt_channel.so", "libacl_tdt_queue.so", "libprofapi.so", "libruntime.so", "libhccl.so",
                        "libhcomm.so", "libascendcl.so", "libge_runner.so", "libgraph.so"})
    names = re.compile(rb"(?<=\0)(?:acl|Hccl|hccl|msprof|Msprof|rt)[A-Za-z]\w+(?=\0)")
    string_abi = 1
    toolkit = {f"{folder}/version.info": f"Version={CANN}\n" for folder in ("runtime", "compiler", "opp", "toolkit", "x86_64-linux")}

    def folder(self):
        """Returns the folder with the unpacked wheel."""
        path = os.environ.get("MINDTORCH_TORCH_NPU", "")
        if not path or not (pathlib.Path(path) / "torch_npu").is_dir():
            problem = f"MINDTORCH_TORCH_NPU={path!r} has no torch_npu" if path else "MINDTORCH_TORCH_NPU must name the folder of its unpacked wheel"
            raise CannotBuild(f"{problem}. To unpack it:\n"
                              f"    pip download --no-deps --dest wheel torch_npu=={TORCH_NPU}\n"
                              "    python -m zipfile -e wheel/torch_npu-*.whl FOLDER\n"
                              "    export MINDTORCH_TORCH_NPU=FOLDER")
        return pathlib.Path(path).resolve()

    def _torch(self):
        found = _located("torch")
        if found is None:
            raise CannotBuild(f"torch_npu needs torch {TORCH_NPU}, which is not installed")
        return found

    def version(self):
        """Returns a name for the plugin's release."""
        return f"torch_npu-{TORCH_NPU}"

    def check(self):
        """Raises CannotBuild if the wheel or its torch is missing, or of another release."""
        root = self.folder()
        found = importlib.metadata.distributions(name="torch_npu", path=[str(root)])
        versions = [d.version.partition("+")[0] for d in found]
        if versions != [TORCH_NPU]:
            raise CannotBuild(f"{root} has torch_npu {', '.join(versions) or 'of an unknown release'}, not {TORCH_NPU}")
        self._torch()
        torch = importlib.metadata.version("torch").partition("+")[0]
        if torch != TORCH_NPU:
            raise CannotBuild(f"torch_npu {TORCH_NPU} needs torch {TORCH_NPU}; {torch} is installed")

    def libraries(self):
        """Returns {name: path} of the shared libraries that the plugin may load. The extension module
        is named `_C`."""
        root = self.folder()
        found = _by_name([*sorted((root / "torch_npu").rglob("*.so*")), *sorted((self._torch() / "lib").glob("*.so*")),
                          *sorted((root / "torch_npu.libs").glob("*"))])
        for name in [n for n in found if n.startswith("_C.")]:
            found["_C"] = found.pop(name)
        return found

    def looks_up(self, library):
        """True if a library looks up functions of CANN by name."""
        return library == "libtorch_npu.so"

    def of_cann(self, symbol):
        """True if an undefined symbol that no library of the plugin defines may be CANN's."""
        return re.match(r"acl|Hccl|hccl|rt[A-Z]|Msprof|_ZNK?2ge|Adx", symbol) is not None

    def linked(self):
        """Returns the folders for LD_LIBRARY_PATH, beside the simulator's."""
        return [self._torch() / "lib"]

    def packages(self, at):
        """Returns the folders for PYTHONPATH."""
        return [self.folder()]


MINDSPORE, REFERENCE = MindSpore(), TorchNpu()
PLUGINS = {p.name: p for p in (MINDSPORE, REFERENCE)}
