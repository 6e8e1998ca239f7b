"""Channels in another order."""

from tenon.nn.modules.vision import ChannelShuffle

__all__ = ["ChannelShuffle"]
