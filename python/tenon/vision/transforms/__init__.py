"""Transforms of pictures, as modules and (in `functional`) as functions."""

# ruff: noqa: F403
# No __all__: what asks for everything gets every transform.
from tenon.vision.transforms import functional as functional
from tenon.vision.transforms import v2 as v2
from tenon.vision.transforms._geometry import InterpolationMode as InterpolationMode
from tenon.vision.transforms.transforms import *
