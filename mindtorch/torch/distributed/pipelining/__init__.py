"""torch.distributed.pipelining: a model split into stages, one per process, and schedules that run
microbatches through them (GPipe, 1F1B)."""
from mindtorch.torch.distributed.pipelining._IR import Pipe, SplitPoint, pipe_split, pipeline
from mindtorch.torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from mindtorch.torch.distributed.pipelining.stage import PipelineStage, build_stage

__all__ = ["Pipe", "pipe_split", "SplitPoint", "pipeline", "PipelineStage", "build_stage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS",
           "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV"]
