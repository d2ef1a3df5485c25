"""torch_npu.contrib.transfer_to_npu: scripts written for "cuda" run on the NPU.

Importing it does nothing: `cuda` is an alias of the npu device here, and backend "nccl" selects the
available backend.
"""
