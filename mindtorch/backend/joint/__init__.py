"""One program of a captured call: what its kernels did, written down (recorder.py), as functions over arrays (source.py)."""
