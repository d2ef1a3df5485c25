"""torch._inductor: the backend of torch.compile that replaces ops by C kernels (lowering.py)."""
from mindtorch.torch._inductor import config  # noqa: F401
from mindtorch.torch._refusing import refuse

refuse(globals(), "there are no fx graphs to compile and there is no ahead-of-time compilation", "compile aoti_compile_and_package aoti_load_package cudagraph_mark_step_begin")
