"""torch.distributed.checkpoint: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "one process runs the program, torch.distributed.is_available() is False",
       "save load async_save save_state_dict load_state_dict",
       "FileSystemReader FileSystemWriter StorageReader StorageWriter LoadPlanner SavePlanner "
       "DefaultLoadPlanner DefaultSavePlanner Metadata")
