"""`npu`: the npu device on MindSpore's CPU target, for one module of tests."""
import pytest

import mindtorch.torch as mt
from mindtorch.backend.mindspore.npu import Npu
from mindtorch.core import accelerator, devices


@pytest.fixture(scope="module")
def npu():
    """torch.device of the npu; a primitive that goes to the host is told silently, and counted in `devices.FALLBACKS`."""
    found = devices.DEVICES.get("npu")
    if found is not None:
        yield mt.device("npu", 0)
        return
    device, before = Npu("CPU"), devices.fallback.policy
    accelerator.start(device)
    devices.fallback.policy = "silent"
    try:
        yield mt.device("npu", 0)
    finally:
        devices.fallback.policy = before
        accelerator.stop(device)
