"""torch.utils.backend_registration."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "the accelerator is MindSpore's", "rename_privateuse1_backend generate_methods_for_privateuse1_backend")
