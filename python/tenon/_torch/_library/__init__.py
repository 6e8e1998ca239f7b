"""Where PyTorch keeps the parts of its library of operators."""

from tenon._submodules import on_demand

on_demand(globals())
