"""torch.distributed.fsdp.wrap: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "transformer_auto_wrap_policy size_based_auto_wrap_policy always_wrap_policy enable_wrap "
       "wrap lambda_auto_wrap_policy _or_policy",
       "ModuleWrapPolicy CustomPolicy _Policy")
