"""Ops that read and write elements by index or mask."""
