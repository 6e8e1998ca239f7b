"""The older place of tenon.profiler."""

from __future__ import annotations

from tenon.profiler import profile, record_function

__all__ = ["profile", "record_function"]
