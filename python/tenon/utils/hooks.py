"""Handles of registered hooks."""

from tenon._hooks import BackwardHook, RemovableHandle

__all__ = ["BackwardHook", "RemovableHandle"]
