"""What packages ask about PyTorch's tracers of tensors and sizes."""

from tenon._submodules import on_demand

on_demand(globals())
