"""`pytest --device npu`: the op tests again, with every tensor on that device (MindSpore's CPU
target if there is no NPU).

The device is the default one while such a test runs, so its tensors are created there.
`Tensor.numpy` and `from_numpy` go through copies, and random numbers come from the host generator,
so one test has the correct values for both devices. Tests of features that only host memory has
(arrays that share it, storages, threads) are marked `host_only`, with the reason and, if only some
parameters are affected, their ids in `cases`.
"""
import pathlib

import pytest

#: tests that run on the device: values, gradients, aliasing and errors of ops
SCOPE = ("ops/", "core/test_alias.py", "core/test_conj_views.py", "core/test_alias_fuzz.py", "core/test_autograd.py", "core/test_half.py", "core/test_gradient_points.py",
         "core/test_forward_mode.py", "core/test_memory_format.py", "conformance/")
_NAME = ""
TESTS = pathlib.Path(__file__).resolve().parent


def active():
    """Returns the device's name, or "" if the tests run on the host."""
    return _NAME


def configure(config):
    """Registers the device for the whole session."""
    global _NAME
    _NAME = name = config.getoption("--device")
    if not name:
        return
    from mindtorch.backend.mindspore.npu import Npu
    from mindtorch.core.device import backend_autoload, device_dispatch, rng
    if name not in device_dispatch.DEVICES:
        if name != "npu":
            raise pytest.UsageError(f"--device {name}: the tests know npu")
        backend_autoload.register_device(Npu("CPU"))
    device_dispatch.fallback.policy = "silent"
    rng.policy.host = True


def selected(config, items):
    """Returns (tests that run on the device, the others); marks `host_only` tests as skipped."""
    if not config.getoption("--device"):
        return items, []
    inside = [i for i in items if i.path.relative_to(TESTS).as_posix().startswith(SCOPE)]
    for item in inside:
        mark = item.get_closest_marker("host_only")
        cases = mark and mark.kwargs.get("cases")
        if mark and (not cases or item.callspec.id in cases):
            item.add_marker(pytest.mark.skip(reason=f"host only: {mark.args[0]}"))
    return inside, [i for i in items if i not in set(inside)]


class Everything:
    """Context in which every tensor that a test creates is on the device, and NumPy receives
    copies."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        import mindtorch.torch as mine
        numpy, from_numpy, device = mine.Tensor.numpy, mine.from_numpy, mine.device(self.name)
        self.before = numpy, from_numpy
        mine.Tensor.numpy = lambda t, *, force=False: numpy(t if t.requires_grad and not force else t.cpu(), force=force)
        mine.from_numpy = lambda a: from_numpy(a).to(device)
        mine.set_default_device(device)

    def __exit__(self, *exc):
        import mindtorch.torch as mine
        mine.set_default_device(None)
        mine.Tensor.numpy, mine.from_numpy = self.before
