"""Interoperation with MindSpore's autograd, Cells, functions and graph mode."""
