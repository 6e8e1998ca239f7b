"""Handles of registered hooks."""

from tenon._tape.hooks import BackwardHook, RemovableHandle

__all__ = ["BackwardHook", "RemovableHandle"]
