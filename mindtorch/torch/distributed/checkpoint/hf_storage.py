"""torch.distributed.checkpoint.hf_storage: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "checkpoints in Hugging Face's layout are not offered; use FileSystemReader and FileSystemWriter", "",
       "HuggingFaceStorageReader HuggingFaceStorageWriter")
