"""torch.onnx.symbolic_opset13: translations, which refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "models are exported with MindSpore (mindspore.export writes MINDIR and ONNX)",
       "add sub mul div select squeeze unsqueeze reshape cast topk sort gather clamp floor "
       "index nonzero",
       "")
