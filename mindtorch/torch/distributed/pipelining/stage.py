"""torch.distributed.pipelining.stage: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "pipeline parallelism is not offered; send tensors with torch.distributed.send and recv", "build_stage",
       "PipelineStage")
