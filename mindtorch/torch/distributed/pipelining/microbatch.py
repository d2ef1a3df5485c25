"""torch.distributed.pipelining.microbatch: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "pipeline parallelism is not offered; send tensors with torch.distributed.send and recv", "split_args_kwargs_into_chunks merge_chunks",
       "TensorChunkSpec")
