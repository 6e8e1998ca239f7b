"""Distances of rows."""

from tenon.nn.modules.vision import CosineSimilarity, PairwiseDistance

__all__ = ["CosineSimilarity", "PairwiseDistance"]
