"""PyTorch's compiler of kernels, which Tenon does not have: its settings are accepted."""

from tenon._submodules import on_demand

on_demand(globals())
