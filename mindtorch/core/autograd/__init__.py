"""Nodes, the backward engine, accumulation of gradients, forward mode, saved tensors."""
