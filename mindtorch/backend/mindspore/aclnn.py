"""CANN's kernels by name, through MindSpore's PyNative pipeline: also those for which MindSpore has no
primitive.

The launcher is an extension in C++ (`mindtorch/csrc/npu/aclnn.cc`). It is compiled once for the
installed MindSpore and stored in the cache folder, as the C kernels are. It needs a C++ compiler;
`unavailable()` gives the reason if there is none, and kernels then use MindSpore's primitives.
"""
from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import pathlib
import shlex
import shutil
import sysconfig
from collections.abc import Callable
from typing import Any

from mindtorch.backend.c_kernels import build

SOURCE = build.CSRC / "npu" / "aclnn.cc"
_MODULE = "mindtorch_aclnn"
#: libraries of MindSpore that define the symbols that the extension uses
_LINKED = ("core", "ms_backend", "pynative", "pyboost", "common", "pynative_utils")
#: MindSpore's wheel uses the old ABI of std::string, and ENABLE_FAST_HASH_TABLE changes the layout of
#: its classes.
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-s", "-w", "-D_GLIBCXX_USE_CXX11_ABI=0", "-DENABLE_FAST_HASH_TABLE=1", f"-DMINDTORCH_MODULE={_MODULE}")

#: aclDataType of CANN's binary interface, by dtype name
TYPES = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8, "int64": 9, "uint64": 10, "float64": 11,
         "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27}


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(command[0]):
            return command
    raise RuntimeError("no C++ compiler was found (CXX, g++, clang++, c++)")


def _command(root: pathlib.Path) -> Callable[[str, str], list[str]]:
    inner = root / "include" / "mindspore"
    third_party = root / "include" / "third_party"
    folders = [root, root / "include", third_party, third_party / "robin_hood_hashing", third_party / "securec" / "include",
               *(inner / name for name in ("include", "core/include", "core/mindrt/include", "core/mindrt", "ops", "ops/include", "ops/kernel/include", "ccsrc",
                                           "ccsrc/include")), pathlib.Path(sysconfig.get_path("include"))]
    # (no rpath: MindSpore has loaded these libraries)
    libraries = [f"-L{root / 'lib'}", *(f"-lmindspore_{name}" for name in _LINKED), "-ldl"]
    compiler = _compiler()
    return lambda made, out: [*compiler, *_FLAGS, *(f"-I{folder}" for folder in folders), str(SOURCE), *libraries, "-o", out]


def library() -> pathlib.Path:
    """Returns the path of the extension for the installed MindSpore; compiles it if necessary, in
    about 20 seconds. RuntimeError if that is impossible."""
    spec = importlib.util.find_spec("mindspore")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("MindSpore is not installed")
    root = pathlib.Path(spec.submodule_search_locations[0])
    command = _command(root)
    core = root / "lib" / "libmindspore_core.so"
    build_of = f"{importlib.metadata.version('mindspore')} {core.stat().st_size if core.exists() else ''} {sysconfig.get_config_var('SOABI')}"
    return build.cached(b"\0".join([SOURCE.read_bytes(), build_of.encode(), " ".join(command("", "")).encode()]), command)


@functools.cache
def _loaded() -> tuple[Any, str]:
    """Returns (the extension, ""), or (None, the reason)."""
    if os.environ.get("MINDTORCH_NATIVE") == "0":
        return None, "MINDTORCH_NATIVE=0"
    try:
        loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(library()))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(_MODULE, loader))          # type: ignore[arg-type]
        loader.exec_module(module)
    except (RuntimeError, ImportError) as e:
        return None, str(e)
    return module, ""


def unavailable() -> str:
    """Returns why kernels cannot be launched by name, or an empty string."""
    return _loaded()[1]


@functools.cache
def find(name: str, kinds: str) -> Callable[..., Any] | None:
    """Returns a function that launches the kernel aclnn<name>; None if the extension or the kernel is
    unavailable.

    Args:
        kinds: the kinds of its arguments, as `mindtorch/csrc/npu/aclnn.cc` lists them.

    The function takes the arguments, and `outputs`: (shape, aclDataType) of each new tensor. It returns
    a tuple of the new tensors.
    """
    module = _loaded()[0]
    if module is None:
        return None
    try:
        kernel = module.Kernel(f"aclnn{name}")
    except KeyError:
        return None
    return lambda *arguments, outputs=(): kernel(kinds, arguments, outputs)
