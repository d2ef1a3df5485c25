"""torch.distributed.checkpoint.hf_storage: placeholders that raise NotImplementedError."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "checkpoints in Hugging Face's layout are unsupported; use FileSystemReader and FileSystemWriter", "",
       "HuggingFaceStorageReader HuggingFaceStorageWriter")
