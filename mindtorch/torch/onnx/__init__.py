"""torch.onnx: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.onnx import errors, symbolic_helper, symbolic_opset11  # noqa: F401


producer_name, producer_version = "pytorch", "2.13.0"
_symbolics = {}


def is_in_onnx_export():
    """False: nothing is exported."""
    return False


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Keeps the translation of an operator; ValueError for a name that is not "domain::name"."""
    domain, _, name = symbolic_name.partition("::")
    if not domain or not name:
        raise ValueError(f"Failed to register operator {symbolic_name}. The symbolic name must match the format domain::name")
    _symbolics[symbolic_name, opset_version] = symbolic_fn


refuse(globals(), "models are exported with MindSpore (mindspore.export writes MINDIR and ONNX)",
       "export dynamo_export unregister_custom_op_symbolic "
       "select_model_mode_for_export",
       "ExportOptions ONNXProgram OnnxExporterError JitScalarType")
