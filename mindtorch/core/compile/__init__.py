"""Traces, deferred execution, replay and compiled graphs."""
