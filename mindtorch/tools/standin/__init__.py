"""A stand-in for CANN: MindSpore's own Ascend plugin on a machine without an NPU, its kernel launches logged, computed and counted."""
