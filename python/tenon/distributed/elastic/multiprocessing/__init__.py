"""Processes of a launcher."""

from tenon._submodules import on_demand

on_demand(globals())
