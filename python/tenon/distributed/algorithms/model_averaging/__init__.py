"""Averages of the parameters of all processes, now and then."""

from tenon.distributed.algorithms.model_averaging import averagers, utils

__all__ = ["averagers", "utils"]
