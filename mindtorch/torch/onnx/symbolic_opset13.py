"""torch.onnx.symbolic_opset13: placeholders that raise NotImplementedError when called."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "torch.onnx.export does not use symbolic functions (docs/export.md)",
       "add sub mul div select squeeze unsqueeze reshape cast topk sort gather clamp floor "
       "index nonzero",
       "")
