"""Channels into pixels, and back."""

from tenon.nn.modules.vision import PixelShuffle, PixelUnshuffle

__all__ = ["PixelShuffle", "PixelUnshuffle"]
