"""torch_npu.contrib.transfer_to_npu: scripts that say "cuda" run on the NPU.

Nothing has to be done for that: `cuda` is the npu device's other name, and backend "nccl" means the one that there is.
"""
