"""The older place of `ao.quantization.quantize`."""

from tenon.ao.quantization.quantize import *  # noqa: F403
