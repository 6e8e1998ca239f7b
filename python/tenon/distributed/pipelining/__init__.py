"""Models whose layers lie in different processes."""

from tenon.distributed._absent import absent
from tenon.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)
from tenon.distributed.pipelining.stage import PipelineStage

_MODULE, _INSTEAD = "torch.distributed.pipelining", "PipelineStage takes layers cut by hand"
Pipe, SplitPoint = absent(_MODULE, "Pipe", _INSTEAD), absent(_MODULE, "SplitPoint", _INSTEAD)
pipeline, pipe_split = (
    absent(_MODULE, "pipeline", _INSTEAD),
    absent(_MODULE, "pipe_split", _INSTEAD),
)
build_stage = absent(_MODULE, "build_stage", _INSTEAD)
_OTHER = "ScheduleInterleaved1F1B is there"
ScheduleInterleavedZeroBubble = absent(_MODULE, "ScheduleInterleavedZeroBubble", _OTHER)
ScheduleZBVZeroBubble = absent(_MODULE, "ScheduleZBVZeroBubble", _OTHER)
ScheduleDualPipeV = absent(_MODULE, "ScheduleDualPipeV", _OTHER)

__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe",
    "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "pipe_split", "pipeline",
]  # fmt: skip
