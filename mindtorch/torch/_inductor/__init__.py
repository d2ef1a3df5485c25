"""torch._inductor: settings of a compiler that is not there."""
from mindtorch.torch._inductor import config  # noqa: F401
from mindtorch.torch._refusing import refuse

refuse(globals(), "there is no compiler; code runs eagerly", "compile aoti_compile_and_package aoti_load_package cudagraph_mark_step_begin")
