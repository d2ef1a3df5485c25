"""torch.distributed.pipelining: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

_REASON = "pipeline parallelism is not offered; send tensors with torch.distributed.send and recv"
refuse(globals(), _REASON, "pipeline build_stage pipe_split",
       "Pipe PipelineStage SplitPoint ScheduleGPipe Schedule1F1B ScheduleInterleaved1F1B ScheduleLoopedBFS ScheduleInterleavedZeroBubble "
       "ScheduleZBVZeroBubble ScheduleDualPipeV")
