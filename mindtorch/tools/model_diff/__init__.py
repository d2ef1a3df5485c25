"""Comparison of a model under mindtorch and under PyTorch, or on two devices, layer by layer (`diff`,
`compare_layers`), and the recorder of activations that other tools use as well."""
