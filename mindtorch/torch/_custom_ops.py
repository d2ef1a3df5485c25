"""torch._custom_ops: an older way to register operators; torch.library has the current one."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "use torch.library.custom_op", "custom_op impl impl_abstract impl_backward impl_save_for_backward")
