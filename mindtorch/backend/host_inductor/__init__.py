"""Programs from captured calls: the executed kernels are recorded (recording_device.py) and
turned into functions over arrays (codegen.py), with loops in C (fusion.py)."""
