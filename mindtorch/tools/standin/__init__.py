"""CANN simulator: runs MindSpore's own Ascend plugin on a machine without an NPU, and logs,
computes and counts its kernel launches."""
