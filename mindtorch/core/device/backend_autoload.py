"""The accelerator of this process, if there is one.

It is detected after the primitives have been declared. Environment variables:

    MINDTORCH_NPU=cpu            npu device on MindSpore's CPU target (no NPU needed)
    MINDTORCH_NPU_FALLBACK=0     a primitive without a kernel raises instead of running on the host
"""
from __future__ import annotations

import os

from mindtorch.backend import kernels
from mindtorch.backend.mindspore import npu
from mindtorch.core.device import device_dispatch
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import tensor


def register_device(device: npu.Npu) -> None:
    """Registers the device, so that tensors can be created on it."""
    from mindtorch.backend.mindspore import kernels as npu_kernels
    from mindtorch.backend.mindspore.graph.graph_compiler import GraphCompiler
    kernels.load(npu_kernels)
    npu_kernels.fill_table()
    device.maker = GraphCompiler
    device_dispatch.register(device)
    hooks.classify_native = device_dispatch.classify_native
    npu.see_values_in(tensor.bind_native_memory)


def unregister_device(device: npu.Npu) -> None:
    """Reverts `register_device`."""
    device_dispatch.unregister(device)
    hooks.classify_native = None
    npu.see_values_in(None)


_found = npu.find()
if _found is not None:
    register_device(_found)
    if os.environ.get("MINDTORCH_NPU_FALLBACK") == "0":
        device_dispatch.fallback.policy = "error"
