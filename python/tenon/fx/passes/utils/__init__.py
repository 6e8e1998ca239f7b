"""Tools of passes."""

from tenon._submodules import on_demand

on_demand(globals())
