"""Ops that go element by element."""
