"""Export of graphs to MindIR and ONNX."""
