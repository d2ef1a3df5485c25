"""Devices, the selection of their kernels, random state."""
