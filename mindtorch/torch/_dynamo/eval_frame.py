"""torch._dynamo.eval_frame."""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.compiler import disable  # noqa: F401

refuse(globals(), "torch.compile gives the module itself, which runs eagerly", "", "OptimizedModule")
