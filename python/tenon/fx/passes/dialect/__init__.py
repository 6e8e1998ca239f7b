"""Passes over graphs of one kind of operators."""

from tenon._submodules import on_demand

on_demand(globals())
