"""Backends of `compile`, by PyTorch's places."""

from tenon._submodules import on_demand

on_demand(globals())
