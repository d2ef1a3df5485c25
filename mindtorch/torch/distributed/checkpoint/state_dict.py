"""torch.distributed.checkpoint.state_dict: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
       "set_optimizer_state_dict set_state_dict",
       "StateDictOptions")
