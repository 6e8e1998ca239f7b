"""Passes as objects, and the order in which they run."""

from tenon._submodules import on_demand

on_demand(globals())
