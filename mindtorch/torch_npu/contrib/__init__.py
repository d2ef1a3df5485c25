"""torch_npu.contrib: additions to PyTorch's interface."""
