"""tenon.signal: windows of signals."""

from tenon._submodules import on_demand
from tenon.signal import windows

__all__ = ["windows"]

on_demand(globals())
