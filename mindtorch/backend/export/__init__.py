"""Graphs as MindIR and ONNX."""
