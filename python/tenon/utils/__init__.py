"""Helpers around training: data, checkpoints, hooks."""

from typing import TYPE_CHECKING

from tenon._submodules import on_demand

if TYPE_CHECKING:
    from tenon.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]

on_demand(globals())
