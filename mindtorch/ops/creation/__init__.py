"""Ops that create tensors."""
