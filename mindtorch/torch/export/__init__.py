"""torch.export: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse


class _DimHint:
    """A wish about a dimension of an exported program."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"_DimHint({self.name})"


class Dim:
    """Name of a dynamic dimension, for annotations of programs that are never exported."""

    AUTO, DYNAMIC, STATIC = _DimHint("AUTO"), _DimHint("DYNAMIC"), _DimHint("STATIC")

    def __init__(self, name, *, min=None, max=None):
        self.__name__, self.min, self.max = name, min, max


def dims(*names, min=None, max=None):
    """Several Dims."""
    return tuple(Dim(n, min=min, max=max) for n in names)


refuse(globals(), "programs run eagerly; export a model with mindspore.export",
       "export export_for_training save load register_dataclass unflatten draft_export "
       "default_decompositions",
       "ExportedProgram ExportGraphSignature ModuleCallEntry ModuleCallSignature "
       "UnflattenedModule ShapesCollection")
