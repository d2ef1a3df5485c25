"""torch.distributed.pipelining.schedules: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "pipeline parallelism is not offered; send tensors with torch.distributed.send and recv", "get_schedule_class",
       "ScheduleGPipe Schedule1F1B ScheduleInterleaved1F1B ScheduleLoopedBFS ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble PipelineScheduleSingle PipelineScheduleMulti")
