"""The older place of tenon.profiler."""

from __future__ import annotations

from tenon.distributed._absent import absent
from tenon.profiler import EventList, profile, record_function

__all__ = ["EventList", "emit_nvtx", "profile", "record_function"]

emit_nvtx = absent("torch.autograd.profiler", "emit_nvtx", "cuda.nvtx marks ranges")
