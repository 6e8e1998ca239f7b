"""What PyTorch's launcher shares with the programs that it starts."""

from tenon._submodules import on_demand

on_demand(globals())
