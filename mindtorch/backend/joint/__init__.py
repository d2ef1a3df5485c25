"""Programs from captured calls: the executed kernels are recorded (recorder.py) and turned into
functions over arrays (source.py)."""
