"""Averages of the parameters of all processes, now and then."""

from tenon._submodules import on_demand
from tenon.distributed.algorithms.model_averaging import averagers, utils

__all__ = ["averagers", "utils"]

on_demand(globals())
