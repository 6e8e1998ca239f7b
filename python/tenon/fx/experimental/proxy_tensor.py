"""The tracer that records what operators see: there is none, so none is active."""

from __future__ import annotations


def get_proxy_mode() -> None:
    """The tracer that is recording."""
