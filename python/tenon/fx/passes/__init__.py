"""Passes over graphs."""

from tenon._submodules import on_demand

on_demand(globals())
