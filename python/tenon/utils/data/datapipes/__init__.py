"""Pipes of data: datasets made of one another, each of which does one thing to what it is given."""

from tenon.utils.data.datapipes import datapipe, iter, map

__all__ = ["datapipe", "iter", "map"]
