"""torch.export: programs as graphs, with their weights (https://pytorch.org/docs/stable/export.html)."""
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
    """The ExportedProgram of mod(*args, **kwargs): the calls of torch functions that this one call makes, as a graph.

    The module is run with the example inputs (and with other sizes for what is to stay free); what it writes and draws is undone.  Its mode,
    branches and numbers become part of the program.  The program is run too, and has to give the module's values to the last bit.

    args            tuple of tensors, numbers, strings and None, nested in what torch.utils._pytree knows; kwargs likewise
    dynamic_shapes  sizes that stay free: {argument: {axis: Dim}}, nested as the arguments are
    strict          only chooses the error of code that branches on values

    UserError (torch._dynamo.exc) for what is given wrongly, and where a size cannot stay free; GuardOnDataDependentSymNode
    (torch.fx.experimental.symbolic_shapes), under strict=True Unsupported, where values become Python's; NotImplementedError where
    results' sizes depend on values.
    """
    from mindtorch.torch.export import _export
    return _export.export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict, preserve_module_call_signature=preserve_module_call_signature,
                          prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards)


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Writes a program to a path or file object, in a format of this package: its graph as JSON, its tensors as torch.save writes them."""
    from mindtorch.torch.export import _files
    _files.save(ep, f, extra_files)


def load(f, *, extra_files=None, expected_opset_version=None):
    """The program of a file that `save` wrote; nothing in a file is run.  RuntimeError for other files."""
    from mindtorch.torch.export import _files
    return _files.load(f, extra_files)


def register_dataclass(cls, *, serialized_type_name=None):
    """Makes a dataclass a container of arguments and results."""
    from mindtorch.torch.utils import _pytree
    _pytree.register_dataclass(cls, serialized_type_name=serialized_type_name)


refuse(globals(), "export() says what cannot be in a program", "export_for_training draft_export")
