"""torch._custom_ops: older API to register operators, superseded by torch.library."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "use torch.library.custom_op", "custom_op impl impl_abstract impl_backward impl_save_for_backward")
