"""Layers' ops."""
