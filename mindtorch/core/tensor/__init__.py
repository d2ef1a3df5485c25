"""Tensor and what belongs to its memory: storage, strides, views, in-place writes, printing."""
