"""On a machine without an npu no device is reported, and using one raises a clear error."""
import io
import warnings

import pytest
import torch as real

import mindtorch.torch as mt
from mindtorch.core.device import device_dispatch

pytestmark = pytest.mark.skipif("npu" in device_dispatch.DEVICES, reason="this process has an npu")


def test_no_npu_is_reported():
    for m in (mt.cuda, mt.npu):
        assert not m.is_available() and m.device_count() == 0 and m.memory_allocated() == 0 and not m.is_bf16_supported() and m.memory_stats() == {}
        m.empty_cache()
        m.reset_peak_memory_stats()
        with m.device(None), m.stream(None):
            pass
    assert not mt.accelerator.is_available() and mt.accelerator.current_accelerator() is None and mt.cuda.host_fallbacks() == {}
    assert mt._C._get_accelerator() == mt.device("cpu") and not mt.zeros(1).is_cuda and not mt.zeros(1).is_npu
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert not mt.amp.GradScaler().is_enabled()
        with mt.autocast("cuda"):
            assert mt.nn.Linear(2, 2)(mt.ones(1, 2)).dtype is mt.float32
    assert len(told) == 2


@pytest.mark.parametrize("use", [
    lambda: mt.zeros(1, device="npu"), lambda: mt.zeros(1).npu(), lambda: mt.zeros(1).cuda(), lambda: mt.zeros(1).to("cuda:0"), lambda: mt.nn.Linear(1, 1).cuda(),
    lambda: mt.device(0), mt.npu.current_device, mt.npu.Stream, mt.cuda.Event, mt.accelerator.synchronize, mt.cuda.synchronize, mt.cuda.mem_get_info,
    lambda: mt.cuda.FloatTensor(2), lambda: mt.set_default_device("npu"), lambda: mt.cuda.device(0).__enter__(), lambda: mt.UntypedStorage(2, device="npu")])
def test_using_an_absent_npu_raises(use):
    with pytest.raises(RuntimeError, match="does not exist here|Found no NVIDIA driver|when none is available"):
        use()


def test_loading_cuda_files_suggests_map_location():
    b = io.BytesIO()
    real.save(real.arange(4.), b, _use_new_zipfile_serialization=False)
    f = io.BytesIO(b.getvalue().replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device but torch.cuda.is_available\\(\\) is False.*map_location=torch.device"):
        mt.load(f)
    f.seek(0)
    assert mt.load(f, map_location="cpu").tolist() == [0, 1, 2, 3]
