"""Passes that do not ask which operators a graph calls."""

from tenon._submodules import on_demand

on_demand(globals())
