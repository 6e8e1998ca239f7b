"""Planners, under the name of their module in PyTorch. A plan is settled by save and load."""

from __future__ import annotations

from tenon.distributed._absent import absent
from tenon.distributed.checkpoint.default_planner import LoadPlanner, SavePlanner

__all__ = ["LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner", "WriteItem"]

LoadPlan = absent(__name__, "LoadPlan")
ReadItem = absent(__name__, "ReadItem")
SavePlan = absent(__name__, "SavePlan")
WriteItem = absent(__name__, "WriteItem")
