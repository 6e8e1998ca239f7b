"""The older place of `ao.quantization.qconfig`."""

from tenon.ao.quantization.qconfig import *  # noqa: F403
