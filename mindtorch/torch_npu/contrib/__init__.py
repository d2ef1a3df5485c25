"""torch_npu.contrib: additions beside torch's interface."""
