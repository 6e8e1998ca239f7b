"""The older place of `ao.quantization.observer`."""

from tenon.ao.quantization.observer import *  # noqa: F403
