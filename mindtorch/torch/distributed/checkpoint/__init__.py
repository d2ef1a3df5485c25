"""Checkpoints written and read by many ranks together
(https://docs.pytorch.org/docs/stable/distributed.checkpoint.html).

The file format is PyTorch's, for both reading and writing.
"""
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.checkpoint import format_utils  # noqa: F401
from mindtorch.torch.distributed.checkpoint.api import CheckpointException  # noqa: F401
from mindtorch.torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner  # noqa: F401
from mindtorch.torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter  # noqa: F401
from mindtorch.torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter  # noqa: F401
from mindtorch.torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata,  # noqa: F401
                                                             TensorStorageMetadata)
from mindtorch.torch.distributed.checkpoint.planner import (LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner,  # noqa: F401
                                                            WriteItem)
from mindtorch.torch.distributed.checkpoint.state_dict_loader import load, load_state_dict  # noqa: F401
from mindtorch.torch.distributed.checkpoint.state_dict_saver import async_save, save, save_state_dict  # noqa: F401
from mindtorch.torch.distributed.checkpoint.storage import StorageReader, StorageWriter  # noqa: F401

refuse(globals(), "state_dicts of ShardedTensor are unsupported; use get_optimizer_state_dict and load",
       "load_sharded_optimizer_state_dict", "QuantizedHuggingFaceStorageReader")
