"""Kernels' calls of MindSpore written down and compiled as one MindSpore graph."""
