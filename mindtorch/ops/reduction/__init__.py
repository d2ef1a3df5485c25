"""Ops that reduce, scan, sort."""
