"""MindSpore calls of kernels, recorded and compiled as one MindSpore graph."""
