"""Modules of torch that are not there on purpose: what their import says (asked by the import hook for modules that it does not find)."""

_REASONS = {
    "it is a part of Triton's kernels for sparse tensors, which are not run here. torchao and its quantised layers need it: use models as they are, unquantised"
    ", and uninstall torchao where another library imports it because it is installed":
        "sparse._triton_ops sparse._triton_ops_meta",
    "quantised tensors and layers are not supported. What needs it (torchao among them) cannot run; use models as they are, unquantised":
        "ao.quantization ao.nn ao.ns nn.quantized nn.quantizable nn.qat nn.intrinsic",
    "packages of code and tensors are neither written nor read. Save the state dict (torch.save, torch.load), and ship the source beside it; "
    "torch.export.save keeps a program":
        "package",
    "it is a part of Inductor, torch's own compiler; torch.compile is another one here":
        "_inductor",
}
_WHY = {"torch." + name: reason for reason, names in _REASONS.items() for name in names.split()}


def why(name):
    """Why there is no such module, or None: one of these, or within one of these."""
    while name not in _WHY:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return _WHY[name]
