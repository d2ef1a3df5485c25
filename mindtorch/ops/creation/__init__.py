"""Ops that make tensors."""
