"""torch.export: programs as graphs with their weights
(https://pytorch.org/docs/stable/export.html)."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.export import _functional, exported_program, graph_signature, unflatten as _unflatten  # noqa: F401
from mindtorch.torch.export.dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims  # noqa: F401
from mindtorch.torch.export.exported_program import (ExportedProgram, ModuleCallEntry, ModuleCallSignature,  # noqa: F401
                                                     default_decompositions)
from mindtorch.torch.export.graph_signature import ExportBackwardSignature, ExportGraphSignature  # noqa: F401
from mindtorch.torch.export.unflatten import FlatArgsAdapter, UnflattenedModule, unflatten  # noqa: F401

__all__ = ["AdditionalInputs", "Constraint", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry",
           "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "default_decompositions", "dims", "draft_export", "export", "load",
           "register_dataclass", "save", "unflatten", "FlatArgsAdapter"]


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False):
    """Returns the ExportedProgram of mod(*args, **kwargs): the PyTorch functions that this call
    executes, as a graph.

    The module is run with the example inputs, and with other sizes for dynamic dimensions. Its
    in-place changes and random number use are undone. The module's mode, branches and Python
    scalars become constants of the program. The program is run as well, and must reproduce the
    module's values bit for bit.

      args            tuple of tensors, Python scalars, strings and None, nested in pytree
                      containers; kwargs likewise
      dynamic_shapes  dynamic dimensions: {argument: {axis: Dim}}, nested like the arguments
      strict          only selects the error raised for data-dependent branches

    UserError (torch._dynamo.exc) for invalid arguments, and for a dynamic dimension that the code
    specializes. GuardOnDataDependentSymNode (torch.fx.experimental.symbolic_shapes) if a tensor's
    values become Python values; with strict=True, Unsupported for branches on them.
    NotImplementedError if the size of a result depends on values.
    """
    from mindtorch.torch.export import _export
    return _export.export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict, preserve_module_call_signature=preserve_module_call_signature,
                          prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards)


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Writes a program to a path or file object, in mindtorch's own format: the graph as JSON, the
    tensors in the format of torch.save."""
    from mindtorch.torch.export import _files
    _files.save(ep, f, extra_files)


def load(f, *, extra_files=None, expected_opset_version=None):
    """Reads a program from a file written by `save`. No code from the file is executed.
    RuntimeError for other files."""
    from mindtorch.torch.export import _files
    return _files.load(f, extra_files)


def register_dataclass(cls, *, serialized_type_name=None):
    """Registers a dataclass as a pytree container for arguments and results."""
    from mindtorch.torch.utils import _pytree
    _pytree.register_dataclass(cls, serialized_type_name=serialized_type_name)


refuse(globals(), "use torch.export.export, which reports unsupported constructs", "export_for_training draft_export")
