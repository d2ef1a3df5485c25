"""Torch modules that are deliberately unsupported, with the reasons that their import reports (used
by the import hook for modules that it does not find)."""

_REASONS = {
    "it belongs to Triton's kernels for sparse tensors, which mindtorch cannot run. torchao and its quantized layers need it: use unquantized models, and "
    "uninstall "
    "torchao if another library imports it merely because it is installed":
        "sparse._triton_ops sparse._triton_ops_meta",
    "quantized tensors and layers are not supported. Libraries that need this module, such as torchao, cannot run; use unquantized models":
        "ao.quantization ao.nn ao.ns nn.quantized nn.quantizable nn.qat nn.intrinsic",
    "packages of code and tensors are not supported. Save the state dict (torch.save, torch.load) and ship the source with it; "
    "torch.export.save saves a program":
        "package",
    "it belongs to Inductor, PyTorch's compiler; mindtorch's torch.compile uses a different one":
        "_inductor",
}
_WHY = {"torch." + name: reason for reason, names in _REASONS.items() for name in names.split()}


def why(name):
    """Returns the reason if the module or one of its parent packages is unsupported, else None."""
    while name not in _WHY:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return _WHY[name]
