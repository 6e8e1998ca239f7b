"""Transforms of pictures, as modules and (in `functional`) as functions."""

# ruff: noqa: F403
from tenon.vision.transforms import functional, v2
from tenon.vision.transforms._geometry import InterpolationMode
from tenon.vision.transforms.transforms import *

__all__ = ["InterpolationMode", "functional", "v2"]
