"""Averages of the parameters of all processes, now and then."""

from tenon._submodules import on_demand
from tenon.distributed.algorithms.model_averaging import (
    averagers,
    hierarchical_model_averager,
    utils,
)

__all__ = ["averagers", "hierarchical_model_averager", "utils"]

on_demand(globals())
