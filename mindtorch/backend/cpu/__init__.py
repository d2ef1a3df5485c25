"""Kernels over host arrays: NumPy, oneDNN, threads."""
