"""torch._inductor: the backend of torch.compile that puts C kernels in the place of ops (lowering.py)."""
from mindtorch.torch._inductor import config  # noqa: F401
from mindtorch.torch._refusing import refuse

refuse(globals(), "captured calls are no fx graphs, and nothing is compiled ahead of time", "compile aoti_compile_and_package aoti_load_package cudagraph_mark_step_begin")
